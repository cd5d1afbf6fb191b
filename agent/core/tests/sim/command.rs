//! The commands of scenario files: what they set on the simulated node, or hand to the core. See `scenarios/README.md`.

use std::{str::FromStr, time::Duration};

use agent_core::{
    BootTime, ConditionType, Detection, Device, DeviceNumber, Fact, Memory, Signal, Source, SourceState, Subject,
    mount::{Mount, SuperState},
    observation::{Probe, Refusal, TaskSeen},
    task::{Owner, Pod, Task, WaitsFor},
};

use super::Node;

/// Carries out one command.
pub(crate) fn run(node: &mut Node, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let rest = |from: usize| words.get(from..).unwrap_or_default().join(" ");
    match words[..] {
        ["start"] => node.start(Memory::default()),
        ["restart"] => node.restart(),
        ["wait"] => {}
        ["show", "looks"] => node.shows_looks = true,
        ["config", ref settings @ ..] => settings.iter().for_each(|setting| configure(node, setting)),
        ["mount", id, parent, device, point, kind, source, ref flags @ ..] => mount(node, [id, parent, device, point, kind, source], flags),
        ["umount", id] => node.table.mounts.retain(|mount| mount.id != number::<u64>(id)),
        ["fstab", point] => node.table.fstab.push(point.to_owned()),
        ["fstab-ro", point] => {
            node.table.fstab.push(point.to_owned());
            node.table.fstab_read_only.push(point.to_owned());
        }
        ["cmdline-ro"] => node.table.root_read_only = true,
        ["device", device, name] => node.table.device_names.push((device_number(device), name.to_owned())),
        ["pod", uid, name] => node.table.pods.push((uid.to_owned(), name.to_owned())),
        ["mounts"] => node.observe(Fact::Mounts(node.table.clone())),
        ["source", name, "up", ..] => {
            let degraded = if words.len() > 3 { vec![rest(3)] } else { Vec::new() };
            node.observe(Fact::Source { source: source(name), state: SourceState::Up { degraded } });
        }
        ["source", name, "down", ..] => node.observe(Fact::Source { source: source(name), state: SourceState::Down { why: rest(3) } }),
        ["source", name, "absent", ..] => node.observe(Fact::Source { source: source(name), state: SourceState::Absent { why: rest(3) } }),
        ["caught-up", name] => node.observe(Fact::CaughtUp(source(name))),
        ["lost", name, count] => node.observe(Fact::Lost { source: source(name), count: number(count) }),
        ["log", sequence, at, ..] if at.starts_with('@') => {
            node.log_line(time(at.trim_start_matches('@')), number(sequence), &rest(3));
        }
        ["log", sequence, ..] => node.log_line(node.now, number(sequence), &rest(2)),
        ["trace", "hung", pid, comm] => trace(node, Detection::HungTask, task_of(pid, comm), "sched_process_hang"),
        ["trace", "oom", pid, comm] => trace(node, Detection::OomKill, task_of(pid, comm), "mark_victim"),
        ["trace", "rcu"] => trace(node, Detection::RcuStall, Subject::Machine, "rcu_preempt SelfDetected"),
        ["trace", "ext4-error", device] => trace(node, Detection::Ext4Error, device_of(device), "ext4_error in f:1"),
        ["trace", "xfs-shutdown", device] => trace(node, Detection::XfsShutdown, device_of(device), "xfs_force_shutdown flags 0x2"),
        ["trace", "block-error", device] => trace(node, Detection::BlockIoError, device_of(device), "block_rq_error sector 8"),
        ["fs", point, ref state @ ..] => node.set_filesystem(point, probe(state)),
        ["task", pid, "gone"] => set_task(node, pid, TaskSeen::Gone),
        ["task", pid, "unreadable", ..] => set_task(node, pid, TaskSeen::Unreadable(rest(3))),
        ["task", pid, "elsewhere"] => set_task(node, pid, TaskSeen::OtherNamespace),
        ["task", pid, state @ ("S" | "R" | "D"), comm, owner, waits, ref more @ ..] => {
            let given = |key: &str| more.iter().find_map(|m| m.strip_prefix(key));
            let task = Task {
                pid: number(pid),
                tgid: number(given("tgid=").unwrap_or(pid)),
                start_ticks: number(given("start=").unwrap_or("100")),
                comm: comm.to_owned(),
                state: if state == "D" { 'D' } else { 'S' },
                switches: number(given("switches=").unwrap_or("7")),
                owner: owner_of(owner),
                waits_for: waits_for(waits),
            };
            set_task(node, pid, TaskSeen::There(Box::new(task)));
        }
        _ => panic!("no such command: {command}"),
    }
}

fn configure(node: &mut Node, setting: &str) {
    let (key, value) = setting.split_once('=').expect("KEY=VALUE");
    let span = || Duration::from_secs(number(value));
    match key {
        "unknownAfter" => node.config.unknown_after = span(),
        "stalledAfter" => node.config.stalled_after = span(),
        "probeInterval" => node.config.probe_interval = span(),
        "lookback" => node.config.lookback = span(),
        "eventRefill" => node.config.event_refill = span(),
        "eventBurst" => node.config.event_burst = number(value),
        "manyHung" => node.config.many_hung = number(value),
        "paths" => node.config.node_paths = value.split(',').map(str::to_owned).collect(),
        "enabled" => node.config.enabled = value.split(',').filter_map(ConditionType::from_name).collect(),
        _ => panic!("no such setting: {key}"),
    }
}

fn mount(node: &mut Node, [id, parent, device, point, kind, source]: [&str; 6], flags: &[&str]) {
    let super_state = match flags.iter().find(|flag| **flag != "ro") {
        None => SuperState::ReadWrite,
        Some(&"super-ro") => SuperState::ReadOnly,
        Some(&"emergency") => SuperState::Emergency,
        Some(&"shutdown") => SuperState::Shutdown,
        Some(other) => panic!("no such flag: {other}"),
    };
    let mount = Mount {
        id: number(id),
        parent: number(parent),
        device: device_number(device),
        root: "/".to_owned(),
        mount_point: point.to_owned(),
        read_only: flags.contains(&"ro"),
        fs_type: kind.to_owned(),
        source: source.to_owned(),
        super_state,
    };
    // A remount keeps the place in the table.
    match node.table.mounts.iter_mut().find(|known| known.id == mount.id) {
        Some(known) => *known = mount,
        None => node.table.mounts.push(mount),
    }
}

fn trace(node: &mut Node, detection: Detection, subject: Subject, detail: &str) {
    let signal = Signal { detection, subject, detail: detail.to_owned(), source: Source::Ebpf, sequence: None };
    node.observe(Fact::Signal(signal));
}

fn set_task(node: &mut Node, pid: &str, seen: TaskSeen) {
    node.tasks.insert(number(pid), seen);
}

fn task_of(pid: &str, comm: &str) -> Subject {
    Subject::Task { pid: number(pid), comm: comm.to_owned() }
}

fn device_of(device: &str) -> Subject {
    Subject::Device(Device { name: None, number: Some(device_number(device)) })
}

fn probe(state: &[&str]) -> Probe {
    match state {
        ["writable"] => Probe::Writable,
        ["readonly"] => Probe::Refused(Refusal::ReadOnly),
        ["io"] => Probe::Refused(Refusal::Io),
        ["unclean"] => Probe::Refused(Refusal::Unclean),
        ["shutdown"] => Probe::Refused(Refusal::Shutdown),
        ["blocked"] => Probe::Blocked,
        ["failed", errno] => Probe::Failed(number(errno)),
        other => panic!("no such state: {other:?}"),
    }
}

fn owner_of(owner: &str) -> Owner {
    let pod = |rest: &str, is_static| {
        let (uid, name) = rest.split_once(':').expect("UID:NAME");
        Owner::Pod(Pod { uid: uid.to_owned(), name: Some(name.to_owned()), is_static })
    };
    match owner.split_once(':') {
        None if owner == "init" => Owner::Init,
        None if owner == "kernel" => Owner::Kernel,
        Some(("unit", unit)) => Owner::Unit(unit.to_owned()),
        Some(("pod", rest)) => pod(rest, false),
        Some(("static", rest)) => pod(rest, true),
        Some(("other", cgroup)) => Owner::Other(cgroup.to_owned()),
        _ => panic!("no such owner: {owner}"),
    }
}

fn waits_for(what: &str) -> WaitsFor {
    match what {
        "network" => WaitsFor::Network,
        "fuse" => WaitsFor::Fuse,
        "kernel" => WaitsFor::Kernel,
        "unknown" => WaitsFor::Unknown,
        _ => {
            let [_, major, minor, point] = what.split(':').collect::<Vec<_>>()[..] else { panic!("fs:MAJOR:MINOR:POINT: {what}") };
            let device = device_number(&format!("{major}:{minor}"));
            WaitsFor::Filesystem { device, mount_point: point.to_owned() }
        }
    }
}

fn source(name: &str) -> Source {
    Source::ALL.into_iter().find(|source| source.as_str() == name).unwrap_or_else(|| panic!("no such source: {name}"))
}

fn device_number(text: &str) -> DeviceNumber {
    let (major, minor) = text.split_once(':').expect("MAJ:MIN");
    DeviceNumber { major: number(major), minor: number(minor) }
}

fn number<N: FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("a number: {text}"))
}

/// Seconds, with fractions.
pub(crate) fn time(text: &str) -> BootTime {
    BootTime::after_boot(Duration::from_secs_f64(text.parse().unwrap_or_else(|_| panic!("a time: {text}"))))
}
