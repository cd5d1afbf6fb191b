//! Clusters and what owns Machines, as the core sees them.

use controller_core::policy::Status;
use controller_core::view::{Cluster, EtcdView, Owner, OwnerKind, Workload};

use super::Object;

/// A Cluster. How its API server answers is not in it.
#[must_use]
pub fn cluster(object: &Object, workload: Workload) -> Cluster {
    let initialized = ["ControlPlaneInitialized", "ControlPlaneReady"].into_iter().find_map(|kind| object.true_since(kind));
    Cluster {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        paused: object.is("/spec/paused") || object.is_annotated_paused(),
        deleting: object.has("/metadata/deletionTimestamp"),
        infrastructure_ready_at: object.true_since("InfrastructureReady"),
        control_plane_initialized_at: initialized,
        workload,
    }
}

/// What owns Machines. `carriers` carry out its wishes: the `MachineSet`s of a `MachineDeployment`.
#[must_use]
pub fn owner(kind: OwnerKind, name: &str, object: Option<&Object>, carriers: &[&Object]) -> Owner {
    let none = Object(serde_json::Value::Null);
    let object = object.unwrap_or(&none);
    let replicas = object.number("/status/replicas").or_else(|| object.number("/spec/replicas")).unwrap_or(0);
    let current = ["/status/upToDateReplicas", "/status/updatedReplicas", "/status/v1beta2/upToDateReplicas"];
    let current = current.into_iter().find_map(|place| object.number(place)).unwrap_or(replicas);
    let rolling = object.condition("RollingOut").map(|c| c.status == Status::True);
    let healthy = object.condition("EtcdClusterHealthy").map(|c| c.message).unwrap_or_default();
    Owner {
        kind,
        name: name.to_owned(),
        paused: object.is_annotated_paused() || object.is("/spec/paused") || carriers.iter().any(|c| c.is_annotated_paused()),
        rolling_out: rolling.unwrap_or(current < replicas),
        annotations: object.annotations(),
        labels: object.labels(),
        etcd: EtcdView {
            external: object.has("/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external"),
            // Where a member without a Machine is said, and nowhere else (Cluster API 1.14).
            ghost: healthy.contains("corresponding Machine") || healthy.contains("corresponding Node"),
            learner: healthy.contains("learner"),
        },
    }
}
