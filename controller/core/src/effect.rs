//! What the core wants done, one after the other: each with what must still hold when it is done, and what is told to people once it was.

use crate::{
    hold::{Hold, Reason},
    state::{Phase, PoolStatus, PowerMode, RemediationStatus},
    time::Time,
};

/// One thing to do. The shell does them in order and stops at the first that fails; then, and whenever anything changed, it looks and steps again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read everything of this pool from the API servers and step again at once.
    LookDirectly,
    /// Write the pool's status whole; make the object first if there is none.
    WritePool {
        /// Version that must still be the present one; none: the object must not exist.
        resource_version: Option<String>,
        /// What to write.
        status: Box<PoolStatus>,
        /// What to tell once it is written.
        notices: Vec<Notice>,
    },
    /// Write the status of the Machine's `NodeRemediation` whole; make the object first if there is none.
    WriteRemediation {
        /// Its name, which is the Machine's.
        machine: String,
        /// UID and version that must still be the present ones; none: the object must not exist.
        precondition: Option<Precondition>,
        /// What to write.
        status: Box<RemediationStatus>,
        /// Whether our finalizer is to be on it.
        finalizer: bool,
        /// What to tell once it is written.
        notices: Vec<Notice>,
    },
    /// Delete a `NodeRemediation` of which nothing is needed any more.
    DropRemediation {
        /// Its name.
        machine: String,
        /// UID and version that must still be the present ones.
        precondition: Precondition,
    },
    /// Ask the provider about an instance.
    AskInstance {
        /// Name of the Machine.
        machine: String,
    },
    /// Ask the provider whether an earlier intent was carried out, and follow what it began until that ended.
    AskEvidence {
        /// Name of the Machine.
        machine: String,
        /// The intent.
        intent_id: String,
        /// When it was written down: look from 2 s before.
        intent_at: Time,
    },
    /// One power call. Note the intent as sent, then send one request: 5 s in all, no retry, no redirect.
    Power(PowerCall),
    /// Ask the Machine's owner to replace it: both conditions, in both lists, by one patch.
    RequestReplacement(Request),
    /// Remove both conditions again.
    WithdrawRequest {
        /// Name of the Machine.
        machine: String,
        /// UID and version that must still be the present ones.
        precondition: Precondition,
    },
    /// Delete the Machine.
    DeleteMachine {
        /// Name of the Machine.
        machine: String,
        /// UID and version that must still be the present ones.
        precondition: Precondition,
    },
    /// Put the host into maintenance: it leaves the pool.
    RetireHost {
        /// Name of the host.
        host: String,
        /// UID and version that must still be the present ones.
        precondition: Precondition,
    },
    /// Remove annotation `cluster.x-k8s.io/remediate-machine`, which was obeyed.
    RemoveRemediateAnnotation {
        /// Name of the Machine.
        machine: String,
        /// UID and version that must still be the present ones.
        precondition: Precondition,
    },
}

/// An object must still be this very one in this very version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// UID.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// One power call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerCall {
    /// Name of the Machine.
    pub machine: String,
    /// UID of the Machine.
    pub machine_uid: String,
    /// What the provider calls the instance.
    pub provider_id: String,
    /// The Node's boot id, if known.
    pub boot_id: Option<String>,
    /// The persisted intent.
    pub intent_id: String,
    /// Which attempt.
    pub attempt: u32,
    /// Soft or hard.
    pub mode: PowerMode,
    /// Not to be sent after this, by the wall clock and by the monotonic one.
    pub deadline: Time,
}

/// The owner is asked to replace a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the Machine.
    pub machine: String,
    /// UID and version that must still be the present ones.
    pub precondition: Precondition,
    /// Reason of `HealthCheckSucceeded`; none in delegated mode, where the health check writes that one.
    pub health_check_reason: Option<&'static str>,
    /// For people.
    pub message: String,
}

/// Something to tell, once, as an Event on the Machine (or the pool) and as a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name of the Machine; none: the pool.
    pub machine: Option<String>,
    /// What.
    pub what: NoticeKind,
    /// For people.
    pub message: String,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    /// A remediation changed its phase.
    PhaseChanged(Phase),
    /// It is held for another reason than before.
    Held(Reason),
    /// Nothing holds it any more.
    Released,
    /// A power call was accepted, or may have been.
    Rebooted,
    /// A removal was asked for.
    ReplacementRequested,
    /// The brake was set.
    BrakeSet,
    /// It was released.
    BrakeReleased,
    /// A latch was set.
    LatchSet,
    /// It was released.
    LatchReleased,
    /// The workload cluster cannot be observed.
    Frozen,
    /// It can again.
    Thawed,
    /// Something in the configuration does not do what it seems to.
    Warning,
}

/// What one step of a pool came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolPlan {
    /// Name of the pool.
    pub pool: String,
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// What is held back and why.
    pub holds: Vec<Held>,
    /// When to look again even if nothing changes.
    pub next: Option<Time>,
    /// How the pool stands, also if that is what is persisted already.
    pub gate: PoolStatus,
}

/// A machine that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub machine: String,
    /// Where it stands.
    pub phase: Phase,
    /// What would be done.
    pub intention: Intention,
    /// Why it is not.
    pub because: Vec<Hold>,
    /// What led to where it stands.
    pub why: String,
    /// Until when that lasts, if nothing changes.
    pub until: Option<Time>,
}

/// What would be done with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intention {
    /// Nothing yet: its window runs.
    Wait,
    /// A reboot.
    Reboot,
    /// A removal.
    Replace,
    /// A person is told.
    Alert,
}

impl Effect {
    /// Whether it takes a machine away from its users.
    #[must_use]
    pub const fn is_destructive(&self) -> bool {
        match self {
            Self::Power(_) | Self::RequestReplacement(_) | Self::DeleteMachine { .. } | Self::RetireHost { .. } => true,
            Self::LookDirectly
            | Self::WritePool { .. }
            | Self::WriteRemediation { .. }
            | Self::DropRemediation { .. }
            | Self::AskInstance { .. }
            | Self::AskEvidence { .. }
            | Self::WithdrawRequest { .. }
            | Self::RemoveRemediateAnnotation { .. } => false,
        }
    }
}
