//! A task as `/proc` shows it when the agent looks.

use crate::device::DeviceNumber;

/// A task that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id in the host's PID namespace.
    pub pid: u32,
    /// Process (thread group) id.
    pub tgid: u32,
    /// Clock ticks after boot: with the pid it names one task for the whole boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// Name, at most 15 bytes for user tasks, longer for kernel threads.
    pub comm: String,
    /// State letter of `/proc/PID/stat`: `D` is uninterruptible sleep.
    pub state: char,
    /// Voluntary and involuntary switches together: unchanged means that it has not run.
    pub switches: u64,
    /// Whose it is.
    pub owner: Owner,
    /// What it waits for, as far as its kernel stack and system call tell.
    pub waits_for: WaitsFor,
}

/// Whose task it is, from its flags and cgroup. Never from its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// PID 1.
    Init,
    /// A kernel thread (`PF_KTHREAD`).
    Kernel,
    /// A unit of the host's service manager: `kubelet.service`.
    Unit(String),
    /// A container of a pod.
    Pod(Pod),
    /// Anything else; the cgroup path says what.
    Other(String),
}

/// A pod, found from its UID in a cgroup or volume path and the kubelet's log directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// The UID; 32 hexadecimal digits without dashes for a static pod.
    pub uid: String,
    /// `namespace/name`, if `/var/log/pods` has it.
    pub name: Option<String>,
    /// It stands in the kubelet's manifest directory.
    pub is_static: bool,
}

/// What a sleeping task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A network filesystem or network block device.
    Network,
    /// A FUSE server.
    Fuse,
    /// A local filesystem.
    Filesystem {
        /// Its device.
        device: DeviceNumber,
        /// Where it is mounted.
        mount_point: String,
    },
    /// Something in the kernel that is no filesystem.
    Kernel,
    /// It cannot be told.
    Unknown,
}
