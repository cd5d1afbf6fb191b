//! Problems that pass: each is one Event, whichever of the log and the tracepoints tells it, and no condition.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tests_kernel::{
    agent::{Agent, Watch},
    cgroup::{Cgroup, Hierarchy},
    disk::Disk,
    filesystem::{Filesystem, Kind},
    metrics::Reading,
};

const PROMPT: Duration = Duration::from_secs(1);

/// The log's word and the tracepoint's are waited for up to a second.
const TOLD: Duration = Duration::from_secs(10);

/// An agent that has both, and one that has the tracepoints alone.
fn agents(node: &Filesystem) -> anyhow::Result<[Agent; 2]> {
    let both = Watch::over(node.mount_point(), "nodeward-test-nobody.service")?;
    let traced = Watch::over(node.mount_point(), "nodeward-test-nobody.service")?;
    traced.configure("kernelLog:\n  device: /nowhere/kmsg\n")?;
    Ok([both.start()?, traced.start()?])
}

#[test]
fn a_process_killed_for_want_of_memory_is_one_event_that_names_it() {
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let cgroup = Cgroup::new(Hierarchy::Memory, "nodeward-test-small.service").unwrap();
    cgroup.limit_memory(16 << 20).unwrap();
    let mut agents = agents(&node).unwrap();
    // Keeps all of an endless line.
    let mut greedy = Command::new("sh");
    greedy.args(["-c", "echo $$ > \"$0\" && exec tail /dev/zero"]).arg(cgroup.entrance()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut greedy = greedy.spawn().unwrap();
    let victim = format!("tail:{} ", greedy.id());
    assert!(!greedy.wait().unwrap().success());
    for agent in &mut agents {
        agent.wait_for_event("OOMKilling", &victim, TOLD).unwrap();
    }
    assert!(agents[0].events("OOMKilling")[0].contains("nodeward-test-small.service"), "{:?}", agents[0].events("OOMKilling"));
    for agent in &agents {
        assert_eq!(agent.events("OOMKilling").iter().filter(|event| event.contains(&victim)).count(), 1);
    }
}

#[test]
fn a_disk_that_cannot_be_read_is_an_event_that_names_it_and_no_condition() {
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let disk = Disk::new().unwrap();
    let mut agents = agents(&node).unwrap();
    disk.try_to_read(1).unwrap();
    for agent in &mut agents {
        agent.wait_for_event("IOError", disk.name(), TOLD).unwrap();
        assert_eq!(agent.times("ReadonlyFilesystem", "True"), 0);
    }
}

#[test]
fn a_storm_of_one_disk_is_held_back_and_counted_and_hides_no_other() {
    const STORM: u32 = 2000;
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let disk = Disk::new().unwrap();
    // With the log there would be as many lines again.
    let [_, mut agent] = agents(&node).unwrap();
    let accounted = |metrics: &Reading| {
        let read = metrics.value("nodeward_source_records_total{source=\"ebpf\"}");
        (read, read + metrics.value("nodeward_ebpf_records_held_back_total"))
    };
    let (_, before) = accounted(&agent.metrics().unwrap());
    disk.try_to_read(STORM).unwrap();
    node.break_ext4("nodeward test: in a storm").unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    agent.wait_for_event("IOError", disk.name(), TOLD).unwrap();
    let all = before + f64::from(STORM) + 1.0;
    let metrics = agent.wait_for_metrics("every error to be read or held back", TOLD, |metrics| accounted(metrics).1 >= all).unwrap();
    let (read, _) = accounted(&metrics);
    assert!(read < f64::from(STORM) / 2.0, "{read} of {STORM} came through");
    // Nobody wants to be told two thousand times.
    assert!(agent.events("IOError").len() < 50, "{}", agent.events("IOError").len());
}
