//! How one machine is, by what is persisted of it and what is seen now: the observation half of a step.

use std::time::Duration;

use crate::{
    family::{self, Dating, Held, Silence, Word},
    hold::{Hold, Reason},
    pause,
    policy::{Flapping, Integration, READY, Status},
    state::{Cause, Family, FamilyState, Phase, RemediationStatus},
    time::Time,
    view::{InstanceLook, Member, Node, NodeLook, PoolView},
};

/// A Lease renewed this recently shows that the node lives.
pub(crate) const LEASE_FRESH: Duration = Duration::from_secs(40);
/// Two answers that something does not exist, at least so far apart, make it gone.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(10);
/// A Node whose Ready condition turned to what it is this soon after its creation was never Ready.
const NEVER_READY: Duration = Duration::from_secs(60);
/// Annotation by which anybody asks for a remediation now.
pub const REMEDIATE: &str = "cluster.x-k8s.io/remediate-machine";

/// One machine, assessed.
#[derive(Clone, Debug)]
pub(crate) struct Assessed<'a> {
    pub member: &'a Member,
    /// What is to be persisted, with this observation in it; none: nothing is wrong and nothing was.
    pub status: Option<Box<RemediationStatus>>,
    /// Why it may be acted on: something is confirmed.
    pub cause: Option<Cause>,
    /// Something that is not confirmed, or of which only a person is told, is bad.
    pub suspect: bool,
    /// An alert-only status held for its window.
    pub alert: Option<String>,
    /// What was confirmed in this episode is still bad.
    pub still_bad: bool,
    /// What was confirmed says nothing any more.
    pub stale: bool,
    /// Ready, and nothing is bad or stale.
    pub good: bool,
    /// Good, and by all evidence from the boot that a reboot of ours brought.
    pub proven: bool,
    /// A new machine within its grace.
    pub booting: bool,
    /// Why it is paused, for people.
    pub paused: Vec<String>,
    /// It counts as unhealthy.
    pub counted: bool,
    /// And past its window.
    pub confirmed: bool,
    /// Reasons of its own not to act.
    pub holds: Vec<Hold>,
    /// When a window of it is over.
    pub due: Option<Time>,
}

/// The machine as it is now.
pub(crate) fn assess<'a>(pool: &'a PoolView, member: &'a Member, now: Time) -> Assessed<'a> {
    let mut a = Assessed {
        member,
        status: None,
        cause: None,
        suspect: false,
        alert: None,
        still_bad: false,
        stale: false,
        good: false,
        proven: false,
        booting: false,
        paused: pause::pauses(member, pool),
        counted: false,
        confirmed: false,
        holds: Vec::new(),
        due: None,
    };
    let policy = &pool.policy.spec;
    if plainly_healthy(pool, &a) {
        a.good = true;
        return a;
    }
    let old = member.status();
    let before = old.is_some();
    let mut status = old.cloned().unwrap_or_default();
    status.machine_uid.clone_from(&member.machine.uid);
    status.provider_id.clone_from(&member.machine.provider_id);
    observe(&mut status, member, &a.paused, before, now);
    let boot_until = boot_deadline(pool, member);
    match &member.node {
        NodeLook::NotAsked => {}
        NodeLook::Missing if member.machine.node_name.is_some() => {
            a.suspect = true;
            if status.node_missing_since.is_some_and(|since| now.since(since) >= GONE_AFTER) {
                a.cause = Some(Cause::NodeDeleted);
            } else {
                a.due = status.node_missing_since.map(|since| since + GONE_AFTER);
            }
        }
        NodeLook::Missing => startup(&mut a, boot_until, now),
        NodeLook::Present(node) => present(&mut a, &mut status, pool, node, boot_until, now),
    }
    if a.cause.is_some_and(|cause| cause != Cause::NodeDeleted) && gone(&status, member) {
        a.cause = Some(Cause::InstanceGone);
    }
    match policy.integration {
        Integration::StandAlone if member.machine.annotations.contains_key(REMEDIATE) && asks(&status) => {
            a.cause = a.cause.or(Some(Cause::Annotation));
        }
        Integration::StandAlone => {}
        Integration::Delegated if member.remediation.as_ref().is_none_or(|r| r.deleting) => a.cause = None,
        Integration::Delegated if asks(&status) => a.cause = a.cause.or(Some(Cause::HealthCheck)),
        Integration::Delegated => {}
    }
    if a.cause.is_some() {
        // What a person or a health check says is bad stays so until a boot proves otherwise.
        a.still_bad |= !matches!(a.cause, Some(Cause::Annotation | Cause::HealthCheck)) || !a.proven;
        a.good &= matches!(a.cause, Some(Cause::Annotation | Cause::HealthCheck));
    }
    count(&mut a, &status);
    let bad = status.families.iter().any(|f| f.state == FamilyState::Bad);
    let worth = before || a.cause.is_some() || a.suspect || bad;
    a.status = worth.then(|| Box::new(status));
    a
}

/// Nothing persisted, nothing listed, nothing asked: most machines, most of the time. Says so without looking further.
fn plainly_healthy(pool: &PoolView, a: &Assessed<'_>) -> bool {
    let member = a.member;
    let machine = &member.machine;
    let Some(node) = member.present_node() else { return false };
    let triggers = &pool.policy.spec.triggers;
    let listed = |c: &crate::view::NodeCondition| triggers.iter().any(|t| t.status == c.status && t.kind == c.kind);
    member.remediation.is_none()
        && a.paused.is_empty()
        && machine.deleting_since.is_none()
        && machine.provider_id.is_some()
        && machine.provider_id == node.provider_id
        && !machine.annotations.contains_key(REMEDIATE)
        && pool.cluster.infrastructure_ready_at.is_some()
        && pool.cluster.control_plane_initialized_at.is_some()
        && node.is_ready()
        && !node.conditions.iter().any(listed)
        && !mutant!(AbsentIsBad)
}

/// What does not depend on conditions: pause, identity, boots, what is missing.
fn observe(status: &mut RemediationStatus, member: &Member, paused: &[String], before: bool, now: Time) {
    if paused.is_empty() {
        if status.paused_since.take().is_some() && !mutant!(UnpauseKeepsWindow) {
            status.windows_restarted_at = Some(now);
        }
    } else if status.paused_since.is_none() {
        status.paused_since = Some(now);
    }
    match &member.node {
        NodeLook::NotAsked => {}
        NodeLook::Missing => {
            if member.machine.node_name.is_some() && status.node_missing_since.is_none() {
                status.node_missing_since = Some(now);
            }
        }
        NodeLook::Present(node) => {
            status.node_missing_since = None;
            status.node = Some(node.name.clone());
            if status.node_uid.as_ref().is_some_and(|uid| *uid != node.uid) {
                status.families.clear();
                status.windows_restarted_at = Some(now);
            }
            status.node_uid = Some(node.uid.clone());
            if let Some(boot) = &node.boot_id {
                if before && status.boot_id.as_ref().is_some_and(|old| old != boot) {
                    status.boot_seen_at = Some(now);
                }
                status.boot_id = Some(boot.clone());
                if let Some(attempt) = status.attempts.last_mut()
                    && attempt.boot_seen_at.is_none()
                    && attempt.pre_boot_id.as_ref().is_some_and(|old| old != boot)
                {
                    attempt.boot_seen_at = Some(now);
                }
            }
        }
    }
    match member.instance {
        InstanceLook::Unclear | InstanceLook::NotFound { others_seen: false, .. } => {}
        InstanceLook::Present { .. } => status.instance_missing_since = None,
        InstanceLook::NotFound { at, .. } => {
            status.instance_missing_since.get_or_insert(at);
        }
    }
}

/// Until when the machine may take to become Ready for the first time.
fn boot_deadline(pool: &PoolView, member: &Member) -> Time {
    let machine = &member.machine;
    let node = member.present_node().map(|n| n.created_at);
    let cluster = &pool.cluster;
    let latest = [
        Some(machine.created_at),
        machine.infrastructure_ready_at,
        cluster.infrastructure_ready_at,
        cluster.control_plane_initialized_at,
        node,
    ];
    latest.into_iter().flatten().max().unwrap_or_default() + pool.policy.spec.grace()
}

/// A machine that was never Ready: in its grace, or too late.
fn startup(a: &mut Assessed<'_>, until: Time, now: Time) {
    if now > until {
        a.cause = Some(Cause::StartupTimeout);
        a.suspect = true;
    } else {
        a.booting = true;
        a.due = Some(until);
    }
}

fn present(a: &mut Assessed<'_>, status: &mut RemediationStatus, pool: &PoolView, node: &Node, boot_until: Time, now: Time) {
    let policy = &pool.policy.spec;
    match (&a.member.machine.provider_id, &node.provider_id) {
        (Some(machine), Some(node)) if machine == node => {}
        (Some(_), Some(other)) if !mutant!(ForeignNodeAccepted) => {
            a.holds.push(Hold::new(Reason::ForeignNode, format!("the Node has provider id {other}")));
            a.suspect = true;
            return;
        }
        _ => {
            if !mutant!(ForeignNodeAccepted) {
                a.holds.push(Hold::new(Reason::ForeignNode, "Machine or Node has no provider id"));
            }
        }
    }
    let checks =
        pool.cluster.infrastructure_ready_at.is_some() && (pool.is_control_plane() || pool.cluster.control_plane_initialized_at.is_some());
    if never_ready(node) {
        let silent_metal = policy
            .triggers_of(READY)
            .any(|t| t.action == crate::policy::Action::Alert && node.condition(READY).is_some_and(|c| c.status == t.status));
        if !silent_metal || now <= boot_until {
            startup(a, boot_until, now);
            return;
        }
    }
    if !checks {
        a.booting = true;
        return;
    }
    let clock = family::node_clock(node);
    let dating = Dating {
        now,
        boot_seen_at: status.boot_seen_at,
        node_clock: clock,
        restarted_at: status.windows_restarted_at,
        thawed_at: thawed(pool),
    };
    let episode = status.attempts.iter().any(|t| t.outcome.spends());
    let mut tracked: Vec<Family> = Vec::new();
    let (mut silent_bad, mut all_good) = (None, node.is_ready());
    let mut seen: Vec<&str> = Vec::new();
    for trigger in &policy.triggers {
        let kind = trigger.kind.as_str();
        if seen.contains(&kind) {
            continue;
        }
        seen.push(kind);
        let old = status.families.iter().find(|f| f.name == kind);
        let word = family::word(policy, kind, node, dating);
        if let (Word::Silent(why), Some(condition)) = (word, node.condition(kind))
            && why != Silence::Absent
            && policy.triggers_of(kind).any(|t| t.status == condition.status)
        {
            silent_bad = Some((kind.to_owned(), why));
        }
        let Some(mut next) = family::track(kind, old, word, dating) else { continue };
        match family::held(&next, policy, episode, now) {
            None => {}
            Some(Held::Remediate) => {
                next.triggered_at.get_or_insert(now);
                a.cause = Some(Cause::Condition);
                a.suspect = true;
            }
            Some(Held::Until(due)) => {
                a.suspect = true;
                a.due = Some(a.due.map_or(due, |d| d.min(due)));
            }
            Some(Held::Alert) => {
                a.alert = Some(format!("{kind}={}", next.status.as_str()));
                next.triggered_at = None;
            }
            Some(Held::AlertAt(due)) => {
                // What starts nothing breaks the window of what does.
                next.triggered_at = None;
                a.suspect |= kind == READY;
                a.due = Some(a.due.map_or(due, |d| d.min(due)));
            }
        }
        // Only families that may start something keep a machine from being good.
        let acts = policy.triggers_of(kind).any(|t| t.action == crate::policy::Action::Remediate);
        all_good &= next.state != FamilyState::Bad || !acts;
        if next.triggered_at.is_some() {
            a.still_bad |= next.state == FamilyState::Bad;
            a.stale |= next.state == FamilyState::Silent;
        }
        if acts && family::flaps(&next, now) && a.cause.is_none() {
            match policy.flapping {
                Flapping::Alert => a.holds.push(Hold::new(Reason::Flapping, kind)),
                Flapping::Remediate => {
                    next.triggered_at.get_or_insert(now);
                    a.cause = (next.state == FamilyState::Bad).then_some(Cause::Condition);
                }
            }
        }
        tracked.push(next);
    }
    if let Some((kind, why)) = silent_bad {
        let why = match why {
            Silence::EarlierBoot => "was written by an earlier boot",
            Silence::OldHeartbeat | Silence::Absent => "was not written for too long",
        };
        a.suspect |= status.phase != Phase::Suspect && a.stale;
        a.holds.push(Hold::new(Reason::StaleEvidence, format!("{kind} {why}")));
    }
    let silent_node = |f: &Family| f.name == READY && f.status == Status::Unknown && f.state == FamilyState::Bad;
    if !mutant!(LeaseIgnored)
        && lease_fresh(node, now)
        && a.cause == Some(Cause::Condition)
        && tracked.iter().filter(|f| f.triggered_at.is_some()).all(silent_node)
    {
        a.holds.push(Hold::new(Reason::ObserverBroken, "the silent node renews its Lease"));
    }
    status.families = tracked;
    a.good = all_good && !a.stale;
    a.proven = a.good && proven(status, node, clock);
}

/// All evidence is from the boot that the last power call brought.
fn proven(status: &RemediationStatus, node: &Node, clock: Option<i64>) -> bool {
    let Some(attempt) = status.attempts.last().filter(|t| t.outcome.spends()) else { return false };
    let Some(seen) = attempt.boot_seen_at else { return false };
    let changed = attempt.pre_boot_id.is_some() && attempt.pre_boot_id != node.boot_id;
    let ready = node.condition(READY).and_then(|c| family::written_at(c, clock)).is_some_and(|at| at > seen);
    changed && ready
}

/// Ready turned to what it is, not True, within a minute of the Node's creation. In doubt it was Ready.
fn never_ready(node: &Node) -> bool {
    match node.condition(READY) {
        None => true,
        Some(ready) => {
            ready.status != Status::True
                && ready.transition.is_some_and(|at| at.since(node.created_at) <= NEVER_READY && at + NEVER_READY >= node.created_at)
        }
    }
}

/// Whether the node's Lease shows life.
pub(crate) fn lease_fresh(node: &Node, now: Time) -> bool {
    node.lease.is_some_and(|lease| match lease.arrived_at {
        Some(at) => now.since(at) < LEASE_FRESH,
        // Never seen to be renewed: the node's own time must do, if it is not from the future.
        None => now.since(lease.renew_time) < LEASE_FRESH && lease.renew_time <= now + LEASE_FRESH,
    })
}

fn thawed(pool: &PoolView) -> Option<Time> {
    pool.persisted.as_ref().and_then(|p| p.status.thawed_at)
}

/// The provider said twice, far enough apart, that it does not know the instance, while it knows others.
fn gone(status: &RemediationStatus, member: &Member) -> bool {
    match (status.instance_missing_since, member.instance) {
        (Some(first), InstanceLook::NotFound { at, others_seen: true }) => at.since(first) >= GONE_AFTER || mutant!(OneNotFoundIsGone),
        _ => mutant!(OneNotFoundIsGone) && matches!(member.instance, InstanceLook::NotFound { .. }),
    }
}

/// Whether a mark that asks for a remediation is obeyed. What recovered is not asked again until the cool-down is over.
fn asks(status: &RemediationStatus) -> bool {
    !matches!(status.phase, Phase::Stabilizing | Phase::Succeeded)
}

/// Whether it counts, and as what.
fn count(a: &mut Assessed<'_>, status: &RemediationStatus) {
    let ours = matches!(status.phase, Phase::DeletePending | Phase::Deleting);
    if a.member.machine.deleting_since.is_some() && !ours {
        a.counted = !a.member.present_node().is_some_and(Node::is_ready);
        return;
    }
    if !a.paused.is_empty() {
        return;
    }
    let in_flight = match status.phase {
        Phase::Gated
        | Phase::RebootPending
        | Phase::RebootWait
        | Phase::Stabilizing
        | Phase::DeletePending
        | Phase::Deleting
        | Phase::NeedsHuman => true,
        Phase::Suspect | Phase::Succeeded | Phase::Gone | Phase::Healthy => false,
    };
    let silent = a.alert.as_ref().is_some_and(|what| what.starts_with(READY));
    a.counted = a.suspect || in_flight || a.cause.is_some() || silent || (a.booting && mutant!(BootingCounted));
    a.confirmed = in_flight || a.cause.is_some() || silent;
}
