//! What owns Machines, a `MachineSet` or a control plane: makes, replaces and removes them as Cluster API 1.14.2's controllers were seen to do.

use controller_core::{
    policy::Status,
    view::{Machine, OwnerKind},
};

use crate::{
    script::Sick,
    seconds,
    state::{is_marked, verdict},
    world::{Event, World},
};

/// One look of an owner at its Machines.
pub fn reconcile(world: &mut World, pool: usize) {
    let Some(p) = world.state.pools.get(pool) else { return };
    // Only the Cluster's spec.paused and the owner's own annotation hold it; no Machine's does.
    if p.owner.paused || world.state.clusters.get(p.cluster).is_some_and(|c| c.paused) {
        return;
    }
    if p.owner.kind == OwnerKind::ControlPlane {
        control_plane(world, pool);
    } else {
        machine_set(world, pool);
    }
    scale(world, pool);
    roll(world, pool);
}

/// Whether the control plane of this pool's cluster is changing its revision.
fn control_plane_upgrades(world: &World, cluster: usize) -> bool {
    world.state.pools.iter().any(|p| p.cluster == cluster && p.owner.kind == OwnerKind::ControlPlane && p.owner.rolling_out)
}

fn machine_set(world: &mut World, pool: usize) {
    let marked: Vec<String> = {
        let mut members: Vec<_> =
            world.state.members(pool).filter(|m| is_marked(&m.machine) && m.machine.deleting_since.is_none()).collect();
        // Annotated first, then newest.
        members.sort_by_key(|m| (!m.machine.annotations.contains_key(controller_core::REMEDIATE), std::cmp::Reverse(m.machine.created_at)));
        members.iter().map(|m| m.machine.uid.clone()).collect()
    };
    let Some(p) = world.state.pools.get(pool) else { return };
    let (most, upgrading) = (p.owner_in_flight, control_plane_upgrades(world, p.cluster));
    let ours = |m: &Machine| m.owner_remediated.as_ref().is_some_and(|v| v.reason == "MachineDeleting");
    let mut in_flight = world.state.members(pool).filter(|m| m.machine.deleting_since.is_some() && ours(&m.machine)).count();
    for uid in marked {
        let outdated = world.state.machine(&uid).is_some_and(|m| m.machine.outdated);
        if outdated {
            answer(world, &uid, "CannotBeRemediated", "Machine is not of the current revision");
        } else if upgrading {
            answer(world, &uid, "RemediationDeferred", "the control plane is upgrading");
        } else if most.is_some_and(|most| in_flight >= most) {
            answer(world, &uid, "RemediationDeferred", "as many remediations as allowed are in flight");
        } else {
            in_flight += 1;
            // Written before the delete call.
            answer(world, &uid, "MachineDeleting", "Machine deletionTimestamp set");
            world.delete_machine(&uid);
        }
    }
    let waits = world.state.members(pool).any(|m| is_marked(&m.machine) && m.machine.deleting_since.is_none());
    if waits {
        world.after(seconds(15), Event::Owner(pool));
    }
}

fn control_plane(world: &mut World, pool: usize) {
    let mut marked: Vec<_> = world
        .state
        .members(pool)
        .filter(|m| is_marked(&m.machine) && m.machine.deleting_since.is_none())
        .map(|m| (m.machine.node_name.is_some(), m.machine.created_at, m.machine.uid.clone()))
        .collect();
    marked.sort();
    let Some((_, _, uid)) = marked.first().cloned() else { return };
    world.after(seconds(15), Event::Owner(pool));
    if world.state.members(pool).any(|m| m.machine.deleting_since.is_some()) {
        // While another remediation runs there is no answer at all; another deletion is one.
        return;
    }
    for (_, _, other) in marked.iter().skip(1) {
        answer(world, other, "RemediationDeferred", "another machine is remediated first");
    }
    let members = world.state.members(pool).count();
    let provisioning = world.state.members(pool).any(|m| m.machine.uid != uid && !m.body.ever_ready);
    // A dead etcd does not show in the membership, and nothing else is asked.
    let listed = world.state.members(pool).filter(|m| m.machine.uid != uid && m.machine.etcd_member_healthy == Some(Status::True)).count();
    let others = members.saturating_sub(1);
    if members <= 1 {
        answer(world, &uid, "CannotBeRemediated", "the only control plane machine");
    } else if provisioning {
        answer(world, &uid, "RemediationDeferred", "another machine is provisioning");
    } else if listed < others / 2 + 1 {
        answer(world, &uid, "RemediationDeferred", "etcd would lose its quorum");
    } else {
        let dead = world.state.members(pool).filter(|m| m.machine.uid != uid && (!m.body.is_up() || m.body.has(Sick::EtcdDead))).count();
        world.say(|_| format!("control plane removes etcd member of {uid}, {dead} of the others dead"));
        world.delete_machine(&uid);
        answer(world, &uid, "MachineDeleting", "Machine deletionTimestamp set");
    }
}

fn answer(world: &mut World, uid: &str, reason: &str, message: &str) {
    let told = |m: &Machine| m.owner_remediated.as_ref().is_some_and(|v| v.reason == reason);
    if world.state.machine(uid).is_none_or(|m| told(&m.machine)) {
        return;
    }
    world.say(|_| format!("owner answers {uid}: {reason}"));
    world.state.write(uid, |m| m.owner_remediated = Some(verdict(Status::False, reason, message)));
    if let Some(pool) = world.state.machine(uid).map(|m| m.pool) {
        world.wake(pool);
    }
}

/// The replacement is made only when the old Machine is gone.
fn scale(world: &mut World, pool: usize) {
    let Some(p) = world.state.pools.get(pool) else { return };
    let wanted = p.replicas + usize::from(p.owner.rolling_out);
    let present = world.state.members(pool).count();
    if present < wanted {
        world.create_machine(pool, None);
        if present + 1 < wanted {
            world.after(seconds(2), Event::Owner(pool));
        }
        return;
    }
    let live = world.state.members(pool).filter(|m| m.machine.deleting_since.is_none()).count();
    if live > wanted {
        // Unhealthy ones first, then the newest.
        let surplus = world.state.members(pool).filter(|m| m.machine.deleting_since.is_none());
        let victim = surplus.min_by_key(|m| {
            let unhealthy = m.machine.health_check_succeeded.as_ref().is_some_and(|v| v.status == Status::False);
            (!unhealthy, std::cmp::Reverse(m.machine.created_at))
        });
        if let Some(uid) = victim.map(|m| m.machine.uid.clone()) {
            world.say(|_| format!("owner scales down: {uid}"));
            world.delete_machine(&uid);
        }
    }
}

/// Replaces Machines of an older revision, one after the other, as soon as the newest is Ready.
fn roll(world: &mut World, pool: usize) {
    let Some(p) = world.state.pools.get(pool).filter(|p| p.owner.rolling_out) else { return };
    let revision = p.revision;
    let outdated = world.state.members(pool).filter(|m| m.revision < revision).count();
    if outdated == 0 {
        world.say(|_| format!("rollout of pool {pool} is done"));
        if let Some(p) = world.state.pools.get_mut(pool) {
            p.owner.rolling_out = false;
        }
        world.wake(pool);
        world.after(seconds(1), Event::Owner(pool));
        return;
    }
    world.after(seconds(15), Event::Owner(pool));
    let settled = world.state.members(pool).all(|m| m.machine.deleting_since.is_none());
    let fresh: Vec<_> = world.state.members(pool).filter(|m| m.revision == revision).collect();
    let ready = !fresh.is_empty() && fresh.iter().all(|m| m.body.ready.status == Some(Status::True));
    if settled && ready && world.state.members(pool).count() > world.state.pools.get(pool).map_or(0, |p| p.replicas) {
        let oldest = world.state.members(pool).filter(|m| m.revision < revision).map(|m| m.machine.uid.clone()).next();
        if let Some(uid) = oldest {
            world.delete_machine(&uid);
        }
    }
}
