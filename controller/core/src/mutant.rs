//! Deliberate faults, one at a time, for the simulation to catch; compiled in only with the feature `mutants`, which nothing that ships has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// The power call is made together with the write of its intent.
    CallBeforeIntent,
    /// A new process sends the intents it finds.
    ForeignIntentSent,
    /// A call whose answer is unknown is made again.
    UnknownResent,
    /// Nothing is looked at again between intent and call.
    NoLookAfterIntent,
    /// The gate is not evaluated again for what is already claimed.
    GateOnlyOnce,
    /// Attempts are not counted.
    AttemptsUnlimited,
    /// `lastTransitionTime` is believed as it is.
    RawTransitionTime,
    /// A node's clock is not compared with its Lease.
    NodeClockTrusted,
    /// Booting machines count as unhealthy.
    BootingCounted,
    /// Conditions written before the boot count.
    EarlierBootCounts,
    /// An absent condition counts as bad.
    AbsentIsBad,
    /// A machine that never had a Node is rebooted.
    RebootWithoutNode,
    /// Pauses are not looked at again after the claim.
    PauseSeenOnce,
    /// A pause does not restart windows.
    UnpauseKeepsWindow,
    /// The Node's provider id is not compared.
    ForeignNodeAccepted,
    /// A remediation is applied to a new Machine of the same name.
    UidIgnored,
    /// There is no brake.
    NoBrake,
    /// There is no latch.
    NoLatch,
    /// The latch releases itself.
    LatchReleasesItself,
    /// The limit for slots is ignored.
    NoSlots,
    /// History is not written: budgets never end.
    NoHistory,
    /// A control plane is not asked for its etcd.
    NoEtcdCheck,
    /// Only the etcd member is looked at, not its pod.
    EtcdPodIgnored,
    /// Workers' direct deletion is used on control planes.
    ControlPlaneDeleted,
    /// An unreachable workload cluster does not freeze.
    NoFreeze,
    /// A silent node with a fresh Lease is believed to be dead.
    LeaseIgnored,
    /// One 404 of the provider is enough, whatever else it sees.
    OneNotFoundIsGone,
    /// A refused call counts as an attempt.
    RefusedSpends,
    /// An untrusted clock holds nothing.
    ClockIgnored,
    /// A node that recovered is replaced all the same when its wait is over.
    NoLastLook,
    /// `Ready=Unknown` starts a remediation on bare metal.
    SilentMetalRemediated,
    /// Shadow mode acts.
    ShadowActs,
    /// A pending intent is never resolved.
    PendingForever,
    /// A claim is never freed.
    ClaimForever,
    /// Alternating bad statuses restart the window.
    StatusChangeRestarts,
    /// A healed node keeps its request to the owner.
    RequestNotWithdrawn,
    /// Holds are not written down.
    HoldsSilent,
    /// Old heartbeats of the agent count.
    OldHeartbeatCounts,
    /// The breaker across pools is ignored.
    NoBreaker,
    /// Decisions are made on watches alone.
    CachedViewActs,
}

/// Each fault, and what it breaks.
pub const MUTANTS: [(Mutant, &str); 40] = [
    (Mutant::CallBeforeIntent, "the power call is made before its intent is persisted (invariant 1)"),
    (Mutant::ForeignIntentSent, "a new process sends the intents it finds (2, 3)"),
    (Mutant::UnknownResent, "a call whose answer is unknown is made again (2)"),
    (Mutant::NoLookAfterIntent, "nothing is looked at between intent and call (4, 11)"),
    (Mutant::GateOnlyOnce, "the gate is checked before the claim only (11, 13)"),
    (Mutant::AttemptsUnlimited, "attempts are not counted (2)"),
    (Mutant::RawTransitionTime, "lastTransitionTime is believed as it is (7)"),
    (Mutant::NodeClockTrusted, "a node's clock is not compared with its Lease (21)"),
    (Mutant::BootingCounted, "booting machines count as unhealthy (24)"),
    (Mutant::EarlierBootCounts, "conditions of an earlier boot count (8)"),
    (Mutant::AbsentIsBad, "an absent condition counts as bad (9)"),
    (Mutant::RebootWithoutNode, "a machine that never had a Node is rebooted (10)"),
    (Mutant::PauseSeenOnce, "a pause after the claim is not seen (4)"),
    (Mutant::UnpauseKeepsWindow, "the window goes on over a pause (7)"),
    (Mutant::ForeignNodeAccepted, "the Node's provider id is not compared (6)"),
    (Mutant::UidIgnored, "a remediation is applied to a new Machine of the same name (5)"),
    (Mutant::NoBrake, "there is no brake (13)"),
    (Mutant::NoLatch, "there is no latch (13)"),
    (Mutant::LatchReleasesItself, "the latch releases itself (32)"),
    (Mutant::NoSlots, "slots are not counted (12)"),
    (Mutant::NoHistory, "history is not written (14)"),
    (Mutant::NoEtcdCheck, "etcd is not asked (15)"),
    (Mutant::EtcdPodIgnored, "EtcdPodHealthy is not asked (15, decision 29)"),
    (Mutant::ControlPlaneDeleted, "a control plane Machine is deleted directly (15)"),
    (Mutant::NoFreeze, "an unreachable workload cluster does not freeze (17)"),
    (Mutant::LeaseIgnored, "a fresh Lease is ignored (18)"),
    (Mutant::OneNotFoundIsGone, "one 404 is enough (19)"),
    (Mutant::RefusedSpends, "a refused call counts as an attempt (20)"),
    (Mutant::ClockIgnored, "an untrusted clock holds nothing (21)"),
    (Mutant::NoLastLook, "a recovered node is replaced when its wait is over (22)"),
    (Mutant::SilentMetalRemediated, "Ready=Unknown starts a remediation on bare metal (26)"),
    (Mutant::ShadowActs, "shadow mode acts (27)"),
    (Mutant::PendingForever, "a pending intent is never resolved (30)"),
    (Mutant::ClaimForever, "a claim is never freed (29)"),
    (Mutant::StatusChangeRestarts, "alternating bad statuses restart the window (31)"),
    (Mutant::RequestNotWithdrawn, "a healed node keeps its request to the owner (22, 33)"),
    (Mutant::HoldsSilent, "holds are not written down (36)"),
    (Mutant::OldHeartbeatCounts, "old heartbeats count (39)"),
    (Mutant::NoBreaker, "the breaker across pools is ignored (40)"),
    (Mutant::CachedViewActs, "decisions are made on watches alone (11)"),
];

static ACTIVE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Switches one fault on, for the whole process; none: all off.
pub fn switch(mutant: Option<Mutant>) {
    let index = mutant.and_then(|m| MUTANTS.iter().position(|(other, _)| *other == m));
    ACTIVE.store(index.unwrap_or(usize::MAX), Ordering::SeqCst);
}

/// Whether it is this one that is switched on.
pub(crate) fn is(mutant: Mutant) -> bool {
    MUTANTS.get(ACTIVE.load(Ordering::Relaxed)).is_some_and(|(active, _)| *active == mutant)
}
