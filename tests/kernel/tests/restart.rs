//! An agent that is killed while a fault holds, and started again: nothing is forgotten, nothing is told twice.

use std::time::Duration;

use tests_kernel::{
    agent::Watch,
    cgroup::{self, Cgroup, Hierarchy},
    filesystem::{Filesystem, Kind},
    frozen::Frozen,
    sysctl::Sysctl,
};

const PROMPT: Duration = Duration::from_secs(1);
const REPORTED: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);

#[test]
fn a_read_only_filesystem_stays_true_since_when_it_was() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let watch = Watch::over(filesystem.mount_point(), "nodeward-test-nobody.service").unwrap();
    let mut agent = watch.start().unwrap();
    filesystem.break_ext4("nodeward test: killed meanwhile").unwrap();
    let before = agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    agent.wait_for_event("Ext4Error", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();
    agent.kill();

    let mut agent = watch.start().unwrap();
    let after = agent.condition("ReadonlyFilesystem").unwrap();
    assert_eq!((after.status.as_str(), after.since_boot_seconds), ("True", before.since_boot_seconds), "{after:?}");
    assert_eq!(agent.times("ReadonlyFilesystem", "False") + agent.times("ReadonlyFilesystem", "Unknown"), 0);
    assert_eq!(agent.events("Ext4Error"), [""; 0], "it has been told");

    filesystem.unmount().unwrap();
    filesystem.mend().unwrap();
    filesystem.mount().unwrap();
    agent.wait_for("ReadonlyFilesystem", "False", CLEAR).unwrap();
}

#[test]
fn a_deadlock_stays_true_since_when_it_was_though_the_log_is_silent() {
    const UNIT: &str = "nodeward-test-restart.service";
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let other = Filesystem::new(Kind::Ext4).unwrap();
    let hierarchy = if cgroup::has(Hierarchy::Unified) { Hierarchy::Unified } else { Hierarchy::Systemd };
    let cgroup = Cgroup::new(hierarchy, UNIT).unwrap();
    let _timeout = Sysctl::set("kernel.hung_task_timeout_secs", "2").unwrap();
    let _silent = Sysctl::set("kernel.hung_task_warnings", "0").unwrap();
    let watch = Watch::over(node.mount_point(), UNIT).unwrap();
    let mut agent = watch.start().unwrap();
    let mut frozen = Frozen::new(&other).unwrap();
    frozen.hang(&cgroup).unwrap();
    let before = agent.wait_for("KernelDeadlock", "True", REPORTED).unwrap();
    // No report of the kernel can help the next agent.
    let _never = Sysctl::set("kernel.hung_task_timeout_secs", "0").unwrap();
    agent.kill();

    let mut agent = watch.start().unwrap();
    let after = agent.condition("KernelDeadlock").unwrap();
    assert_eq!((after.status.as_str(), after.since_boot_seconds), ("True", before.since_boot_seconds), "{after:?}");
    assert_eq!(agent.times("KernelDeadlock", "False") + agent.times("KernelDeadlock", "Unknown"), 0);
    frozen.thaw().unwrap();
    agent.wait_for("KernelDeadlock", "False", CLEAR).unwrap();
}
