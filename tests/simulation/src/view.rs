//! What one controller sees of one pool: the core's view, built from the truth or from an older copy of it.

use std::collections::BTreeMap;

use controller_core::{
    time::Time,
    view::{InstanceLook, Member, NodeLook, Orphan, PoolView, Read, Workload},
};

use crate::state::State;

/// What belongs to the look, not to the state.
pub struct Looking<'a> {
    /// Directly, at this believed time; none: from watches.
    pub read: Read,
    /// The workload API has not answered since then.
    pub failing_since: Option<Time>,
    /// Since when this process watches.
    pub watching_since: Time,
    /// What providers said to this process, by UID.
    pub instances: &'a BTreeMap<String, InstanceLook>,
}

/// The pool, as it is seen.
#[must_use]
pub fn look(state: &State, pool: usize, looking: &Looking<'_>) -> Option<PoolView> {
    let p = state.pools.get(pool)?;
    let mut cluster = state.clusters.get(p.cluster)?.clone();
    cluster.workload = looking.failing_since.map_or(Workload::Reachable, |since| Workload::Failing { since });
    let members = state
        .members(pool)
        .map(|m| Member {
            machine: m.machine.clone(),
            node: match looking.failing_since {
                Some(_) if matches!(looking.read, Read::Direct { .. }) => NodeLook::NotAsked,
                // Watches show the last state before the outage.
                Some(since) => m.body.look(&m.machine.name, since.min(state.at), looking.watching_since),
                None => m.body.look(&m.machine.name, state.at, looking.watching_since),
            },
            remediation: state.remediations.get(&m.machine.name).cloned(),
            host: state.host_of(m).cloned(),
            instance: looking.instances.get(&m.machine.uid).copied().unwrap_or_default(),
            health_check: false,
            policies: 1,
        })
        .collect();
    let prefix = format!("{}-", p.name);
    let orphans = state
        .remediations
        .iter()
        .filter(|(name, _)| name.starts_with(&prefix) && state.named(name).is_none())
        .map(|(name, remediation)| Orphan { name: name.clone(), remediation: remediation.clone() })
        .collect();
    Some(PoolView {
        read: looking.read,
        name: p.name.clone(),
        persisted: p.persisted.clone(),
        policy: p.policy.clone(),
        owner: p.owner.clone(),
        cluster,
        members,
        orphans,
    })
}
