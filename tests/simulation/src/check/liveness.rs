//! Invariants of what must happen in the end: 28 to 33, 35; bounds hold while one controller leads and both APIs answer.

use std::time::Duration;

use controller_core::{
    hold::Reason,
    policy::{Action, READY, Status},
    state::{Outcome, Phase, RemediationStatus},
    time::Time,
};

use super::{Finding, Memory, reading::is_confirmed};
use crate::{
    script::Sick,
    seconds,
    state::{MachineState, Pool},
    world::World,
};

/// Since when nothing stands in the way of progress.
fn undisturbed(world: &World) -> Option<Time> {
    let led = world.led_since.filter(|_| world.management_answers() && world.workload_down.is_none())?;
    let controller = world.leader.and_then(|l| world.controllers.get(l))?;
    let back = world.outages.last().map_or(world.began, |(_, until)| *until);
    let moved = controller.process.clock.moved_at.unwrap_or_default() + seconds(180);
    let lag = controller.lagged_until;
    Some(led.max(world.management_back).max(back).max(controller.stalled_until).max(moved).max(lag))
}

fn persisted<'a>(world: &'a World, m: &MachineState) -> Option<&'a RemediationStatus> {
    world.state.remediations.get(&m.machine.name).map(|r| &r.status).filter(|s| s.machine_uid == m.machine.uid)
}

/// Ready has been bad for longer than every window, and its machine is not even confirmed.
fn unnoticed(world: &World, alternating: bool) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for m in &world.state.machines {
        let Some(pool) = world.state.pools.get(m.pool) else { continue };
        let Some(bad_since) = m.body.ready.bad_since.filter(|_| m.body.ever_ready && m.body.node.is_some()) else { continue };
        let ready = || pool.policy.spec.triggers.iter().filter(|t| t.kind == READY);
        let longest = ready().map(|t| t.hold_seconds.duration()).max().unwrap_or_default();
        let from = bad_since.max(since).max(m.unpaused_at.unwrap_or_default()).max(m.forgotten_at.unwrap_or_default());
        let alternates = m.body.ready.since > bad_since;
        let foreign = m.body.node.as_ref().is_some_and(|n| Some(&n.provider_id) != m.machine.provider_id.as_ref());
        let newborn = m.body.node.as_ref().is_some_and(|n| bad_since.since(n.created_at) < seconds(120));
        let skip = ready().any(|t| t.action == Action::Alert)
            || alternates != alternating
            || newborn
            || foreign
            || m.paused_since.is_some()
            || m.machine.deleting_since.is_some();
        if skip || world.now.since(from) <= longest + seconds(150) {
            continue;
        }
        let phase = persisted(world, m).map_or(Phase::Healthy, |s| s.phase);
        if !is_confirmed(phase) {
            let lasts = world.now.since(bad_since).as_secs();
            return Err(format!("{} has not been Ready for {lasts} s, and its remediation is {phase}", m.machine.name));
        }
    }
    Ok(())
}

pub(super) fn what_is_bad_is_confirmed(_: &Memory, world: &World) -> Finding {
    unnoticed(world, false)
}

pub(super) fn alternating_statuses_are_caught(_: &Memory, world: &World) -> Finding {
    unnoticed(world, true)
}

pub(super) fn every_claim_ends(memory: &Memory, world: &World) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for p in &world.state.pools {
        let grace = p.policy.spec.grace();
        for claim in p.persisted.iter().flat_map(|p| &p.status.claims) {
            let gone = memory.gone.get(&claim.machine_uid).copied();
            let healed = world.state.machine(&claim.machine_uid).and_then(well_since);
            let bound = match (gone, healed) {
                (Some(_), _) => grace * 2 + seconds(900),
                (None, Some(_)) => p.policy.spec.reboot.wait_seconds.duration() * 2 + seconds(600),
                (None, None) => continue,
            };
            let from = gone.or(healed).unwrap_or_default().max(since).max(claim.since);
            if world.now.since(from) > bound {
                let held = world.now.since(from).as_secs();
                return Err(format!("the claim of {} is held {held} s after it was gone or healed", claim.machine));
            }
        }
    }
    Ok(())
}

/// Since when everything about it is good; none: it is not.
fn well_since(m: &MachineState) -> Option<Time> {
    let body = &m.body;
    let fresh = body.agent_boot == Some(body.boot) && body.speaks() && body.agent_silent_since.is_none() && !body.has(Sick::EtcdDead);
    let good = body.ready.status == Some(Status::True) && body.daemons.iter().all(|s| s.status != Some(Status::True));
    let own = body.node.as_ref().is_some_and(|n| Some(&n.provider_id) == m.machine.provider_id.as_ref());
    let calm =
        m.paused_since.is_none() && m.machine.deleting_since.is_none() && m.machine.annotations.is_empty() && m.machine.labels.is_empty();
    let latest = body.daemons.iter().map(|s| s.since).max().unwrap_or_default().max(body.ready.since).max(body.agent_since);
    (fresh && good && own && calm && body.skew.abs() < 30_000).then_some(latest.max(m.unpaused_at.unwrap_or_default()))
}

pub(super) fn every_intent_is_resolved(_: &Memory, world: &World) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for (name, r) in &world.state.remediations {
        let Some(open) = r.status.attempts.last().filter(|a| a.outcome == Outcome::Pending) else { continue };
        let from = open.send_deadline.max(since);
        if world.now.since(from) > seconds(90 + 30) {
            return Err(format!("intent {} of {name} is open {} s after its deadline", open.intent_id, world.now.since(from).as_secs()));
        }
    }
    Ok(())
}

pub(super) fn what_recovered_is_released(_: &Memory, world: &World) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for m in &world.state.machines {
        let Some(pool) = world.state.pools.get(m.pool) else { continue };
        let Some(well) = well_since(m) else { continue };
        let Some(status) = persisted(world, m).filter(|s| is_confirmed(s.phase)) else { continue };
        let waits = status.wait_until.map_or(Duration::ZERO, |at| at.since(well.max(since)));
        let bound = waits + pool.policy.spec.stability_seconds.duration() + seconds(240);
        if world.now.since(well.max(since)) > bound {
            let lasts = world.now.since(well).as_secs();
            return Err(format!("{} has been well for {lasts} s, and its remediation is {}", m.machine.name, status.phase));
        }
    }
    Ok(())
}

/// After hours of calm whatever is bad was removed, needs a person, or says truthfully what it waits for.
pub(super) fn what_is_bad_ends_somewhere(_: &Memory, world: &World) -> Finding {
    if undisturbed(world).is_none_or(|since| world.now.since(since) < seconds(2 * 3600)) {
        return Ok(());
    }
    for m in &world.state.machines {
        let Some(pool) = world.state.pools.get(m.pool) else { continue };
        let bad = m.body.ready.bad_since.filter(|at| world.now.since(*at) > seconds(2 * 3600));
        if bad.is_none() || m.paused_since.is_some() || m.machine.deleting_since.is_some() || !m.body.ever_ready {
            continue;
        }
        let Some(status) = persisted(world, m) else {
            return Err(format!("{} is bad for hours, and nothing is known of it", m.machine.name));
        };
        let moves =
            matches!(status.phase, Phase::Deleting | Phase::NeedsHuman | Phase::RebootWait | Phase::RebootPending | Phase::DeletePending);
        let waits = status.blocked_by.iter().any(|h| is_excuse(world, pool, m, h.reason));
        if !moves && !waits {
            let holds: Vec<String> = status.blocked_by.iter().map(ToString::to_string).collect();
            return Err(format!("{} is bad for hours and {}: {}", m.machine.name, status.phase, holds.join("; ")));
        }
    }
    Ok(())
}

/// Whether a hold may last for hours, and is true.
fn is_excuse(world: &World, pool: &Pool, m: &MachineState, reason: Reason) -> bool {
    let gate = pool.persisted.as_ref().map(|p| &p.status);
    match reason {
        Reason::Paused => world.state.is_paused(m),
        Reason::StormLatch => gate.is_some_and(|s| !s.latches.is_empty()),
        Reason::StormBrake => gate.is_some_and(|s| s.brake.is_some()),
        Reason::Slot => gate.is_some_and(|s| !s.claims.is_empty()),
        Reason::Budget => gate.is_some_and(|s| !s.history.is_empty()),
        Reason::TooManyUnhealthy | Reason::EtcdQuorum | Reason::Shadow | Reason::AlertOnly | Reason::Rollout => true,
        Reason::OwnerDeferred | Reason::Flapping | Reason::ForeignNode | Reason::ObserverBroken | Reason::StaleEvidence => true,
        Reason::Frozen
        | Reason::PauseSuspect
        | Reason::ProviderRateLimited
        | Reason::ProviderAuth
        | Reason::ProviderRefused
        | Reason::ClockSkew
        | Reason::NoOwner
        | Reason::MHCConflict
        | Reason::PolicyConflict => false,
    }
}

pub(super) fn quiet_releases_the_brake(memory: &Memory, world: &World) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for (number, pool) in world.state.pools.iter().enumerate() {
        let Some(gate) = pool.persisted.as_ref().map(|p| &p.status) else { continue };
        let quiet = pool.policy.spec.storm.quiet_seconds.duration() + seconds(180);
        let from = memory.excess.get(&number).copied().unwrap_or_default().max(since).max(world.disturbed_at);
        let within = gate.unhealthy as usize <= pool.policy.spec.limit.max.of(gate.machines.saturating_sub(gate.paused) as usize);
        let cleared = gate.brake.as_ref().and_then(|b| b.clear_since);
        if gate.brake.is_some() && within && world.now.since(from) > quiet && cleared.is_none_or(|at| world.now.since(at) > quiet) {
            return Err(format!("{} is quiet, and its brake is still set", pool.name));
        }
    }
    Ok(())
}

/// A machine that is ready and finds a free slot in an open gate does not wait, whatever other machines and pools do.
pub(super) fn no_pool_waits_for_another(_: &Memory, world: &World) -> Finding {
    let Some(since) = undisturbed(world) else { return Ok(()) };
    for m in &world.state.machines {
        let Some(status) = persisted(world, m).filter(|s| s.phase == Phase::Gated && s.blocked_by.is_empty()) else { continue };
        let decided = status.last_decision.as_ref().map_or(since, |d| d.at.max(since));
        if world.now.since(decided) > seconds(300) && m.paused_since.is_none() {
            return Err(format!("{} is ready for {} s, and nothing is done", m.machine.name, world.now.since(decided).as_secs()));
        }
    }
    Ok(())
}
