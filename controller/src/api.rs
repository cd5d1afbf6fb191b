//! The custom resources `nodeward.dev/v1alpha1`: the core's types as Kubernetes objects, and their definitions.

use controller_core::{
    policy::Policy,
    state::{PoolStatus, RemediationStatus},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the Machines of some pools are judged, and what may be done to them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodeward.dev",
    version = "v1alpha1",
    kind = "RemediationPolicy",
    doc = "How the Machines of some pools are judged, and what may be done to them.",
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
    doc = "The gate of one pool of Machines, kept by nodeward-controller. Annotation nodeward.dev/resume=ID releases a latch.",
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
    doc = "The remediation of the Machine of the same name, kept by nodeward-controller. Annotation nodeward.dev/retry starts one anew that needs a human.",
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
    doc = "What a MachineHealthCheck in delegated mode makes NodeRemediations of.",
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
    let all = [
        ("remediationpolicies.yaml", RemediationPolicy::crd()),
        ("remediationpools.yaml", RemediationPool::crd()),
        ("noderemediations.yaml", NodeRemediation::crd()),
        ("noderemediationtemplates.yaml", NodeRemediationTemplate::crd()),
    ];
    all.map(|(name, mut definition)| {
        let schemas = definition.spec.versions.iter_mut().filter_map(|v| v.schema.as_mut()?.open_api_v3_schema.as_mut());
        schemas.for_each(known_formats);
        (name, definition)
    })
}

/// Without the formats that only Rust has: the API server warns of what it does not know.
fn known_formats(schema: &mut JSONSchemaProps) {
    schema.format = schema.format.take().filter(|format| !format.starts_with("uint"));
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(known_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        known_formats(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Example {
        pool: PoolStatus,
        remediation: RemediationStatus,
    }

    #[test]
    fn the_example_that_the_api_server_is_shown_has_every_field() {
        let text = include_str!("../fixtures/status.json");
        let example: Example = serde_json::from_str(text).unwrap();
        let given: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&example.pool).unwrap(), given["pool"]);
        assert_eq!(serde_json::to_value(&example.remediation).unwrap(), given["remediation"]);
        for (kind, name) in [("remediationpools.yaml", "pool"), ("noderemediations.yaml", "remediation")] {
            let (_, definition) = definitions().into_iter().find(|(file, _)| *file == kind).unwrap();
            let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
            let status = &schema.properties.unwrap()["status"];
            let missing: Vec<_> =
                status.properties.iter().flat_map(|p| p.keys()).filter(|k| given[name].get(k.as_str()).is_none()).collect();
            assert!(missing.is_empty(), "{name} lacks {missing:?}");
        }
    }
}
