//! Every fault that the agent recognises by itself, whatever source saw it.

use std::fmt;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detection {
    /// A task has been in uninterruptible sleep for longer than the kernel's hung task timeout.
    HungTask,
    /// The kernel will write no more hung task reports to its log (`kernel.hung_task_warnings` is used up).
    HungTaskReportsSuppressed,
    /// An ext4 consistency or I/O error.
    Ext4Error,
    /// An ext4 warning.
    Ext4Warning,
    /// ext4 says that it has turned read-only.
    Ext4ReadOnly,
    /// ext4 was shut down.
    Ext4Shutdown,
    /// jbd2 aborted or could not write its journal.
    JournalError,
    /// Data that a program had written was lost on its way to the disk.
    WritebackDataLoss,
    /// XFS was shut down.
    XfsShutdown,
    /// XFS found damaged metadata.
    XfsCorruption,
    /// A request to a block device failed.
    BlockIoError,
    /// A buffer could not be read or written.
    BufferIoError,
    /// A SCSI or ATA device misbehaves.
    ScsiFault,
    /// An md array lost a member.
    RaidDegraded,
    /// The kernel killed a process for want of memory.
    OomKill,
    /// RCU has been held up on a CPU.
    RcuStall,
    /// The kernel gave up.
    KernelPanic,
}

impl Detection {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::HungTask,
        Self::HungTaskReportsSuppressed,
        Self::Ext4Error,
        Self::Ext4Warning,
        Self::Ext4ReadOnly,
        Self::Ext4Shutdown,
        Self::JournalError,
        Self::WritebackDataLoss,
        Self::XfsShutdown,
        Self::XfsCorruption,
        Self::BlockIoError,
        Self::BufferIoError,
        Self::ScsiFault,
        Self::RaidDegraded,
        Self::OomKill,
        Self::RcuStall,
        Self::KernelPanic,
    ];

    /// The internal name, as in the corpus.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HungTask => "HungTask",
            Self::HungTaskReportsSuppressed => "HungTaskReportsSuppressed",
            Self::Ext4Error => "Ext4Error",
            Self::Ext4Warning => "Ext4Warning",
            Self::Ext4ReadOnly => "Ext4ReadOnly",
            Self::Ext4Shutdown => "Ext4Shutdown",
            Self::JournalError => "JournalError",
            Self::WritebackDataLoss => "WritebackDataLoss",
            Self::XfsShutdown => "XfsShutdown",
            Self::XfsCorruption => "XfsCorruption",
            Self::BlockIoError => "BlockIoError",
            Self::BufferIoError => "BufferIoError",
            Self::ScsiFault => "ScsiFault",
            Self::RaidDegraded => "RaidDegraded",
            Self::OomKill => "OomKill",
            Self::RcuStall => "RcuStall",
            Self::KernelPanic => "KernelPanic",
        }
    }

    /// Whether the kernel speaks of a filesystem, and not only of the device below.
    #[must_use]
    pub const fn is_of_filesystem(self) -> bool {
        match self {
            Self::Ext4Error
            | Self::Ext4Warning
            | Self::Ext4ReadOnly
            | Self::Ext4Shutdown
            | Self::JournalError
            | Self::WritebackDataLoss
            | Self::XfsShutdown
            | Self::XfsCorruption => true,
            Self::HungTask
            | Self::HungTaskReportsSuppressed
            | Self::BlockIoError
            | Self::BufferIoError
            | Self::ScsiFault
            | Self::RaidDegraded
            | Self::OomKill
            | Self::RcuStall
            | Self::KernelPanic => false,
        }
    }

    /// The reason that Events and `problem_counter` carry: node-problem-detector's where it has one.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::HungTask => "TaskHung",
            Self::OomKill => "OOMKilling",
            Self::Ext4ReadOnly => "FilesystemIsReadOnly",
            Self::XfsShutdown => "XfsHasShutdown",
            Self::BufferIoError | Self::BlockIoError => "IOError",
            Self::HungTaskReportsSuppressed
            | Self::Ext4Error
            | Self::Ext4Warning
            | Self::Ext4Shutdown
            | Self::JournalError
            | Self::WritebackDataLoss
            | Self::XfsCorruption
            | Self::ScsiFault
            | Self::RaidDegraded
            | Self::RcuStall
            | Self::KernelPanic => self.as_str(),
        }
    }
}

impl fmt::Display for Detection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
