//! What each line of the kernel means. Patterns are anchored and match the whole known shape, because a process name or an audit string
//! inside a line may imitate another line.
//!
//! Wordings and the kernels that print them: the kernel's `kernel/hung_task.c`, `fs/ext4/super.c`, `fs/jbd2/journal.c`,
//! `fs/xfs/xfs_fsops.c`, `mm/oom_kill.c`, `block/blk-core.c`, `fs/buffer.c`, `kernel/rcu/tree_stall.h`; recorded lines of 3.16 to 6.18 are in
//! `tests/corpus/`.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex, RegexBuilder};

use crate::{
    detection::Detection,
    device::Device,
    observation::{OomContext, OomScope, Subject},
};

/// What a line of the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// A fault.
    Fault {
        /// Which.
        detection: Detection,
        /// Of what. A device has its name only.
        subject: Subject,
    },
    /// Not a fault by itself: whose memory ran out, for the kill that the next lines report.
    OomContext(OomContext),
}

/// How a pattern's groups become a subject.
#[derive(Clone, Copy)]
enum Shape {
    /// Nothing to tell.
    Machine,
    /// Group 1 is the name, group 2 the pid.
    NamePid,
    /// Group 1 is the pid, group 2 the name.
    PidName,
    /// Group 1 is the device, if it took part.
    Device,
    /// Group 1 is the device, group 2 the operation; some are no fault.
    Request,
    /// The `oom-kill:` line.
    OomContext,
}

struct Rule {
    detection: Detection,
    shape: Shape,
    /// What the text begins with: checked before the pattern, and what [`super::could_matter`] looks at.
    starts: &'static [&'static str],
    pattern: &'static str,
}

/// Phrases of `blk_errors[]` in `block/blk-core.c`, without "operation not supported", which is no fault.
macro_rules! phrases {
    () => {
        "(?:I/O|critical (?:medium|target|space allocation|nexus)|protection|timeout|recoverable transport|reservation conflict|device offline)"
    };
}

/// What starts a line of the block layer; before 5.16 a function name stands in front.
const REQUEST_STARTS: &[&str] = &[
    "I/O error, dev ",
    "critical ",
    "protection error, dev ",
    "timeout error, dev ",
    "recoverable transport error, dev ",
    "reservation conflict error, dev ",
    "device offline error, dev ",
    "blk_update_request: ",
    "print_req_error: ",
];

const RULES: &[Rule] = &[
    Rule {
        detection: Detection::HungTask,
        shape: Shape::NamePid,
        starts: &["INFO: task "],
        pattern: r"^INFO: task (.+):(\d+) blocked (?:in I/O wait )?for more than \d+ seconds\.$",
    },
    Rule {
        detection: Detection::HungTaskReportsSuppressed,
        shape: Shape::Machine,
        starts: &["Future hung task reports are suppressed"],
        pattern: r"^Future hung task reports are suppressed, see sysctl kernel\.hung_task_warnings$",
    },
    Rule {
        detection: Detection::Ext4Error,
        shape: Shape::Device,
        starts: &["EXT4-fs error (device "],
        pattern: r"^EXT4-fs error \(device ([^)]+)\)(?:: | in )",
    },
    Rule {
        detection: Detection::Ext4Error,
        shape: Shape::Device,
        starts: &["EXT4-fs ("],
        pattern: r"^EXT4-fs \(([^)]+)\): (?:previous I/O error to superblock detected|I/O error while writing superblock)$",
    },
    Rule {
        detection: Detection::Ext4Warning,
        shape: Shape::Device,
        starts: &["EXT4-fs warning (device "],
        pattern: r"^EXT4-fs warning \(device ([^)]+)\): ",
    },
    Rule {
        detection: Detection::Ext4Warning,
        shape: Shape::Device,
        starts: &["EXT4-fs ("],
        pattern: r"^EXT4-fs \(([^)]+)\): warning: mounting (?:unchecked fs|fs with errors), running e2fsck is recommended$",
    },
    Rule {
        detection: Detection::Ext4ReadOnly,
        shape: Shape::Device,
        starts: &["EXT4-fs ("],
        pattern: r"^EXT4-fs \(([^)]+)\): Remounting filesystem read-only$",
    },
    Rule {
        detection: Detection::Ext4Shutdown,
        shape: Shape::Device,
        starts: &["EXT4-fs ("],
        pattern: r"^EXT4-fs \(([^)]+)\): shut down requested \(\d+\)$",
    },
    Rule {
        detection: Detection::WritebackDataLoss,
        shape: Shape::Device,
        starts: &["EXT4-fs ("],
        pattern: r"^EXT4-fs \(([^)]+)\): (?:failed to convert unwritten extents to written extents -- potential data loss!|This should not happen!! Data will be lost)",
    },
    Rule {
        // jbd2 names a journal inside its filesystem DEVICE-INODE, and ext4's is inode 8.
        detection: Detection::JournalError,
        shape: Shape::Device,
        starts: &["Aborting journal on device "],
        pattern: r"^Aborting journal on device (\S+?)(?:-8)?\.$",
    },
    Rule {
        detection: Detection::JournalError,
        shape: Shape::Device,
        starts: &["JBD2: "],
        pattern: r"^JBD2: (?:Error -?\d+ detected|I/O error) when updating journal superblock for (\S+?)(?:-8)?\.$",
    },
    Rule {
        detection: Detection::WritebackDataLoss,
        shape: Shape::Device,
        starts: &["JBD2: "],
        pattern: r"^JBD2: Detected IO errors \d* ?while flushing file data on (\S+?)(?:-8)?$",
    },
    Rule {
        detection: Detection::XfsShutdown,
        shape: Shape::Device,
        starts: &["XFS ("],
        pattern: r"^XFS \(([^)]+)\): (?:(?:Metadata I/O Error|Log I/O Error|I/O Error|Corruption of (?:in-memory data|on-disk metadata)|Block device removal|User initiated shutdown received).* ?Shutting down filesystem\.?|Filesystem has been shut down due to log error \(0x[0-9a-f]+\)\.|xfs_do_force_shutdown\(0x[0-9a-f]+\) called from line .*)$",
    },
    Rule {
        detection: Detection::XfsCorruption,
        shape: Shape::Device,
        starts: &["XFS ("],
        pattern: r"^XFS \(([^)]+)\): (?:Metadata CRC error detected at|Metadata corruption detected at|Corruption detected)",
    },
    Rule {
        detection: Detection::BlockIoError,
        shape: Shape::Request,
        starts: REQUEST_STARTS,
        pattern: concat!(
            r"^(?:blk_update_request: |print_req_error: )?",
            phrases!(),
            r" error, dev (\S+), sector \d+(?: op 0x[0-9a-f]+:\((\w+)\) .*)?$"
        ),
    },
    Rule {
        detection: Detection::BufferIoError,
        shape: Shape::Request,
        starts: &["Buffer I/O error on dev"],
        pattern: r"^Buffer I/O error on dev(?:ice)? (\S+), logical block \d+(?:, lost (?:async|sync) page write|, async page read)?()$",
    },
    Rule {
        detection: Detection::ScsiFault,
        shape: Shape::Device,
        starts: &["sd "],
        pattern: r"^sd \d+:\d+:\d+:\d+: (?:\[(\w+)\] tag#\d+ FAILED Result: .*|(?:\[\w+\] )?rejecting I/O to (?:offline|dead) device)$",
    },
    Rule {
        detection: Detection::ScsiFault,
        shape: Shape::Machine,
        starts: &["ata"],
        pattern: r"^ata\d+(?:\.\d+)?: exception Emask 0x[0-9a-f]+ ",
    },
    Rule {
        detection: Detection::RaidDegraded,
        shape: Shape::Device,
        starts: &["md/raid"],
        pattern: r"^md/raid\d*:(\S+): Disk failure on \S+, disabling device\.",
    },
    Rule {
        // "Killed process" alone is what kernels before 5.1 print after "Kill process ... or sacrifice child".
        detection: Detection::OomKill,
        shape: Shape::PidName,
        starts: &["Memory cgroup out of memory: Killed process ", "Out of memory", "Killed process "],
        pattern: r"^(?:Memory cgroup out of memory: |Out of memory(?: \([^)]*\))?: )?Killed process (\d+) \((.*)\)(?:, UID \d+,)? total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB",
    },
    Rule {
        detection: Detection::OomKill,
        shape: Shape::OomContext,
        starts: &["oom-kill:constraint="],
        pattern: r"^oom-kill:constraint=\w+,nodemask=.*?,(?:(global_oom)|oom_memcg=(.*)),task_memcg=(.*),task=.*,pid=(\d+),uid=\d+$",
    },
    Rule {
        detection: Detection::RcuStall,
        shape: Shape::Machine,
        starts: &["rcu: INFO: rcu", "INFO: rcu"],
        pattern: r"^(?:rcu: )?INFO: rcu\w* (?:self-detected stall on CPU|detected (?:expedited )?stalls on (?:CPUs/tasks|tasks):)",
    },
    Rule {
        detection: Detection::KernelPanic,
        shape: Shape::Machine,
        starts: &["Kernel panic - not syncing: ", "---[ end Kernel panic - not syncing: "],
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: ",
    },
];

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let compile = |rule: &Rule| {
        let built = RegexBuilder::new(rule.pattern).unicode(false).dot_matches_new_line(true).build();
        built.expect("the table's patterns are valid, as a test shows")
    };
    RULES.iter().map(compile).collect()
});

/// Says what a line of the kernel (facility 0) means, if it means anything to us.
#[must_use]
pub fn recognise(text: &[u8]) -> Option<Recognised> {
    let candidates = RULES.iter().enumerate().filter(|(_, rule)| rule.starts.iter().any(|s| text.starts_with(s.as_bytes())));
    for (i, rule) in candidates {
        if let Some(captures) = PATTERNS.get(i).and_then(|p| p.captures(text)) {
            return rule.shape.read(rule.detection, &captures);
        }
    }
    None
}

/// Every way in which a recognised line can begin.
pub(super) fn starts() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|rule| rule.starts.iter().copied())
}

impl Shape {
    fn read(self, detection: Detection, captures: &Captures<'_>) -> Option<Recognised> {
        let group = |i: usize| captures.get(i).map(|m| String::from_utf8_lossy(m.as_bytes()).into_owned());
        let number = |i: usize| group(i)?.parse::<u32>().ok();
        let subject = match self {
            Self::Machine => Subject::Machine,
            Self::NamePid => Subject::Task { comm: group(1)?, pid: number(2)? },
            Self::PidName => Subject::Task { pid: number(1)?, comm: group(2)? },
            Self::Device => group(1).map_or(Subject::Machine, |name| Subject::Device(Device { name: Some(name), number: None })),
            Self::Request => {
                let name = group(1)?;
                if is_removable(&name) || group(2).is_some_and(|operation| is_optional(&operation)) {
                    return None;
                }
                Subject::Device(Device { name: Some(name), number: None })
            }
            Self::OomContext => {
                let scope = match (captures.get(1), group(2)) {
                    (None, Some(limited)) => OomScope::Cgroup(limited),
                    _ => OomScope::System,
                };
                return Some(Recognised::OomContext(OomContext { pid: number(4)?, scope, victim_cgroup: group(3)? }));
            }
        };
        Some(Recognised::Fault { detection, subject })
    }
}

/// Floppies and optical drives: errors there are about a medium that is not in, or ends early.
fn is_removable(name: &str) -> bool {
    ["fd", "sr"].iter().any(|kind| name.strip_prefix(kind).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())))
}

/// Requests that a device may refuse without being broken.
fn is_optional(operation: &str) -> bool {
    matches!(operation, "DISCARD" | "SECURE_ERASE" | "WRITE_ZEROES" | "WRITE_SAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_valid_and_begins_as_its_rule_says() {
        assert_eq!(PATTERNS.len(), RULES.len());
        for rule in RULES {
            assert!(rule.pattern.starts_with('^') && !rule.starts.is_empty(), "{}", rule.pattern);
        }
    }

    #[test]
    fn a_task_name_may_hold_anything() {
        let hung = |line: &[u8]| match recognise(line) {
            Some(Recognised::Fault { detection: Detection::HungTask, subject: Subject::Task { pid, comm } }) => Some((pid, comm)),
            _ => None,
        };
        assert_eq!(hung(b"INFO: task kworker/u4:2:141 blocked for more than 120 seconds."), Some((141, "kworker/u4:2".into())));
        assert_eq!(hung(b"INFO: task a: b\n\xff:7 blocked in I/O wait for more than 1 seconds."), Some((7, "a: b\n\u{fffd}".into())));
        assert_eq!(hung(b"INFO: task x:99999999999 blocked for more than 120 seconds."), None);
        assert_eq!(hung(b"audit: INFO: task x:9 blocked for more than 120 seconds."), None);
    }

    #[test]
    fn the_journal_of_a_device_is_named_without_its_inode() {
        let named = |line: &str| match recognise(line.as_bytes()) {
            Some(Recognised::Fault { subject: Subject::Device(device), .. }) => device.name,
            _ => None,
        };
        assert_eq!(named("Aborting journal on device dm-0-8."), Some("dm-0".into()));
        assert_eq!(named("Aborting journal on device sdb1."), Some("sdb1".into()));
        assert_eq!(named("JBD2: Error -5 detected when updating journal superblock for nvme0n1p3-8."), Some("nvme0n1p3".into()));
    }

    #[test]
    fn whose_memory_ran_out_is_read_from_the_context_line() {
        let pod = b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/podX,task_memcg=/kubepods/podX/c,task=a,b,pid=7,uid=0";
        assert_eq!(
            recognise(pod),
            Some(Recognised::OomContext(OomContext {
                pid: 7,
                scope: OomScope::Cgroup("/kubepods/podX".into()),
                victim_cgroup: "/kubepods/podX/c".into()
            }))
        );
        let system = b"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=node,pid=5678,uid=1000";
        assert_eq!(
            recognise(system),
            Some(Recognised::OomContext(OomContext { pid: 5678, scope: OomScope::System, victim_cgroup: "/x".into() }))
        );
    }
}
