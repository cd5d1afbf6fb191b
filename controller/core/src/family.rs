//! One family of bad statuses over time: what a condition says now, since when it counts, whether its window held, whether it flaps.

use std::time::Duration;

use crate::{
    policy::{Action, Policy, READY, Status},
    state::{Family, FamilyState},
    time::Time,
    view::{Node, NodeCondition},
};

/// Times on the API are truncated to seconds and travel; a burst that heals by the next check must start nothing.
const MARGIN: Duration = Duration::from_secs(15);
/// Our agent rewrites its conditions every 5 minutes; three missed rewrites and it is silent.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15 * 60);
/// A transition further ahead than this was written by a wrong clock.
const AHEAD: Duration = Duration::from_secs(300);
/// A node's clock that is further off than this does not date its own conditions.
const CLOCK_OFF: i64 = 60_000;
/// The sliding time in which transitions are counted.
pub(crate) const FLAP_SPAN: Duration = Duration::from_secs(30 * 60);
/// So many transitions in it are flapping whatever the share of bad time.
const FLAP_TRANSITIONS: usize = 6;
/// Most transitions that are kept.
const KEPT_TRANSITIONS: usize = 16;

/// Condition types that our agent writes, all in one patch with its boot id. Others are dated by their own times.
const OF_OUR_AGENT: [&str; 10] = [
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "VerityCorruption",
    "ServiceNotRecovering",
    "StorageFault",
    "NetworkFault",
    "MemoryHardwareFault",
    "CpuHardwareFault",
    "KubeletUnhealthy",
    "ContainerRuntimeUnhealthy",
];

/// What a condition says now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'a> {
    /// A listed bad status.
    Bad(&'a NodeCondition),
    /// The good one.
    Good(&'a NodeCondition),
    /// Nothing that counts.
    Silent(Silence),
}

/// Why a condition says nothing that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It is not there, or has a status that means neither.
    Absent,
    /// It was written by an earlier boot.
    EarlierBoot,
    /// Its writer has been silent for too long.
    OldHeartbeat,
}

/// What else dates a family: the same for all of a Machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dating {
    /// Now.
    pub now: Time,
    /// When a new boot id was first seen; none: no change was.
    pub boot_seen_at: Option<Time>,
    /// How far the node's clock is ahead, in milliseconds; none: not known.
    pub node_clock: Option<i64>,
    /// When windows last began anew.
    pub restarted_at: Option<Time>,
    /// When the workload cluster last became observable again.
    pub thawed_at: Option<Time>,
}

/// How far the node's clock is ahead of the API server's, in milliseconds, by its Lease; none if no renewal was seen to arrive.
pub(crate) fn node_clock(node: &Node) -> Option<i64> {
    let lease = node.lease?;
    let arrived = lease.arrived_at?;
    let millis = |t: Time| i64::try_from(t.millis()).unwrap_or(i64::MAX);
    Some(millis(lease.renew_time).saturating_sub(millis(arrived)))
}

/// A time of the node's clock, on the API server's as far as the difference is known.
fn corrected(at: Time, node_clock: Option<i64>) -> Time {
    match node_clock {
        Some(ahead) if ahead >= 0 => at - Duration::from_millis(ahead.unsigned_abs()),
        Some(behind) => at + Duration::from_millis(behind.unsigned_abs()),
        None => at,
    }
}

/// When the condition was last written.
pub(crate) fn written_at(condition: &NodeCondition, node_clock: Option<i64>) -> Option<Time> {
    condition.heartbeat.max(condition.transition).map(|at| corrected(at, node_clock))
}

/// What the node says about one family.
pub(crate) fn word<'a>(policy: &'a Policy, kind: &'a str, node: &'a Node, dating: Dating) -> Word<'a> {
    let Some(condition) = node.condition(kind) else {
        if mutant!(AbsentIsBad)
            && let Some(any) = node.conditions.first()
        {
            return Word::Bad(any);
        }
        return Word::Silent(Silence::Absent);
    };
    if let Some(silence) = silence(condition, node, dating) {
        return Word::Silent(silence);
    }
    if policy.triggers_of(kind).any(|t| t.status == condition.status) {
        return Word::Bad(condition);
    }
    // The good status is the one that is neither Unknown nor listed; True for Ready, whatever is listed.
    let good = if kind == READY { condition.status == Status::True } else { condition.status != Status::Unknown };
    if good { Word::Good(condition) } else { Word::Silent(Silence::Absent) }
}

fn silence(condition: &NodeCondition, node: &Node, dating: Dating) -> Option<Silence> {
    // The kubelet writes Ready and the boot id in one patch.
    if condition.kind == READY || mutant!(EarlierBootCounts) {
        return None;
    }
    if OF_OUR_AGENT.contains(&condition.kind.as_str())
        && let Some(spoken_of) = &node.agent_boot_id
    {
        if node.boot_id.as_ref() != Some(spoken_of) {
            return Some(Silence::EarlierBoot);
        }
        if mutant!(OldHeartbeatCounts) {
            return None;
        }
        let old = match written_at(condition, dating.node_clock) {
            Some(at) => dating.now.since(at) > HEARTBEAT || at > dating.now + AHEAD,
            None => true,
        };
        return old.then_some(Silence::OldHeartbeat);
    }
    let seen = dating.boot_seen_at?;
    let fresh = written_at(condition, dating.node_clock).is_some_and(|at| at > seen);
    (!fresh).then_some(Silence::EarlierBoot)
}

/// The family after this observation. Nothing is recorded of a family that was never bad.
pub(crate) fn track(kind: &str, old: Option<&Family>, word: Word<'_>, dating: Dating) -> Option<Family> {
    let now = dating.now;
    match word {
        Word::Silent(_) => old.map(|f| Family { state: FamilyState::Silent, ..f.clone() }),
        Word::Good(condition) => old.map(|f| {
            let mut next = Family { state: FamilyState::Good, status: condition.status, triggered_at: None, ..f.clone() };
            next.reason.clone_from(&condition.reason);
            if !f.was_good() {
                // Later than the bad it follows, even in the same millisecond.
                next.last_good_at = Some(now.max(f.first_bad_at + Duration::from_millis(1)));
                turn(&mut next.transitions, now);
            }
            next
        }),
        Word::Bad(condition) => {
            let relapse = old.is_none_or(Family::was_good);
            // Good was seen until the look before this one at the latest; what the writer says of the time before does not count.
            let last_good_at = old.and_then(|f| if f.was_good() { Some(now) } else { f.last_good_at });
            let same = old.filter(|f| !f.was_good() && f.status == condition.status);
            let since = if believed(condition, dating) { condition.transition } else { same.map(|f| f.effective_since) };
            let floor = last_good_at.max(dating.restarted_at).max(thaw_of(kind, condition.status, dating));
            let mut effective_since = now.min(since.unwrap_or(now).max(floor.unwrap_or_default()));
            if mutant!(RawTransitionTime) {
                effective_since = condition.transition.unwrap_or(now);
            }
            let not_good_since = match old {
                // Not cut off at now: a clock that is behind for a while must not forget what was confirmed.
                Some(f) if !relapse && !mutant!(StatusChangeRestarts) => f.not_good_since.max(floor.unwrap_or_default()),
                _ => effective_since,
            };
            let mut transitions = old.map(|f| f.transitions.clone()).unwrap_or_default();
            if relapse {
                turn(&mut transitions, now);
            }
            Some(Family {
                name: kind.to_owned(),
                state: FamilyState::Bad,
                status: condition.status,
                reason: condition.reason.clone(),
                first_bad_at: if relapse { now } else { old.map_or(now, |f| f.first_bad_at) },
                last_good_at,
                effective_since,
                not_good_since,
                triggered_at: old.filter(|f| f.not_good_since == not_good_since).and_then(|f| f.triggered_at),
                transitions,
            })
        }
    }
}

/// A silent node's window begins anew when we can see again; what a node says itself went on meanwhile.
fn thaw_of(kind: &str, status: Status, dating: Dating) -> Option<Time> {
    dating.thawed_at.filter(|_| kind == READY && status == Status::Unknown)
}

/// Whether the writer's own date of the transition is worth anything.
fn believed(condition: &NodeCondition, dating: Dating) -> bool {
    let Some(at) = condition.transition else { return false };
    if at > dating.now + AHEAD {
        return false;
    }
    // Unknown is written by the node lifecycle controller, on the control plane's clock.
    if condition.kind == READY && condition.status == Status::Unknown {
        return true;
    }
    mutant!(NodeClockTrusted) || dating.node_clock.is_some_and(|off| off.abs() <= CLOCK_OFF)
}

fn turn(transitions: &mut Vec<Time>, now: Time) {
    transitions.retain(|at| now.since(*at) <= FLAP_SPAN);
    if transitions.len() == KEPT_TRANSITIONS {
        transitions.remove(0);
    }
    transitions.push(now);
}

/// How far a bad family has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Its window runs; it will be over at this time.
    Until(Time),
    /// It held for its window, and is to be acted on.
    Remediate,
    /// It held for its window, and a person is to be told.
    Alert,
    /// Its window runs, and then only a person is told.
    AlertAt(Time),
}

/// Whether the family's window held. `episode`: a power call was made for it already, so that an alert-only status of it is "still bad".
pub(crate) fn held(family: &Family, policy: &Policy, episode: bool, now: Time) -> Option<Held> {
    if family.state != FamilyState::Bad {
        return None;
    }
    let trigger = policy.triggers_of(&family.name).find(|t| t.status == family.status)?;
    let due = family.effective_since + trigger.hold_seconds.duration() + MARGIN;
    let remediate = trigger.action == Action::Remediate || (mutant!(SilentMetalRemediated) && family.name == READY);
    if family.triggered_at.is_some() && (remediate || episode) {
        return Some(Held::Remediate);
    }
    if !remediate {
        return Some(if now > due { Held::Alert } else { Held::AlertAt(due) });
    }
    // Alternating bad statuses are caught by the longest window, unless one of them is no reason to act.
    let alert_only = policy.triggers_of(&family.name).any(|t| t.action == Action::Alert);
    let longest = policy.triggers_of(&family.name).map(|t| t.hold_seconds.duration()).max().unwrap_or_default();
    let due = if alert_only { due } else { due.min(family.not_good_since + longest + MARGIN) };
    Some(if now > due { Held::Remediate } else { Held::Until(due) })
}

/// Whether the family is now good, now bad: bad for half of the last half hour in more than one piece, or 6 transitions.
pub(crate) fn flaps(family: &Family, now: Time) -> bool {
    let recent: Vec<Time> = family.transitions.iter().copied().filter(|at| now.since(*at) <= FLAP_SPAN).collect();
    if recent.len() >= FLAP_TRANSITIONS {
        return true;
    }
    if recent.len() < 3 {
        return false;
    }
    // Backwards: the present state began with the last transition, the one before with the last but one, and so on.
    let (mut end, mut bad, mut total) = (now, !family.was_good(), Duration::ZERO);
    for start in recent.iter().rev() {
        if bad {
            total += end.since(*start);
        }
        (end, bad) = (*start, !bad);
    }
    if bad {
        total += end.since(now - FLAP_SPAN);
    }
    total * 2 >= FLAP_SPAN
}

impl Family {
    /// Whether the last thing it said was good.
    #[must_use]
    pub fn was_good(&self) -> bool {
        self.last_good_at.is_some_and(|good| good > self.first_bad_at)
    }
}
