//! Invariants of what people are told: 36, 37, 38.

use std::collections::BTreeSet;

use controller_core::{
    effect::NoticeKind,
    hold::Reason,
    policy::Mode,
    state::{PastAction, RemediationStatus},
};

use super::{Finding, Memory, reading::is_paused};
use crate::{
    seconds,
    world::{Happened, World},
};

pub(super) fn each_change_is_told_once(_: &Memory, _: &World, happened: &Happened) -> Finding {
    let Happened::RemediationWritten { name, before, after, notices, .. } = happened else { return Ok(()) };
    let reasons = |s: &RemediationStatus| s.blocked_by.iter().map(|h| h.reason).collect::<BTreeSet<_>>();
    let changed = before.as_ref().map(|s| reasons(s)).unwrap_or_default() != reasons(after);
    let told = notices.iter().filter(|n| matches!(n.what, NoticeKind::Held(_) | NoticeKind::Released)).count();
    let turned = before.as_ref().map(|s| s.phase) != Some(after.phase);
    // That nothing holds it any more is said by the change of phase, if there is one.
    let said = turned && after.blocked_by.is_empty();
    if told > 1 || (told == 1 && !changed) || (told == 0 && changed && !said) {
        return Err(format!("{name}: holds changed: {changed}, told {told} times"));
    }
    let told = notices.iter().filter(|n| matches!(n.what, NoticeKind::PhaseChanged(_))).count();
    if told > 1 || (turned && told == 0) {
        return Err(format!("{name}: phase is now {}, told {told} times", after.phase));
    }
    Ok(())
}

pub(super) fn what_is_said_is_true(_: &Memory, _: &World, happened: &Happened) -> Finding {
    let Happened::RemediationWritten { name, after, view, .. } = happened else { return Ok(()) };
    let member = view.members.iter().find(|m| m.machine.name == *name);
    let pool = view.persisted.as_ref().map(|p| &p.status);
    for hold in &after.blocked_by {
        let lie = match hold.reason {
            Reason::Paused => !member.is_some_and(|m| is_paused(m, view)),
            Reason::Slot => pool.is_none_or(|s| s.claims.is_empty()),
            Reason::Shadow => view.policy.spec.mode != Mode::Shadow,
            Reason::Rollout => !view.owner.rolling_out,
            Reason::MHCConflict => !member.is_some_and(|m| m.health_check),
            Reason::PolicyConflict => member.is_none_or(|m| m.policies <= 1),
            _ => false,
        };
        if lie {
            return Err(format!("{name} is said to be held by {hold}, and is not"));
        }
    }
    Ok(())
}

pub(super) fn what_is_not_acted_on_says_why(memory: &Memory, world: &World) -> Finding {
    let Some(led) = world.led_since.filter(|_| world.management_answers()) else { return Ok(()) };
    let stalled = world.leader.and_then(|l| world.controllers.get(l)).is_some_and(|c| world.now < c.stalled_until + seconds(60));
    for (name, since) in &memory.speechless {
        let from = (*since).max(led).max(world.management_back);
        if !stalled && world.state.remediations.contains_key(name) && world.now.since(from) > seconds(240) {
            return Err(format!("{name} is confirmed, not acted on for minutes, and says nothing"));
        }
    }
    Ok(())
}

pub(super) fn history_has_every_action(_: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::Destroyed(d) = happened else { return Ok(()) };
    let action = if matches!(d.blow, crate::world::Blow::Power(_)) { PastAction::Reboot } else { PastAction::Replace };
    let history = world.state.pools.get(d.pool).and_then(|p| p.persisted.as_ref()).map(|p| p.status.history.as_slice()).unwrap_or_default();
    let entered = history.iter().any(|p| p.machine_uid == d.uid && p.action == action && world.now.since(p.at) < seconds(600));
    if entered { Ok(()) } else { Err(format!("{:?} of {} is not in the pool's history", d.blow, d.name)) }
}

pub(super) fn every_call_was_told(memory: &Memory, world: &World) -> Finding {
    for m in &world.state.machines {
        let calls = memory.executed.iter().filter(|(_, e)| e.machine_uid == m.machine.uid && world.now.since(e.at) > seconds(300)).count();
        let told = memory.told.get(&m.machine.name).copied().unwrap_or(0);
        if told < calls && m.machine.deleting_since.is_none() && world.state.remediations.contains_key(&m.machine.name) {
            return Err(format!("{} was rebooted {calls} times and told of {told} times", m.machine.name));
        }
    }
    Ok(())
}

pub(super) fn the_core_is_pure(_: &Memory, _: &World, happened: &Happened) -> Finding {
    match happened {
        Happened::Impure(pool) => Err(format!("the same arguments gave another plan for pool {pool}")),
        _ => Ok(()),
    }
}
