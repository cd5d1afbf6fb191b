//! What comes in: typed facts, each with when it happened.

use std::time::Duration;

use crate::{detection::Detection, device::Device, mount::MountTable, task::Task, time::BootTime};

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When it happened (not when it was read).
    pub at: BootTime,
    /// What.
    pub fact: Fact,
}

/// The kinds of facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The kernel said that something is wrong: a hint, which makes the agent look.
    Signal(Signal),
    /// The kernel said whose memory ran out: belongs to an [`Detection::OomKill`] of the same pid.
    OomContext(OomContext),
    /// A source lost records.
    Lost {
        /// Which.
        source: Source,
        /// How many, if it could be told (sequence gap, counter).
        count: u64,
    },
    /// A source started, ended or cannot be had.
    Source {
        /// Which.
        source: Source,
        /// How it is now.
        state: SourceState,
    },
    /// A source has handed over everything from before it was started. For the kernel log: the log since boot.
    CaughtUp(Source),
    /// The mount table, at the start and whenever it changed.
    Mounts(MountTable),
    /// The outcome of [`crate::Look::Filesystem`].
    Filesystem(FilesystemLook),
    /// The outcome of [`crate::Look::Task`].
    Task(TaskLook),
}

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `/dev/kmsg`.
    KernelLog,
    /// The eBPF ring buffer.
    Ebpf,
    /// `/proc/1/mountinfo`.
    Mounts,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::KernelLog, Self::Ebpf, Self::Mounts];

    /// For people and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KernelLog => "kmsg",
            Self::Ebpf => "ebpf",
            Self::Mounts => "mounts",
        }
    }
}

/// How a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It works. `degraded` names what it cannot see (an eBPF program that could not be attached, ...), empty when all is there.
    Up {
        /// What is missing.
        degraded: Vec<String>,
    },
    /// It ended and will be started again.
    Down {
        /// Why.
        why: String,
    },
    /// This node cannot have it.
    Absent {
        /// Why.
        why: String,
    },
}

/// One report of the kernel, from whichever source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Which fault.
    pub detection: Detection,
    /// Of what.
    pub subject: Subject,
    /// The kernel's own words or the tracepoint's fields, for people: one line, at most 512 bytes.
    pub detail: String,
    /// Who saw it.
    pub source: Source,
    /// Number of the log record; with the boot id its identity across restarts of the agent.
    pub sequence: Option<u64>,
}

/// What a signal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nothing in particular.
    Machine,
    /// A task.
    Task {
        /// Thread id.
        pid: u32,
        /// Name as the kernel gave it.
        comm: String,
    },
    /// A block device, or the filesystem on it.
    Device(Device),
}

/// The `oom-kill:` line: why a process was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomContext {
    /// The victim.
    pub pid: u32,
    /// Whose memory ran out.
    pub scope: OomScope,
    /// The victim's memory cgroup.
    pub victim_cgroup: String,
}

/// Whose memory ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OomScope {
    /// The machine's.
    System,
    /// That of a cgroup with a limit.
    Cgroup(String),
}

/// What came of a write probe on a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemLook {
    /// The mount point that was asked for.
    pub mount_point: String,
    /// The mount that was asked for.
    pub mount_id: u64,
    /// What happened.
    pub outcome: Probe,
    /// How long it took, or has taken so far.
    pub took: Duration,
}

/// Outcome of a write probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A file could be made and written, or was refused for a reason that proves the filesystem alive (`ENOSPC`, `EDQUOT`, `EACCES`).
    Writable,
    /// Refused with an errno that means a fault: `EROFS`, `EIO`, `EUCLEAN`, `ESHUTDOWN`.
    Refused(Refusal),
    /// No answer within the deadline; the probe is still waiting, and its end will be another observation.
    Blocked,
    /// That mount is not there, or another one covers it.
    Gone,
    /// The probe itself failed; the errno says why.
    Failed(i32),
}

/// Errors of a write probe that mean a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EROFS`.
    ReadOnly,
    /// `EIO`: also what ext4 on 6.12 answers after an emergency, and every shut down filesystem.
    Io,
    /// `EUCLEAN`: structure needs cleaning.
    Unclean,
    /// `ESHUTDOWN`.
    Shutdown,
}

/// What came of a look at a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// The pid that was asked for.
    pub pid: u32,
    /// What was found.
    pub seen: TaskSeen,
}

/// Outcome of a look at a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSeen {
    /// It is there.
    There(Box<Task>),
    /// No such task.
    Gone,
    /// `/proc` did not answer within the deadline, or not in a shape that could be read.
    Unreadable(String),
    /// This agent lives in a nested PID namespace and cannot look a kernel pid up.
    OtherNamespace,
}
