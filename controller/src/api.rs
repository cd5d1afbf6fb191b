//! The custom resources `nodeward.dev/v1alpha1`: the core's types as Kubernetes objects, and their definitions.

use controller_core::{
    policy::Policy,
    state::{PoolStatus, RemediationStatus},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the Machines of some pools are judged, and what may be done to them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodeward.dev",
    version = "v1alpha1",
    kind = "RemediationPolicy",
    plural = "remediationpolicies",
    namespaced,
    category = "nodeward",
    printcolumn = r#"{"name": "Class", "type": "string", "jsonPath": ".spec.class"}"#,
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#,
    printcolumn = r#"{"name": "Limit", "type": "string", "jsonPath": ".spec.limit.max"}"#,
    printcolumn = r#"{"name": "InFlight", "type": "integer", "jsonPath": ".spec.maxInFlight"}"#,
    printcolumn = r#"{"name": "Provider", "type": "string", "jsonPath": ".spec.provider.kind"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
pub struct RemediationPolicySpec(pub Policy);

/// The gate of one pool: the Machines of one owner. Made by the controller.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodeward.dev",
    version = "v1alpha1",
    kind = "RemediationPool",
    namespaced,
    status = "PoolStatus",
    category = "nodeward",
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".spec.cluster"}"#,
    printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".spec.policy"}"#,
    printcolumn = r#"{"name": "Machines", "type": "integer", "jsonPath": ".status.machines"}"#,
    printcolumn = r#"{"name": "Unhealthy", "type": "integer", "jsonPath": ".status.unhealthy"}"#,
    printcolumn = r#"{"name": "Confirmed", "type": "integer", "jsonPath": ".status.confirmed", "priority": 1}"#,
    printcolumn = r#"{"name": "Paused", "type": "integer", "jsonPath": ".status.paused", "priority": 1}"#,
    printcolumn = r#"{"name": "InFlight", "type": "integer", "jsonPath": ".status.inFlight"}"#,
    printcolumn = r#"{"name": "Gate", "type": "string", "jsonPath": ".status.gate"}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.message"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RemediationPoolSpec {
    /// Name of the Cluster.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Kind of the owner of the Machines.
    #[schemars(length(min = 1, max = 63))]
    pub owner_kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub owner_name: String,
    /// Name of the policy that selects the Machines.
    #[schemars(length(min = 1, max = 253))]
    pub policy: String,
}

/// The remediation of one Machine, of the same name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodeward.dev",
    version = "v1alpha1",
    kind = "NodeRemediation",
    namespaced,
    status = "RemediationStatus",
    shortname = "nrem",
    category = "nodeward",
    // The contract by which a MachineHealthCheck finds the version to make.
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Node", "type": "string", "jsonPath": ".status.node"}"#,
    printcolumn = r#"{"name": "Held", "type": "string", "jsonPath": ".status.blockedBy[0].reason"}"#,
    printcolumn = r#"{"name": "Why", "type": "string", "jsonPath": ".status.lastDecision.why"}"#,
    printcolumn = r#"{"name": "HeldBecause", "type": "string", "jsonPath": ".status.blockedBy[0].message", "priority": 1}"#,
    printcolumn = r#"{"name": "Until", "type": "date", "jsonPath": ".status.waitUntil", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemediationSpec {}

/// What a `MachineHealthCheck` in delegated mode makes `NodeRemediation`s of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodeward.dev",
    version = "v1alpha1",
    kind = "NodeRemediationTemplate",
    namespaced,
    category = "nodeward",
    label("cluster.x-k8s.io/v1beta2", "v1alpha1")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemediationTemplateSpec {
    /// The template.
    #[serde(default)]
    pub template: NodeRemediationTemplateResource,
}

/// A `NodeRemediation` to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemediationTemplateResource {
    /// Its spec: nothing can be set yet.
    #[serde(default)]
    pub spec: NodeRemediationSpec,
}

/// All definitions, with the name of the file each belongs into.
#[must_use]
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 4] {
    [
        ("remediationpolicies.yaml", RemediationPolicy::crd()),
        ("remediationpools.yaml", RemediationPool::crd()),
        ("noderemediations.yaml", NodeRemediation::crd()),
        ("noderemediationtemplates.yaml", NodeRemediationTemplate::crd()),
    ]
}
