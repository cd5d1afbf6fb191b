//! An API server that is away, and credentials that it does not accept.

use std::{fs, time::Duration};

use agent_core::Status;
use nodeward_agent::export::Stamps;
use serde_json::json;
use tests_cluster::{
    deployed,
    exporting::{Exporting, SOON, event, healthy, readonly, standing, wait_for, wait_for_events},
    wait,
};

use crate::{BOOT, well};

/// The longest pause between two attempts is 30 s.
const AFTER_OUTAGE: Duration = Duration::from_secs(60);

#[test]
fn an_outage_of_the_api_server_ends_in_the_latest_conditions_and_loses_no_event() {
    let (mut cluster, exporting) = well().unwrap();
    cluster.stop_api_server();
    exporting.turn(vec![readonly(Status::True, "first fault"), event("FilesystemIsReadOnly", "first fault")]).unwrap();
    exporting.turn(vec![readonly(Status::False, "mended"), event("FilesystemIsNotReadOnly", "mended")]).unwrap();
    exporting.turn(vec![readonly(Status::True, "second fault"), event("FilesystemIsReadOnly", "second fault")]).unwrap();
    wait::until("two tries", SOON, || if exporting.writes("node", "failed") > 1 { Ok(()) } else { Err("not yet") }).unwrap();
    assert_eq!(exporting.metrics.api_up.get(), 0);
    let detected = nodeward_agent::clock::Clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster.start_api_server().unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "second fault", AFTER_OUTAGE).unwrap();
    let now = standing(&node, "ReadonlyFilesystem");
    assert!(now["lastTransitionTime"].as_str().unwrap() <= detected.as_str(), "{now} happened before {detected}");
    assert!(now["lastHeartbeatTime"].as_str() >= now["lastTransitionTime"].as_str());
    wait_for_events(&cluster, &node, "FilesystemIsNotReadOnly", 1, AFTER_OUTAGE).unwrap();
    let events = wait_for_events(&cluster, &node, "FilesystemIsReadOnly", 2, AFTER_OUTAGE).unwrap();
    assert!(events.iter().all(|e| e["firstTimestamp"].as_str().unwrap() <= detected.as_str()), "{events:?}");
    assert_eq!(exporting.metrics.events_dropped.with_label_values(&["queue_full"]).get(), 0);

    // The watch is back too: what others do to our conditions is seen again.
    let theirs = json!({ "status": { "conditions": [{ "type": "ReadonlyFilesystem", "status": "False", "message": "theirs" }] } });
    deployed::patch_status(&cluster, "a", "another", &theirs).unwrap();
    wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "second fault", AFTER_OUTAGE).unwrap();
}

#[test]
fn an_expired_token_ends_nothing_and_a_rotated_one_is_taken_up() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let good = deployed::token(&cluster, Some(("agent-1", "a"))).unwrap();
    let file = cluster.dir().join("rotating.token");
    fs::write(&file, deployed::expired(&cluster, &good).unwrap()).unwrap();
    let exporting = Exporting::start(&cluster.kubeconfig_with_token_file(&file).unwrap(), "a", BOOT, Stamps::default()).unwrap();
    let mut effects = healthy();
    effects.push(event("OOMKilling", "while the token was expired"));
    exporting.turn(effects).unwrap();
    wait::until("a refusal", SOON, || if exporting.writes("node", "failed") > 1 { Ok(()) } else { Err("none") }).unwrap();
    assert_eq!(standing(&cluster.get(&["node", "a"]).unwrap(), "KernelDeadlock"), json!(null));

    fs::write(&file, &good).unwrap();
    let node = wait_for(&cluster, "a", "KernelDeadlock", "False", "kernel has no deadlock", AFTER_OUTAGE).unwrap();
    wait_for_events(&cluster, &node, "OOMKilling", 1, AFTER_OUTAGE).unwrap();

    // Rotated: the old one ends with its pod, before anybody has read the new one.
    let next = deployed::token(&cluster, Some(("agent-2", "a"))).unwrap();
    deployed::delete_pod(&cluster, "agent-1").unwrap();
    fs::write(&file, &next).unwrap();
    exporting.turn(vec![readonly(Status::True, "after the rotation")]).unwrap();
    wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "after the rotation", AFTER_OUTAGE).unwrap();
}
