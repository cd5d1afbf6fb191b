//! Machines and physical hosts, as the core sees them, in both versions of Cluster API that are served.

use std::time::Duration;

use controller_core::{
    policy::Status,
    view::{Host, Machine, Verdict},
};

use super::Object;

/// A Machine.
#[must_use]
pub fn machine(object: &Object) -> Machine {
    let verdict = |kind: &str| object.condition(kind).map(|c| Verdict { status: c.status, reason: c.reason, message: c.message });
    let status = |kind: &str| object.condition(kind).map(|c| c.status);
    Machine {
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.string("/metadata/resourceVersion"),
        created_at: object.time("/metadata/creationTimestamp").unwrap_or_default(),
        deleting_since: object.time("/metadata/deletionTimestamp"),
        provider_id: object.text("/spec/providerID").filter(|id| !id.is_empty()).map(ToOwned::to_owned),
        node_name: object.text("/status/nodeRef/name").filter(|name| !name.is_empty()).map(ToOwned::to_owned),
        infrastructure_ready_at: object.true_since("InfrastructureReady"),
        annotations: object.annotations(),
        labels: object.labels(),
        health_check_succeeded: verdict("HealthCheckSucceeded"),
        owner_remediated: verdict("OwnerRemediated"),
        etcd_pod_healthy: status("EtcdPodHealthy"),
        etcd_member_healthy: status("EtcdMemberHealthy"),
        api_server_healthy: status("APIServerPodHealthy"),
        outdated: status("UpToDate") == Some(Status::False),
        drain_timeout: drain_timeout(object),
    }
}

/// Seconds since v1beta2, a duration before.
fn drain_timeout(object: &Object) -> Option<Duration> {
    let seconds = object.number("/spec/deletion/nodeDrainTimeoutSeconds").map(Duration::from_secs);
    seconds.or_else(|| go_duration(object.text("/spec/nodeDrainTimeout")?))
}

/// As in `3m0s`: hours, minutes, seconds. What has another unit is no drain timeout that anybody sets.
fn go_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut digits = String::new();
    for c in text.chars() {
        let factor = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(digits.parse::<u64>().ok()?.checked_mul(factor)?))?;
        digits.clear();
    }
    digits.is_empty().then_some(total)
}

/// A `HetznerBareMetalHost`: its state is in its spec before v1beta2, and in its status since.
#[must_use]
pub fn host(object: &Object) -> Host {
    let state = |key: &str| object.text(&format!("/status/{key}")).or_else(|| object.text(&format!("/spec/status/{key}")));
    let annotations = object.annotations();
    Host {
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.string("/metadata/resourceVersion"),
        provisioned: state("provisioningState") == Some("provisioned"),
        fatal: matches!(state("errorType"), Some("fatal error" | "permanent error")),
        maintenance: object.is("/spec/maintenanceMode"),
        paused: object.is_annotated_paused(),
        rebooting: annotations.keys().any(|key| key.starts_with("capi.syself.com/reboot"))
            && !annotations.contains_key("nodeward.dev/reboot-intent"),
        annotations,
        labels: object.labels(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_of_a_machine_are_read_alike() {
        let conditions = json!([
            {"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation", "message": "m", "lastTransitionTime": "2026-12-01T04:05:06Z"},
            {"type": "InfrastructureReady", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-12-01T04:00:00Z"}
        ]);
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-12-01T03:00:00Z"});
        let new = json!({"metadata": metadata, "spec": {"providerID": "x://a", "deletion": {"nodeDrainTimeoutSeconds": 180}},
                         "status": {"nodeRef": {"name": "n"}, "conditions": conditions}});
        let old = json!({"metadata": metadata, "spec": {"providerID": "x://a", "nodeDrainTimeout": "3m0s"},
                         "status": {"nodeRef": {"name": "n", "uid": "nu"}, "conditions": [], "v1beta2": {"conditions": conditions}}});
        let (new, old) = (machine(&Object(new)), machine(&Object(old)));
        assert_eq!(new, old);
        assert_eq!(
            new.owner_remediated,
            Some(Verdict { status: Status::False, reason: "WaitingForRemediation".into(), message: "m".into() })
        );
        assert_eq!(new.infrastructure_ready_at, "2026-12-01T04:00:00Z".parse().ok());
        assert_eq!(new.drain_timeout, Some(Duration::from_secs(180)));
    }

    #[test]
    fn what_is_no_duration_is_none() {
        assert_eq!(go_duration("1h2m3s"), Some(Duration::from_secs(3723)));
        for text in ["180", "1d", "m", "-3s", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }
}
