//! What the shell saw: typed snapshots of everything one pool's decisions depend on. Absent and not asked are different things.

use std::collections::BTreeMap;

use crate::{
    policy::{Policy, Status},
    process::Process,
    state::{PoolStatus, RemediationStatus},
    time::Time,
};

/// Annotations or labels.
pub type Texts = BTreeMap<String, String>;

/// Everything: what this process knows of itself, and every pool of every cluster.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// This process.
    pub process: Process,
    /// The pools.
    pub pools: Vec<PoolView>,
}

/// How a pool was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// From watches: may lag. Nothing destructive is decided on it.
    Cached,
    /// From the API servers, every object of the pool and of its cluster's breaker after this moment.
    Direct {
        /// When the first read began.
        at: Time,
    },
}

/// One pool: the Machines of one owner that one policy selects.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// How it was read.
    pub read: Read,
    /// Name of the pool's `RemediationPool` object; its namespace is the cluster's.
    pub name: String,
    /// The pool's persisted object; none: it does not exist yet.
    pub persisted: Option<Persisted<PoolStatus>>,
    /// The policy.
    pub policy: PolicyView,
    /// What owns the Machines.
    pub owner: Owner,
    /// Their cluster.
    pub cluster: Cluster,
    /// The Machines, with all that belongs to them.
    pub members: Vec<Member>,
    /// Remediations of this pool whose Machine does not exist any more, by name.
    pub orphans: Vec<Orphan>,
}

/// A persisted object of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persisted<S> {
    /// Its UID.
    pub uid: String,
    /// Its version: what a write of it is bound to.
    pub resource_version: String,
    /// Its annotations.
    pub annotations: Texts,
    /// It is being deleted, and waits for our finalizer.
    pub deleting: bool,
    /// It has our finalizer.
    pub finalizer: bool,
    /// What we wrote.
    pub status: S,
}

/// A policy, as it was read.
#[derive(Clone, Debug)]
pub struct PolicyView {
    /// Name.
    pub name: String,
    /// Annotations: `nodeward.dev/resume` may be here too.
    pub annotations: Texts,
    /// What it says.
    pub spec: Policy,
}

/// What owns the Machines of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which kind.
    pub kind: OwnerKind,
    /// Its name.
    pub name: String,
    /// It, or what carries out its wishes, is paused.
    pub paused: bool,
    /// It is replacing Machines of an older revision, or upgrading.
    pub rolling_out: bool,
    /// Its annotations and labels.
    pub annotations: Texts,
    /// Labels.
    pub labels: Texts,
    /// Etcd as the control plane sees it; nothing for workers.
    pub etcd: EtcdView,
}

/// Which kind of object owns a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A `MachineSet` of a `MachineDeployment`.
    MachineDeployment,
    /// A stand-alone `MachineSet`.
    MachineSet,
    /// A control plane object.
    ControlPlane,
    /// None, or one that replaces nothing.
    Other,
}

/// Etcd as the control plane sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdView {
    /// It does not run on the control plane Machines.
    pub external: bool,
    /// A member has no Machine, or one has no name.
    pub ghost: bool,
    /// A member does not vote yet.
    pub learner: bool,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Namespace, of all objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.paused`, or the annotation.
    pub paused: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Since when its infrastructure is ready; none: it is not.
    pub infrastructure_ready_at: Option<Time>,
    /// Since when its control plane is initialized; none: it is not.
    pub control_plane_initialized_at: Option<Time>,
    /// How its API server answers.
    pub workload: Workload,
}

/// How the workload cluster's API server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// It does.
    Reachable,
    /// It does not.
    Failing {
        /// Since the first failure.
        since: Time,
    },
}

/// One Machine of a pool and all that belongs to it.
#[derive(Clone, Debug)]
pub struct Member {
    /// The Machine.
    pub machine: Machine,
    /// Its Node.
    pub node: NodeLook,
    /// Its persisted remediation.
    pub remediation: Option<Persisted<RemediationStatus>>,
    /// The physical host, if it has one and it could be read.
    pub host: Option<Host>,
    /// What the provider last said of the instance.
    pub instance: InstanceLook,
    /// A `MachineHealthCheck` selects it.
    pub health_check: bool,
    /// How many policies select it.
    pub policies: u32,
}

/// A remediation without a Machine.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// Its name, which was the Machine's.
    pub name: String,
    /// What is persisted.
    pub remediation: Persisted<RemediationStatus>,
}

/// A Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version: what an action on it is bound to.
    pub resource_version: String,
    /// When it was created.
    pub created_at: Time,
    /// Since when it is being deleted.
    pub deleting_since: Option<Time>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeRef.name`.
    pub node_name: Option<String>,
    /// Since when its infrastructure is ready.
    pub infrastructure_ready_at: Option<Time>,
    /// Annotations.
    pub annotations: Texts,
    /// Labels.
    pub labels: Texts,
    /// `HealthCheckSucceeded`, in the new list.
    pub health_check_succeeded: Option<Verdict>,
    /// `OwnerRemediated`, in the new list.
    pub owner_remediated: Option<Verdict>,
    /// `EtcdPodHealthy`.
    pub etcd_pod_healthy: Option<Status>,
    /// `EtcdMemberHealthy`.
    pub etcd_member_healthy: Option<Status>,
    /// `APIServerPodHealthy`.
    pub api_server_healthy: Option<Status>,
    /// It is not of its owner's current revision.
    pub outdated: bool,
    /// `nodeDrainTimeout`; none or zero: unlimited.
    pub drain_timeout: Option<std::time::Duration>,
}

/// A condition of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Status.
    pub status: Status,
    /// Reason.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What is known of a Machine's Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLook {
    /// The workload API server could not be asked.
    NotAsked,
    /// It answered that there is no such Node.
    Missing,
    /// This one.
    Present(Box<Node>),
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// When it was created.
    pub created_at: Time,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.bootID`, or what stands in for it where nodes share the host's.
    pub boot_id: Option<String>,
    /// Annotation `nodeward.dev/boot-id`.
    pub agent_boot_id: Option<String>,
    /// Conditions.
    pub conditions: Vec<NodeCondition>,
    /// Its Lease.
    pub lease: Option<NodeLease>,
    /// Annotations.
    pub annotations: Texts,
    /// Labels.
    pub labels: Texts,
}

/// A condition of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// Type.
    pub kind: String,
    /// Status.
    pub status: Status,
    /// Reason.
    pub reason: String,
    /// `lastTransitionTime`, on the writer's clock.
    pub transition: Option<Time>,
    /// `lastHeartbeatTime`, on the writer's clock.
    pub heartbeat: Option<Time>,
}

/// A Node's Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLease {
    /// `renewTime`, on the node's clock.
    pub renew_time: Time,
    /// When that renewal was seen to arrive; none: it was there when we first looked.
    pub arrived_at: Option<Time>,
}

/// A physical host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version.
    pub resource_version: String,
    /// It is provisioned.
    pub provisioned: bool,
    /// It has a fatal or permanent error.
    pub fatal: bool,
    /// It is in maintenance.
    pub maintenance: bool,
    /// It is paused.
    pub paused: bool,
    /// Somebody else's reboot is under way.
    pub rebooting: bool,
    /// Annotations.
    pub annotations: Texts,
    /// Labels.
    pub labels: Texts,
}

/// What the provider last said of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceLook {
    /// Not asked, or no clear answer: an error is none.
    #[default]
    Unclear,
    /// It exists.
    Present {
        /// When it was asked.
        at: Time,
        /// Signs that it is booting right now, where the provider can tell.
        booting: Option<bool>,
    },
    /// The provider does not know it.
    NotFound {
        /// When it was asked.
        at: Time,
        /// The same credentials see another machine of the cluster.
        others_seen: bool,
    },
}

impl Node {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// Whether `Ready` is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition(crate::policy::READY).is_some_and(|c| c.status == Status::True)
    }
}

impl Member {
    /// The Node, if it could be read.
    #[must_use]
    pub fn present_node(&self) -> Option<&Node> {
        match &self.node {
            NodeLook::Present(node) => Some(node),
            NodeLook::NotAsked | NodeLook::Missing => None,
        }
    }

    /// The persisted status, if it is about this very Machine. One that a health check has just made says nothing of any.
    #[must_use]
    pub fn status(&self) -> Option<&RemediationStatus> {
        let status = &self.remediation.as_ref()?.status;
        (status.machine_uid == self.machine.uid || status.machine_uid.is_empty() || mutant!(UidIgnored)).then_some(status)
    }
}

impl PoolView {
    /// When the view was read from the API servers; none: it comes from watches.
    #[must_use]
    pub const fn read_at(&self) -> Option<Time> {
        match self.read {
            Read::Cached => None,
            Read::Direct { at } => Some(at),
        }
    }

    /// Whether control plane rules apply.
    #[must_use]
    pub const fn is_control_plane(&self) -> bool {
        matches!(self.owner.kind, OwnerKind::ControlPlane)
    }
}
