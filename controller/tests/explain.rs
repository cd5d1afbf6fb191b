//! `explain` on exported objects: what would be done, and why not.
#![allow(clippy::unwrap_used)] // a test that cannot read its objects fails

use std::{fs, path::PathBuf};

use nodeward_controller::explain::{self, ExplainError};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text, for the exported objects of `tests/explain` and these policies.
fn explained(policies: &[&str], only: &[&str], change: impl Fn(&str) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut paths: Vec<PathBuf> = Vec::new();
    let given = ["tests/explain/cluster.yaml", "tests/explain/nodes.json"].into_iter().map(ToOwned::to_owned);
    for (n, name) in given.chain(policies.iter().map(|p| format!("../deploy/policies/{p}.yaml"))).enumerate() {
        let path = folder.path().join(format!("{n}"));
        let text = fs::read_to_string(file(&name)).unwrap().replace("metadata:\n  name:", "metadata:\n  namespace: default\n  name:");
        fs::write(&path, change(&text)).unwrap();
        paths.push(path);
    }
    let world = explain::read(&paths).unwrap();
    let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
    explain::explain(&world, world.newest().unwrap(), &only).unwrap()
}

#[test]
fn it_says_what_would_be_done_and_what_is_left_alone() {
    let text = explained(&["cloud-worker", "bare-metal-worker"], &[], ToOwned::to_owned);
    assert_eq!(
        text,
        "as of 2026-12-01T04:05:06Z\n\
         \n\
         pool default/c md-workers (policy cloud-worker)\n\
         \x20 3 machines, 1 unhealthy, 1 of these confirmed, 1 paused, 0 in flight\n\
         \x20 gate: open\n\
         \x20 silent: Gated (confirmed: Ready=Unknown (NodeStatusUnknown)): would be rebooted now\n\
         \x20 paused: Suspect (Ready=False (KubeletNotReady)): is left alone\n\
         \x20   Paused: annotation cluster.x-k8s.io/paused on the Machine\n\
         \n\
         no policy selects, so nothing is ever done with: default/other\n"
    );
}

#[test]
fn it_says_what_closes_the_gate() {
    let more = |text: &str| text.replace(r#"annotations: {cluster.x-k8s.io/paused: "true"}"#, "").replace("max: 2", "max: 1");
    let text = explained(&["cloud-worker"], &["silent", "good"], more);
    assert!(text.contains("gate: closed: TooManyUnhealthy: more than 1 are unhealthy"), "{text}");
    assert!(
        text.contains("silent: Gated (confirmed: Ready=Unknown (NodeStatusUnknown)): would be rebooted, but is held\n    TooManyUnhealthy"),
        "{text}"
    );
    assert!(text.contains("good: healthy or still booting: nothing to do"), "{text}");
    assert!(!text.contains("paused:"), "{text}");
}

#[test]
fn without_a_policy_nothing_would_be_done() {
    let text = explained(&[], &[], ToOwned::to_owned);
    assert!(text.contains("no policy selects any Machine"), "{text}");
}

#[test]
fn what_is_not_understood_is_named_and_nothing_is_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "a: [1\n").unwrap();
    assert!(matches!(explain::read(std::slice::from_ref(&path)), Err(ExplainError::Yaml(..))));
    assert!(matches!(explain::read(&[folder.path().join("none")]), Err(ExplainError::File(..))));
    fs::write(&path, "kind: RemediationPolicy\nmetadata: {name: p}\nspec: {class: Could}\n").unwrap();
    let world = explain::read(&[path]).unwrap();
    let error = explain::explain(&world, "2026-12-01T04:05:06Z".parse().unwrap(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "RemediationPolicy p is not understood");
}
