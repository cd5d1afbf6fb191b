//! The controller's custom resources as the API server takes them: their definitions, the policies that ship, what it refuses, and that
//! what the controller writes comes back as it was.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests_cluster::{cluster::Cluster, wait};

/// A new definition is served within a second or two.
const SERVED: Duration = Duration::from_secs(30);

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A cluster that knows the custom resources.
fn with_definitions() -> Result<Cluster> {
    let cluster = Cluster::start()?;
    let folder = repository("deploy/crds").display().to_string();
    let said = cluster.kubectl(&["create", "--warnings-as-errors", "--filename", &folder])?;
    assert_eq!(said.lines().count(), 4, "{said}");
    let all = ["remediationpolicies", "remediationpools", "noderemediations", "noderemediationtemplates"];
    wait::until("the custom resources are served", SERVED, || all.iter().try_for_each(|kind| cluster.kubectl(&["get", kind]).map(drop)))?;
    Ok(cluster)
}

/// The policy for cloud workers, as JSON, with one place of its spec changed.
fn policy(cluster: &Cluster, place: &str, value: Value) -> Result<Value> {
    let file = repository("deploy/policies/cloud-worker.yaml").display().to_string();
    let text = cluster.kubectl(&["create", "--dry-run=client", "--output", "json", "--filename", &file])?;
    let mut object: Value = serde_json::from_str(&text)?;
    *object.pointer_mut(&format!("/spec/{place}")).with_context(|| format!("no {place}"))? = value;
    Ok(object)
}

fn create(cluster: &Cluster, object: &Value) -> Result<String> {
    let file = tempfile::Builder::new().suffix(".json").tempfile()?;
    fs::write(file.path(), object.to_string())?;
    cluster.kubectl(&["create", "--validate=strict", "--filename", &file.path().display().to_string()])
}

#[test]
fn the_api_server_takes_the_policies_that_ship_and_refuses_what_would_break_a_promise() -> Result<()> {
    let cluster = with_definitions()?;
    let folder = repository("deploy/policies").display().to_string();
    let said = cluster.kubectl(&["create", "--validate=strict", "--filename", &folder])?;
    assert_eq!(said.lines().count(), 4, "{said}");
    let listed = cluster.kubectl(&["get", "remediationpolicies", "cloud-worker"])?;
    assert!(listed.contains("CLASS") && listed.contains("HetznerCloud"), "{listed}");

    let unknown = json!([{"type": "Ready", "status": "Unknown", "holdSeconds": 600, "action": "Remediate"}]);
    let daemon = json!([{"type": "KernelDeadlock", "status": "True", "holdSeconds": 120, "action": "Remediate"}]);
    let refused = [
        ("class", json!("BareMetal"), "on bare metal"),
        ("limit/max", json!("101%"), "spec.limit.max"),
        ("limit/max", json!(-1), "spec.limit.max"),
        ("provider/kind", json!("None"), "reboots need a provider"),
        ("provider/kind", json!("Webhook"), "https://"),
        ("reboot/maxAttempts", json!(2), "at most once"),
        ("onExhaustion", json!("Retire"), "only bare metal"),
        ("triggers", json!([]), "spec.triggers"),
        ("triggers/0/status", json!("True"), "Ready=True is the good status"),
        ("triggers/0/holdSeconds", json!("10m"), "holdSeconds"),
        ("maxInFlight", json!(0), "maxInFlight"),
        ("budgets/rebootsPerHour", json!(1000), "rebootsPerHour"),
    ];
    for (place, value, why) in refused {
        let text = format!("{:#}", create(&cluster, &policy(&cluster, place, value.clone())?).expect_err(place));
        assert!(text.contains(why), "{place}={value}: {text}");
    }
    for triggers in [unknown, daemon] {
        let mut object = policy(&cluster, "triggers", triggers)?;
        object["spec"]["class"] = json!("BareMetal");
        assert!(format!("{:#}", create(&cluster, &object).expect_err("a trigger")).contains("on bare metal"));
    }
    let mut misspelt = policy(&cluster, "mode", json!("Act"))?;
    misspelt["spec"]["maxInflight"] = json!(3);
    assert!(format!("{:#}", create(&cluster, &misspelt).expect_err("a misspelt field")).contains("unknown field"));
    Ok(())
}

#[test]
fn what_is_left_out_of_a_policy_has_the_numbers_of_the_promises() -> Result<()> {
    let cluster = with_definitions()?;
    let least = json!({
        "apiVersion": "nodeward.dev/v1alpha1", "kind": "RemediationPolicy", "metadata": {"name": "least"},
        "spec": {"selector": {}, "class": "Cloud", "mode": "Shadow",
                 "triggers": [{"type": "Ready", "status": "False", "holdSeconds": 300}]}
    });
    create(&cluster, &least)?;
    let spec = &cluster.get(&["remediationpolicy", "least"])?["spec"];
    assert_eq!(spec["limit"], json!({"min": 0, "max": 1}));
    assert_eq!(spec["reboot"], json!({"maxAttempts": 1, "waitSeconds": 180, "mode": "Auto", "resend": "WhenProvenUnsent"}));
    assert_eq!(spec["storm"], json!({"quietSeconds": 300, "resume": "Manual"}));
    assert_eq!(spec["triggers"][0]["action"], json!("Remediate"));
    assert_eq!([&spec["startupGraceSeconds"], &spec["cooldownSeconds"], &spec["stabilitySeconds"]], [600, 1800, 60]);
    Ok(())
}

#[test]
fn what_the_controller_writes_comes_back_as_it_was_and_says_in_a_line_what_is_going_on() -> Result<()> {
    let cluster = with_definitions()?;
    let example: Value = serde_json::from_str(&fs::read_to_string(repository("controller/fixtures/status.json"))?)?;
    let pool_spec = json!({"cluster": "c", "ownerKind": "MachineDeployment", "ownerName": "workers", "policy": "cloud-worker"});
    for (kind, spec, status) in [("RemediationPool", pool_spec, &example["pool"]), ("NodeRemediation", json!({}), &example["remediation"])]
    {
        let mut object = json!({"apiVersion": "nodeward.dev/v1alpha1", "kind": kind, "metadata": {"name": "worker-1"}, "spec": spec});
        create(&cluster, &object)?;
        object = cluster.get(&[kind, "worker-1"])?;
        object["status"] = status.clone();
        let file = tempfile::Builder::new().suffix(".json").tempfile()?;
        fs::write(file.path(), object.to_string())?;
        let path = file.path().display().to_string();
        cluster.kubectl(&["replace", "--subresource", "status", "--validate=strict", "--filename", &path])?;
        assert_eq!(&cluster.get(&[kind, "worker-1"])?["status"], status, "{kind}");
        // The same version again: a write is bound to what it was read from.
        let again = format!("{:#}", cluster.kubectl(&["replace", "--subresource", "status", "--filename", &path]).expect_err("stale"));
        assert!(again.contains("the object has been modified"), "{again}");
    }
    let pool = cluster.kubectl(&["get", "remediationpools"])?;
    assert!(pool.contains("Closed") && pool.contains("StormLatch: TooManyUnhealthy"), "{pool}");
    let remediation = cluster.kubectl(&["get", "noderemediations"])?;
    for word in ["RebootWait", "Paused", "the provider accepted the reboot"] {
        assert!(remediation.contains(word), "{remediation}");
    }
    Ok(())
}
