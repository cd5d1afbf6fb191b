//! The cluster tier: the agent's exporters, and the agent itself, against a real API server and etcd, with the rights that `deploy/` gives.

mod agent;
mod conditions;
mod conflict;
mod outage;
mod remediation;
mod rights;

use std::{fs, path::PathBuf};

use anyhow::Result;
use nodeward_agent::export::Stamps;
use tests_cluster::{
    cluster::Cluster,
    deployed,
    exporting::{Exporting, SOON, healthy, wait_for},
};

/// The boot that the tests' node is in.
const BOOT: &str = "7f3e1a52-0000-4000-8000-000000000001";

/// A kubeconfig with the token of a pod of the agent on this node.
fn access(cluster: &Cluster, node: &str) -> Result<PathBuf> {
    let file = cluster.dir().join(format!("{node}.token"));
    fs::write(&file, deployed::token(cluster, Some((&format!("agent-{node}"), node)))?)?;
    cluster.kubeconfig_with_token_file(&file)
}

/// A cluster with a Node `a`, and exporters that have written that all is well there.
fn well() -> Result<(Cluster, Exporting)> {
    let cluster = deployed::start()?;
    deployed::make_node(&cluster, "a")?;
    let exporting = Exporting::start(&access(&cluster, "a")?, "a", BOOT, Stamps::default())?;
    exporting.turn(healthy())?;
    wait_for(&cluster, "a", "ReadonlyFilesystem", "False", "Filesystem is not read-only", SOON)?;
    Ok((cluster, exporting))
}
