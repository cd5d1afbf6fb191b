//! Which clusters, pools and policies a seed has: the four default policies, and variants of them.

use std::time::Duration;

use controller_core::{
    policy::{
        Action, Amount, Budgets, Class, Deletion, Exhaustion, Flapping, Integration, Limit, Mode, Policy, Reboot, RebootMode, Resend,
        Resume, Selector, Status, Storm, Trigger,
    },
    provider::{Provider, ProviderKind},
    time::{Seconds, Time},
    view::{Cluster, EtcdView, Host, Owner, OwnerKind, PolicyView, Texts, Workload},
};
use fastrand::Rng;

use crate::{
    seconds,
    state::{Pool, State},
    world::World,
};

/// What a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Virtual machines of a control plane.
    CloudControlPlane,
    /// Virtual workers.
    CloudWorker,
    /// Servers of a control plane.
    MetalControlPlane,
    /// Servers that are workers.
    MetalWorker,
}

impl Kind {
    /// It belongs to a control plane.
    #[must_use]
    pub const fn is_control_plane(self) -> bool {
        matches!(self, Self::CloudControlPlane | Self::MetalControlPlane)
    }

    /// It has physical hosts.
    #[must_use]
    pub const fn is_metal(self) -> bool {
        matches!(self, Self::MetalControlPlane | Self::MetalWorker)
    }
}

/// The world of a seed, its machines up and Ready for some minutes.
pub fn populate(world: &mut World, rng: &mut Rng) {
    let clusters = if rng.u8(0..8) == 0 { rng.usize(3..6) } else { 1 };
    for cluster in 0..clusters {
        world.state.clusters.push(new_cluster(cluster, world.now));
        let kinds: &[Kind] = match rng.u8(0..8) {
            _ if clusters > 1 => &[Kind::CloudWorker],
            0..3 => &[Kind::CloudWorker],
            3 => &[Kind::CloudControlPlane],
            4 => &[Kind::MetalWorker],
            5 => &[Kind::MetalControlPlane],
            6 => &[Kind::CloudControlPlane, Kind::CloudWorker],
            _ => &[Kind::MetalWorker, Kind::CloudWorker],
        };
        for kind in kinds {
            let size = if kind.is_control_plane() { [1, 3, 3, 5][rng.usize(0..4)] } else { rng.usize(2..8) };
            add_pool(world, cluster, *kind, size, vary(policy(*kind), *kind, rng));
            let pool = world.state.pools.last_mut();
            if let Some(pool) = pool {
                pool.owner_in_flight = [None, Some(1), Some(2)][rng.usize(0..3)].filter(|_| !kind.is_control_plane());
                pool.same_names = rng.u8(0..6) == 0;
            }
        }
    }
    let names: Vec<usize> = (0..world.state.pools.len()).collect();
    for pool in names {
        for _ in 0..world.state.pools[pool].replicas {
            world.create_machine(pool, None);
        }
    }
}

/// A cluster whose control plane is initialized.
#[must_use]
pub fn new_cluster(number: usize, now: Time) -> Cluster {
    Cluster {
        namespace: format!("ns{number}"),
        name: format!("c{number}"),
        paused: false,
        deleting: false,
        infrastructure_ready_at: Some(now - seconds(7200)),
        control_plane_initialized_at: Some(now - seconds(7000)),
        workload: Workload::Reachable,
    }
}

/// Adds a pool without machines.
pub fn add_pool(world: &mut World, cluster: usize, kind: Kind, replicas: usize, spec: Policy) {
    let number = world.state.pools.len();
    let uid = |state: &mut State| state.next_uid();
    let mut hosts = Vec::new();
    if kind.is_metal() {
        for i in 0..=replicas {
            let uid = uid(&mut world.state);
            let host = Host { name: format!("h{number}-{i}"), uid, resource_version: "1".to_owned(), ..Host::default() };
            hosts.push((host, None));
        }
    }
    world.state.pools.push(Pool {
        name: format!("p{number}"),
        cluster,
        owner: Owner {
            kind: if kind.is_control_plane() { OwnerKind::ControlPlane } else { OwnerKind::MachineDeployment },
            name: format!("owner{number}"),
            paused: false,
            rolling_out: false,
            annotations: Texts::new(),
            labels: Texts::new(),
            etcd: EtcdView::default(),
        },
        policy: PolicyView { name: format!("policy{number}"), annotations: Texts::new(), spec },
        persisted: None,
        replicas,
        revision: 1,
        owner_in_flight: None,
        hosts,
        bad_images: 0,
        same_names: false,
    });
}

/// The default policy of a kind, with the numbers that users are promised.
#[must_use]
pub fn policy(kind: Kind) -> Policy {
    let metal = kind.is_metal();
    let trigger = |kind: &str, status, hold, action| Trigger { kind: kind.to_owned(), status, hold_seconds: Seconds(hold), action };
    let other = if metal { Action::Alert } else { Action::Remediate };
    let triggers = vec![
        trigger("Ready", Status::Unknown, 600, other),
        trigger("Ready", Status::False, 300, Action::Remediate),
        trigger("ReadonlyFilesystem", Status::True, 120, other),
        trigger("KernelDeadlock", Status::True, 120, other),
        trigger("ServiceNotRecovering", Status::True, 60, other),
        trigger("VerityCorruption", Status::True, 60, other),
    ];
    let control_plane = kind.is_control_plane();
    Policy {
        selector: Selector::default(),
        class: if metal { Class::BareMetal } else { Class::Cloud },
        mode: Mode::Act,
        integration: Integration::StandAlone,
        triggers,
        startup_grace_seconds: Seconds(if kind == Kind::CloudWorker { 600 } else { 1800 }),
        limit: Limit { min: 0, max: Amount::Count(if kind == Kind::CloudWorker { 2 } else { 1 }) },
        max_in_flight: if kind == Kind::CloudWorker { 2 } else { 1 },
        reboot: Reboot {
            max_attempts: if metal { 2 } else { 1 },
            wait_seconds: Seconds(if metal { 300 } else { 180 }),
            mode: RebootMode::Auto,
            resend: Resend::default(),
        },
        cooldown_seconds: Seconds(1800),
        stability_seconds: Seconds(if metal { 120 } else { 60 }),
        storm: Storm::default(),
        budgets: Budgets { replacements_per_hour: if control_plane { 1 } else { 3 }, ..Budgets::default() },
        flapping: Flapping::default(),
        deletion: Deletion::default(),
        on_exhaustion: Exhaustion::default(),
        provider: Provider { kind: if metal { ProviderKind::HetznerRobot } else { ProviderKind::HetznerCloud }, ..Provider::default() },
    }
}

fn vary(mut policy: Policy, kind: Kind, rng: &mut Rng) -> Policy {
    match rng.u8(0..20) {
        0 => policy.mode = Mode::Shadow,
        1 => policy.storm.resume = Resume::Automatic,
        2 => policy.deletion = Deletion::Direct,
        3 => policy.reboot.max_attempts = 0,
        4 => policy.reboot.resend = Resend::Never,
        5 => policy.reboot.mode = RebootMode::Hard,
        6 => policy.flapping = Flapping::Remediate,
        7 if kind == Kind::MetalWorker => policy.on_exhaustion = Exhaustion::Retire,
        8 => policy.limit.max = Amount::Percent(40),
        9 | 10 if kind.is_metal() => {
            policy.provider = Provider { kind: ProviderKind::Redfish, last_reset_time: rng.bool(), ..Provider::default() };
        }
        11 => policy.provider = Provider { kind: ProviderKind::Webhook, lookup: rng.bool(), ..Provider::default() },
        12 => policy.limit.min = 1,
        13 | 14 if kind == Kind::CloudWorker => policy.max_in_flight = 1,
        _ => {}
    }
    policy
}

/// How long machines of this kind take to boot.
#[must_use]
pub fn boot_time(metal: bool, rng: &mut Rng) -> Duration {
    seconds(if metal { rng.u64(120..260) } else { rng.u64(30..110) })
}
