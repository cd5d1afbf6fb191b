//! The eBPF programs on the real kernel: all attach here, each missing right has its reason, and nothing outlives the agent.

use std::{collections::BTreeSet, fs, time::Duration};

use aya::programs::loaded_programs;
use tests_kernel::{
    agent::Watch,
    filesystem::{Filesystem, Kind},
    metrics::Reading,
    wait,
};

const UNIT: &str = "nodeward-test-nobody.service";
const PROMPT: Duration = Duration::from_secs(1);

/// All programs, as the kernel cuts their names (`BPF_OBJ_NAME_LEN` in `include/uapi/linux/bpf.h`: 15 bytes and a zero).
const PROGRAMS: [&str; 7] =
    ["sched_process_h", "ext4_error", "ext4_shutdown", "xfs_force_shutd", "block_rq_error", "mark_victim", "rcu_stall_warni"];

/// Ids of the programs of these names that the kernel holds.
fn held() -> BTreeSet<u32> {
    let ours = loaded_programs().filter_map(Result::ok).filter(|p| p.name_as_str().is_some_and(|name| PROGRAMS.contains(&name)));
    ours.map(|program| program.id()).collect()
}

#[test]
fn every_program_attaches_here_and_nothing_of_them_outlives_a_killed_agent() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let (before, mounts) = (held(), fs::read_to_string("/proc/self/mountinfo").unwrap());
    let agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    let all = |metrics: &Reading| {
        metrics.text().lines().filter(|line| line.starts_with("nodeward_ebpf_program_attached{") && line.ends_with(" 1")).count()
            == PROGRAMS.len()
    };
    agent.wait_for_metrics("all programs to be attached", Duration::from_secs(10), all).unwrap();
    let added: Vec<u32> = held().difference(&before).copied().collect();
    assert_eq!(added.len(), PROGRAMS.len());
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts, "no mount of its own can be seen");

    agent.kill();
    // The kernel frees a program after an RCU grace period.
    wait::until("the programs to be gone", Duration::from_secs(10), || {
        let left: Vec<u32> = held().intersection(&added.iter().copied().collect()).copied().collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .unwrap();
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

#[test]
fn without_the_right_to_use_ebpf_the_log_alone_tells() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let watch = Watch::over(filesystem.mount_point(), UNIT).unwrap();
    let mut agent = watch.start_without(&["sys_admin", "bpf", "perfmon"]).unwrap();
    assert_eq!(agent.metrics().unwrap().value("nodeward_source_up{source=\"ebpf\"}"), 0.0);
    filesystem.break_ext4("nodeward test: the log alone").unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    let event = agent.wait_for_event("Ext4Error", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();
    assert!(event.contains("nodeward test: the log alone"), "{event}");
}

#[test]
fn without_the_kernel_log_the_programs_alone_tell() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let watch = Watch::over(filesystem.mount_point(), UNIT).unwrap();
    watch.configure("kernelLog:\n  device: /nowhere/kmsg\n").unwrap();
    let mut agent = watch.start().unwrap();
    assert_eq!(agent.metrics().unwrap().value("nodeward_source_up{source=\"kmsg\"}"), 0.0);
    filesystem.break_ext4("nodeward test: the programs alone").unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    agent.wait_for_event("Ext4Error", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();
}
