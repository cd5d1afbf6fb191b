//! What is persisted, and nothing else is: the status of a `RemediationPool` (one per pool) and of a `NodeRemediation` (one per bad Machine).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{hold::Hold, policy::Status, time::Time};

/// Status of a `RemediationPool`: the gate of one pool. Gate and slot change in one write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Machines being worked on; each takes a slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// Set while too many are unhealthy, and for the quiet time after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<Brake>,
    /// Set when too many were confirmed bad; nothing is done until it is acknowledged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latches: Vec<Latch>,
    /// Since when the workload cluster cannot be observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_since: Option<Time>,
    /// When it last could be again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thawed_at: Option<Time>,
    /// Actions of the last day, oldest first; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
    /// Machines of the pool.
    #[serde(default)]
    pub machines: u32,
    /// How many count as unhealthy.
    #[serde(default)]
    pub unhealthy: u32,
    /// How many of these past their window.
    #[serde(default)]
    pub confirmed: u32,
    /// How many are paused: they do not count.
    #[serde(default)]
    pub paused: u32,
    /// How many are being worked on.
    #[serde(default)]
    pub in_flight: u32,
    /// Whether a machine may be acted on.
    #[serde(default)]
    pub gate: GateState,
    /// Why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// As in every Kubernetes object, for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// Whether a machine of the pool may be acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GateState {
    /// It may.
    #[default]
    Open,
    /// It may not.
    Closed,
}

/// A slot of the pool, taken by one Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// UID of the Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Its name, for people.
    pub machine: String,
    /// What it is taken for.
    pub stage: Stage,
    /// Since when, in this stage.
    pub since: Time,
    /// UID of the Machine that replaces it, once known.
    #[serde(default, rename = "replacementUID", skip_serializing_if = "Option::is_none")]
    pub replacement_uid: Option<String>,
}

/// What a slot is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// A reboot.
    Reboot,
    /// A removal.
    Delete,
    /// The Machine is gone; its replacement is not Ready yet.
    AwaitReplacement,
}

/// Too many were unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brake {
    /// Since when.
    pub since: Time,
    /// Since when no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_since: Option<Time>,
}

/// Too many were confirmed bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Latch {
    /// What a person writes into annotation `nodeward.dev/resume` to release it.
    pub id: String,
    /// Why it was set.
    pub cause: LatchCause,
    /// When.
    pub tripped_at: Time,
    /// Names of the machines that were bad then; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Since when the cause is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_since: Option<Time>,
}

/// Why a latch was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LatchCause {
    /// More machines of the pool past their window than its limit.
    TooManyUnhealthy,
    /// Several Node objects of the pool were deleted within minutes.
    NodesDeleted,
    /// A large share of the cluster's machines is unhealthy.
    Cluster,
    /// The same family is confirmed in a large share of the clusters.
    Fleet,
}

/// One action of the past, for the budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// UID of the Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// UID of the physical host, if any.
    #[serde(default, rename = "hostUID", skip_serializing_if = "Option::is_none")]
    pub host_uid: Option<String>,
    /// What was done.
    pub action: PastAction,
    /// When.
    pub at: Time,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PastAction {
    /// A power call was made, or may have been.
    Reboot,
    /// The Machine was given to its owner to be replaced, or deleted.
    Replace,
}

/// Status of a `NodeRemediation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationStatus {
    /// Where it stands.
    #[serde(default)]
    pub phase: Phase,
    /// UID of the Machine this is about: never another of the same name.
    #[serde(default, rename = "machineUID")]
    pub machine_uid: String,
    /// UID of its Node.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// Name of its Node, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Provider id of Machine and Node.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Boot id last seen on the Node.
    #[serde(default, rename = "bootID", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// When a change of it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seen_at: Option<Time>,
    /// What started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The conditions that were bad.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    /// Power calls of this episode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Since when the present episode runs: from the first confirmation to the end of the cool-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode_since: Option<Time>,
    /// Beginnings of the episodes of the last day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<Time>,
    /// Until when the node may take to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_until: Option<Time>,
    /// What made the wait longer already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_for: Vec<Extension>,
    /// Since when the recovered node is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_since: Option<Time>,
    /// When it was good for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_at: Option<Time>,
    /// The removal that was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_intent: Option<DeleteIntent>,
    /// Since when the Node object is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_missing_since: Option<Time>,
    /// Since when the provider does not know the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_missing_since: Option<Time>,
    /// Since when the machine is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Time>,
    /// When windows last began anew: after a pause, or because the Node registered anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_restarted_at: Option<Time>,
    /// Since when something looks like a misspelt pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_suspect_since: Option<Time>,
    /// The provider asked to be left alone until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// How the provider refused last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Since when it refuses our credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_broken_since: Option<Time>,
    /// A failed action of the provider was refunded; that happens once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refunded: bool,
    /// Why a person is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_human: Option<Need>,
    /// Value of annotation `nodeward.dev/retry` that was honoured last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
    /// Why nothing is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<Hold>,
    /// The last change and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_decision: Option<Decision>,
    /// As in every Kubernetes object, for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// Where a remediation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Bad, but not for long enough.
    #[default]
    Suspect,
    /// Confirmed; acts as soon as nothing blocks it.
    Gated,
    /// A reboot was decided and written down.
    RebootPending,
    /// The node may take its time to come back.
    RebootWait,
    /// It came back and must stay good.
    Stabilizing,
    /// It did. Kept for the cool-down.
    Succeeded,
    /// A removal was decided and written down.
    DeletePending,
    /// The owner was asked to remove the Machine.
    Deleting,
    /// The Machine is gone.
    Gone,
    /// Nothing more that a program should do.
    NeedsHuman,
    /// Good. Kept for the count of episodes, or of transitions.
    Healthy,
}

impl Phase {
    /// As in status and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspect => "Suspect",
            Self::Gated => "Gated",
            Self::RebootPending => "RebootPending",
            Self::RebootWait => "RebootWait",
            Self::Stabilizing => "Stabilizing",
            Self::Succeeded => "Succeeded",
            Self::DeletePending => "DeletePending",
            Self::Deleting => "Deleting",
            Self::Gone => "Gone",
            Self::NeedsHuman => "NeedsHuman",
            Self::Healthy => "Healthy",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What started a remediation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cause {
    /// A Node condition held for its window.
    Condition,
    /// The node did not become Ready within the grace.
    StartupTimeout,
    /// Somebody deleted the Node object.
    NodeDeleted,
    /// The provider does not know the instance any more.
    InstanceGone,
    /// Annotation `cluster.x-k8s.io/remediate-machine`.
    Annotation,
    /// A `MachineHealthCheck` in delegated mode.
    HealthCheck,
}

/// One family of bad statuses of a Machine, over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Family {
    /// Condition type.
    pub name: String,
    /// How it is now.
    pub state: FamilyState,
    /// Its status when it last said something.
    pub status: Status,
    /// Its reason then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When we first saw it bad, since it was last good.
    pub first_bad_at: Time,
    /// When we last saw it good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_at: Option<Time>,
    /// From when its present status counts.
    pub effective_since: Time,
    /// From when it counts as not good, whatever the status.
    pub not_good_since: Time,
    /// When its window had held; gone once it is good, or its window began anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_at: Option<Time>,
    /// Transitions between good and bad of the last half hour; the last one ended in the present state. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<Time>,
}

/// How a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FamilyState {
    /// Bad.
    Bad,
    /// Good.
    Good,
    /// There is no evidence.
    Silent,
}

/// One power call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Which attempt of the episode, from 1. An intent that was not sent gives its number back.
    pub n: u32,
    /// Soft or hard.
    pub mode: PowerMode,
    /// Unique.
    #[serde(rename = "intentID")]
    pub intent_id: String,
    /// The process that may send it.
    pub holder: String,
    /// Boot id before.
    #[serde(default, rename = "preBootID", skip_serializing_if = "Option::is_none")]
    pub pre_boot_id: Option<String>,
    /// What the provider showed before, to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_evidence: Option<String>,
    /// When it was written down.
    pub intent_at: Time,
    /// When it must not be sent any more.
    pub send_deadline: Time,
    /// What became of it.
    pub outcome: Outcome,
    /// The provider's name for it.
    #[serde(default, rename = "actionID", skip_serializing_if = "Option::is_none")]
    pub action_id: Option<String>,
    /// When the provider accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Time>,
    /// When a new boot id was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seen_at: Option<Time>,
}

/// Soft or hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PowerMode {
    /// The operating system is asked.
    Soft,
    /// Power is cut.
    Hard,
}

/// What became of a power call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Nobody knows yet whether it was sent.
    Pending,
    /// The provider accepted it.
    Issued,
    /// It was certainly not sent.
    NotIssued,
    /// It was certainly not executed.
    Refused,
    /// It may have been; treated as if it was.
    Unknown,
    /// Accepted, and then failed; given back once.
    Failed,
}

impl Outcome {
    /// Whether the call was accepted, or may have been.
    #[must_use]
    pub const fn spends(self) -> bool {
        match self {
            Self::Pending | Self::Issued | Self::Unknown => true,
            Self::NotIssued | Self::Refused | Self::Failed => false,
        }
    }
}

/// How a provider refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Refusal {
    /// Busy, locked, in maintenance: later.
    Later,
    /// Too many requests.
    RateLimited,
    /// Our credentials.
    Auth,
    /// It does not know the instance.
    NotFound,
    /// It does not know the request.
    Unsupported,
    /// A technician is on it.
    ManualActive,
    /// Our request is wrong.
    Invalid,
}

/// What made a wait longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Extension {
    /// The node is Ready, but a condition was not written since the boot.
    StaleEvidence,
    /// The server is still booting.
    Booting,
}

/// A removal that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteIntent {
    /// UID of the Machine.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Its version when it was decided.
    pub resource_version: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
    /// When the owner was seen to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Time>,
}

/// Why a person is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Need {
    /// Nobody would replace the machine.
    NoOwner,
    /// The provider refused our credentials for too long.
    ProviderAuth,
    /// The provider says the request is wrong, or unknown to it.
    ProviderRefused,
    /// The Node is not the Machine's.
    ForeignNode,
    /// The node is Ready, but its conditions were not written since the boot.
    StaleEvidence,
    /// The host was installed anew too often.
    ReinstallLimit,
    /// The Machine had too many episodes.
    EpisodeLimit,
}

/// A change and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When.
    pub at: Time,
    /// What a person should know.
    pub why: String,
}

/// A condition of one of our own objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: Status,
    /// One word.
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Time,
}

/// Sets a condition; its transition time changes only with its status.
pub fn set_condition(list: &mut Vec<StatusCondition>, kind: &str, status: Status, reason: &str, message: &str, now: Time) {
    let fresh = |since| StatusCondition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
    };
    match list.iter_mut().find(|c| c.kind == kind) {
        Some(old) if old.status == status => *old = fresh(old.last_transition_time),
        Some(old) => *old = fresh(now),
        None => list.push(fresh(now)),
    }
}
