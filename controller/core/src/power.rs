//! The write-ahead protocol of power calls: an intent is written down, everything is looked at again, one request is sent, its outcome is
//! written down; and an intent that is found without an outcome is resolved without ever being sent by another process.

use std::time::Duration;

use crate::{
    assess::Assessed,
    effect::{Intention, PowerCall},
    permit::{self, Scene},
    policy::Resend,
    process::{Answer, Call, Evidence},
    provider::ProviderKind,
    state::{Attempt, Outcome, Phase, PowerMode, Refusal, RemediationStatus},
    time::Time,
};

/// How long an intent may be sent after it was written down.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// What was sent has arrived, or never will, so long after the deadline.
const SETTLED: Duration = Duration::from_secs(20);
/// A provider's log is complete so long after the deadline.
const LOGGED: Duration = Duration::from_secs(60);
/// An intent is resolved, one way or the other, so long after the deadline.
const RESOLVED: Duration = Duration::from_secs(85);
/// Attempts that are kept in the status.
const KEPT: usize = 12;

/// Writes down a new intent. Its id is unique: a process makes at most one intent for a Machine at a time.
pub(crate) fn intend(scene: Scene<'_>, a: &Assessed<'_>, status: &mut RemediationStatus) {
    let spent = u32::try_from(status.attempts.iter().filter(|t| t.outcome.spends()).count()).unwrap_or(u32::MAX);
    let mode = permit::power_mode(scene, a, status);
    while status.attempts.len() >= KEPT {
        let oldest = status.attempts.iter().position(|t| !t.outcome.spends()).unwrap_or(0);
        status.attempts.remove(oldest);
    }
    status.attempts.push(Attempt {
        n: spent.saturating_add(1),
        mode,
        intent_id: format!("{}-{}-{}", status.machine_uid, scene.process.id, scene.now.millis()),
        holder: scene.process.id.clone(),
        pre_boot_id: status.boot_id.clone(),
        pre_evidence: None,
        intent_at: scene.now,
        send_deadline: scene.now + SEND_WITHIN,
        outcome: Outcome::Pending,
        action_id: None,
        issued_at: None,
        boot_seen_at: None,
    });
    status.phase = Phase::RebootPending;
    status.extended_for.clear();
    status.stable_since = None;
}

/// What is to be done about an open intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing but wait, until then at most.
    Wait(Time),
    /// Look directly, then send.
    Look,
    /// Send it now.
    Send(PowerCall),
    /// Ask the provider what became of it.
    Ask(Attempt),
    /// It is resolved: the status says how, and this is told.
    Resolved {
        /// For people.
        why: String,
        /// It was made, or may have been.
        made: bool,
    },
}

/// The open intent's next step. `status` is changed only if it is resolved.
pub(crate) fn follow(scene: Scene<'_>, a: &Assessed<'_>, status: &mut RemediationStatus) -> Turn {
    let Some(open) = permit::pending(status).cloned() else {
        return Turn::Wait(scene.now);
    };
    let (now, wait) = (scene.now, scene.pool.policy.spec.reboot.wait_seconds.duration());
    match scene.process.calls.get(&open.intent_id) {
        Some(Call::Answered(Answer::Issued { action_id, at })) => {
            return made(status, Outcome::Issued, action_id.clone(), *at, wait, "the provider accepted the reboot");
        }
        Some(Call::Answered(Answer::Refused { how, retry_at })) => return refuse(status, *how, *retry_at, now),
        Some(Call::Answered(Answer::NotSent)) => return unsent(status, "the reboot was not sent in time"),
        Some(Call::Answered(Answer::Unknown)) => {
            if mutant!(UnknownResent) {
                return unsent(status, "sent again");
            }
            return made(status, Outcome::Unknown, None, open.intent_at, wait, "the reboot may have been carried out");
        }
        // A call has 5 s in all. One without an answer is looked for like a stranger's.
        Some(Call::Sent) if now <= open.send_deadline + SETTLED => return Turn::Wait(open.send_deadline + SETTLED),
        Some(Call::Sent) => {}
        None if open.holder == scene.process.id || mutant!(ForeignIntentSent) => return send(scene, a, status, &open),
        None => {}
    }
    recover(scene, status, &open)
}

/// Our own intent, not sent yet: the last look decides.
fn send(scene: Scene<'_>, a: &Assessed<'_>, status: &mut RemediationStatus, open: &Attempt) -> Turn {
    if scene.now >= open.send_deadline && !mutant!(ForeignIntentSent) {
        return unsent(status, "the reboot was not sent in time");
    }
    let mut unlooked = mutant!(NoLookAfterIntent);
    if mutant!(ForeignIntentSent) {
        unlooked |= open.holder != scene.process.id;
    }
    if !unlooked && scene.read_at.is_none_or(|at| at < open.intent_at) {
        return Turn::Look;
    }
    let holds = permit::holds(scene, a, status, Intention::Reboot);
    let gone = a.member.machine.deleting_since.is_some() || scene.gate.claim_of(&status.machine_uid).is_none();
    let healed = !a.still_bad && !mutant!(NoLastLook);
    if !unlooked && (!holds.is_empty() || gone || healed || a.cause.is_none()) {
        let why = match holds.first() {
            Some(hold) => hold.to_string(),
            None if gone => "the machine is being deleted, or lost its slot".to_owned(),
            None => "the machine recovered".to_owned(),
        };
        return unsent(status, &format!("no reboot after the last look: {why}"));
    }
    let Some(provider_id) = a.member.machine.provider_id.clone() else {
        return unsent(status, "the machine has no provider id");
    };
    Turn::Send(PowerCall {
        machine: a.member.machine.name.clone(),
        machine_uid: status.machine_uid.clone(),
        provider_id,
        boot_id: open.pre_boot_id.clone(),
        intent_id: open.intent_id.clone(),
        attempt: open.n,
        mode: open.mode,
        deadline: open.send_deadline,
    })
}

/// An intent of another process, or one of ours without an answer: never sent, only looked for.
fn recover(scene: Scene<'_>, status: &mut RemediationStatus, open: &Attempt) -> Turn {
    let Scene { pool, process, now, .. } = scene;
    let policy = &pool.policy.spec;
    let wait = policy.reboot.wait_seconds.duration();
    let settled = open.send_deadline + SETTLED;
    if now < settled || mutant!(PendingForever) {
        return Turn::Wait(settled.max(now + SETTLED));
    }
    if let Some(seen) = open.boot_seen_at {
        return made(status, Outcome::Issued, None, seen, wait, "the node booted: the reboot was carried out");
    }
    let late = now >= open.send_deadline + RESOLVED;
    match process.evidence.get(&open.intent_id) {
        Some(Evidence::Made { action_id, at, .. }) => {
            made(status, Outcome::Issued, action_id.clone(), *at, wait, "the provider's log has the reboot")
        }
        Some(Evidence::NoTrace { asked_at }) if *asked_at >= open.send_deadline + LOGGED => {
            let proof = policy.provider.absence_is_proof() && policy.reboot.resend == Resend::WhenProvenUnsent;
            if proof {
                unsent(status, "the provider's log proves that the reboot was not sent")
            } else {
                made(status, Outcome::Unknown, None, open.intent_at, wait, "the reboot may have been carried out")
            }
        }
        Some(Evidence::CannotTell { .. }) => {
            made(status, Outcome::Unknown, None, open.intent_at, wait, "the reboot may have been carried out: the provider cannot tell")
        }
        Some(Evidence::NoTrace { .. }) | None if late || policy.provider.kind == ProviderKind::None => {
            made(status, Outcome::Unknown, None, open.intent_at, wait, "the reboot may have been carried out: the provider did not say")
        }
        Some(Evidence::NoTrace { .. }) if now < open.send_deadline + LOGGED => Turn::Wait(open.send_deadline + LOGGED),
        Some(Evidence::NoTrace { .. }) | None => Turn::Ask(open.clone()),
    }
}

fn made(status: &mut RemediationStatus, outcome: Outcome, action_id: Option<String>, at: Time, wait: Duration, why: &str) -> Turn {
    if let Some(open) = status.attempts.last_mut() {
        open.outcome = outcome;
        open.action_id = action_id;
        open.issued_at = (outcome == Outcome::Issued).then_some(at);
        status.wait_until = Some(at.max(open.intent_at) + wait);
    }
    status.phase = Phase::RebootWait;
    (status.refused, status.retry_at, status.auth_broken_since) = (None, None, None);
    Turn::Resolved { why: why.to_owned(), made: true }
}

fn unsent(status: &mut RemediationStatus, why: &str) -> Turn {
    if let Some(open) = status.attempts.last_mut() {
        open.outcome = Outcome::NotIssued;
    }
    status.phase = Phase::Gated;
    Turn::Resolved { why: why.to_owned(), made: false }
}

fn refuse(status: &mut RemediationStatus, how: Refusal, retry_at: Option<Time>, now: Time) -> Turn {
    let soft = status.attempts.last().is_some_and(|t| t.mode == PowerMode::Soft);
    if let Some(open) = status.attempts.last_mut() {
        open.outcome = Outcome::Refused;
    }
    let seconds = match how {
        Refusal::Later => 30,
        Refusal::RateLimited => 60,
        Refusal::Auth | Refusal::ManualActive => 300,
        Refusal::NotFound => 15,
        Refusal::Unsupported | Refusal::Invalid => 0,
    };
    status.phase = Phase::Gated;
    status.refused = Some(how);
    status.retry_at = Some(retry_at.unwrap_or(now).max(now + Duration::from_secs(seconds)));
    if how == Refusal::Auth {
        status.auth_broken_since.get_or_insert(now);
    } else {
        status.auth_broken_since = None;
    }
    if how == Refusal::Invalid || (how == Refusal::Unsupported && !soft) {
        status.phase = Phase::NeedsHuman;
        status.needs_human = Some(crate::state::Need::ProviderRefused);
    }
    Turn::Resolved { why: format!("the provider refused the reboot ({how:?})"), made: false }
}
