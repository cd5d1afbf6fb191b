//! The agent itself, as one program: real faults of this machine's kernel on one side, a real API server on the other.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests_cluster::{
    cluster::Cluster,
    deployed,
    exporting::{SOON, standing},
    made,
    server::{Server, output},
    wait,
};
use tests_kernel::{
    filesystem::{Filesystem, Kind},
    metrics::Reading,
};

use crate::access;

/// The longest pause between two attempts to write is 30 s.
const AFTER_OUTAGE: Duration = Duration::from_secs(60);

/// Starts an agent whose node has one filesystem. What it remembers and says is in this folder.
fn start(folder: &Path, kubeconfig: &Path, filesystem: &Filesystem) -> Result<Server> {
    let config = json!({
        // Nothing else on this machine may make a condition true.
        "kernelDeadlock": { "criticalUnits": ["nodeward-test-none.service"], "manyHungTasks": 1_000_000 },
        "nodeFilesystems": { "paths": [filesystem.mount_point()] },
        "http": { "address": "127.0.0.1:0" },
        "host": { "stateDirectory": folder.join("state") },
    });
    // YAML is a superset of JSON.
    let file = folder.join("config.yaml");
    fs::write(&file, config.to_string())?;
    Server::start(&folder.join("agent.log"), made("NODEWARD_AGENT")?, |command| {
        command.args(["run", "--node-name", "a", "--config"]).arg(file).arg("--kubeconfig").arg(kubeconfig);
    })
}

fn metrics(agent: &Server) -> Result<Reading> {
    let said = agent.said();
    let address: Option<SocketAddr> = said.lines().rev().find_map(|line| line.split_once("http://")?.1.trim().parse().ok());
    Reading::of(address.with_context(|| format!("the agent did not say where it serves:\n{said}"))?)
}

/// Waits until the node's filesystem condition has this status, and gives the Node.
fn wait_for(cluster: &Cluster, agent: &Server, status: &str, within: Duration) -> Result<Value> {
    let node = wait::until("the condition", within, || {
        let node = cluster.get(&["node", "a"])?;
        let now = standing(&node, "ReadonlyFilesystem");
        ensure!(now["status"] == status, "it is {now}, not {status}");
        Ok::<_, anyhow::Error>(node)
    });
    node.with_context(|| agent.last_words())
}

fn end(agent: &mut Server) -> Result<()> {
    agent.signal(Signal::TERM)?;
    let status = wait::until("the agent's end", SOON, || agent.ended()?.context("it is still there"))?;
    ensure!(status.success(), "{status}: {}", agent.last_words());
    Ok(())
}

#[test]
fn a_real_fault_turns_the_nodes_condition_and_its_mend_turns_it_back() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let kubeconfig = access(&cluster, "a").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let agent = start(folder.path(), &kubeconfig, &filesystem).unwrap();
    let node = wait_for(&cluster, &agent, "False", AFTER_OUTAGE).unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(node["metadata"]["annotations"]["nodeward.dev/boot-id"], boot_id.trim());
    assert_eq!(standing(&node, "KernelDeadlock")["reason"], "KernelHasNoDeadlock");

    filesystem.break_ext4("nodeward-cluster-tier").unwrap();
    let node = wait_for(&cluster, &agent, "True", SOON).unwrap();
    let broken = standing(&node, "ReadonlyFilesystem");
    assert_eq!(broken["reason"], "FilesystemIsReadOnly");
    let message = broken["message"].as_str().unwrap();
    let mount_point = filesystem.mount_point().display().to_string();
    assert!(message.contains(filesystem.device()) && message.contains(&mount_point), "{message}");
    let described = wait::until("the Event of the change", SOON, || {
        let described = cluster.kubectl(&["describe", "node", "a"])?;
        ensure!(described.contains("Node condition ReadonlyFilesystem is now: True"), "{described}");
        Ok::<_, anyhow::Error>(described)
    });
    assert!(described.unwrap().contains(message));
    let reading = metrics(&agent).unwrap();
    assert_eq!(reading.value("problem_gauge{reason=\"FilesystemIsReadOnly\",type=\"ReadonlyFilesystem\"}"), 1.0, "{}", reading.text());
    assert_eq!(reading.value("nodeward_detection_to_patch_seconds_count"), 1.0, "{}", reading.text());

    // Killed, and started again while the fault holds. The state tells the time; so does the Node, when the state is gone.
    drop(agent);
    let agent = start(folder.path(), &kubeconfig, &filesystem).unwrap();
    let is_heard = |agent: &Server| {
        wait::until("a patch", SOON, || {
            let accepted = metrics(agent)?.value("nodeward_api_writes_total{object=\"node\",outcome=\"accepted\"}");
            ensure!(accepted > 0.0, "none yet: {}", agent.last_words());
            Ok::<_, anyhow::Error>(())
        })
    };
    is_heard(&agent).unwrap();
    drop(agent);
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    let mut agent = start(folder.path(), &kubeconfig, &filesystem).unwrap();
    is_heard(&agent).unwrap();
    let still = standing(&cluster.get(&["node", "a"]).unwrap(), "ReadonlyFilesystem");
    assert_eq!((&still["status"], &still["lastTransitionTime"]), (&broken["status"], &broken["lastTransitionTime"]));

    filesystem.unmount().unwrap();
    filesystem.mend().unwrap();
    filesystem.mount().unwrap();
    let mended = wait_for(&cluster, &agent, "False", SOON).unwrap();
    assert_eq!(standing(&mended, "ReadonlyFilesystem")["reason"], "FilesystemIsNotReadOnly");
    end(&mut agent).unwrap();

    let mut uninstall = Command::new(made("NODEWARD_AGENT").unwrap());
    output(uninstall.args(["uninstall", "--node-name", "a", "--kubeconfig"]).arg(&kubeconfig)).unwrap();
    let clean = cluster.get(&["node", "a"]).unwrap();
    let ours = ["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"].map(|kind| standing(&clean, kind));
    assert_eq!((ours, &clean["metadata"]["annotations"]["nodeward.dev/boot-id"]), ([Value::Null, Value::Null, Value::Null], &Value::Null));
    assert_eq!(standing(&clean, "Ready")["status"], "True");
}

#[test]
fn an_agent_whose_api_server_is_away_or_refuses_says_so_and_goes_on() {
    let mut cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let kubeconfig = access(&cluster, "a").unwrap();
    // As long as the binding is not there, nothing is allowed.
    let binding = cluster.kubectl(&["get", "clusterrolebinding", "nodeward-agent", "--output", "json"]).unwrap();
    cluster.kubectl(&["delete", "clusterrolebinding", "nodeward-agent"]).unwrap();
    cluster.stop_api_server();

    let folder = tempfile::tempdir().unwrap();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let mut agent = start(folder.path(), &kubeconfig, &filesystem).unwrap();
    let says = |agent: &Server, what: &str| {
        wait::until("a line of the log", AFTER_OUTAGE, || {
            let said = agent.said();
            ensure!(said.contains(what), "no {what:?} in:\n{said}");
            Ok::<_, anyhow::Error>(())
        })
    };
    says(&agent, "conditions not written yet").unwrap();
    assert_eq!(metrics(&agent).unwrap().value("nodeward_api_up"), 0.0);
    // What it detects meanwhile is in its metrics.
    filesystem.break_ext4("nodeward-cluster-tier").unwrap();
    wait::until("the gauge", SOON, || {
        let reading = metrics(&agent)?;
        let gauge = reading.value("problem_gauge{reason=\"FilesystemIsReadOnly\",type=\"ReadonlyFilesystem\"}");
        ensure!(gauge == 1.0, "{}", reading.text());
        Ok::<_, anyhow::Error>(())
    })
    .unwrap();

    cluster.start_api_server().unwrap();
    says(&agent, "the API server refuses our patch").unwrap();
    says(&agent, "cannot patch resource").unwrap();
    cluster.apply(&without_server_fields(&binding).unwrap().to_string()).unwrap();
    wait_for(&cluster, &agent, "True", AFTER_OUTAGE).unwrap();
    end(&mut agent).unwrap();
}

/// An object as it can be made again.
fn without_server_fields(object: &str) -> Result<Value> {
    let mut object: Value = serde_json::from_str(object)?;
    object["metadata"] = json!({ "name": object["metadata"]["name"] });
    Ok(object)
}
