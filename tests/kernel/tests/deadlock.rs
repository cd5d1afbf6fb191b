//! Tasks that really hang, and which of them are a deadlock of the node.

use std::time::Duration;

use tests_kernel::{
    agent::Watch,
    cgroup::{self, Cgroup, Hierarchy},
    filesystem::{Filesystem, Kind},
    frozen::Frozen,
    metrics::Reading,
    sysctl::Sysctl,
};

/// The kernel looks every 2 s, and reports a task that has not run for longer than that.
const TIMEOUT: &str = "2";
const REPORTED: Duration = Duration::from_secs(30);

/// The agent looks at a hung task every 10 s.
const CLEAR: Duration = Duration::from_secs(30);

/// The hierarchies of this machine by which a task can be told to be a unit's.
fn hierarchies() -> Vec<Hierarchy> {
    [Hierarchy::Unified, Hierarchy::Systemd].into_iter().filter(|hierarchy| cgroup::has(*hierarchy)).collect()
}

/// How many reports of tracepoints the agent has read.
fn traced(metrics: &Reading) -> f64 {
    metrics.value("nodeward_source_records_total{source=\"ebpf\"}")
}

#[test]
fn a_hung_task_of_a_critical_unit_is_a_deadlock_until_it_runs_also_when_the_log_is_silent() {
    const UNIT: &str = "nodeward-test-critical.service";
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let other = Filesystem::new(Kind::Ext4).unwrap();
    let cgroups: Vec<_> = hierarchies().into_iter().map(|hierarchy| Cgroup::new(hierarchy, UNIT).unwrap()).collect();
    assert!(!cgroups.is_empty());
    let _timeout = Sysctl::set("kernel.hung_task_timeout_secs", TIMEOUT).unwrap();
    let _silent = Sysctl::set("kernel.hung_task_warnings", "0").unwrap();
    let mut agent = Watch::over(node.mount_point(), UNIT).unwrap().start().unwrap();
    assert_eq!(agent.condition("KernelDeadlock").unwrap().status, "False");

    let mut frozen = Frozen::new(&other).unwrap();
    let pids: Vec<_> = cgroups.iter().map(|cgroup| frozen.hang(cgroup).unwrap()).collect();
    let deadlock = agent.wait_for("KernelDeadlock", "True", REPORTED).unwrap();
    assert_eq!(deadlock.reason, "CriticalTaskHung");
    for pid in pids {
        // The second may be reported at the kernel's next look.
        let message = agent.wait_for_message("KernelDeadlock", &format!("touch:{pid} is hung"), REPORTED).unwrap();
        assert!(message.contains(UNIT), "{message}");
        assert!(message.contains(other.mount_point().to_str().unwrap()), "{message}");
    }
    assert!(traced(&agent.metrics().unwrap()) >= 1.0);
    assert_eq!(agent.times("KernelDeadlock", "False"), 1, "it was false before, and not while the task hangs");

    frozen.thaw().unwrap();
    agent.wait_for("KernelDeadlock", "False", CLEAR).unwrap();
    assert_eq!(agent.condition("ReadonlyFilesystem").unwrap().status, "False");
}

#[test]
fn a_hung_task_that_is_not_critical_is_an_event_and_no_condition() {
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let other = Filesystem::new(Kind::Ext4).unwrap();
    let cgroup = Cgroup::new(hierarchies()[0], "nodeward-test-batch.service").unwrap();
    let _timeout = Sysctl::set("kernel.hung_task_timeout_secs", TIMEOUT).unwrap();
    let _never_silent = Sysctl::set("kernel.hung_task_warnings", "-1").unwrap();
    let mut agent = Watch::over(node.mount_point(), "nodeward-test-nobody.service").unwrap().start().unwrap();

    let mut frozen = Frozen::new(&other).unwrap();
    let pid = frozen.hang(&cgroup).unwrap();
    let event = agent.wait_for_event("TaskHung", &format!("touch:{pid} "), REPORTED).unwrap();
    assert!(event.contains("nodeward-test-batch.service"), "{event}");
    // The kernel reports it again and again; that is one Event, and still no condition.
    let reports = traced(&agent.metrics().unwrap());
    agent.wait_for_metrics("two more reports", REPORTED, |metrics| traced(metrics) >= reports + 2.0).unwrap();
    assert_eq!(agent.events("TaskHung").iter().filter(|event| event.contains(&format!("touch:{pid} "))).count(), 1);
    assert_eq!(agent.times("KernelDeadlock", "True"), 0);
    frozen.thaw().unwrap();
}
