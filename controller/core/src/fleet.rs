//! What pools must know of one another: whether a fault is wider than a pool, and whether a cluster is observed at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    assess::{Assessed, lease_fresh},
    state::{FamilyState, LatchCause},
    time::Time,
    view::PoolView,
};

/// More than this share of a cluster's machines, in percent, and at least [`LEAST`], is no fault of machines.
const SHARE: usize = 30;
/// Fewer than this many, machines or clusters, are no storm.
const LEAST: usize = 3;
/// Clusters that fail in the same way within this time fail for one reason.
const TOGETHER: Duration = Duration::from_secs(600);

/// What other pools must know of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Namespace and name of its cluster.
    pub cluster: (String, String),
    /// Its Machines.
    pub machines: usize,
    /// How many count as unhealthy.
    pub counted: usize,
    /// Families that are confirmed, with the time of their latest confirmation.
    pub confirmed: BTreeMap<String, Time>,
    /// Nodes that are no candidates.
    pub bystanders: usize,
    /// How many of these renew their Lease.
    pub alive: usize,
    /// Latches of the breaker that are set, with their ids.
    pub latches: Vec<(LatchCause, String)>,
}

/// What one pool must know of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Latches that must be set now, with their ids.
    pub breaker: Vec<(LatchCause, String)>,
    /// At least half of the cluster's bystanders renew their Leases, or there are none.
    pub observed: bool,
    /// For people.
    pub leases: String,
}

impl Summary {
    pub(crate) fn of(pool: &PoolView, members: &[Assessed<'_>], now: Time) -> Self {
        let mut summary =
            Self { cluster: (pool.cluster.namespace.clone(), pool.cluster.name.clone()), machines: members.len(), ..Self::default() };
        for a in members {
            summary.counted += usize::from(a.counted);
            let families = a.status.iter().filter(|_| a.counted).flat_map(|s| &s.families);
            for family in families.filter(|f| f.state == FamilyState::Bad) {
                if let Some(at) = family.triggered_at {
                    let latest = summary.confirmed.entry(family.name.clone()).or_insert(at);
                    *latest = at.max(*latest);
                }
            }
            if !a.counted
                && !a.booting
                && a.paused.is_empty()
                && a.member.machine.deleting_since.is_none()
                && let Some(node) = a.member.present_node()
            {
                summary.bystanders += 1;
                summary.alive += usize::from(lease_fresh(node, now));
            }
        }
        if let Some(persisted) = &pool.persisted {
            let wide = |cause| matches!(cause, LatchCause::Cluster | LatchCause::Fleet);
            summary.latches = persisted.status.latches.iter().filter(|l| wide(l.cause)).map(|l| (l.cause, l.id.clone())).collect();
        }
        summary
    }
}

impl Surroundings {
    /// What pools of this cluster must know, by the summaries of all pools of all clusters.
    #[must_use]
    pub fn of(cluster: &(String, String), all: &[Summary], now: Time) -> Self {
        Fleet::of(all, now).around(cluster)
    }
}

/// All summaries, added up once for all clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    clusters: BTreeMap<(String, String), Sums>,
    /// Families confirmed in a third of the clusters.
    everywhere: bool,
    id: Option<String>,
    now: Time,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    machines: usize,
    counted: usize,
    bystanders: usize,
    alive: usize,
    id: Option<String>,
}

impl Fleet {
    pub(crate) fn of(all: &[Summary], now: Time) -> Self {
        let mut fleet = Self { now, ..Self::default() };
        let mut struck: BTreeMap<&str, BTreeSet<&(String, String)>> = BTreeMap::new();
        for pool in all {
            let sums = fleet.clusters.entry(pool.cluster.clone()).or_default();
            sums.machines += pool.machines;
            sums.counted += pool.counted;
            sums.bystanders += pool.bystanders;
            sums.alive += pool.alive;
            for (cause, id) in &pool.latches {
                match cause {
                    LatchCause::Cluster => sums.id = Some(id.clone()),
                    LatchCause::Fleet => fleet.id = Some(id.clone()),
                    LatchCause::TooManyUnhealthy | LatchCause::NodesDeleted => {}
                }
            }
            for (family, _) in pool.confirmed.iter().filter(|(_, at)| now.since(**at) <= TOGETHER) {
                struck.entry(family).or_default().insert(&pool.cluster);
            }
        }
        let clusters = fleet.clusters.len();
        fleet.everywhere = struck.values().any(|hit| hit.len() >= LEAST && hit.len() * 3 >= clusters);
        fleet
    }

    pub(crate) fn around(&self, cluster: &(String, String)) -> Surroundings {
        let sums = self.clusters.get(cluster).cloned().unwrap_or_default();
        let mut around = Surroundings {
            observed: sums.alive * 2 >= sums.bystanders,
            leases: format!("{} of {} healthy nodes renew their Leases", sums.alive, sums.bystanders),
            breaker: Vec::new(),
        };
        if mutant!(NoBreaker) {
            return around;
        }
        let seconds = self.now.millis() / 1000;
        if sums.counted >= LEAST && sums.counted * 100 > sums.machines * SHARE {
            let id = sums.id.unwrap_or_else(|| format!("cluster-{seconds}"));
            around.breaker.push((LatchCause::Cluster, id));
        }
        if self.everywhere {
            let id = self.id.clone().unwrap_or_else(|| format!("fleet-{seconds}"));
            around.breaker.push((LatchCause::Fleet, id));
        }
        around
    }
}
