//! Invariants of power calls: 1, 2, 3, 20, 23.

use controller_core::{
    provider::ProviderKind,
    state::{Cause, Outcome},
};

use super::{
    Finding, Memory,
    reading::{member, remembered},
};
use crate::{
    seconds,
    world::{Blow, Destruction, Happened, World},
};

pub(super) fn an_intent_precedes_every_call(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Blow::Power(intent) = &d.blow else { return Ok(()) };
    let persisted = world.state.remediations.get(&d.name);
    let written = persisted.is_some_and(|r| {
        r.status.machine_uid == d.uid && r.status.attempts.iter().any(|a| a.intent_id == *intent && a.outcome == Outcome::Pending)
    });
    if written { Ok(()) } else { Err(format!("power call {intent} for {} without a persisted intent", d.name)) }
}

pub(super) fn once_per_intent_and_so_many_per_machine(memory: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::Executed(e) = happened else { return Ok(()) };
    if memory.executed.iter().any(|(_, old)| old.intent_id == e.intent_id) {
        return Err(format!("{} was carried out twice", e.intent_id));
    }
    let Some(policy) = world.state.machine(&e.machine_uid).and_then(|m| world.state.pools.get(m.pool)).map(|p| &p.policy.spec) else {
        return Ok(());
    };
    let cooldown = policy.cooldown_seconds.duration();
    let recent = memory.executed.iter().filter(|(_, old)| old.machine_uid == e.machine_uid && e.at.since(old.at) < cooldown - seconds(60));
    let most = policy.reboot.max_attempts as usize;
    if recent.count() < most { Ok(()) } else { Err(format!("more than {most} reboots of {} within the cool-down", e.machine_uid)) }
}

pub(super) fn two_leaders_never_both_send(memory: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::Executed(e) = happened else { return Ok(()) };
    let wait = world
        .state
        .machine(&e.machine_uid)
        .and_then(|m| world.state.pools.get(m.pool))
        .map_or(seconds(0), |p| p.policy.spec.reboot.wait_seconds.duration());
    // A late call may be carried out up to 15 s after its answer was given up.
    let other = memory
        .executed
        .iter()
        .find(|(_, old)| old.machine_uid == e.machine_uid && old.by != e.by && e.at.since(old.at) + seconds(16) < wait);
    match other {
        None => Ok(()),
        Some((_, old)) => Err(format!("{:?} and {:?} both rebooted {} within one wait", old.by, e.by, e.machine_uid)),
    }
}

pub(super) fn refusals_do_not_escalate(memory: &Memory, world: &World, d: &Destruction) -> Finding {
    if matches!(d.blow, Blow::Power(_)) {
        return Ok(());
    }
    let Some(m) = member(d) else { return Ok(()) };
    let (policy, host) = (&d.view.policy.spec, m.host.as_ref());
    let pointless = policy.provider.kind == ProviderKind::None
        || policy.reboot.max_attempts == 0
        || m.machine.node_name.is_none()
        || host.is_some_and(|h| h.maintenance || h.fatal || !h.provisioned);
    let Some(status) = remembered(m).filter(|_| !pointless) else { return Ok(()) };
    if status.cause != Some(Cause::Condition) || status.episodes.len() > 3 {
        return Ok(());
    }
    let cooldown = policy.cooldown_seconds.duration();
    let from = status.episode_since.unwrap_or_default().min(world.now - cooldown);
    let refused = |intent: &str| status.attempts.iter().any(|a| a.intent_id == intent && matches!(a.outcome, Outcome::Refused));
    let sent = memory.sent.iter().filter(|(uid, intent, at)| *uid == d.uid && *at >= from && !refused(intent)).count();
    // An intent that was never sent is Unknown where the provider cannot tell; it counts as a reboot.
    let unknown = status.attempts.iter().filter(|a| a.outcome == Outcome::Unknown).count();
    let most = policy.reboot.max_attempts as usize;
    if sent.max(unknown) >= most || sent + unknown >= most {
        return Ok(());
    }
    Err(format!("{} is removed after {sent} power calls of {most} that were not refused", d.name))
}

/// A crash may skip a reboot, never add one: no more calls than intents that count as made, by what is persisted.
pub(super) fn crashes_do_not_add_calls(memory: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::Executed(e) = happened else { return Ok(()) };
    let Some(m) = world.state.machine(&e.machine_uid) else { return Ok(()) };
    let Some(status) = world.state.remediations.get(&m.machine.name).map(|r| &r.status).filter(|s| s.machine_uid == e.machine_uid) else {
        return Ok(());
    };
    let unsent = status.attempts.iter().find(|a| a.intent_id == e.intent_id && a.outcome == Outcome::NotIssued);
    match unsent {
        Some(_) if memory.sent.iter().any(|(_, intent, _)| *intent == e.intent_id) => {
            Err(format!("{} was carried out although it is on record as never sent", e.intent_id))
        }
        _ => Ok(()),
    }
}
