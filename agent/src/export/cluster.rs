//! Which cluster, and which Node of it: from the pod's service account or a kubeconfig.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Longest wait for an answer of the API server to one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How the API server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By the service account of the pod that the agent runs in.
    Pod,
    /// By a kubeconfig file.
    File(PathBuf),
}

/// A cluster, and the Node that is this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How it is reached.
    pub access: Access,
    /// Name of the Node.
    pub node: String,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The pod's service account is not complete.
    #[error("the pod has no usable service account")]
    Pod(#[from] kube::config::InClusterError),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path} cannot be used")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// The client cannot be built from it.
    #[error("no client can be made")]
    Client(#[from] kube::Error),
}

impl Access {
    /// What there is without being told: a pod has the API server's address in its environment.
    #[must_use]
    pub fn of_pod() -> Option<Self> {
        std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| Self::Pod)
    }

    /// A client, with the credentials as they are now on disk.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub async fn client(&self) -> Result<Client, AccessError> {
        let mut config = match self {
            Self::Pod => Config::incluster()?,
            Self::File(path) => {
                let wrong = |source| AccessError::File { path: path.clone(), source };
                let file = Kubeconfig::read_from(path).map_err(wrong)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)?
            }
        };
        config.connect_timeout = Some(REQUEST_TIMEOUT / 2);
        Ok(Client::try_from(config)?)
    }
}
