//! Why nothing is done: the closed list of reasons, shown in status, events and metric labels.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a machine is not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// More machines of the pool are unhealthy than its limit allows, or fewer than its minimum.
    TooManyUnhealthy,
    /// There were too many, and it has not been quiet for long enough since.
    StormBrake,
    /// Too many were confirmed bad, and nobody acknowledged it yet.
    StormLatch,
    /// As many machines as allowed are being worked on.
    Slot,
    /// The workload cluster cannot be observed, or was not for long enough since a start.
    Frozen,
    /// A person or an owner paused it.
    Paused,
    /// Something looks like a misspelt pause.
    PauseSuspect,
    /// The owner's rollout replaces the machine anyway.
    Rollout,
    /// The owner puts the deletion off, for a reason of its own.
    OwnerDeferred,
    /// Etcd would lose its quorum, or may.
    EtcdQuorum,
    /// The pool or the host had as many actions as allowed.
    Budget,
    /// Now good, now bad: no window was ever held.
    Flapping,
    /// The evidence is from an earlier boot, or of a silent agent.
    StaleEvidence,
    /// The node is said to be silent, yet renews its Lease.
    ObserverBroken,
    /// The provider asked to wait.
    ProviderRateLimited,
    /// The provider does not accept our credentials.
    ProviderAuth,
    /// The provider refuses for now.
    ProviderRefused,
    /// The clock cannot be trusted.
    ClockSkew,
    /// The Node is not the Machine's.
    ForeignNode,
    /// Nobody would replace the machine.
    NoOwner,
    /// A `MachineHealthCheck` selects the machine too.
    MHCConflict,
    /// Two policies select the machine.
    PolicyConflict,
    /// The policy wants a person to be told, no more.
    AlertOnly,
    /// The policy only says what it would do.
    Shadow,
}

impl Reason {
    /// Every reason, in the order in which they are shown.
    pub const ALL: [Self; 24] = [
        Self::TooManyUnhealthy,
        Self::StormBrake,
        Self::StormLatch,
        Self::Slot,
        Self::Frozen,
        Self::Paused,
        Self::PauseSuspect,
        Self::Rollout,
        Self::OwnerDeferred,
        Self::EtcdQuorum,
        Self::Budget,
        Self::Flapping,
        Self::StaleEvidence,
        Self::ObserverBroken,
        Self::ProviderRateLimited,
        Self::ProviderAuth,
        Self::ProviderRefused,
        Self::ClockSkew,
        Self::ForeignNode,
        Self::NoOwner,
        Self::MHCConflict,
        Self::PolicyConflict,
        Self::AlertOnly,
        Self::Shadow,
    ];

    /// As in status and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooManyUnhealthy => "TooManyUnhealthy",
            Self::StormBrake => "StormBrake",
            Self::StormLatch => "StormLatch",
            Self::Slot => "Slot",
            Self::Frozen => "Frozen",
            Self::Paused => "Paused",
            Self::PauseSuspect => "PauseSuspect",
            Self::Rollout => "Rollout",
            Self::OwnerDeferred => "OwnerDeferred",
            Self::EtcdQuorum => "EtcdQuorum",
            Self::Budget => "Budget",
            Self::Flapping => "Flapping",
            Self::StaleEvidence => "StaleEvidence",
            Self::ObserverBroken => "ObserverBroken",
            Self::ProviderRateLimited => "ProviderRateLimited",
            Self::ProviderAuth => "ProviderAuth",
            Self::ProviderRefused => "ProviderRefused",
            Self::ClockSkew => "ClockSkew",
            Self::ForeignNode => "ForeignNode",
            Self::NoOwner => "NoOwner",
            Self::MHCConflict => "MHCConflict",
            Self::PolicyConflict => "PolicyConflict",
            Self::AlertOnly => "AlertOnly",
            Self::Shadow => "Shadow",
        }
    }
}

/// One reason with its particulars.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The reason.
    pub reason: Reason,
    /// What a person should know; holds no moving numbers, so that it changes only when the matter does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Hold {
    /// A reason and what to know about it.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}
