//! What is written to the Node: one patch with our condition types and our annotation, and nothing else.

use agent_core::{Condition, ConditionType, Status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use nodeward_common::BOOT_ID_ANNOTATION;
use serde_json::{Value, json};

use super::{Stamps, node::FIELD_MANAGER};
use crate::clock::Clock;

/// A strategic merge patch of `nodes/status`; the API server merges conditions by their type, so all others stay as they are.
#[must_use]
pub fn of(conditions: &[Condition], boot_id: Option<&str>, stamps: &mut Stamps, clock: Clock) -> Value {
    let heartbeat = time(clock.wall());
    let rows: Vec<_> = conditions
        .iter()
        .map(|c| {
            json!({
                "type": c.kind.as_str(),
                "status": c.status.as_str(),
                "reason": c.reason,
                "message": c.message,
                "lastTransitionTime": time(stamps.of(c, clock)),
                "lastHeartbeatTime": heartbeat,
            })
        })
        .collect();
    let mut patch = json!({});
    if !rows.is_empty() {
        patch["status"] = json!({ "conditions": rows });
    }
    if let Some(boot_id) = boot_id {
        patch["metadata"] = json!({ "annotations": { BOOT_ID_ANNOTATION: boot_id } });
    }
    patch
}

/// The patch that removes our conditions and our annotation.
#[must_use]
pub fn removal() -> Value {
    let rows: Vec<_> = ConditionType::ALL.iter().map(|kind| json!({ "type": kind.as_str(), "$patch": "delete" })).collect();
    json!({ "metadata": { "annotations": { BOOT_ID_ANNOTATION: null } }, "status": { "conditions": rows } })
}

/// RFC 3339 in whole seconds, as `metav1.Time` is written.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// One of our conditions as it stands on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub kind: ConditionType,
    /// Its status.
    pub status: Status,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Its transition time.
    pub since: Timestamp,
}

impl Standing {
    /// A condition of ours as it must stand, with the transition time that was given out for it.
    #[must_use]
    pub fn of(condition: &Condition, since: Timestamp) -> Self {
        let Condition { kind, status, reason, message, since: _ } = condition.clone();
        Self { kind, status, reason, message, since }
    }
}

/// Our conditions on a Node, and whether they are of this boot. What another writer left in a shape of its own is left out.
#[must_use]
pub fn standing(node: &Node, boot_id: &str) -> (Vec<Standing>, bool) {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ours = conditions.filter_map(|c| {
        let status = [Status::True, Status::False, Status::Unknown].into_iter().find(|s| s.as_str() == c.status)?;
        Some(Standing {
            kind: ConditionType::from_name(&c.type_)?,
            status,
            reason: c.reason.clone().unwrap_or_default(),
            message: c.message.clone().unwrap_or_default(),
            since: c.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        })
    });
    let annotation = node.metadata.annotations.as_ref().and_then(|a| a.get(BOOT_ID_ANNOTATION));
    (ours.collect(), annotation.is_some_and(|a| a == boot_id))
}

/// Who last wrote a condition type on a Node, by its managed fields; ourselves only if nobody else did. What another changes of a condition
/// becomes that one's, but those fields that stayed the same remain ours, and the times of both are told to the second.
#[must_use]
pub fn writer_of(node: &Node, kind: ConditionType) -> Option<String> {
    let key = format!("k:{{\"type\":\"{kind}\"}}");
    let entries = node.metadata.managed_fields.iter().flatten();
    let writes = entries.filter(|e| e.fields_v1.as_ref().is_some_and(|f| !f.0["f:status"]["f:conditions"][&key].is_null()));
    writes.max_by_key(|e| (e.manager.as_deref() != Some(FIELD_MANAGER), e.time.as_ref().map(|t| t.0))).and_then(|e| e.manager.clone())
}

#[cfg(test)]
mod tests {
    use agent_core::BootTime;

    use super::*;

    fn condition(kind: ConditionType) -> Condition {
        Condition { kind, status: Status::True, reason: "R".into(), message: "m".into(), since: BootTime::ZERO }
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_patch_carries_our_types_and_our_annotation_alone() {
        let patch = of(&[condition(ConditionType::KernelDeadlock)], Some("boot"), &mut Stamps::default(), Clock);
        let object = patch.as_object().unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["metadata", "status"]);
        assert_eq!(patch["metadata"], json!({ "annotations": { "nodeward.dev/boot-id": "boot" } }));
        let rows = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(rows.len(), 1);
        let mut keys: Vec<_> = rows[0].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        assert_eq!(keys, ["lastHeartbeatTime", "lastTransitionTime", "message", "reason", "status", "type"]);
    }

    #[test]
    fn what_another_writer_left_in_its_own_shape_is_not_ours() {
        let node = node(json!({
            "metadata": { "annotations": { "nodeward.dev/boot-id": "boot" } },
            "status": { "conditions": [
                { "type": "KernelDeadlock", "status": "Maybe" },
                { "type": "Ready", "status": "True" },
                { "type": "StorageFault", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ] },
        }));
        let (ours, of_this_boot) = standing(&node, "boot");
        assert!(of_this_boot && !standing(&node, "other").1);
        assert_eq!(ours.iter().map(|s| s.kind).collect::<Vec<_>>(), [ConditionType::StorageFault]);
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(ours.contains(&Standing::of(&condition(ConditionType::StorageFault), since)));
        assert!(!ours.contains(&Standing::of(&condition(ConditionType::StorageFault), Timestamp::UNIX_EPOCH)));
    }

    #[test]
    fn the_last_writer_of_a_type_is_named() {
        let fields = |kind: &str| json!({ "f:status": { "f:conditions": { format!("k:{{\"type\":\"{kind}\"}}"): { ".": {} } } } });
        let node = node(json!({ "metadata": { "managedFields": [
            { "manager": "old", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields("KernelDeadlock") },
            { "manager": "npd", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields("KernelDeadlock") },
            { "manager": "kubelet", "time": "2026-01-03T00:00:00Z", "fieldsV1": fields("Ready") },
            { "manager": "nodeward-agent", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields("KernelDeadlock") },
            { "manager": "nodeward-agent", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields("ReadonlyFilesystem") },
        ] } }));
        assert_eq!(writer_of(&node, ConditionType::KernelDeadlock), Some("npd".into()));
        assert_eq!(writer_of(&node, ConditionType::ReadonlyFilesystem), Some("nodeward-agent".into()));
        assert_eq!(writer_of(&node, ConditionType::StorageFault), None);
    }
}
