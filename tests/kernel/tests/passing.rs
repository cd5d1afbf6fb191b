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
};

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
    disk.read().unwrap_err();
    for agent in &mut agents {
        agent.wait_for_event("IOError", disk.name(), TOLD).unwrap();
        assert_eq!(agent.times("ReadonlyFilesystem", "True"), 0);
    }
}
