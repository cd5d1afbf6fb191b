//! More records than the kernel log can hold, before the agent can read them: what is lost is counted to the last one, and reading goes on.

use std::time::Duration;

use anyhow::{Context, Result};
use tests_kernel::{
    agent::{Agent, Watch},
    filesystem::{Filesystem, Kind},
    kernel_log,
    metrics::Reading,
    sysctl::Sysctl,
};

/// Many times what a log of the usual sizes holds: a record takes at least 100 bytes of it, and the largest usual log has 1 MiB.
const FLOOD: u64 = 40_000;

/// How long the agent may take for the flood on a busy machine.
const READ: Duration = Duration::from_secs(60);

/// What of the log the agent has accounted for.
#[derive(Clone, Copy, Debug)]
struct Account {
    read: f64,
    lost: f64,
}

impl Account {
    fn of(metrics: &Reading) -> Self {
        Self {
            read: metrics.value("nodeward_source_records_total{source=\"kmsg\"}"),
            lost: metrics.value("nodeward_source_records_lost_total{source=\"kmsg\"}"),
        }
    }

    fn total(self) -> f64 {
        self.read + self.lost
    }
}

/// Writes a record while nothing else is written, and gives its number and the account with it.
fn mark(agent: &Agent) -> Result<(u64, Account)> {
    for number in 0..50 {
        let before = Account::of(&agent.metrics()?);
        let record = kernel_log::mark(&format!("nodeward test: mark {number} of {}", agent.pid()))?;
        let only_ours = |metrics: &Reading| Account::of(metrics).total() == before.total() + 1.0;
        if let Ok(metrics) = agent.wait_for_metrics("our record alone", Duration::from_secs(2), only_ours) {
            return Ok((record, Account::of(&metrics)));
        }
    }
    None.context("others wrote to the kernel log all the time")
}

#[test]
fn an_overrun_of_the_kernel_log_is_counted_to_the_last_record_and_reading_goes_on() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let _unlimited = Sysctl::set("kernel.printk_devkmsg", "on").unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), "nodeward-test-nobody.service").unwrap().start().unwrap();
    let (first, before) = mark(&agent).unwrap();

    agent.pause().unwrap();
    kernel_log::flood(FLOOD, "nodeward test: a flood").unwrap();
    agent.resume().unwrap();
    agent.wait_for_event("KernelReportsLost", "kmsg", READ).unwrap();
    let (last, after) = mark(&agent).unwrap();

    assert!(last - first > FLOOD);
    assert!(after.lost - before.lost > 1000.0, "{before:?} {after:?}");
    assert!(after.read > before.read, "{before:?} {after:?}");
    assert_eq!(after.total() - before.total(), (last - first) as f64, "{before:?} {after:?}");

    filesystem.break_ext4("nodeward test: after the overrun").unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", Duration::from_secs(1)).unwrap();
}

#[test]
fn a_fault_amid_an_overrun_is_found() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let _unlimited = Sysctl::set("kernel.printk_devkmsg", "on").unwrap();
    let watch = Watch::over(filesystem.mount_point(), "nodeward-test-nobody.service").unwrap();
    // The log alone, or the tracepoint would tell.
    let mut agent = watch.start_without(&["sys_admin", "bpf", "perfmon"]).unwrap();
    agent.pause().unwrap();
    filesystem.break_ext4("nodeward test: overrun at once").unwrap();
    kernel_log::flood(FLOOD, "nodeward test: a flood over a fault").unwrap();
    agent.resume().unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", READ).unwrap();
}
