//! Laws of the core on any history: of ticks, restarts, order and volume.

mod sim;

use std::{collections::BTreeMap, time::Duration};

use agent_core::{
    BootTime, ConditionType, Detection, Device, DeviceNumber, Effect, Event, Fact, Look, Memory, Signal, Source, Status, Subject,
    observation::{Probe, Refusal},
};
use proptest::prelude::*;
use sim::{Node, command};

/// After this long without anything new, everything has settled.
const QUIET: Duration = Duration::from_secs(700);

/// A node with two filesystems of its own and one of a pod, up and caught up.
fn started() -> Node {
    let mut node = Node::default();
    node.config.event_burst = 100_000;
    for line in [
        "mount 1 0 8:1 / ext4 /dev/sda1",
        "mount 2 1 8:2 /var ext4 /dev/sda2",
        "mount 3 1 8:49 /var/lib/kubelet/pods/62015ce8-a46f-4b0e-a5a1-3082235c62dd/volumes/x/m ext4 /dev/sdd1",
        "device 8:1 sda1",
        "device 8:2 sda2",
        "device 8:49 sdd1",
        "start",
    ] {
        command::run(&mut node, line);
    }
    hand_over(&mut node, &[]);
    node
}

/// What the sources hand over after a start: how they are, the mounts, the log so far.
fn hand_over(node: &mut Node, log: &[(BootTime, u64, String)]) {
    command::run(node, "source kmsg up");
    command::run(node, "source ebpf up");
    command::run(node, "source mounts up");
    command::run(node, "mounts");
    for (at, sequence, text) in log {
        node.log_line(*at, *sequence, text);
    }
    command::run(node, "caught-up kmsg");
}

/// One thing that happens, some time after the one before.
#[derive(Clone, Debug)]
struct Step {
    after_ms: u64,
    what: String,
}

fn step(after_ms: impl Strategy<Value = u64>, what: impl Strategy<Value = String>) -> impl Strategy<Value = Step> {
    (after_ms, what).prop_map(|(after_ms, what)| Step { after_ms, what })
}

/// A change of what looks find, or of the mounts.
fn change() -> impl Strategy<Value = String> {
    let point = prop::sample::select(vec!["/", "/var"]);
    let state = prop::sample::select(vec!["writable", "readonly", "io", "blocked", "failed 24"]);
    let pid = 100_u32..108;
    let owner = prop::sample::select(vec!["unit:kubelet.service", "unit:a.service", "unit:b.service", "kernel", "init"]);
    let waits = prop::sample::select(vec!["kernel", "network", "fs:8:2:/var", "unknown"]);
    prop_oneof![
        3 => (point, state).prop_map(|(point, state)| format!("fs {point} {state}")),
        3 => (pid.clone(), owner, waits, 0..3_u32).prop_map(|(pid, owner, waits, n)| format!("task {pid} D app {owner} {waits} switches={n}")),
        1 => pid.clone().prop_map(|pid| format!("task {pid} gone")),
        1 => pid.prop_map(|pid| format!("task {pid} unreadable no answer")),
        1 => prop::sample::select(vec!["mount 2 1 8:2 /var ext4 /dev/sda2 ro", "mount 2 1 8:2 /var ext4 /dev/sda2", "umount 2", "mounts"]).prop_map(str::to_owned),
    ]
}

/// A report of the kernel; `log` lines get their numbers when they happen.
fn signal() -> impl Strategy<Value = String> {
    let device = prop::sample::select(vec![("8:1", "sda1"), ("8:2", "sda2"), ("8:49", "sdd1"), ("8:99", "sdz")]);
    prop_oneof![
        device.clone().prop_map(|(number, _)| format!("trace ext4-error {number}")),
        device.clone().prop_map(|(_, name)| format!("log EXT4-fs error (device {name}): f:1: comm x: y")),
        device.prop_map(|(_, name)| format!("log I/O error, dev {name}, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0")),
        (100_u32..108).prop_map(|pid| format!("trace hung {pid} app")),
        (100_u32..108).prop_map(|pid| format!("log INFO: task app:{pid} blocked for more than 120 seconds.")),
        (200_u32..204).prop_map(|pid| format!("trace oom {pid} app")),
        (200_u32..204).prop_map(|pid| format!("log Killed process {pid} (app) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:1kB")),
        Just("trace rcu".to_owned()),
        Just("log Future hung task reports are suppressed, see sysctl kernel.hung_task_warnings".to_owned()),
    ]
}

fn source_change() -> impl Strategy<Value = String> {
    let source = prop::sample::select(vec!["kmsg", "ebpf", "mounts"]);
    let state = prop::sample::select(vec!["up", "down broken", "absent none"]);
    prop_oneof![(source, state).prop_map(|(source, state)| format!("source {source} {state}")), Just("lost ebpf 5".to_owned())]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let after = prop_oneof![Just(0_u64), 0..50_u64, 0..3000_u64, 0..60_000_u64];
    prop::collection::vec(step(after, prop_oneof![4 => change(), 5 => signal(), 1 => source_change()]), 1..30)
}

/// Plays a history; log lines are numbered in order and kept for the next start.
struct Player {
    node: Node,
    log: Vec<(BootTime, u64, String)>,
}

impl Player {
    fn new(node: Node) -> Self {
        Self { node, log: Vec::new() }
    }

    fn play(&mut self, step: &Step) {
        self.wait(Duration::from_millis(step.after_ms));
        match step.what.strip_prefix("log ") {
            Some(text) => {
                let (at, sequence) = (self.node.now, self.log.len() as u64);
                self.log.push((at, sequence, text.to_owned()));
                self.node.log_line(at, sequence, text);
            }
            None => command::run(&mut self.node, &step.what),
        }
    }

    fn wait(&mut self, time: Duration) {
        let to = self.node.now + time;
        self.node.advance(to);
    }

    fn restart(&mut self) {
        self.node.restart();
        let log = self.log.clone();
        hand_over(&mut self.node, &log);
    }

    /// Events about passing problems, by reason.
    fn told(&self) -> BTreeMap<String, usize> {
        let mut told = BTreeMap::new();
        for event in self.node.effects.iter().filter_map(|(_, effect)| passing(effect)) {
            *told.entry(event.reason.clone()).or_default() += 1;
        }
        told
    }

    fn counted(&self) -> BTreeMap<&'static str, u64> {
        let mut counted = BTreeMap::new();
        for (_, effect) in &self.node.effects {
            if let Effect::Count { reason, by } = effect {
                *counted.entry(*reason).or_default() += by;
            }
        }
        counted
    }

    /// Type, status, reason and transition time of each condition.
    fn held(&self) -> Vec<(ConditionType, Status, String, BootTime)> {
        let conditions = self.node.core.as_ref().map(agent_core::Core::conditions).unwrap_or_default();
        let mut held: Vec<_> = conditions.iter().map(|c| (c.kind, c.status, c.reason.clone(), c.since)).collect();
        held.sort_by_key(|(kind, ..)| *kind);
        held
    }
}

fn passing(effect: &Effect) -> Option<&Event> {
    match effect {
        Effect::Event(event) => event.condition.is_none().then_some(event),
        Effect::Condition(_) | Effect::Count { .. } | Effect::Stall { .. } | Effect::VolumeFault { .. } | Effect::Look(_) => None,
    }
}

/// A fault that is seen by tracepoint, log or both: its steps, less than the time apart within which they are one.
fn incident() -> impl Strategy<Value = Vec<Step>> {
    let ext4 = (
        prop::sample::select(vec!["fs /var readonly", "fs /var writable"]),
        prop::sample::select(vec![("8:2", "sda2"), ("8:49", "sdd1"), ("8:99", "sdz")]),
    );
    let owner = prop::sample::select(vec![
        "gone",
        "D app unit:kubelet.service kernel",
        "D app unit:a.service kernel",
        "D app unit:b.service kernel",
    ]);
    let what = prop_oneof![
        ext4.prop_map(|(state, (number, name))| (
            state.to_owned(),
            format!("trace ext4-error {number}"),
            format!("log EXT4-fs error (device {name}): f:1: comm x: y")
        )),
        (100_u32..108, owner).prop_map(|(pid, state)| (
            format!("task {pid} {state}"),
            format!("trace hung {pid} app"),
            format!("log INFO: task app:{pid} blocked for more than 120 seconds.")
        )),
        (200_u32..204).prop_map(|pid| (
            "wait".to_owned(),
            format!("trace oom {pid} app"),
            format!("log Killed process {pid} (app) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:1kB")
        )),
    ];
    (what, any::<bool>(), 2..900_u64, 25_000..60_000_u64).prop_map(|((state, trace, log), trace_first, gap, before)| {
        let (one, other) = if trace_first { (trace, log) } else { (log, trace) };
        let step = |after_ms, what: String| Step { after_ms, what };
        // What is so has been so for two looks when it is reported, and stays so until what was reported before has been looked at.
        vec![step(2000, state), step(before, one), step(gap, other)]
    })
}

proptest! {
    // Half as many cases as usual, since each is a history of an hour; `PROPTEST_CASES` asks for more. A failure prints its history.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_often_the_core_is_ticked_changes_nothing(history in history(), every_ms in 40..2000_u64) {
        let mut plain = Player::new(started());
        let mut ticked = Player::new(started());
        ticked.node.needless_ticks = Some(Duration::from_millis(every_ms));
        for step in &history {
            plain.play(step);
            ticked.play(step);
        }
        for player in [&mut plain, &mut ticked] {
            player.wait(Duration::from_secs(330));
        }
        let different = plain.node.effects.iter().zip(&ticked.node.effects).find(|(plain, ticked)| plain != ticked);
        prop_assert_eq!(different, None);
        prop_assert_eq!(plain.node.effects.len(), ticked.node.effects.len());
    }

    #[test]
    fn a_condition_never_flaps_faster_than_it_settles(history in history()) {
        let mut player = Player::new(started());
        for step in &history {
            player.play(step);
        }
        player.wait(QUIET);
        let mut last: BTreeMap<ConditionType, (Status, BootTime)> = BTreeMap::new();
        for (at, effect) in &player.node.effects {
            if let Effect::Condition(condition) = effect {
                if let Some((status, raised)) = last.get(&condition.kind)
                    && (*status, condition.status) == (Status::True, Status::False)
                {
                    prop_assert!(at.since(*raised) >= Duration::from_secs(2), "{} after {:?}", condition.kind, at.since(*raised));
                }
                if last.get(&condition.kind).is_none_or(|(status, _)| *status != condition.status) {
                    last.insert(condition.kind, (condition.status, *at));
                }
            }
        }
    }

    #[test]
    fn a_transition_time_changes_only_with_the_status_and_never_goes_back(history in history(), restart_at in 0..30_usize) {
        let mut player = Player::new(started());
        for (i, step) in history.iter().enumerate() {
            if i == restart_at {
                player.restart();
            }
            player.play(step);
        }
        player.wait(QUIET);
        let mut last: BTreeMap<ConditionType, (Status, BootTime)> = BTreeMap::new();
        for (at, effect) in &player.node.effects {
            if let Effect::Condition(condition) = effect {
                prop_assert!(condition.since <= *at);
                match last.insert(condition.kind, (condition.status, condition.since)) {
                    Some((status, since)) if status == condition.status => prop_assert_eq!(since, condition.since),
                    Some((_, since)) => prop_assert!(condition.since > since),
                    None => {}
                }
            }
        }
    }

    #[test]
    fn a_restart_at_any_point_changes_no_condition_and_tells_nothing_again(
        incidents in prop::collection::vec(incident(), 1..8), restart_at in 0..24_usize, before_ms in 0..900_u64,
    ) {
        let mut plain = Player::new(started());
        let mut restarted = Player::new(started());
        for (i, step) in incidents.iter().flatten().enumerate() {
            if i == restart_at {
                restarted.wait(Duration::from_millis(before_ms.min(step.after_ms)));
                restarted.restart();
                let rest = Step { after_ms: step.after_ms.saturating_sub(before_ms), what: step.what.clone() };
                restarted.play(&rest);
            } else {
                restarted.play(step);
            }
            plain.play(step);
        }
        plain.wait(QUIET);
        restarted.wait(QUIET);
        prop_assert_eq!(plain.node.conditions(), restarted.node.conditions());
        prop_assert_eq!(plain.told(), restarted.told());
    }

    #[test]
    fn a_restart_while_nothing_changes_keeps_every_transition_time(history in history()) {
        let mut player = Player::new(started());
        // Of a filesystem that refused writes and then gave no answer, a restart knows only that. Beside another one whose probe fails, the
        // condition turns from True to Unknown then: the one case in which a restart shows.
        for step in history.iter().filter(|step| !step.what.ends_with("failed 24")) {
            player.play(step);
        }
        hand_over(&mut player.node, &[]);
        // The kernel reports whatever still hangs.
        player.wait(Duration::from_secs(11));
        for pid in 100..108 {
            command::run(&mut player.node, &format!("trace hung {pid} app"));
        }
        player.wait(QUIET);
        let before = player.held();
        player.restart();
        prop_assert_eq!(&before, &player.held(), "at once");
        player.wait(QUIET);
        prop_assert_eq!(&before, &player.held(), "after the looks");
    }

    #[test]
    fn trace_and_log_of_one_incident_come_to_the_same_in_either_order(incidents in prop::collection::vec(incident(), 1..8)) {
        let mut one = Player::new(started());
        let mut other = Player::new(started());
        for incident in &incidents {
            let [state, first, second] = &incident[..] else { unreachable!("an incident has three steps") };
            for step in [state, first, second] {
                one.play(step);
            }
            let swapped = [
                state.clone(),
                Step { after_ms: first.after_ms, what: second.what.clone() },
                Step { after_ms: second.after_ms, what: first.what.clone() },
            ];
            for step in &swapped {
                other.play(step);
            }
        }
        one.wait(QUIET);
        other.wait(QUIET);
        prop_assert_eq!(one.node.conditions(), other.node.conditions());
        prop_assert_eq!(one.counted(), other.counted());
        prop_assert_eq!(one.told(), other.told());
    }
}

#[test]
fn a_storm_of_distinct_tasks_and_devices_is_bounded() {
    let mut node = started();
    let count = 3_000_u32;
    let mut looks = 0;
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for i in 0..count {
        command::run(&mut node, &format!("task {} D app unit:u{i}.service network", 1000 + i));
        for (detection, subject) in [
            (Detection::HungTask, Subject::Task { pid: 1000 + i, comm: format!("t{i}") }),
            (Detection::OomKill, Subject::Task { pid: 1000 + i, comm: format!("t{i}") }),
            (
                Detection::Ext4Error,
                Subject::Device(Device { name: Some(format!("sd{i}")), number: Some(DeviceNumber { major: 300, minor: i }) }),
            ),
        ] {
            let signal = Signal { detection, subject, detail: "x".repeat(512), source: Source::Ebpf, sequence: None };
            node.observe(Fact::Signal(signal));
        }
        let now = node.now + Duration::from_micros(100);
        node.advance(now);
        for (_, effect) in node.effects.drain(..) {
            match effect {
                Effect::Look(Look::Task { .. }) => looks += 1,
                Effect::Count { reason, by } => *counted.entry(reason).or_default() += by,
                Effect::Look(Look::Filesystem { .. })
                | Effect::Condition(_)
                | Effect::Event(_)
                | Effect::Stall { .. }
                | Effect::VolumeFault { .. } => {}
            }
        }
        node.lines.clear();
    }
    let memory = node.core.as_ref().map(|core| serde_json::to_string(core.memory()).unwrap()).unwrap();
    assert!(memory.len() < 128 * 1024, "{} bytes are remembered", memory.len());
    let counted = |reason| counted.get(reason).copied().unwrap_or_default();
    assert_eq!((counted("TaskHung"), counted("HungTaskNotLookedAt"), counted("Ext4Error")), (3000, 3000 - 512, 3000));
    assert!(looks <= 512, "{looks} looks in less than a second");
}

#[test]
fn a_storm_of_hints_is_no_storm_of_probes() {
    let mut node = started();
    for _ in 0..10_000 {
        command::run(&mut node, "trace ext4-error 8:2");
        let now = node.now + Duration::from_millis(1);
        node.advance(now);
    }
    let probes = node.effects.iter().filter(|(_, effect)| matches!(effect, Effect::Look(Look::Filesystem { .. }))).count();
    assert!((20..=150).contains(&probes), "{probes} probes in ten seconds");
}

#[test]
fn a_fault_that_comes_late_in_a_series_of_hints_is_still_seen_within_a_second() {
    for late_ms in (0..6000).step_by(37) {
        let mut node = started();
        command::run(&mut node, "trace ext4-error 8:2");
        let fault = node.now + Duration::from_millis(late_ms);
        node.advance(fault);
        node.set_filesystem("/var", Probe::Refused(Refusal::ReadOnly));
        command::run(&mut node, "trace ext4-error 8:2");
        node.advance(fault + Duration::from_secs(1));
        let conditions = node.conditions();
        assert!(conditions.contains(&"ReadonlyFilesystem True FilesystemIsReadOnly".to_owned()), "{late_ms} ms: {conditions:?}");
    }
}

#[test]
fn what_another_boot_remembered_is_not_needed_to_start() {
    let mut node = started();
    node.start(Memory::default());
    assert!(node.conditions().is_empty());
}
