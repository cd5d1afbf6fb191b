//! Nodes and their Leases, as the core sees them.

use controller_core::view::{Node, NodeCondition, NodeLease};
use serde_json::Value;

use super::{Object, condition};

/// Annotation by which the agent says of which boot its conditions speak.
const BOOT_ID: &str = "nodeward.dev/boot-id";

/// A Node with its Lease.
#[must_use]
pub fn node(object: &Object, lease: Option<NodeLease>) -> Node {
    let annotations = object.annotations();
    let conditions = object.0.pointer("/status/conditions").and_then(Value::as_array);
    Node {
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        created_at: object.time("/metadata/creationTimestamp").unwrap_or_default(),
        provider_id: object.text("/spec/providerID").map(ToOwned::to_owned),
        boot_id: object.text("/status/nodeInfo/bootID").map(ToOwned::to_owned),
        agent_boot_id: annotations.get(BOOT_ID).cloned(),
        conditions: conditions.into_iter().flatten().filter_map(of_node).collect(),
        lease,
        annotations,
        labels: object.labels(),
    }
}

fn of_node(value: &Value) -> Option<NodeCondition> {
    let kind = value.get("type")?.as_str()?.to_owned();
    let c = condition(value)?;
    Some(NodeCondition { kind, status: c.status, reason: c.reason, transition: c.transition, heartbeat: c.heartbeat })
}
