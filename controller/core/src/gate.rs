//! Whether a pool may be acted on at all: limit, brake, latch, freeze; and the claims and history that go into the same write.

use std::time::Duration;

use crate::{
    assess::Assessed,
    effect::{Notice, NoticeKind},
    fleet::Surroundings,
    hold::{Hold, Reason},
    policy::{Resume, Status},
    process::Process,
    state::{Brake, Claim, GateState, Latch, LatchCause, Past, PastAction, Phase, PoolStatus, RemediationStatus, Stage, set_condition},
    time::Time,
    view::{Node, PoolView, Workload},
};

/// Annotation by which a person releases a latch: on the pool's object, or on the policy for all its pools.
pub const RESUME: &str = "nodeward.dev/resume";
/// A workload API server that fails for longer is not a blip.
const FAILING: Duration = Duration::from_secs(30);
/// How long a new leader only looks.
pub(crate) const OBSERVE_FIRST: Duration = Duration::from_secs(30);
/// Node objects deleted within this time were deleted by one mistake.
const NODES_DELETED: Duration = Duration::from_secs(300);
/// A claim that led to nothing in this time is dropped.
const IDLE_CLAIM: Duration = Duration::from_secs(120);
/// Most entries of the history.
const HISTORY: usize = 64;
/// Names kept in a latch.
const NAMES: usize = 16;
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The gate of one pool, after this observation.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// What is to be persisted.
    pub status: PoolStatus,
    /// What is to be told.
    pub notices: Vec<Notice>,
    /// Why nothing in the pool may be acted on.
    pub holds: Vec<Hold>,
    /// The workload cluster cannot be observed.
    pub frozen: bool,
    /// Requests to the owner that are not yet carried out must be taken back.
    pub withdraw: bool,
    /// When the gate may change by itself.
    pub due: Option<Time>,
}

/// Most unhealthy machines this pool may have.
pub(crate) fn most(pool: &PoolView, eligible: usize) -> usize {
    pool.policy.spec.limit.max.of(eligible)
}

/// The gate, by what is persisted of it and how the machines are.
pub(crate) fn gate(pool: &PoolView, members: &[Assessed<'_>], around: &Surroundings, process: &Process, now: Time) -> Gate {
    let status = pool.persisted.as_ref().map(|p| p.status.clone()).unwrap_or_default();
    let mut g = Gate { status, notices: Vec::new(), holds: Vec::new(), frozen: false, withdraw: false, due: None };
    let counted = members.iter().filter(|a| a.counted).count();
    let confirmed = members.iter().filter(|a| a.confirmed).count();
    let paused = members.iter().filter(|a| !a.paused.is_empty()).count();
    let max = most(pool, members.len() - paused);
    g.status.machines = u32::try_from(members.len()).unwrap_or(u32::MAX);
    g.status.unhealthy = u32::try_from(counted).unwrap_or(u32::MAX);
    g.status.confirmed = u32::try_from(confirmed).unwrap_or(u32::MAX);
    g.status.paused = u32::try_from(paused).unwrap_or(u32::MAX);
    freeze(&mut g, pool, around, process, now);
    if !g.frozen {
        brake(&mut g, pool, counted > max, now);
        latches(&mut g, pool, members, around, (confirmed, max), now);
    }
    claims(&mut g, pool, members, now);
    prune(&mut g.status.history, now);
    pool_holds(&mut g, pool, process, (counted, max), now);
    warn(&mut g, pool, max, now);
    g.status.in_flight = u32::try_from(g.status.claims.len()).unwrap_or(u32::MAX);
    g.status.gate = if g.holds.is_empty() { GateState::Open } else { GateState::Closed };
    g.status.message = g.holds.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    g
}

impl Gate {
    fn tell(&mut self, what: NoticeKind, message: impl Into<String>) {
        self.notices.push(Notice { machine: None, what, message: message.into() });
    }

    fn at(&mut self, due: Time) {
        self.due = Some(self.due.map_or(due, |d| d.min(due)));
    }

    pub(crate) fn claim_of(&self, uid: &str) -> Option<&Claim> {
        self.status.claims.iter().find(|c| c.machine_uid == uid)
    }
}

fn freeze(g: &mut Gate, pool: &PoolView, around: &Surroundings, process: &Process, now: Time) {
    if mutant!(NoFreeze) {
        g.status.frozen_since = None;
        return;
    }
    match (pool.cluster.workload, g.status.frozen_since) {
        (Workload::Failing { since }, None) if now.since(since) > FAILING => {
            g.status.frozen_since = Some(now);
            g.tell(NoticeKind::Frozen, "the workload cluster's API server does not answer");
        }
        (Workload::Failing { since }, None) => g.at(since + FAILING),
        (Workload::Failing { .. }, Some(_)) | (Workload::Reachable, None) => {}
        (Workload::Reachable, Some(_)) if around.observed => {
            g.status.frozen_since = None;
            g.status.thawed_at = Some(now);
            g.tell(NoticeKind::Thawed, "the workload cluster is observed again");
        }
        (Workload::Reachable, Some(_)) => {}
    }
    if g.status.frozen_since.is_some() {
        g.frozen = true;
        g.holds.push(Hold::new(Reason::Frozen, "the workload cluster cannot be observed"));
        return;
    }
    // No blip of the API server is long enough to freeze, but while it lasts nothing can be looked at again.
    if matches!(pool.cluster.workload, Workload::Failing { .. }) {
        g.holds.push(Hold::new(Reason::Frozen, "the workload cluster's API server does not answer"));
    } else if !around.observed {
        g.holds.push(Hold::new(Reason::Frozen, "most healthy nodes do not renew their Leases"));
    }
    match process.leading_since {
        Some(since) if now.since(since) >= OBSERVE_FIRST => {}
        Some(since) => {
            g.at(since + OBSERVE_FIRST);
            g.holds.push(Hold::new(Reason::Frozen, "just started: looks before it acts"));
        }
        None => g.holds.push(Hold::new(Reason::Frozen, "does not lead")),
    }
}

fn brake(g: &mut Gate, pool: &PoolView, excess: bool, now: Time) {
    if mutant!(NoBrake) {
        return;
    }
    let quiet = pool.policy.spec.storm.quiet_seconds.duration();
    let thawed = g.status.thawed_at.unwrap_or_default();
    match (&mut g.status.brake, excess) {
        (None, false) => {}
        (None, true) => {
            g.status.brake = Some(Brake { since: now, clear_since: None });
            g.tell(NoticeKind::BrakeSet, "more machines are unhealthy than the limit allows");
        }
        (Some(brake), true) => brake.clear_since = None,
        (Some(brake), false) => {
            let since = brake.clear_since.get_or_insert(now).to_owned().max(thawed);
            if now.since(since) > quiet {
                g.status.brake = None;
                g.tell(NoticeKind::BrakeReleased, "the number of unhealthy machines was within the limit for the quiet time");
            } else {
                g.at(since + quiet);
            }
        }
    }
}

fn latches(g: &mut Gate, pool: &PoolView, members: &[Assessed<'_>], around: &Surroundings, count: (usize, usize), now: Time) {
    let (confirmed, max) = count;
    let missing = |a: &&Assessed<'_>| {
        a.paused.is_empty()
            && a.status.as_ref().and_then(|s| s.node_missing_since).is_some_and(|at| now.since(at) <= NODES_DELETED)
            && a.member.machine.deleting_since.is_none()
    };
    let mut wanted: Vec<(LatchCause, String)> = Vec::new();
    let seconds = now.millis() / 1000;
    if confirmed > max {
        wanted.push((LatchCause::TooManyUnhealthy, format!("pool-{seconds}")));
    }
    if members.iter().filter(missing).count() > 1 {
        wanted.push((LatchCause::NodesDeleted, format!("nodes-{seconds}")));
    }
    wanted.extend(around.breaker.iter().cloned());
    if mutant!(NoLatch) {
        wanted.clear();
    }
    let quiet = pool.policy.spec.storm.quiet_seconds.duration();
    let automatic = pool.policy.spec.storm.resume == Resume::Automatic || mutant!(LatchReleasesItself);
    let thawed = g.status.thawed_at.unwrap_or_default();
    let mut kept = Vec::new();
    for mut latch in std::mem::take(&mut g.status.latches) {
        let over = !wanted.iter().any(|(cause, _)| *cause == latch.cause) && confirmed <= max;
        if !over {
            latch.clear_since = None;
            kept.push(latch);
            continue;
        }
        let since = latch.clear_since.get_or_insert(now).to_owned().max(thawed);
        let waited = automatic && now.since(since) > quiet;
        if waited || acknowledged(pool, &latch.id) {
            g.tell(NoticeKind::LatchReleased, latch.id.clone());
        } else {
            if automatic {
                g.at(since + quiet);
            }
            kept.push(latch);
        }
    }
    for (cause, id) in wanted {
        if kept.iter().any(|latch: &Latch| latch.cause == cause) {
            continue;
        }
        let bad = members.iter().filter(|a| a.confirmed).take(NAMES).map(|a| a.member.machine.name.clone()).collect();
        g.tell(NoticeKind::LatchSet, format!("nothing is done until annotation {RESUME}={id} is set ({cause:?})"));
        kept.push(Latch { id, cause, tripped_at: now, machines: bad, clear_since: None });
    }
    g.status.latches = kept;
}

/// Whether a person wrote this latch's id where it counts. Ids may be separated by commas.
fn acknowledged(pool: &PoolView, id: &str) -> bool {
    let own = pool.persisted.as_ref().and_then(|p| p.annotations.get(RESUME));
    own.into_iter().chain(pool.policy.annotations.get(RESUME)).any(|ids| ids.split(',').any(|one| one.trim() == id))
}

/// Claims follow their machines: what is gone waits for its replacement, what is healed or led to nothing is freed.
fn claims(g: &mut Gate, pool: &PoolView, members: &[Assessed<'_>], now: Time) {
    if mutant!(ClaimForever) {
        return;
    }
    let grace = pool.policy.spec.grace();
    let mut taken: Vec<String> = g.status.claims.iter().filter_map(|c| c.replacement_uid.clone()).collect();
    let mut kept = Vec::new();
    for mut claim in std::mem::take(&mut g.status.claims) {
        let member = members.iter().find(|a| a.member.machine.uid == claim.machine_uid);
        let status = member.and_then(|a| a.status.as_deref());
        match (member, status.map(|s| s.phase)) {
            (None, _) => {
                if claim.stage != Stage::AwaitReplacement {
                    claim.stage = Stage::AwaitReplacement;
                    claim.since = now;
                }
                if awaited(&mut claim, members, &mut taken, grace, now) {
                    g.due = Some(g.due.map_or(claim.since + grace, |d| d.min(claim.since + grace)));
                    kept.push(claim);
                }
            }
            (Some(_), Some(Phase::RebootPending | Phase::RebootWait | Phase::Stabilizing | Phase::DeletePending | Phase::Deleting)) => {
                kept.push(claim);
            }
            (Some(a), Some(Phase::Gated | Phase::Suspect))
                if now.since(claim.since) <= IDLE_CLAIM && (a.paused.is_empty() || mutant!(PauseSeenOnce)) =>
            {
                g.due = Some(g.due.map_or(claim.since + IDLE_CLAIM, |d| d.min(claim.since + IDLE_CLAIM)));
                kept.push(claim);
            }
            (Some(_), _) => {
                if !spent(&claim, status) {
                    g.status.history.retain(|past| past.machine_uid != claim.machine_uid || past.at != claim.since);
                }
            }
        }
    }
    g.status.claims = kept;
}

/// Whether what a claim was taken for was done, or may have been.
pub(crate) fn spent(claim: &Claim, status: Option<&RemediationStatus>) -> bool {
    let Some(status) = status else { return false };
    match claim.stage {
        // A record that is younger than its claim replaces one that somebody deleted: what that one knew may have been a reboot.
        Stage::Reboot => {
            status.episode_since.is_none_or(|at| at > claim.since)
                || status.attempts.iter().any(|t| t.intent_at >= claim.since && t.outcome.spends())
        }
        Stage::Delete => status.delete_intent.as_ref().is_some_and(|d| d.asked_at.is_some()),
        Stage::AwaitReplacement => true,
    }
}

/// Whether the slot of a Machine that is gone is still needed.
fn awaited(claim: &mut Claim, members: &[Assessed<'_>], taken: &mut Vec<String>, grace: Duration, now: Time) -> bool {
    if claim.replacement_uid.is_none() {
        // Created at most a minute before the old one was seen to be gone; the oldest that no other claim waits for.
        let candidate = members
            .iter()
            .map(|a| &a.member.machine)
            .filter(|m| m.created_at + Duration::from_secs(60) >= claim.since && !taken.contains(&m.uid))
            .min_by_key(|m| m.created_at);
        if let Some(machine) = candidate {
            claim.replacement_uid = Some(machine.uid.clone());
            taken.push(machine.uid.clone());
        }
    }
    match &claim.replacement_uid {
        Some(uid) => {
            let replacement = members.iter().find(|a| a.member.machine.uid == *uid);
            replacement.is_some_and(|a| a.booting && !a.member.present_node().is_some_and(Node::is_ready))
        }
        None => now.since(claim.since) <= grace,
    }
}

fn prune(history: &mut Vec<Past>, now: Time) {
    history.retain(|past| now.since(past.at) < DAY);
    while history.len() > HISTORY {
        let least = history.iter().position(|p| p.action == PastAction::Reboot && now.since(p.at) > HOUR);
        let least = least.or_else(|| history.iter().position(|p| p.host_uid.is_none() && now.since(p.at) > HOUR));
        history.remove(least.unwrap_or(0));
    }
}

fn pool_holds(g: &mut Gate, pool: &PoolView, process: &Process, count: (usize, usize), now: Time) {
    let (counted, max) = count;
    let min = pool.policy.spec.limit.min as usize;
    if counted > max && !mutant!(NoBrake) {
        g.holds.push(Hold::new(Reason::TooManyUnhealthy, format!("more than {max} are unhealthy")));
    }
    if counted < min {
        g.holds.push(Hold::new(Reason::TooManyUnhealthy, format!("fewer than {min} are unhealthy")));
    }
    if g.status.brake.is_some() && !mutant!(NoBrake) {
        g.holds.push(Hold::new(Reason::StormBrake, "too many were unhealthy a short while ago"));
    }
    let latched: Vec<Hold> = g
        .status
        .latches
        .iter()
        .filter(|_| !mutant!(NoLatch))
        .map(|latch| Hold::new(Reason::StormLatch, format!("{:?}: set annotation {RESUME}={}", latch.cause, latch.id)))
        .collect();
    g.withdraw = g.frozen || !latched.is_empty();
    g.holds.extend(latched);
    if let Some(why) = process.clock.distrust(now).filter(|_| !mutant!(ClockIgnored)) {
        g.holds.push(Hold::new(Reason::ClockSkew, why));
    }
}

/// What does not do what it seems to.
fn warn(g: &mut Gate, pool: &PoolView, max: usize, now: Time) {
    let unlimited = pool.members.iter().any(|m| m.machine.drain_timeout.is_none_or(|t| t.is_zero()));
    let zero = max == 0 && pool.policy.spec.limit.max != crate::policy::Amount::Count(0) && !pool.members.is_empty();
    let warnings = [
        ("LimitEffective", zero, "RoundsToZero", "the limit's percentage of this pool is less than one machine: nothing is ever done"),
        (
            "DrainBounded",
            unlimited,
            "Unlimited",
            "Machines without nodeDrainTimeout: a pod that cannot be evicted stops a replacement for ever",
        ),
    ];
    for (kind, wrong, reason, message) in warnings {
        let was = g.status.conditions.iter().find(|c| c.kind == kind).map(|c| c.status);
        let (status, reason, shown) = if wrong { (Status::False, reason, message) } else { (Status::True, "AsExpected", "") };
        set_condition(&mut g.status.conditions, kind, status, reason, shown, now);
        if wrong && was != Some(Status::False) {
            g.tell(NoticeKind::Warning, message);
        }
    }
}
