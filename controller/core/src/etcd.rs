//! Whether etcd of a control plane survives that one of its machines is rebooted or removed.

use crate::{
    effect::Intention,
    policy::Status,
    view::{Member, PoolView},
};

/// Why not; `Ok` if it does, or if the pool is no control plane.
///
/// Cluster API does not protect a quorum that a dead etcd has used up (`EtcdPodHealthy` is not asked before a deletion, seen with 1.14.2),
/// and nothing of it looks before a reboot: so every other member must be proven healthy. Paused machines count like all others.
pub(crate) fn allows(pool: &PoolView, machine_uid: &str, intention: Intention) -> Result<(), String> {
    if !pool.is_control_plane() || mutant!(NoEtcdCheck) {
        return Ok(());
    }
    let others = || pool.members.iter().filter(|m| m.machine.uid != machine_uid);
    if let Some(other) = others().find(|m| m.machine.deleting_since.is_some()) {
        return Err(format!("{} is being deleted", other.machine.name));
    }
    if let Some(other) = others().find(|m| m.machine.node_name.is_none()) {
        return Err(format!("{} is still provisioning", other.machine.name));
    }
    if pool.owner.paused {
        return Err(format!("{} is paused", pool.owner.name));
    }
    let etcd = pool.owner.etcd;
    if etcd.ghost {
        return Err("a member has no Machine".to_owned());
    }
    if etcd.learner {
        return Err("a member does not vote yet".to_owned());
    }
    if etcd.external {
        let healthy = others().any(|m| m.machine.api_server_healthy == Some(Status::True) && ready(m));
        return if healthy { Ok(()) } else { Err("no other machine has a healthy API server".to_owned()) };
    }
    if let Some(other) = others().find(|m| !healthy(m)) {
        return Err(format!("etcd of {} is not proven healthy", other.machine.name));
    }
    if matches!(intention, Intention::Replace) && others().next().is_none() {
        return Err("the only member is never removed".to_owned());
    }
    Ok(())
}

fn healthy(member: &Member) -> bool {
    let machine = &member.machine;
    machine.etcd_member_healthy == Some(Status::True)
        && (machine.etcd_pod_healthy == Some(Status::True) || mutant!(EtcdPodIgnored))
        && ready(member)
}

fn ready(member: &Member) -> bool {
    member.present_node().is_some_and(crate::view::Node::is_ready)
}
