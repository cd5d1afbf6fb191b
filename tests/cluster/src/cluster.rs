//! A real API server and its etcd on loopback, on ports of their own.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    authority, made,
    server::{Server, output},
    wait,
};

/// How long they may take to answer: 3 s on two idle cores.
const START: Duration = Duration::from_secs(60);

/// A cluster without nodes. Everything of it is gone when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: an API server whose etcd is gone first would wait for it.
    api_server: Option<Server>,
    _etcd: Server,
    programs: PathBuf,
    port: u16,
    etcd_port: u16,
    more: Vec<String>,
    dir: TempDir,
}

impl Cluster {
    /// Starts one and waits until it is ready.
    ///
    /// # Errors
    /// If it does not get ready, with the last it said.
    pub fn start() -> Result<Self> {
        Self::start_with(|_| Ok(Vec::new()))
    }

    /// Starts one whose API server gets more arguments; they may name files that were just made in the given folder.
    ///
    /// # Errors
    /// If it does not get ready, with the last it said.
    pub fn start_with(more: impl FnOnce(&Path) -> Result<Vec<String>>) -> Result<Self> {
        let programs = made("NODEWARD_K8S_BIN")?;
        let dir = tempfile::Builder::new().prefix("nodeward-cluster-").tempdir()?;
        authority::write(dir.path())?;
        let [port, etcd_port, peer_port] = free_ports()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = Server::start(&dir.path().join("etcd.log"), programs.join("etcd"), |command| {
            command.arg("--data-dir").arg(dir.path().join("etcd"));
            // What a power cut would lose is of no interest here.
            command.args(["--unsafe-no-fsync", "--log-level", "error"]);
            command.args(["--listen-client-urls", &url(etcd_port), "--advertise-client-urls", &url(etcd_port)]);
            command.args(["--listen-peer-urls", &url(peer_port)]);
        })?;
        let kubeconfig = kubeconfig(dir.path(), port, "client-certificate: admin.crt, client-key: admin.key");
        fs::write(dir.path().join("kubeconfig"), kubeconfig)?;
        let more = more(dir.path())?;
        let mut cluster = Self { api_server: None, _etcd: etcd, programs, port, etcd_port, more, dir };
        cluster.start_api_server()?;
        Ok(cluster)
    }

    /// Starts the API server again, on the port and the state that it had.
    ///
    /// # Errors
    /// If it does not get ready, with the last it said.
    pub fn start_api_server(&mut self) -> Result<()> {
        let dir = self.dir.path();
        let file = |name: &str| dir.join(name);
        let mut server = Server::start(&file("apiserver.log"), self.programs.join("kube-apiserver"), |command| {
            command.arg("--etcd-servers").arg(format!("http://127.0.0.1:{}", self.etcd_port));
            command.args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", &self.port.to_string()]);
            command.arg("--tls-cert-file").arg(file("server.crt")).arg("--tls-private-key-file").arg(file("server.key"));
            command.arg("--client-ca-file").arg(file("ca.crt")).args(["--authorization-mode", "Node,RBAC"]);
            command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
            command.arg("--service-account-key-file").arg(file("sa.pub")).arg("--service-account-signing-key-file").arg(file("sa.key"));
            command
                .args(["--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none", "--allow-privileged"])
                .args(&self.more);
        })?;
        let ready = wait::until("the API server", START, || match server.ended() {
            Ok(Some(status)) => Ok(Err(anyhow!("it ended: {status}"))),
            _ => self.kubectl(&["get", "--raw", "/readyz"]).map(Ok),
        });
        if let Err(e) = ready.flatten() {
            return Err(e.context(format!("the API server said: {}", server.last_words())));
        }
        self.api_server = Some(server);
        Ok(())
    }

    /// Starts the controller manager and the scheduler, for as long as the returned values live.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start_controllers(&self) -> Result<[Server; 2]> {
        let start = |name: &str, args: &[&str]| {
            Server::start(&self.dir.path().join(name).with_extension("log"), self.program(name), |command| {
                command.arg("--kubeconfig").arg(self.kubeconfig()).args(["--leader-elect=false", "--secure-port=0"]).args(args);
                command.current_dir(self.dir.path());
            })
        };
        let tokens = ["--controllers=*,-nodeipam", "--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt"];
        Ok([start("kube-controller-manager", &tokens)?, start("kube-scheduler", &[])?])
    }

    /// Kills the API server. Its port is refused until it is started again.
    pub fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Port of the API server, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its certificates and keys ([`authority::write`] names them), its logs, and a `kubeconfig` that may do everything.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// A kubeconfig that reads its token from this file, at each use.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig_with_token_file(&self, token: &Path) -> Result<PathBuf> {
        let name = token.file_name().context("a token file has a name")?;
        let file = self.dir.path().join(name).with_extension("kubeconfig");
        fs::write(&file, kubeconfig(self.dir.path(), self.port, &format!("tokenFile: {}", token.display())))?;
        Ok(file)
    }

    /// Where the servers' programs are.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Runs kubectl as one who may do everything, and gives what it printed.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.program("kubectl"));
        // Its own cache of what the server can do would be shared with other clusters on this port.
        command.env("KUBECACHEDIR", self.dir.path().join("kubectl-cache"));
        output(command.arg("--kubeconfig").arg(self.kubeconfig()).args(["--request-timeout", "20s"]).args(args))
    }

    /// One object, as JSON.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "--output", "json"], args].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Makes or changes objects, given as JSON or YAML.
    ///
    /// # Errors
    /// If the API server refuses them.
    pub fn apply(&self, objects: &str) -> Result<()> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
        fs::write(file.path(), objects)?;
        self.kubectl(&["apply", "--server-side", "--filename", &file.path().display().to_string()]).map(drop)
    }
}

fn kubeconfig(dir: &Path, port: u16, user: &str) -> String {
    // Relative files are looked for beside the kubeconfig.
    debug_assert!(dir.is_absolute());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority: ca.crt}}}}]\n\
         users: [{{name: test, user: {{{user}}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    )
}

/// Ports that were free a moment ago. All are held until all are known, so that they differ.
///
/// # Errors
/// If there are not so many.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let listeners: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let ports: Vec<u16> = listeners.iter().map(|l| l.local_addr().map(|a| a.port())).collect::<Result<_, _>>()?;
    ports.try_into().ok().context("as many ports as listeners")
}
