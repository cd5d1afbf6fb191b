//! The whole tier: a real Kubernetes, and on its one node our image, as a user would install it.

use std::{fs, net::TcpListener, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests_cluster::{cluster::Cluster, disk::Disk, made, node::Node, server::output, wait};

const NODE: &str = "nodeward-whole";
/// One of the paths that a node depends on by default.
const MOUNT_POINT: &str = "/var/lib/etcd";
/// How long a change may take to be seen on the API server, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// How long a pod may take.
const POD: Duration = Duration::from_secs(60);

#[test]
fn a_broken_filesystem_of_a_node_is_told_by_its_node_until_it_is_mended() -> Result<()> {
    // The agent's port is the machine's own.
    TcpListener::bind(("127.0.0.1", 20260)).context("something else on this machine listens where the agent does")?;
    let cluster = Cluster::start()?;
    let _controllers = cluster.start_controllers()?;
    let node = Node::start(&cluster, NODE, &[&made("NODEWARD_IMAGE")?])?;
    let files = tempfile::tempdir()?;
    install(&cluster, files.path())?;
    let first = wait::until("the agent's pod to be ready", POD, || ready_pod(&cluster, None)).map_err(|e| e.context(explain(&cluster)))?;
    for kind in ["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"] {
        condition_is(&cluster, kind, "False")?;
    }
    condition_is(&cluster, "Ready", "True")?;

    let disk = Disk::attach(&node, files.path())?;
    disk.mount(&node, MOUNT_POINT)?;
    Disk::spring(&node, MOUNT_POINT);
    let broken = condition_is(&cluster, "ReadonlyFilesystem", "True").map_err(|e| e.context(explain(&cluster)))?;
    assert_eq!(broken["reason"], "FilesystemIsReadOnly");
    let message = broken["message"].as_str().unwrap_or_default();
    assert!(message.contains(MOUNT_POINT) && message.contains(&disk.name()), "{message}");
    let described = wait::until("the Event", SOON, || {
        let described = cluster.kubectl(&["describe", "node", NODE])?;
        let (_, events) = described.split_once("\nEvents:").context("no Events")?;
        ensure!(events.contains("FilesystemIsReadOnly") && events.contains(MOUNT_POINT), "{events}");
        Ok(described)
    })?;
    assert!(described.contains(message), "{described}");

    // Another pod of the agent finds it as it was: nobody is told anything else in between.
    cluster.kubectl(&["delete", "pod", "--namespace", "nodeward", &first, "--wait=false"])?;
    wait::until("the agent's next pod", POD, || {
        let now = condition(&cluster, "ReadonlyFilesystem").map_err(|e| e.to_string());
        assert_eq!(
            now.map(|c| (c["status"].clone(), c["lastTransitionTime"].clone())),
            Ok(("True".into(), broken["lastTransitionTime"].clone()))
        );
        ready_pod(&cluster, Some(&first))
    })?;
    let after = condition(&cluster, "ReadonlyFilesystem")?;
    assert_eq!((&after["status"], &after["lastTransitionTime"]), (&broken["status"], &broken["lastTransitionTime"]));

    disk.mend(&node, MOUNT_POINT)?;
    let mended = condition_is(&cluster, "ReadonlyFilesystem", "False").map_err(|e| e.context(explain(&cluster)))?;
    assert_eq!(mended["reason"], "FilesystemIsNotReadOnly");
    node.run(&["umount", MOUNT_POINT])?;
    Ok(())
}

/// Applies `deploy/` with the API server's address: there is no kube-proxy that would lead from the one in every pod to it.
fn install(cluster: &Cluster, dir: &Path) -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    output(Command::new("cp").arg("--recursive").arg(deploy).arg(dir))?;
    let overlay = format!(
        "resources: [deploy]\n\
         patches:\n\
         - target: {{kind: DaemonSet}}\n  \
           patch: |\n    \
             - {{op: add, path: /spec/template/spec/containers/0/env/-, value: {{name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}}}}\n    \
             - {{op: add, path: /spec/template/spec/containers/0/env/-, value: {{name: KUBERNETES_SERVICE_PORT, value: \"{}\"}}}}\n",
        cluster.port()
    );
    fs::write(dir.join("kustomization.yaml"), overlay)?;
    cluster.kubectl(&["apply", "--kustomize", &dir.display().to_string()]).map(drop)
}

/// Name of the agent's pod, once it is ready and another than this one.
fn ready_pod(cluster: &Cluster, other_than: Option<&str>) -> Result<String> {
    let pods = cluster.get(&["pods", "--namespace", "nodeward"])?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        pod["metadata"]["deletionTimestamp"].is_null() && conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let names = pods.iter().filter(is_ready).filter_map(|pod| pod["metadata"]["name"].as_str());
    names.filter(|name| Some(*name) != other_than).map(String::from).next().with_context(|| {
        let states: Vec<_> = pods.iter().map(|pod| pod["status"]["containerStatuses"].to_string()).collect();
        format!("no pod is ready: {states:?}")
    })
}

fn condition(cluster: &Cluster, kind: &str) -> Result<Value> {
    let node = cluster.get(&["node", NODE])?;
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|c| c["type"] == kind).cloned().with_context(|| format!("no condition {kind}"))
}

fn condition_is(cluster: &Cluster, kind: &str, status: &str) -> Result<Value> {
    wait::until(&format!("{kind} to be {status}"), SOON, || {
        let condition = condition(cluster, kind)?;
        ensure!(condition["status"] == status, "{condition}");
        Ok(condition)
    })
}

/// What a person would ask for next.
fn explain(cluster: &Cluster) -> String {
    let ask = |args: &[&str]| cluster.kubectl(args).unwrap_or_else(|e| e.to_string());
    let pods = ask(&["describe", "pods", "--namespace", "nodeward"]);
    let daemon_sets = ask(&["describe", "daemonset", "--namespace", "nodeward"]);
    format!("{pods}\n{daemon_sets}\n{}", ask(&["describe", "node", NODE]))
}
