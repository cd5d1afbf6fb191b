//! Somebody who calls the API server with a token, and is told plainly what it answers.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::{runtime::Runtime, time};

use crate::cluster::Cluster;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A caller.
pub struct Caller {
    runtime: Runtime,
    client: Client,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// The API server's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub code: u16,
    /// Why.
    pub message: String,
}

impl Refusal {
    /// Whether it was refused by rights alone: nothing of what was sent has been looked at.
    #[must_use]
    pub fn is_for_want_of_rights(&self) -> bool {
        self.code == 403 && self.message.contains(" cannot ")
    }
}

impl Caller {
    /// One with this token.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn with_token(cluster: &Cluster, token: &str) -> Result<Self> {
        let file = tempfile::Builder::new().prefix("caller-").tempfile_in(cluster.dir())?;
        fs::write(file.path(), token)?;
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_with_token_file(file.path())?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self { runtime, client })
    }

    /// Sends one request. Text that is no JSON is given as a string.
    ///
    /// # Errors
    /// If there is no answer: a refusal is one.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<std::result::Result<Value, Refusal>> {
        let content = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("Content-Type", content).body(body)?;
        let answer = self.runtime.block_on(async { time::timeout(PATIENCE, self.client.request_text(request)).await });
        match answer.with_context(|| format!("no answer to {method} {path}"))? {
            Ok(text) => Ok(Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))),
            Err(kube::Error::Api(status)) => Ok(Err(Refusal { code: status.code, message: status.message.clone() })),
            Err(e) => Err(e).with_context(|| format!("{method} {path}")),
        }
    }

    /// Sends a patch.
    ///
    /// # Errors
    /// If there is no answer: a refusal is one.
    pub fn patch(&self, path: &str, body: &Value) -> Result<std::result::Result<Value, Refusal>> {
        self.call("PATCH", path, Some(body))
    }
}
