//! Node conditions: what the agent holds to be so, in Kubernetes' shape. `True` means a problem, as in node-problem-detector.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::BootTime;

/// Every condition type that the agent owns. No other type is ever written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// A task that the node cannot live without is hung, or many tasks are.
    KernelDeadlock,
    /// A filesystem that the node depends on refuses writes.
    ReadonlyFilesystem,
    /// A filesystem that the node depends on has not answered for minutes.
    StorageFault,
}

/// Reasons with which conditions are `True`.
pub mod reason {
    /// A task that the node cannot live without hangs.
    pub const CRITICAL_TASK_HUNG: &str = "CriticalTaskHung";
    /// So many hang that the node is deadlocked, whoever they are.
    pub const MANY_TASKS_HUNG: &str = "ManyTasksHung";
    /// Node-problem-detector's.
    pub const FILESYSTEM_IS_READ_ONLY: &str = "FilesystemIsReadOnly";
    /// A filesystem of the node has not answered for minutes.
    pub const STORAGE_DOES_NOT_RESPOND: &str = "StorageDoesNotRespond";
}

impl ConditionType {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::KernelDeadlock, Self::ReadonlyFilesystem, Self::StorageFault];

    /// The type as it stands on the Node.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KernelDeadlock => "KernelDeadlock",
            Self::ReadonlyFilesystem => "ReadonlyFilesystem",
            Self::StorageFault => "StorageFault",
        }
    }

    /// Every reason with which it can be `True`.
    #[must_use]
    pub const fn problems(self) -> &'static [&'static str] {
        match self {
            Self::KernelDeadlock => &[reason::CRITICAL_TASK_HUNG, reason::MANY_TASKS_HUNG],
            Self::ReadonlyFilesystem => &[reason::FILESYSTEM_IS_READ_ONLY],
            Self::StorageFault => &[reason::STORAGE_DOES_NOT_RESPOND],
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.as_str() == name)
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// The fault is there.
    True,
    /// Looked, and it is not there.
    False,
    /// Could not look for longer than the grace.
    Unknown,
}

impl Status {
    /// The status as it stands on the Node.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One settled condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Which.
    pub kind: ConditionType,
    /// Whether the fault is there.
    pub status: Status,
    /// CamelCase; node-problem-detector's where it has one.
    pub reason: String,
    /// For a person: what is wrong with what, at most 1,024 characters.
    pub message: String,
    /// When the status last changed.
    pub since: BootTime,
}

/// Longest message of a condition or an Event, in bytes: what the Kubernetes API takes for an Event.
const LONGEST_MESSAGE: usize = 1024;

/// Cuts a message between characters, if it is too long.
pub(crate) fn within_limit(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        let cut = (0..=LONGEST_MESSAGE - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(cut);
        message.push_str("...");
    }
    message
}
