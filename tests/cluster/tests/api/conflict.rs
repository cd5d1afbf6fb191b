//! Another writer of our condition types, such as node-problem-detector side by side.

use std::time::Duration;

use agent_core::Status;
use serde_json::json;
use tests_cluster::{
    deployed::patch_status,
    exporting::{SOON, readonly, standing, wait_for, wait_for_events},
    wait,
};

use crate::well;

/// The pause before a restoration is at most a little longer than all that went before.
const NEXT_RESTORATION: Duration = Duration::from_secs(120);

#[test]
fn a_conflicting_writer_is_named_and_its_word_does_not_stand() {
    let (cluster, exporting) = well().unwrap();
    exporting.turn(vec![readonly(Status::True, "ours")]).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "ours", SOON).unwrap();
    let time = standing(&node, "ReadonlyFilesystem")["lastTransitionTime"].clone();
    let theirs = json!({ "type": "ReadonlyFilesystem", "status": "False", "reason": "Theirs", "message": "theirs",
                         "lastTransitionTime": "2026-01-01T00:00:00Z" });
    patch_status(&cluster, "a", "node-problem-detector", &json!({ "status": { "conditions": [theirs] } })).unwrap();
    let node = wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "ours", SOON).unwrap();
    assert_eq!(standing(&node, "ReadonlyFilesystem")["lastTransitionTime"], time);
    let events = wait_for_events(&cluster, &node, "ConditionConflict", 1, SOON).unwrap();
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.contains("node-problem-detector") && message.contains("ReadonlyFilesystem"), "{message}");
    let conflicts = exporting.metrics.condition_conflicts.with_label_values(&["ReadonlyFilesystem", "node-problem-detector"]);
    assert_eq!(conflicts.get(), 1);

    // A condition removed, or with another transition time alone, is one that does not stand either.
    for row in [
        json!({ "type": "StorageFault", "$patch": "delete" }),
        json!({ "type": "StorageFault", "lastTransitionTime": "2026-01-01T00:00:00Z" }),
    ] {
        let was = standing(&cluster.get(&["node", "a"]).unwrap(), "StorageFault");
        patch_status(&cluster, "a", "somebody", &json!({ "status": { "conditions": [row] } })).unwrap();
        wait::until("the condition to be restored", SOON, || {
            let is = standing(&cluster.get(&["node", "a"])?, "StorageFault");
            anyhow::ensure!(is["lastTransitionTime"] == was["lastTransitionTime"] && is["status"] == was["status"], "{is}, not {was}");
            Ok::<_, anyhow::Error>(())
        })
        .unwrap();
    }
}

#[test]
fn a_writer_that_never_rests_does_not_make_us_restless() {
    let (cluster, exporting) = well().unwrap();
    let before = exporting.writes("node", "accepted");
    for n in 0..25 {
        let theirs = json!({ "type": "KernelDeadlock", "status": "True", "reason": "Theirs", "message": format!("theirs {n}") });
        patch_status(&cluster, "a", "restless", &json!({ "status": { "conditions": [theirs] } })).unwrap();
    }
    let restored = exporting.writes("node", "accepted") - before;
    // At once, then after 1, 2, 4 s and so on: 10 would take minutes.
    assert!((1..10).contains(&restored), "{restored} writes");
    wait_for(&cluster, "a", "KernelDeadlock", "False", "kernel has no deadlock", NEXT_RESTORATION).unwrap();
    let conflicts = exporting.metrics.condition_conflicts.with_label_values(&["KernelDeadlock", "restless"]).get();
    assert!((1..11).contains(&conflicts), "{conflicts} conflicts");
    // A new finding waits for nobody.
    exporting.turn(vec![readonly(Status::True, "news")]).unwrap();
    wait_for(&cluster, "a", "ReadonlyFilesystem", "True", "news", SOON).unwrap();
}
