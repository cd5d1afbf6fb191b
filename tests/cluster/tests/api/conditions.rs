//! What is written, on a Node that is there and an API server that answers.

use std::time::Duration;

use agent_core::Status;
use nodeward_agent::export::Stamps;
use serde_json::{Value, json};
use tests_cluster::{
    deployed,
    exporting::{Exporting, SOON, event, healthy, readonly, standing, wait_for, wait_for_events},
    wait,
};

use crate::{BOOT, access, well};

const FAULT: &str = "/dev/vda1 at /var refuses writes: read-only file system";

#[test]
fn a_condition_and_its_event_appear_with_the_right_fields() {
    let (cluster, exporting) = well().unwrap();
    let node = cluster.get(&["node", "a"]).unwrap();
    assert_eq!(exporting.writes("node", "accepted"), 1, "the first patch of a boot carries all types");
    assert_eq!(node["metadata"]["annotations"]["nodeward.dev/boot-id"], BOOT);
    let told = ["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"].map(|kind| standing(&node, kind));
    assert!(told.iter().all(|c| c["status"] == "False" && c["lastHeartbeatTime"].is_string()), "{told:?}");
    let before = standing(&node, "ReadonlyFilesystem");

    let message = "Node condition ReadonlyFilesystem is now: True, reason: FilesystemIsReadOnly, message: \"100% %s full\"";
    exporting.turn(vec![readonly(Status::True, FAULT), event("FilesystemIsReadOnly", message)]).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", FAULT, SOON).unwrap();
    let now = standing(&node, "ReadonlyFilesystem");
    assert_eq!(now["reason"], "FilesystemIsReadOnly");
    assert!(now["lastTransitionTime"].as_str() >= before["lastTransitionTime"].as_str(), "{now} after {before}");
    assert_eq!(standing(&node, "KernelDeadlock")["lastTransitionTime"], told[0]["lastTransitionTime"]);

    let events = wait_for_events(&cluster, &node, "FilesystemIsReadOnly", 1, SOON).unwrap();
    let involved = json!({ "apiVersion": "v1", "kind": "Node", "name": "a", "uid": node["metadata"]["uid"] });
    assert_eq!(events[0]["involvedObject"], involved);
    assert_eq!(events[0]["source"], json!({ "component": "nodeward-agent", "host": "a" }));
    let fields = ["type", "message", "count", "reportingComponent", "reportingInstance"].map(|key| &events[0][key]);
    assert_eq!(fields, [&json!("Warning"), &json!(message), &json!(1), &json!("nodeward-agent"), &json!("a")]);
    assert_eq!(events[0]["firstTimestamp"], events[0]["lastTimestamp"]);
    assert!(events[0]["firstTimestamp"].is_string());

    // The same again raises the count of the one that is there.
    exporting.turn(vec![event("FilesystemIsReadOnly", message)]).unwrap();
    wait::until("the count", SOON, || {
        let events = wait_for_events(&cluster, &node, "FilesystemIsReadOnly", 1, SOON)?;
        anyhow::ensure!(events[0]["count"] == 2, "{}", events[0]);
        Ok::<_, anyhow::Error>(())
    })
    .unwrap();

    // As people see it.
    let described = cluster.kubectl(&["describe", "node", "a"]).unwrap();
    assert!(described.contains(FAULT) && described.contains("FilesystemIsReadOnly"), "{described}");
    let listed = cluster.kubectl(&["events", "--for", "node/a"]).unwrap();
    assert!(listed.contains("FilesystemIsReadOnly"), "{listed}");
}

/// A Node without what is ours, and without what the API server writes with every change.
fn of_others(mut node: Value) -> Option<Value> {
    let metadata = node["metadata"].as_object_mut()?;
    metadata.retain(|key, _| !["managedFields", "resourceVersion"].contains(&key.as_str()));
    metadata["annotations"].as_object_mut()?.remove("nodeward.dev/boot-id");
    let ours = ["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"].map(Value::from);
    node["status"]["conditions"].as_array_mut()?.retain(|c| !ours.contains(&c["type"]));
    Some(node)
}

#[test]
fn what_others_wrote_is_never_touched() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let before = cluster.get(&["node", "a"]).unwrap();
    let kinds: Vec<_> = before["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(kinds, ["Ready", "DiskPressure", "FrequentKubeletRestart"]);

    let exporting = Exporting::start(&access(&cluster, "a").unwrap(), "a", BOOT, Stamps::default()).unwrap();
    exporting.turn(healthy()).unwrap();
    for (status, message) in [(Status::True, FAULT), (Status::Unknown, "cannot look"), (Status::False, "all is well")] {
        exporting.turn(vec![readonly(status, message)]).unwrap();
        wait_for(&cluster, "a", "ReadonlyFilesystem", status.as_str(), message, SOON).unwrap();
    }
    // The kubelet goes on meanwhile.
    let not_ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady" }] } });
    deployed::patch_status(&cluster, "a", "kubelet", &not_ready).unwrap();
    exporting.turn(vec![readonly(Status::True, "again")]).unwrap();
    let after = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "again", SOON).unwrap();
    assert_eq!(standing(&after, "Ready")["status"], "False");

    let mut expected = of_others(before).unwrap();
    expected["status"]["conditions"][0]["status"] = "False".into();
    expected["status"]["conditions"][0]["reason"] = "KubeletNotReady".into();
    assert_eq!(of_others(after).unwrap(), expected);
}

#[test]
fn of_two_quick_faults_both_are_told_and_the_later_state_stands() {
    let (cluster, exporting) = well().unwrap();
    for n in 0..20 {
        let (status, message) = if n % 2 == 0 { (Status::True, format!("fault {n}")) } else { (Status::False, format!("mended {n}")) };
        exporting.turn(vec![readonly(status, &message), event("FilesystemIsReadOnly", &message)]).unwrap();
    }
    exporting.turn(vec![readonly(Status::True, "the last word")]).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "the last word", SOON).unwrap();
    let mut told: Vec<_> = wait_for_events(&cluster, &node, "FilesystemIsReadOnly", 20, SOON)
        .unwrap()
        .iter()
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect();
    told.sort();
    let mut expected: Vec<_> = (0..20).map(|n| if n % 2 == 0 { format!("fault {n}") } else { format!("mended {n}") }).collect();
    expected.sort();
    assert_eq!(told, expected);

    let writes = exporting.writes("node", "accepted");
    // Both types of one turn travel in one patch.
    let mut both = healthy();
    both.push(readonly(Status::False, "and mended"));
    exporting.turn(both).unwrap();
    wait_for(&cluster, "a", "ReadonlyFilesystem", "False", "and mended", SOON).unwrap();
    assert_eq!(exporting.writes("node", "accepted"), writes + 1);
}

#[test]
fn a_refused_type_costs_no_other() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    // As an older policy, which does not know the type.
    let resource = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"] });
    let policy = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "older" }, "spec": {
            "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [resource] },
            "validations": [{ "expression": "!object.status.conditions.exists(c, c.type == 'StorageFault')", "message": "never heard of it" }],
        } },
        { "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "older" },
          "spec": { "policyName": "older", "validationActions": ["Deny"] } },
    ] });
    cluster.apply(&policy.to_string()).unwrap();
    let refused = json!({ "status": { "conditions": [{ "type": "StorageFault", "status": "True" }] } });
    wait::until("the older policy to be in force", SOON, || match deployed::patch_status(&cluster, "unused", "test", &refused) {
        Err(e) if e.to_string().contains("never heard of it") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();

    let exporting = Exporting::start(&access(&cluster, "a").unwrap(), "a", BOOT, Stamps::default()).unwrap();
    exporting.turn(healthy()).unwrap();
    wait_for(&cluster, "a", "ReadonlyFilesystem", "False", "Filesystem is not read-only", SOON).unwrap();
    exporting.turn(vec![readonly(Status::True, FAULT)]).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", FAULT, SOON).unwrap();
    assert_eq!((&standing(&node, "KernelDeadlock")["status"], &standing(&node, "StorageFault")), (&json!("False"), &Value::Null));
    assert_eq!(node["metadata"]["annotations"]["nodeward.dev/boot-id"], BOOT);
    let events = wait_for_events(&cluster, &node, "ConditionRefused", 1, SOON).unwrap();
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.contains("StorageFault") && message.contains("never heard of it"), "{message}");
}

#[test]
fn a_node_created_anew_gets_everything() {
    let (cluster, exporting) = well().unwrap();
    exporting.turn(vec![readonly(Status::True, FAULT)]).unwrap();
    let first = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", FAULT, SOON).unwrap();
    exporting.turn(vec![event("OOMKilling", "told before")]).unwrap();
    wait_for_events(&cluster, &first, "OOMKilling", 1, SOON).unwrap();
    deployed::delete_node(&cluster, "a").unwrap();
    // What is told meanwhile is about the Node that comes.
    exporting.turn(vec![event("OOMKilling", "told between")]).unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let second = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", FAULT, SOON).unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["metadata"]["annotations"]["nodeward.dev/boot-id"], BOOT);
    for kind in ["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"] {
        let [was, is] = [&first, &second].map(|node| standing(node, kind));
        assert_eq!((&was["status"], &was["lastTransitionTime"]), (&is["status"], &is["lastTransitionTime"]), "{kind}");
    }
    // The same words as before: about another Node they are another Event.
    exporting.turn(vec![event("OOMKilling", "told before")]).unwrap();
    wait::until("the Event about the new Node", SOON, || {
        let events = cluster.get(&["events", "--namespace", "default"])?;
        let is_it = |e: &Value| e["message"] == "told before" && e["involvedObject"]["uid"] == second["metadata"]["uid"];
        anyhow::ensure!(events["items"].as_array().is_some_and(|all| all.iter().any(is_it)), "{events}");
        Ok::<_, anyhow::Error>(())
    })
    .unwrap();
}

#[test]
fn a_node_that_comes_late_gets_everything() {
    let cluster = deployed::start().unwrap();
    // A token can be bound to a pod on a Node that is not there yet.
    let exporting = Exporting::start(&access(&cluster, "late").unwrap(), "late", BOOT, Stamps::default()).unwrap();
    let mut effects = healthy();
    effects.push(event("OOMKilling", "before there was a Node"));
    exporting.turn(effects).unwrap();
    wait::until("a try", SOON, || if exporting.writes("node", "failed") > 0 { Ok(()) } else { Err("none") }).unwrap();
    deployed::make_node(&cluster, "late").unwrap();
    let node = wait_for(&cluster, "late", "KernelDeadlock", "False", "kernel has no deadlock", SOON).unwrap();
    wait_for_events(&cluster, &node, "OOMKilling", 1, SOON).unwrap();
}

#[test]
fn a_restart_changes_no_transition_time_and_a_new_boot_does() {
    let (cluster, exporting) = well().unwrap();
    exporting.turn(vec![readonly(Status::True, FAULT)]).unwrap();
    let first = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", FAULT, SOON).unwrap();
    let time = standing(&first, "ReadonlyFilesystem")["lastTransitionTime"].clone();
    let remembered = exporting.stop().unwrap();
    let kubeconfig = access(&cluster, "a").unwrap();
    // So that a transition made now is another second.
    let later = |seconds: u64| {
        let deadline = Duration::from_secs(seconds + 20);
        wait::until("the next second", deadline, || {
            let now = nodeward_agent::clock::Clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            if time.as_str() < Some(now.as_str()) { Ok(()) } else { Err(now) }
        })
    };
    later(2).unwrap();
    // With a memory, and without one: then by what stands on the Node.
    for (stamps, message) in [(remembered, "remembered"), (Stamps::default(), "adopted")] {
        let again = Exporting::start(&kubeconfig, "a", BOOT, stamps).unwrap();
        let mut effects = healthy();
        effects.push(readonly(Status::True, message));
        again.turn(effects).unwrap();
        let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", message, SOON).unwrap();
        assert_eq!(standing(&node, "ReadonlyFilesystem")["lastTransitionTime"], time, "{message}");
        again.stop().unwrap();
    }
    let boot = "7f3e1a52-0000-4000-8000-000000000002";
    let rebooted = Exporting::start(&kubeconfig, "a", boot, Stamps::default()).unwrap();
    let mut effects = healthy();
    effects.push(readonly(Status::True, "after a boot"));
    rebooted.turn(effects).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "after a boot", SOON).unwrap();
    assert_ne!(standing(&node, "ReadonlyFilesystem")["lastTransitionTime"], time);
    assert_eq!(node["metadata"]["annotations"]["nodeward.dev/boot-id"], boot);
}

#[test]
fn what_is_left_is_written_at_the_end() {
    let (cluster, exporting) = well().unwrap();
    exporting.turn(vec![readonly(Status::True, FAULT), event("FilesystemIsReadOnly", "the last")]).unwrap();
    exporting.stop().unwrap();
    let node = cluster.get(&["node", "a"]).unwrap();
    assert_eq!(standing(&node, "ReadonlyFilesystem")["message"], FAULT);
    assert_eq!(wait_for_events(&cluster, &node, "FilesystemIsReadOnly", 1, Duration::ZERO).unwrap()[0]["message"], "the last");
}
