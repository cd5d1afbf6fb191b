//! What both API servers hold and what the machines behind it are really like, as plain values: a controller with lagging watches sees an older copy.

use std::{collections::BTreeMap, time::Duration};

use controller_core::{
    policy::Status,
    state::{PoolStatus, RemediationStatus},
    time::Time,
    view::{Cluster, Host, Machine, Owner, Persisted, PolicyView, Verdict},
};

use crate::body::Body;

/// Everything that a controller may read.
#[derive(Clone, Debug)]
pub struct State {
    /// As of when this is.
    pub at: Time,
    /// Clusters.
    pub clusters: Vec<Cluster>,
    /// Pools.
    pub pools: Vec<Pool>,
    /// Machines of all pools, oldest first.
    pub machines: Vec<MachineState>,
    /// `NodeRemediation` objects by name.
    pub remediations: BTreeMap<String, Persisted<RemediationStatus>>,
    version: u64,
    made: u64,
}

/// One pool and its owner.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the `RemediationPool`.
    pub name: String,
    /// Which cluster.
    pub cluster: usize,
    /// Its owner, as far as the controller reads it.
    pub owner: Owner,
    /// Its policy.
    pub policy: PolicyView,
    /// Its persisted object.
    pub persisted: Option<Persisted<PoolStatus>>,
    /// How many Machines the owner wants.
    pub replicas: usize,
    /// Its present revision.
    pub revision: u32,
    /// The `maxInFlight` of its `MachineDeployment`.
    pub owner_in_flight: Option<usize>,
    /// Physical hosts, if it has any, with the UID of the Machine on each.
    pub hosts: Vec<(Host, Option<String>)>,
    /// New machines that will never be Ready.
    pub bad_images: u32,
    /// The replacement gets the name of what it replaces.
    pub same_names: bool,
}

/// One Machine.
#[derive(Clone, Debug)]
pub struct MachineState {
    /// As far as the controller reads it.
    pub machine: Machine,
    /// Which pool.
    pub pool: usize,
    /// Of which revision of its owner.
    pub revision: u32,
    /// What it is really like.
    pub body: Body,
    /// Since when a person or an owner pauses it, really.
    pub paused_since: Option<Time>,
    /// When the last pause of at least a minute ended, while it was bad.
    pub unpaused_at: Option<Time>,
    /// When a person deleted what was remembered of it, or ended a pause however short.
    pub forgotten_at: Option<Time>,
    /// A pause that the controller persisted.
    pub pause_noticed: bool,
}

impl State {
    /// Nothing yet.
    #[must_use]
    pub fn new(at: Time) -> Self {
        Self { at, clusters: Vec::new(), pools: Vec::new(), machines: Vec::new(), remediations: BTreeMap::new(), version: 100, made: 0 }
    }

    /// A new `resourceVersion`.
    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A new UID.
    pub fn next_uid(&mut self) -> String {
        self.made += 1;
        format!("u{}", self.made)
    }

    /// The Machine with this UID.
    #[must_use]
    pub fn machine(&self, uid: &str) -> Option<&MachineState> {
        self.machines.iter().find(|m| m.machine.uid == uid)
    }

    /// The Machine with this UID.
    pub fn machine_mut(&mut self, uid: &str) -> Option<&mut MachineState> {
        self.machines.iter_mut().find(|m| m.machine.uid == uid)
    }

    /// The Machine of this name that exists.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&MachineState> {
        self.machines.iter().find(|m| m.machine.name == name)
    }

    /// Changes a Machine, and with it its version.
    pub fn write(&mut self, uid: &str, change: impl FnOnce(&mut Machine)) {
        let version = self.next_version();
        if let Some(m) = self.machine_mut(uid) {
            change(&mut m.machine);
            m.machine.resource_version = version;
        }
    }

    /// Machines of a pool.
    pub fn members(&self, pool: usize) -> impl Iterator<Item = &MachineState> {
        self.machines.iter().filter(move |m| m.pool == pool)
    }

    /// The host of a Machine.
    #[must_use]
    pub fn host_of(&self, m: &MachineState) -> Option<&Host> {
        let hosts = self.pools.get(m.pool).map(|p| p.hosts.as_slice()).unwrap_or_default();
        hosts.iter().find(|(_, on)| on.as_deref() == Some(m.machine.uid.as_str())).map(|(host, _)| host)
    }

    /// Whether anything pauses this Machine now.
    #[must_use]
    pub fn is_paused(&self, m: &MachineState) -> bool {
        let keys = [controller_core::PAUSED, controller_core::SKIP_REMEDIATION];
        let pool = self.pools.get(m.pool);
        keys.iter().any(|key| m.machine.annotations.contains_key(*key))
            || pool.is_some_and(|p| p.owner.paused || self.clusters.get(p.cluster).is_some_and(|c| c.paused))
            || self.host_of(m).is_some_and(|h| h.paused)
    }

    /// Keeps the truth about pauses, after anything that may have changed one.
    pub fn note_pauses(&mut self, now: Time) {
        let paused: Vec<bool> = self.machines.iter().map(|m| self.is_paused(m)).collect();
        for (m, paused) in self.machines.iter_mut().zip(paused) {
            match (m.paused_since, paused) {
                (None, true) => m.paused_since = Some(now),
                (Some(since), false) => {
                    m.paused_since = None;
                    m.forgotten_at = Some(now);
                    if now.since(since) >= Duration::from_secs(60) && m.pause_noticed {
                        m.unpaused_at = Some(now);
                    }
                    m.pause_noticed = false;
                }
                (None, false) | (Some(_), true) => {}
            }
        }
    }
}

/// A condition of a Machine.
#[must_use]
pub fn verdict(status: Status, reason: &str, message: &str) -> Verdict {
    Verdict { status, reason: reason.to_owned(), message: message.to_owned() }
}

/// The Machine carries a request to its owner, as owners read it.
#[must_use]
pub fn is_marked(machine: &Machine) -> bool {
    let says_no = |v: &Option<Verdict>| v.as_ref().is_some_and(|v| v.status == Status::False);
    says_no(&machine.health_check_succeeded) && says_no(&machine.owner_remediated)
}
