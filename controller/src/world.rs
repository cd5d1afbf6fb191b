//! From a heap of Kubernetes objects to the core's view: which Machines make a pool, which policy is theirs, what belongs to each.

use std::collections::{BTreeMap, BTreeSet};

use controller_core::{
    policy::{Policy, Selector},
    state::{PoolStatus, RemediationStatus},
    time::Time,
    view::{InstanceLook, Member, NodeLease, NodeLook, OwnerKind, Persisted, PolicyView, PoolView, Read, View, Workload},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::objects::{self, Object};

/// Label with the name of a Machine's cluster.
const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation with namespace and name of a Machine's physical host.
const HOST: &str = "infrastructure.cluster.x-k8s.io/HetznerBareMetalHost";

/// Why objects make no view.
#[derive(Debug, Error)]
pub enum WorldError {
    /// One of our own objects does not say what it should.
    #[error("{kind} {name} is not understood")]
    Ours {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Objects of a management cluster and its workload clusters.
#[derive(Clone, Debug, Default)]
pub struct World {
    by_kind: BTreeMap<String, Vec<Object>>,
}

/// A view, and what is in no pool.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The view.
    pub view: View,
    /// Machines that no policy selects: namespace and name.
    pub unselected: Vec<(String, String)>,
}

/// What owns a Machine: namespace, cluster, kind, name.
type PoolKey = (String, String, &'static str, String);

impl World {
    /// Adds an object, or every item of a list.
    pub fn add(&mut self, value: Value) {
        let mut object = Object(value);
        if !object.0.get("items").is_some_and(Value::is_array) {
            self.by_kind.entry(object.kind().to_owned()).or_default().push(object);
            return;
        }
        let kind = object.kind().strip_suffix("List").unwrap_or_default().to_owned();
        let Some(Value::Array(items)) = object.0.get_mut("items").map(Value::take) else { return };
        for mut item in items {
            // A list of one kind may leave the kind out of its items.
            if let Some(map) = item.as_object_mut().filter(|_| !kind.is_empty()) {
                map.entry("kind").or_insert_with(|| kind.clone().into());
            }
            self.add(item);
        }
    }

    /// Every object of a kind.
    pub fn all<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Object> + use<'a> {
        self.by_kind.get(kind).into_iter().flatten()
    }

    fn named(&self, kind: &str, namespace: &str, name: &str) -> Option<&Object> {
        self.all(kind).find(|o| o.name() == name && o.namespace() == namespace)
    }

    /// The latest time that any node wrote: for exported objects, about when they were exported.
    #[must_use]
    pub fn newest(&self) -> Option<Time> {
        let leases = self.all("Lease").filter_map(|lease| lease.time("/spec/renewTime"));
        let beats = self.all("Node").filter_map(|node| node.condition("Ready")?.heartbeat);
        leases.chain(beats).max()
    }

    /// The core's view of it all, as if read at `now`.
    ///
    /// # Errors
    /// If an object of ours is not understood: nothing is guessed.
    pub fn see(&self, now: Time) -> Result<Seen, WorldError> {
        let mut seen = Seen::default();
        let policies = self.policies()?;
        let mut pools: BTreeMap<(PoolKey, String), Vec<Member>> = BTreeMap::new();
        for machine in self.all("Machine") {
            let labels = machine.labels();
            let selecting: Vec<_> =
                policies.iter().filter(|(ns, p)| ns == machine.namespace() && p.spec.selector.matches(&labels)).collect();
            let Some((_, policy)) = selecting.first() else {
                seen.unselected.push((machine.namespace().to_owned(), machine.name().to_owned()));
                continue;
            };
            let member = self.member(machine, u32::try_from(selecting.len()).unwrap_or(u32::MAX), now)?;
            pools.entry((self.pool_of(machine), policy.name.clone())).or_default().push(member);
        }
        let owners: Vec<PoolKey> = pools.keys().map(|(key, _)| key.clone()).collect();
        for ((key, policy), members) in pools {
            let alone = owners.iter().filter(|other| **other == key).count() == 1;
            let Some((_, policy)) = policies.iter().find(|(ns, p)| *ns == key.0 && p.name == policy) else { continue };
            seen.view.pools.push(self.pool(&key, policy, members, alone, now)?);
        }
        Ok(seen)
    }

    fn policies(&self) -> Result<Vec<(String, PolicyView)>, WorldError> {
        let one = |object: &Object| {
            let spec: Option<Policy> = parsed("RemediationPolicy", object, "/spec")?;
            let view = |spec| PolicyView { name: object.name().to_owned(), annotations: object.annotations(), spec };
            Ok(spec.map(|spec| (object.namespace().to_owned(), view(spec))))
        };
        self.all("RemediationPolicy").filter_map(|object| one(object).transpose()).collect()
    }

    fn pool_of(&self, machine: &Object) -> PoolKey {
        let cluster =
            machine.text("/spec/clusterName").map_or_else(|| machine.labels().remove(CLUSTER).unwrap_or_default(), ToOwned::to_owned);
        let namespace = machine.namespace().to_owned();
        let (kind, name) = match machine.controller() {
            Some(("MachineSet", set)) => {
                let deployment = self.named("MachineSet", &namespace, set).and_then(Object::controller);
                match deployment {
                    Some(("MachineDeployment", name)) => ("MachineDeployment", name),
                    _ => ("MachineSet", set),
                }
            }
            Some((kind, name)) if kind.ends_with("ControlPlane") => ("ControlPlane", name),
            _ => ("Other", "none"),
        };
        (namespace, cluster, kind, name.to_owned())
    }

    fn pool(&self, key: &PoolKey, policy: &PolicyView, members: Vec<Member>, alone: bool, now: Time) -> Result<PoolView, WorldError> {
        let (namespace, cluster, kind, owner) = key;
        let (kind, short) = match *kind {
            "MachineDeployment" => (OwnerKind::MachineDeployment, "md"),
            "MachineSet" => (OwnerKind::MachineSet, "ms"),
            "ControlPlane" => (OwnerKind::ControlPlane, "cp"),
            _ => (OwnerKind::Other, "none"),
        };
        let mut name = format!("{short}-{owner}");
        if !alone {
            name = format!("{name}-{}", policy.name);
        }
        let object = match kind {
            OwnerKind::MachineDeployment => self.named("MachineDeployment", namespace, owner),
            OwnerKind::MachineSet => self.named("MachineSet", namespace, owner),
            OwnerKind::ControlPlane => {
                let kinds = self.by_kind.keys().filter(|kind| kind.ends_with("ControlPlane"));
                kinds.filter_map(|kind| self.named(kind, namespace, owner)).next()
            }
            OwnerKind::Other => None,
        };
        let carriers: Vec<_> = self
            .all("MachineSet")
            .filter(|set| set.namespace() == namespace && set.controller() == Some(("MachineDeployment", owner.as_str())))
            .collect();
        let of_cluster = Object(serde_json::json!({"metadata": {"namespace": namespace, "name": cluster}}));
        let cluster = self.named("Cluster", namespace, cluster).unwrap_or(&of_cluster);
        let persisted = self.named("RemediationPool", namespace, &name);
        Ok(PoolView {
            read: Read::Direct { at: now },
            persisted: persisted.map(|o| persist::<PoolStatus>("RemediationPool", o)).transpose()?,
            name,
            policy: policy.clone(),
            owner: objects::cluster::owner(kind, owner, object, &carriers),
            cluster: objects::cluster::cluster(cluster, Workload::Reachable),
            members,
            orphans: Vec::new(),
        })
    }

    fn member(&self, object: &Object, policies: u32, now: Time) -> Result<Member, WorldError> {
        let machine = objects::machine::machine(object);
        let remediation = self.named("NodeRemediation", object.namespace(), object.name());
        let node = match &machine.node_name {
            None => NodeLook::Missing,
            Some(name) => {
                // Nodes of several clusters may have one name: the provider id tells them apart.
                let mut same = self.all("Node").filter(|n| n.name() == name);
                let first = same.next();
                let ours = first.into_iter().chain(same).find(|n| n.text("/spec/providerID") == machine.provider_id.as_deref()).or(first);
                ours.map_or(NodeLook::Missing, |n| NodeLook::Present(Box::new(objects::node::node(n, self.lease(n, now)))))
            }
        };
        let infrastructure = object.text("/spec/infrastructureRef/name").unwrap_or_default();
        let host = self.named("HetznerBareMetalMachine", object.namespace(), infrastructure).and_then(|m| m.annotations().remove(HOST));
        let host = host.and_then(|place| {
            let (namespace, name) = place.split_once('/')?;
            self.named("HetznerBareMetalHost", namespace, name)
        });
        let cluster = object.text("/spec/clusterName");
        let health_check = self.all("MachineHealthCheck").any(|check| {
            let selector = check.0.pointer("/spec/selector").cloned().and_then(|s| serde_json::from_value::<Selector>(s).ok());
            check.namespace() == object.namespace()
                && check.text("/spec/clusterName") == cluster
                && selector.is_some_and(|s| s.matches(&machine.labels))
        });
        Ok(Member {
            node,
            remediation: remediation.map(|o| persist::<RemediationStatus>("NodeRemediation", o)).transpose()?,
            host: host.map(objects::machine::host),
            instance: InstanceLook::Unclear,
            health_check,
            policies,
            machine,
        })
    }

    /// One look cannot tell when a renewal arrived: the node's clock is taken to be right. Without any Lease among the objects, a Ready
    /// node is taken to renew its own.
    fn lease(&self, node: &Object, now: Time) -> Option<NodeLease> {
        let mut leases = self.all("Lease").filter(|l| l.namespace() == "kube-node-lease").peekable();
        if leases.peek().is_none() {
            let ready = node.true_since("Ready").is_some();
            return ready.then_some(NodeLease { renew_time: now, arrived_at: Some(now) });
        }
        let renewed = leases.find(|l| l.name() == node.name())?.time("/spec/renewTime")?;
        Some(NodeLease { renew_time: renewed, arrived_at: Some(renewed) })
    }

    /// Names of clusters: namespace and name.
    #[must_use]
    pub fn clusters(&self) -> BTreeSet<(String, String)> {
        self.all("Cluster").map(|c| (c.namespace().to_owned(), c.name().to_owned())).collect()
    }
}

fn persist<S: DeserializeOwned + Default>(kind: &'static str, object: &Object) -> Result<Persisted<S>, WorldError> {
    let finalizers = object.0.pointer("/metadata/finalizers").and_then(Value::as_array);
    Ok(Persisted {
        uid: object.uid().to_owned(),
        resource_version: object.string("/metadata/resourceVersion"),
        annotations: object.annotations(),
        deleting: object.has("/metadata/deletionTimestamp"),
        finalizer: finalizers.into_iter().flatten().any(|f| f.as_str().is_some_and(|f| f.starts_with("nodeward.dev/"))),
        status: parsed(kind, object, "/status")?.unwrap_or_default(),
    })
}

fn parsed<T: DeserializeOwned>(kind: &'static str, object: &Object, place: &str) -> Result<Option<T>, WorldError> {
    let Some(value) = object.0.pointer(place) else { return Ok(None) };
    let wrong = |source| WorldError::Ours { kind, name: object.name().to_owned(), source };
    T::deserialize(value).map(Some).map_err(wrong)
}
