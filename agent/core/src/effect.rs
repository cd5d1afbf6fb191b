//! What goes out: values that say what the core wants done.

use crate::{
    condition::{Condition, ConditionType},
    time::BootTime,
};

/// Something the core wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A condition was settled for the first time, or its status, reason or message changed.
    Condition(Condition),
    /// Tell the people.
    Event(Event),
    /// Add to `problem_counter{reason}`.
    Count {
        /// The reason.
        reason: &'static str,
        /// How many.
        by: u64,
    },
    /// Set the gauge of stalled filesystems.
    Stall {
        /// Which.
        mount_point: String,
        /// Whether a probe there is without an answer.
        is: Stall,
    },
    /// Add to the counter of faults of pods' volumes.
    VolumeFault {
        /// `namespace/name`, or the UID if the name is not known.
        pod: String,
        /// The reason.
        reason: &'static str,
    },
    /// Look at something and bring the outcome back as an observation.
    Look(Look),
}

/// Whether a filesystem answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// A probe has no answer.
    Begun,
    /// It answers again, or is gone.
    Over,
}

/// A Kubernetes Event on the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: BootTime,
    /// A problem, or a recovery.
    pub severity: Severity,
    /// CamelCase; node-problem-detector's where it has one.
    pub reason: String,
    /// For a person, at most 1,024 characters.
    pub message: String,
    /// The condition that changed, if it announces a change.
    pub condition: Option<ConditionType>,
}

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A recovery or a note.
    Normal,
    /// A problem.
    Warning,
}

impl Severity {
    /// The word of the Kubernetes API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A confirmation of the present state, made apart from the loop with a deadline, one at a time per object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// Try to write on the filesystem mounted here.
    Filesystem {
        /// Where, as PID 1 sees it.
        mount_point: String,
        /// Id of the mount that is meant: another one there is [`crate::observation::Probe::Gone`].
        mount_id: u64,
    },
    /// Read the state of this task.
    Task {
        /// Thread id in the host's PID namespace.
        pid: u32,
    },
}
