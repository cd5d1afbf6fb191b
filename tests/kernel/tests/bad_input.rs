//! What the binary makes of a machine or a person that gives it less than it needs: a clear message, the best that is still possible, and an
//! exit status that a script can use. Never a panic.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::{
    env, fs,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// A configuration in a folder that everybody may read.
fn configured(text: &str) -> (TempDir, String) {
    let directory = tempfile::Builder::new().prefix("nodeward-test-input-").tempdir().unwrap();
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let file = directory.path().join("config.yaml");
    fs::write(&file, text).unwrap();
    (directory, file.display().to_string())
}

fn agent() -> String {
    env::var("NODEWARD_AGENT").expect("NODEWARD_AGENT is not set: run these tests by `cargo xtask test --tier kernel`")
}

fn ended(command: &mut Command) -> (Option<i32>, Output) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), output)
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One row of a list of the report.
fn row<'a>(report: &'a Value, list: &str, key: &str, name: &str) -> &'a Value {
    report[list].as_array().unwrap().iter().find(|row| row[key] == name).unwrap_or(&Value::Null)
}

#[test]
fn without_the_kernel_log_the_rest_is_looked_at_and_the_reason_told() {
    let (_directory, config) = configured("kernelLog: {device: /dev/nodeward-test-none}\n");
    let (status, output) = ended(Command::new(agent()).args(["check", "--output", "json", "--config", &config]));
    let report = report(&output);
    assert_eq!(status, Some(2), "{report}");
    let log = row(&report, "sources", "name", "kmsg");
    assert_eq!(log["state"], "absent");
    assert!(log["why"].to_string().contains("/dev/nodeward-test-none"), "{log}");
    assert_eq!(row(&report, "sources", "name", "ebpf")["state"], "up");
}

#[test]
fn without_root_every_source_says_why_it_cannot_be_had() {
    // The binary itself may lie where only root can go.
    let (directory, config) = configured("host: {root: /}\n");
    let copy = directory.path().join("nodeward-agent");
    fs::copy(agent(), &copy).unwrap();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let (status, output) = ended(Command::new("setpriv").args(nobody).arg(&copy).args(["check", "--output", "json", "--config", &config]));
    let report = report(&output);
    assert_eq!(status, Some(2), "{report}");
    for source in ["kmsg", "ebpf"] {
        let row = row(&report, "sources", "name", source);
        assert_eq!(row["state"], "absent", "{report}");
        assert!(row["why"].as_array().is_some_and(|why| !why.is_empty()), "{report}");
    }
}

#[test]
fn without_btf_every_program_is_attached_all_the_same() {
    let (_directory, config) = configured("host: {root: /}\n");
    // In a mount namespace of its own: nobody else sees it, and it ends with the process.
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" check --output json --config \"$1\"";
    let (_, output) = ended(Command::new("unshare").args(["--mount", "sh", "-c", script, &agent(), &config]));
    let report = report(&output);
    let programs = report["ebpfPrograms"].as_array().unwrap();
    assert!(!programs.is_empty() && programs.iter().all(|program| program["attached"] == true), "{report}");
}

#[test]
fn a_broken_configuration_is_refused_with_its_place() {
    let (_directory, config) = configured("events:\n  burts: 3\n");
    for command in [vec!["run", "--no-cluster", "--config"], vec!["check", "--config"], vec!["config", "check"]] {
        let (status, output) = ended(Command::new(agent()).args(&command).arg(&config));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status, Some(3), "{command:?}: {said}");
        assert!(said.contains("line 2") && said.contains("burts"), "{command:?}: {said}");
    }
}

#[test]
fn a_log_without_a_fault_prints_nothing_for_a_script() {
    let (directory, _) = configured("");
    let log = directory.path().join("log");
    fs::write(&log, "[    1.000000] all is well\n").unwrap();
    let (status, output) = ended(Command::new(agent()).args(["replay", "--output", "json"]).arg(&log));
    assert_eq!((status, output.stdout.len()), (Some(0), 0));
    let (status, output) = ended(Command::new(agent()).args(["replay", "/nodeward-test-none"]));
    assert_eq!(status, Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nodeward-test-none"));
}
