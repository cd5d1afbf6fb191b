//! `nodeward-agent uninstall`: takes our conditions and our annotation off the Node.

use std::process::ExitCode;

use agent_core::ConditionType;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tokio::time;

use super::say;
use crate::export::{
    cluster::{Cluster, REQUEST_TIMEOUT},
    node::FIELD_MANAGER,
    patch,
};

/// Removes what the agent wrote, in one patch.
pub(super) async fn uninstall(cluster: Cluster) -> anyhow::Result<ExitCode> {
    let api: Api<Node> = Api::all(cluster.access.client().await?);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    time::timeout(REQUEST_TIMEOUT, api.patch_status(&cluster.node, &params, &Patch::Strategic(patch::removal())))
        .await
        .with_context(|| format!("the API server did not answer within {REQUEST_TIMEOUT:?}"))?
        .with_context(|| format!("cannot clean Node {}", cluster.node))?;
    let types: Vec<_> = ConditionType::ALL.iter().map(|kind| kind.as_str()).collect();
    say(&format!("removed {} and the annotation from Node {}\n", types.join(", "), cluster.node))?;
    Ok(ExitCode::SUCCESS)
}
