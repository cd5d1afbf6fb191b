//! Invariants of whether a pool may be acted on: 11 to 17, 21, 24, 27, 32, 40.

use controller_core::{
    policy::{Mode, Resume, Status},
    state::Phase,
    view::{NodeLook, OwnerKind, Read, Workload},
};

use super::{
    Finding, Memory,
    reading::{self, is_booting, member, remembered, status_of},
};
use crate::{
    seconds,
    view::{self, Looking},
    world::{Blow, Destruction, Happened, World},
};

pub(super) fn the_limit_holds_by_a_fresh_look(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Read::Direct { at } = d.view.read else { return Err(format!("{} is acted on by what watches show", d.name)) };
    let status = member(d).and_then(remembered);
    let decided = match &d.blow {
        Blow::Power(intent) => status.and_then(|s| s.attempts.iter().find(|a| a.intent_id == *intent)).map(|a| a.intent_at),
        _ => status.and_then(|s| s.delete_intent.as_ref()).map(|i| i.at),
    };
    if decided.is_none_or(|decided| at < decided) {
        return Err(format!("{}: nothing was looked at after it was decided", d.name));
    }
    let (counted, most) = (reading::counted(&d.view, world), reading::most(&d.view));
    if counted > most {
        return Err(format!("{} is acted on while {counted} are unhealthy, with a limit of {most}", d.name));
    }
    Ok(())
}

pub(super) fn no_more_claims_than_slots(_: &Memory, _: &World, happened: &Happened) -> Finding {
    let Happened::PoolWritten { before, after, view, .. } = happened else { return Ok(()) };
    let control_plane = view.owner.kind == OwnerKind::ControlPlane;
    let most = if control_plane { 1 } else { view.policy.spec.max_in_flight as usize };
    if after.claims.len() > most && after.claims.len() > before.claims.len() {
        return Err(format!("{} claims, {most} slots", after.claims.len()));
    }
    let mut uids: Vec<_> = after.claims.iter().map(|c| &c.machine_uid).collect();
    uids.sort();
    uids.dedup();
    if uids.len() == after.claims.len() { Ok(()) } else { Err("one machine has two claims".to_owned()) }
}

pub(super) fn brake_and_latch_hold(memory: &Memory, world: &World, d: &Destruction) -> Finding {
    let persisted = d.view.persisted.as_ref().map(|p| &p.status);
    if persisted.is_some_and(|s| s.brake.is_some()) {
        return Err(format!("{} is acted on under the brake", d.name));
    }
    if persisted.is_some_and(|s| !s.latches.is_empty()) {
        return Err(format!("{} is acted on under a latch", d.name));
    }
    let quiet = d.view.policy.spec.storm.quiet_seconds.duration();
    if let Some(at) = memory.excess.get(&d.pool).filter(|at| world.now.since(**at) + seconds(5) < quiet) {
        return Err(format!("{}: too many were unhealthy {} s ago", d.name, world.now.since(*at).as_secs()));
    }
    Ok(())
}

pub(super) fn the_brake_is_set(_: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::PoolWritten { after, view, .. } = happened else { return Ok(()) };
    let (counted, most) = (reading::counted(view, world), reading::most(view));
    let watched = after.frozen_since.is_none() && view.cluster.workload == Workload::Reachable;
    if watched && matches!(view.read, Read::Direct { .. }) && counted > most && after.brake.is_none() {
        return Err(format!("{counted} are unhealthy with a limit of {most}, and the brake is not set"));
    }
    Ok(())
}

pub(super) fn the_latch_is_set(_: &Memory, _: &World, happened: &Happened) -> Finding {
    let Happened::PoolWritten { after, view, .. } = happened else { return Ok(()) };
    let (confirmed, most) = (reading::confirmed(view), reading::most(view));
    if after.frozen_since.is_none() && confirmed > most && after.latches.is_empty() {
        return Err(format!("{confirmed} are confirmed with a limit of {most}, and no latch is set"));
    }
    Ok(())
}

/// A latch goes by a person's word (or the quiet time, if so wanted), the brake after the quiet time.
pub(super) fn nothing_is_released_early(memory: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::PoolWritten { pool, before, after, view } = happened else { return Ok(()) };
    let storm = view.policy.spec.storm;
    let quiet = storm.quiet_seconds.duration();
    let early = memory.excess.get(pool).filter(|at| world.now.since(**at) + seconds(5) < quiet);
    if before.brake.is_some() && after.brake.is_none() && early.is_some() {
        return Err("the brake was released before the quiet time".to_owned());
    }
    for latch in &before.latches {
        if after.latches.iter().any(|l| l.id == latch.id) {
            continue;
        }
        let acknowledged = memory.acknowledged.get(pool).is_some_and(|at| *at + seconds(60) >= latch.tripped_at);
        let quiet_enough = storm.resume == Resume::Automatic && world.now.since(latch.tripped_at) + seconds(5) >= quiet;
        if !acknowledged && !quiet_enough {
            return Err(format!("latch {} was released by nobody", latch.id));
        }
    }
    Ok(())
}

pub(super) fn budgets_hold(memory: &Memory, world: &World, d: &Destruction) -> Finding {
    let budgets = d.view.policy.spec.budgets;
    let now = world.now;
    // An action counts from its claim, which may be as old as an idle claim becomes.
    let recent = |at: &controller_core::time::Time| now.since(*at) < seconds(3600 - 150);
    if matches!(d.blow, Blow::Power(_)) {
        let done = memory.executed.iter().filter(|(pool, e)| *pool == d.pool && recent(&e.at)).count();
        let most = budgets.reboots_per_hour as usize;
        return if done < most { Ok(()) } else { Err(format!("{done} reboots of the pool in the last hour, of {most}")) };
    }
    let mut uids: Vec<&String> = memory
        .removals
        .iter()
        .filter(|(pool, uid, _, at)| *pool == d.pool && recent(at) && *uid != d.uid)
        .map(|(_, uid, ..)| uid)
        .collect();
    uids.sort();
    uids.dedup();
    if uids.len() >= budgets.replacements_per_hour as usize {
        return Err(format!("{} replacements of the pool in the last hour", uids.len()));
    }
    let host = member(d).and_then(|m| m.host.as_ref()).map(|h| h.uid.clone());
    let same = memory
        .removals
        .iter()
        .filter(|(_, uid, on, at)| host.is_some() && *on == host && *uid != d.uid && now.since(*at) < seconds(24 * 3600 - 150));
    let most = budgets.reinstalls_per_host_per_day as usize;
    let mut installed: Vec<&String> = same.map(|(_, uid, ..)| uid).collect();
    installed.dedup();
    if installed.len() >= most { Err(format!("the host of {} was installed anew {} times today", d.name, installed.len())) } else { Ok(()) }
}

pub(super) fn a_control_plane_loses_one_at_a_time(_: &Memory, _: &World, d: &Destruction) -> Finding {
    if d.view.owner.kind != OwnerKind::ControlPlane {
        return Ok(());
    }
    if d.blow == Blow::Delete {
        return Err(format!("{} is a control plane Machine and was deleted directly", d.name));
    }
    for other in d.view.members.iter().filter(|m| m.machine.uid != d.uid) {
        let name = &other.machine.name;
        if remembered(other)
            .is_some_and(|s| matches!(s.phase, Phase::RebootPending | Phase::RebootWait | Phase::DeletePending | Phase::Deleting))
        {
            return Err(format!("{} is acted on while {name} is, too", d.name));
        }
        if other.machine.deleting_since.is_some() || other.machine.node_name.is_none() {
            return Err(format!("{} is acted on while {name} comes or goes", d.name));
        }
        let ready = matches!(&other.node, NodeLook::Present(node) if status_of(node, "Ready") == Some(Status::True));
        let etcd = [other.machine.etcd_member_healthy, other.machine.etcd_pod_healthy];
        if !ready || etcd.iter().any(|s| *s != Some(Status::True)) {
            return Err(format!("{} is acted on while etcd of {name} is not proven healthy", d.name));
        }
    }
    Ok(())
}

pub(super) fn the_only_member_stays(_: &Memory, _: &World, d: &Destruction) -> Finding {
    let only = d.view.owner.kind == OwnerKind::ControlPlane && d.view.members.len() == 1;
    if only && !matches!(d.blow, Blow::Power(_)) {
        return Err(format!("{} is the only control plane machine, and is to be removed", d.name));
    }
    Ok(())
}

pub(super) fn frozen_is_frozen(_: &Memory, world: &World, d: &Destruction) -> Finding {
    if d.view.persisted.as_ref().is_some_and(|p| p.status.frozen_since.is_some()) {
        return Err(format!("{} is acted on while the cluster is frozen", d.name));
    }
    let led = world.controllers.get(d.by.0).and_then(|c| c.process.leading_since);
    if led.is_none_or(|at| d.believed.since(at) < seconds(29)) {
        return Err(format!("{} is acted on by a controller that has just begun to look", d.name));
    }
    match world.workload_down {
        Some((since, _)) if world.now.since(since) > seconds(41) => {
            Err(format!("{} is acted on {} s after the workload API ceased to answer", d.name, world.now.since(since).as_secs()))
        }
        _ => Ok(()),
    }
}

pub(super) fn the_clock_is_known(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let error = world.controllers.get(d.by.0).map_or(0, |c| c.error);
    if error.abs() > 31_000 { Err(format!("{} is acted on with a clock {} s off", d.name, error / 1000)) } else { moved(world, d) }
}

fn moved(world: &World, d: &Destruction) -> Finding {
    let clock = world.controllers.get(d.by.0).map(|c| c.process.clock).unwrap_or_default();
    match clock.moved_at {
        Some(at) if d.believed.since(at) < seconds(60) => Err(format!("{} is acted on right after the clock moved", d.name)),
        _ if clock.offset.is_none() => Err(format!("{} is acted on with an unknown clock", d.name)),
        _ => Ok(()),
    }
}

pub(super) fn booting_machines_do_not_count(_: &Memory, world: &World, happened: &Happened) -> Finding {
    let Happened::PoolWritten { after, view, .. } = happened else { return Ok(()) };
    let grace = view.policy.spec.grace();
    let booting = view.members.iter().filter(|m| {
        let unacted = remembered(m).is_none_or(|s| s.phase == Phase::Suspect);
        let truth = world.state.machine(&m.machine.uid);
        let whole = m.machine.deleting_since.is_none() && !m.machine.annotations.contains_key("cluster.x-k8s.io/remediate-machine");
        let node = m.machine.node_name.is_none()
            || matches!(&m.node, NodeLook::Present(n) if n.provider_id == m.machine.provider_id && reading::never_ready(n));
        unacted && whole && node && truth.is_some_and(|t| is_booting(t, grace - seconds(30), world.now))
    });
    let (booting, all) = (booting.count(), view.members.len());
    if after.unhealthy as usize + booting > all {
        Err(format!("{} of {all} unhealthy, yet {booting} boot", after.unhealthy))
    } else {
        Ok(())
    }
}

pub(super) fn shadow_does_nothing(_: &Memory, _: &World, d: &Destruction) -> Finding {
    if d.view.policy.spec.mode == Mode::Shadow { Err(format!("{} is acted on in shadow mode", d.name)) } else { Ok(()) }
}

pub(super) fn a_wide_fault_stops_everything(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some(cluster) = world.state.pools.get(d.pool).map(|p| p.cluster) else { return Ok(()) };
    let (mut machines, mut counted) = (0, 0);
    let none = std::collections::BTreeMap::new();
    for (pool, p) in world.state.pools.iter().enumerate().filter(|(_, p)| p.cluster == cluster) {
        let looking = Looking { read: Read::Cached, failing_since: None, watching_since: world.began, instances: &none };
        let now = if pool == d.pool { Some((*d.view).clone()) } else { view::look(&world.state, pool, &looking) };
        let Some(now) = now else { continue };
        machines += world.state.members(pool).count().max(p.replicas);
        // What other pools show must have shown at the look, too.
        let recent = |m: &controller_core::view::Member| {
            remembered(m).and_then(|s| s.last_decision.as_ref()).is_some_and(|l| world.now.since(l.at) < seconds(15))
        };
        counted += now.members.iter().filter(|m| reading::counts(m, &now, world, 15) && !recent(m)).count();
    }
    if counted >= 3 && counted * 100 > machines * 30 {
        return Err(format!("{} is acted on while {counted} of the cluster's {machines} machines are unhealthy", d.name));
    }
    fleet(world, d)
}

fn fleet(world: &World, d: &Destruction) -> Finding {
    let clusters = world.state.clusters.len();
    let family = member(d).and_then(remembered).map(|s| s.families.clone()).unwrap_or_default();
    for f in family.iter().filter(|f| f.triggered_at.is_some()) {
        let struck = (0..clusters).filter(|c| {
            world.state.machines.iter().any(|m| {
                let here = world.state.pools.get(m.pool).is_some_and(|p| p.cluster == *c);
                let status = world.state.remediations.get(&m.machine.name).map(|r| &r.status).filter(|s| s.machine_uid == m.machine.uid);
                let hit = status.is_some_and(|s| {
                    s.phase == Phase::Gated
                        && s.families.iter().any(|g| {
                            let age = g.triggered_at.map(|at| world.now.since(at));
                            g.name == f.name && age.is_some_and(|age| age > seconds(90) && age < seconds(590))
                        })
                });
                here && hit && m.paused_since.is_none()
            })
        });
        let struck = struck.count();
        if struck >= 3 && struck * 3 >= clusters {
            return Err(format!("{} is acted on while {} is confirmed in {struck} of {clusters} clusters", d.name, f.name));
        }
    }
    Ok(())
}
