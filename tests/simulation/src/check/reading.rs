//! How many machines of a view are surely unhealthy, by rules of the checkers' own: lower bounds, in doubt less.

use controller_core::{
    policy::{Action, Class, Status},
    state::Phase,
    time::Time,
    view::{Member, Node, NodeLook, PoolView},
};

use crate::{
    script::DAEMONS,
    seconds,
    state::MachineState,
    world::{Destruction, World},
};

/// The Machine that an action was meant for, as its controller saw it.
pub(super) fn member(d: &Destruction) -> Option<&Member> {
    d.view.members.iter().find(|m| m.machine.uid == d.uid)
}

/// The Machine that an action was meant for, as it is.
pub(super) fn truth<'a>(world: &'a World, d: &Destruction) -> Option<&'a MachineState> {
    world.state.machine(&d.uid)
}

/// What is persisted of it, as its controller saw it.
pub(super) fn remembered(m: &Member) -> Option<&controller_core::state::RemediationStatus> {
    m.remediation.as_ref().map(|r| &r.status).filter(|s| s.machine_uid == m.machine.uid)
}

/// Whether a view shows it paused.
pub(super) fn is_paused(m: &Member, view: &PoolView) -> bool {
    let keys = ["cluster.x-k8s.io/paused", "cluster.x-k8s.io/skip-remediation"];
    keys.iter().any(|key| m.machine.annotations.contains_key(*key))
        || view.cluster.paused
        || view.owner.paused
        || m.host.as_ref().is_some_and(|h| h.paused)
}

/// Whether its remediation is past its window and not over.
pub(super) const fn is_confirmed(phase: Phase) -> bool {
    match phase {
        Phase::Gated
        | Phase::RebootPending
        | Phase::RebootWait
        | Phase::Stabilizing
        | Phase::DeletePending
        | Phase::Deleting
        | Phase::NeedsHuman => true,
        Phase::Suspect | Phase::Succeeded | Phase::Gone | Phase::Healthy => false,
    }
}

/// The status of a condition that a view shows.
pub(super) fn status_of(node: &Node, kind: &str) -> Option<Status> {
    node.conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
}

/// The machine is within its grace and was never Ready.
pub(super) fn is_booting(m: &MachineState, grace: std::time::Duration, now: Time) -> bool {
    !m.body.ever_ready && now < m.machine.created_at + grace
}

/// How many of a view's machines surely count.
pub(super) fn counted(view: &PoolView, world: &World) -> usize {
    view.members.iter().filter(|m| counts(m, view, world, 0)).count()
}

/// How many of a view's machines are surely confirmed.
pub(super) fn confirmed(view: &PoolView) -> usize {
    let own = |m: &&Member| {
        let phase = remembered(m).map_or(Phase::Healthy, |s| s.phase);
        let leaving = m.machine.deleting_since.is_some() && !matches!(phase, Phase::DeletePending | Phase::Deleting);
        !is_paused(m, view) && !leaving && is_confirmed(phase)
    };
    view.members.iter().filter(own).count()
}

/// Whether it surely counts, for at least so many seconds.
pub(super) fn counts(m: &Member, view: &PoolView, world: &World, for_seconds: u64) -> bool {
    let phase = remembered(m).map_or(Phase::Healthy, |s| s.phase);
    let Some(truth) = world.state.machine(&m.machine.uid) else { return false };
    let now = world.now;
    if m.machine.deleting_since.is_some() && !matches!(phase, Phase::DeletePending | Phase::Deleting) {
        return false;
    }
    if is_paused(m, view) || !truth.body.ever_ready {
        return false;
    }
    if is_confirmed(phase) {
        return true;
    }
    let NodeLook::Present(node) = &m.node else { return false };
    if node.provider_id != m.machine.provider_id || nearly_never_ready(node) {
        return false;
    }
    let old = |since: Option<Time>| since.is_some_and(|at| now.since(at) >= seconds(for_seconds));
    let ready = status_of(node, "Ready");
    if matches!(ready, Some(Status::False | Status::Unknown)) && old(truth.body.ready.bad_since) {
        return true;
    }
    let fresh = node.agent_boot_id == node.boot_id && now.since(truth.body.agent_wrote_at(now)) < seconds(14 * 60);
    let skewed = truth.body.skew != 0;
    fresh
        && !skewed
        && DAEMONS.iter().zip(truth.body.daemons).any(|(kind, said)| {
            let remediate = view.policy.spec.triggers.iter().any(|t| t.kind == *kind && t.action == Action::Remediate);
            remediate && status_of(node, kind) == Some(Status::True) && old(said.bad_since)
        })
}

/// Ready turned to what it is within a minute of the Node's creation.
pub(super) fn never_ready(node: &Node) -> bool {
    changed_after(node) <= 58_000
}

/// As above, or nearly.
fn nearly_never_ready(node: &Node) -> bool {
    changed_after(node) <= 90_000
}

fn changed_after(node: &Node) -> u64 {
    let at = node.conditions.iter().find(|c| c.kind == "Ready").and_then(|c| c.transition);
    at.map_or(u64::MAX, |at| at.millis().abs_diff(node.created_at.millis()))
}

/// Most that may count.
pub(super) fn most(view: &PoolView) -> usize {
    let paused = view.members.iter().filter(|m| is_paused(m, view) || view.cluster.deleting).count();
    view.policy.spec.limit.max.of(view.members.len() - paused)
}

/// It is a physical host.
pub(super) fn is_metal(view: &PoolView) -> bool {
    view.policy.spec.class == Class::BareMetal
}
