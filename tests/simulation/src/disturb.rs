//! Carries out one entry of the script: faults of machines, servers, providers and controllers, and what people do.

use std::time::Duration;

use controller_core::{PAUSED, REMEDIATE, RESUME, RETRY, SKIP_REMEDIATION, view::Texts};

use crate::{
    body::Ailment,
    controller::Accident,
    script::{Sick, Sudden, What},
    seconds,
    state::MachineState,
    world::{Event, Happened, World},
};

/// The entry with this number happens.
pub fn disturb(world: &mut World, entry: usize) {
    let Some(what) = world.script.get(entry).map(|d| d.what) else { return };
    world.disturbed_at = world.now;
    world.say(|_| format!("** {what:?}"));
    carry_out(world, what);
    world.state.note_pauses(world.now);
}

fn chosen(world: &World, machine: usize) -> Option<&MachineState> {
    world.state.machines.get(machine % world.state.machines.len().max(1))
}

fn uid_of(world: &World, machine: usize) -> Option<String> {
    chosen(world, machine).map(|m| m.machine.uid.clone())
}

fn carry_out(world: &mut World, what: What) {
    match what {
        What::Sicken { machine, sick, heals, lasts } => {
            if let Some(uid) = uid_of(world, machine) {
                sicken(world, &uid, sick, heals, lasts);
            }
        }
        What::Flap { machine, half, times } => {
            if let Some(uid) = uid_of(world, machine) {
                sicken(world, &uid, Sick::NotReady, false, Some(half));
            }
            again(world, times > 1, half * 2, What::Flap { machine, half, times: times.saturating_sub(1) });
        }
        What::Alternate { machine, half, times } => {
            if let Some(uid) = uid_of(world, machine) {
                let rest = half.saturating_mul(2).saturating_mul(times);
                sicken(world, &uid, Sick::NotReady, false, Some(rest));
                sicken(world, &uid, Sick::KubeletDead, false, Some(half));
            }
            again(world, times > 1, half * 2, What::Alternate { machine, half, times: times.saturating_sub(1) });
        }
        What::Skew { machine, seconds } => {
            if let Some(m) = uid_of(world, machine).and_then(|uid| world.state.machine_mut(&uid)) {
                m.body.skew = seconds * 1000;
            }
        }
        What::SlowBoots { seconds: s } => world.slow_boots = vec![seconds(u64::from(s)); 2],
        What::BadImage { machines } => {
            for p in &mut world.state.pools {
                p.bad_images = machines;
            }
        }
        What::ForeignNode { machine } => {
            if let Some(m) = uid_of(world, machine).and_then(|uid| world.state.machine_mut(&uid))
                && let Some(node) = &mut m.body.node
            {
                node.provider_id.push_str("-other");
            }
        }
        What::InstanceVanishes { machine } => {
            if let Some(uid) = uid_of(world, machine) {
                if let Some(m) = world.state.machine_mut(&uid) {
                    m.body.exists = false;
                }
                world.touch(&uid);
            }
        }
        What::Touch => {
            let uids: Vec<String> = world.state.machines.iter().map(|m| m.machine.uid.clone()).collect();
            uids.iter().for_each(|uid| world.state.write(uid, |_| {}));
        }
        What::ManagementDown { .. } | What::WorkloadDown { .. } | What::ObserverBroken { .. } | What::Lag { .. } => outage(world, what),
        What::Provider { fate, calls } => world.infrastructure.fates.extend((0..calls).map(|_| fate)),
        What::ProviderLies { answers, of_all } => world.infrastructure.lies.extend((0..answers).map(|_| of_all)),
        What::Crash { .. } | What::Stall { .. } | What::Suddenly { .. } | What::ClockJump { .. } => controllers(world, what),
        _ => people(world, what),
    }
}

fn sicken(world: &mut World, uid: &str, sick: Sick, heals: bool, lasts: Option<u32>) {
    let until = lasts.map(|s| world.now + seconds(u64::from(s)));
    if let Some(m) = world.state.machine_mut(uid) {
        m.body.sick.retain(|a| a.sick != sick);
        m.body.sick.push(Ailment { sick, heals, until });
    }
    world.touch(uid);
}

fn again(world: &mut World, more: bool, after: u32, what: What) {
    if more {
        let at = world.now.since(world.began) + Duration::from_secs(u64::from(after));
        world.script.push(crate::script::Disturbance { at, what });
        let entry = world.script.len() - 1;
        world.after(seconds(u64::from(after)), Event::Script(entry));
    }
}

fn outage(world: &mut World, what: What) {
    let now = world.now;
    match what {
        What::ManagementDown { seconds: s } => {
            let until = now + seconds(u64::from(s));
            world.management_down = Some(world.management_down.map_or(until, |old| old.max(until)));
            world.at(until, Event::Over);
            if s >= 10
                && let Some(leader) = world.leader
            {
                // The Lease cannot be renewed: the process ends.
                let run = world.controllers.get(leader).map_or(0, |c| c.run);
                world.after(seconds(10), Event::Lose(leader, run));
            }
        }
        What::WorkloadDown { seconds: s } => {
            let until = now + seconds(u64::from(s));
            world.workload_down = Some(world.workload_down.map_or((now, until), |(since, old)| (since, old.max(until))));
            world.at(until, Event::Over);
        }
        What::ObserverBroken { seconds: s } => {
            let uids: Vec<String> = world.state.machines.iter().map(|m| m.machine.uid.clone()).collect();
            uids.iter().for_each(|uid| sicken(world, uid, Sick::Unobserved, false, Some(s)));
        }
        What::Lag { controller, seconds: s } => {
            let copy = world.state.clone();
            if let Some(c) = world.controllers.get_mut(controller) {
                c.lagged_until = now + seconds(u64::from(s));
                c.stale = Some((Box::new(copy), now + seconds(u64::from(s))));
            }
        }
        _ => {}
    }
}

fn controllers(world: &mut World, what: What) {
    match what {
        What::Crash { controller, effects, after } => {
            if let Some(c) = world.controllers.get_mut(controller) {
                c.accidents.push((effects, Accident::Crash { after }));
            }
        }
        What::Stall { controller, effects, seconds } => {
            if let Some(c) = world.controllers.get_mut(controller) {
                c.accidents.push((effects, Accident::Stall { seconds }));
            }
        }
        What::Suddenly { controller, effects, sudden } => {
            if let Some(c) = world.controllers.get_mut(controller) {
                c.accidents.push((effects, Accident::Suddenly(sudden)));
            }
        }
        What::ClockJump { controller, seconds } => {
            if let Some(c) = world.controllers.get_mut(controller) {
                c.error += seconds * 1000;
            }
        }
        _ => {}
    }
}

/// Something happens in a pool at the worst moment: to the machine that has its first claim, or else is Gated.
pub fn suddenly(world: &mut World, pool: usize, sudden: Sudden) {
    world.say(|_| format!("** suddenly: {sudden:?}"));
    world.disturbed_at = world.now;
    let claimed =
        world.state.pools.get(pool).and_then(|p| p.persisted.as_ref()).and_then(|p| p.status.claims.first()).map(|c| c.machine_uid.clone());
    let sickest = || world.state.members(pool).find(|m| !m.body.sick.is_empty()).map(|m| m.machine.uid.clone());
    let Some(uid) = claimed.or_else(sickest) else { return };
    match sudden {
        Sudden::Pause => world.state.write(&uid, |m| drop(m.annotations.insert(PAUSED.to_owned(), "true".to_owned()))),
        Sudden::Recovery => {
            if let Some(m) = world.state.machine_mut(&uid) {
                m.body.sick.clear();
            }
            world.touch(&uid);
        }
        Sudden::Deletion => world.delete_machine(&uid),
        Sudden::Storm => {
            let others: Vec<String> =
                world.state.members(pool).map(|m| m.machine.uid.clone()).filter(|other| *other != uid).take(2).collect();
            others.iter().for_each(|other| sicken(world, other, Sick::NotReady, false, Some(900)));
        }
        Sudden::Outage => outage(world, What::WorkloadDown { seconds: 120 }),
    }
    world.state.note_pauses(world.now);
}

fn people(world: &mut World, what: What) {
    let annotate = |world: &mut World, machine: usize, change: &dyn Fn(&mut Texts, &mut Texts)| {
        if let Some(uid) = uid_of(world, machine) {
            world.state.write(&uid, |m| change(&mut m.annotations, &mut m.labels));
        }
    };
    match what {
        What::Pause { machine, how } => annotate(world, machine, &|annotations, _| {
            let (key, value) = [(PAUSED, "true"), (PAUSED, "false"), (SKIP_REMEDIATION, ""), (PAUSED, "")][how % 4];
            annotations.insert(key.to_owned(), value.to_owned());
        }),
        What::Unpause { machine } => annotate(world, machine, &|annotations, _| {
            annotations.remove(PAUSED);
            annotations.remove(SKIP_REMEDIATION);
        }),
        What::Mistype { machine, how } => annotate(world, machine, &|annotations, labels| match how % 4 {
            0 => drop(annotations.insert("cluster.x-k8s.io/pause".to_owned(), "true".to_owned())),
            1 => drop(annotations.insert("cluster.k8s.io/paused".to_owned(), String::new())),
            2 => drop(labels.insert(PAUSED.to_owned(), "true".to_owned())),
            _ => drop(annotations.insert("x-k8s.io/paused".to_owned(), String::new())),
        }),
        What::Annotate { machine } => annotate(world, machine, &|annotations, _| {
            annotations.insert(REMEDIATE.to_owned(), String::new());
        }),
        What::PauseCluster { paused } => world.state.clusters.iter_mut().for_each(|c| c.paused = paused),
        What::PauseOwner { pool, paused } => {
            let count = world.state.pools.len().max(1);
            if let Some(p) = world.state.pools.get_mut(pool % count) {
                p.owner.paused = paused;
            }
            world.after(seconds(1), Event::Owner(pool % count));
        }
        What::Delete { machine } => {
            if let Some(uid) = uid_of(world, machine) {
                world.delete_machine(&uid);
            }
        }
        What::DeleteNode { machine } => {
            if let Some(m) = uid_of(world, machine).and_then(|uid| world.state.machine_mut(&uid)) {
                m.body.node = None;
                m.body.deregistered = true;
            }
        }
        What::Scale { pool, up } => {
            if let Some(p) = world.state.pools.get_mut(pool) {
                let control_plane = matches!(p.owner.kind, controller_core::view::OwnerKind::ControlPlane);
                if !control_plane && p.hosts.is_empty() {
                    p.replicas = if up { p.replicas + 1 } else { p.replicas.saturating_sub(1).max(1) };
                }
            }
            world.after(seconds(1), Event::Owner(pool));
        }
        What::Rollout { pool } => {
            if let Some(p) = world.state.pools.get_mut(pool) {
                p.revision += 1;
                p.owner.rolling_out = true;
            }
            world.state.machines.iter_mut().filter(|m| m.pool == pool).for_each(|m| m.machine.outdated = true);
            world.after(seconds(1), Event::Owner(pool));
        }
        What::Acknowledge => acknowledge(world),
        What::Retry { machine } | What::DeleteRemediation { machine } => {
            let version = world.state.next_version();
            let stamp = world.now.to_string();
            let Some(name) = chosen(world, machine).map(|m| m.machine.name.clone()) else { return };
            let deletes = matches!(what, What::DeleteRemediation { .. });
            if deletes && world.state.remediations.get(&name).is_some_and(|r| !r.finalizer) {
                world.state.remediations.remove(&name);
                let now = world.now;
                world.state.machines.iter_mut().filter(|m| m.machine.name == name).for_each(|m| m.forgotten_at = Some(now));
            } else if let Some(r) = world.state.remediations.get_mut(&name) {
                r.resource_version = version;
                if deletes {
                    r.deleting = true;
                } else {
                    r.annotations.insert(RETRY.to_owned(), stamp);
                }
            }
        }
        _ => {}
    }
    for pool in 0..world.state.pools.len() {
        world.wake(pool);
    }
}

/// A person reads the latches of every pool and writes their ids.
pub fn acknowledge(world: &mut World) {
    for pool in 0..world.state.pools.len() {
        let version = world.state.next_version();
        let Some(persisted) = world.state.pools.get_mut(pool).and_then(|p| p.persisted.as_mut()) else { continue };
        if persisted.status.latches.is_empty() {
            continue;
        }
        let ids: Vec<&str> = persisted.status.latches.iter().map(|l| l.id.as_str()).collect();
        persisted.annotations.insert(RESUME.to_owned(), ids.join(","));
        persisted.resource_version = version;
        world.journal.push(Happened::Acknowledged(pool));
        world.wake(pool);
    }
}
