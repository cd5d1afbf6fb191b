//! The command line: what `nodeward-agent --help` shows, and which function does each command.

mod check;
mod config;
mod replay;
mod uninstall;
mod watch;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    config::{ConfigError, Settings},
    export::{
        cluster::{Access, Cluster},
        stdout::Format,
    },
    host::Host,
    run,
};

/// Keeps one Kubernetes node healthy: sees kernel deadlocks and read-only filesystems as they happen, confirms them against the present
/// state, and reports them as Node conditions, Events and Prometheus metrics.
#[derive(Debug, Parser)]
#[command(name = "nodeward-agent", version, arg_required_else_help = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    ///
    /// Reports to the API server when there is one (in a pod, or with --kubeconfig), else on standard output; metrics are served in any case.
    Run(RunArgs),
    /// Look once and print what was found, with every source and eBPF program and why one is absent
    ///
    /// Exit status: 1 if there is any problem, else 2 if anything could not be looked at, else 0.
    Check(CheckArgs),
    /// Print detections as they happen, until interrupted
    ///
    /// Shows every signal of the kernel that the agent recognises, and what became of it. Nothing is written to a cluster.
    Watch(CheckArgs),
    /// Read a saved kernel log and say what it would have made the agent do
    ///
    /// Takes the output of dmesg, of journalctl -k (short or -o json), or raw /dev/kmsg records; the format is recognised. A log line is a
    /// hint: it makes the agent look at the present state, so the answer is what it would look at, and what that could lead to.
    Replay(ReplayArgs),
    /// Work with configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Remove this agent's conditions and annotation from its Node
    ///
    /// For when the agent leaves a node for good; a running agent would write them again.
    Uninstall(ClusterArgs),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Validate a configuration: says line, column and what was expected
    Check {
        /// The file.
        file: PathBuf,
    },
}

/// How the output looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For scripts: one object for `check`, one a line for everything else.
    Json,
}

#[derive(Debug, Args)]
struct ConfigArg {
    /// Configuration file; without it the defaults hold
    #[arg(long, value_name = "FILE", env = "NODEWARD_CONFIG")]
    config: Option<PathBuf>,
}

/// Which cluster, and which Node of it.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Reach the API server by this file instead of the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of this machine's Node; the host's name if not given
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// Report on standard output even where there is a cluster
    #[arg(long)]
    pub no_cluster: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How standard output looks when there is no cluster
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl ConfigArg {
    fn settings(&self) -> Result<Settings, ConfigError> {
        self.config.as_deref().map_or_else(|| Ok(Settings::default()), Settings::read)
    }
}

impl ClusterArgs {
    /// The cluster to report to, if there is one.
    fn cluster(&self, settings: &Settings) -> io::Result<Option<Cluster>> {
        let access = self.kubeconfig.clone().map(Access::File).or_else(Access::of_pod).filter(|_| !self.no_cluster);
        let Some(access) = access else { return Ok(None) };
        let node = match &self.node_name {
            Some(name) => name.clone(),
            None => Host::new(&settings.host).hostname()?,
        };
        Ok(Some(Cluster { access, node }))
    }
}

impl Cli {
    /// Does what the command line asks for.
    ///
    /// # Errors
    /// If it cannot be done; the message names what was tried.
    pub async fn execute(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Run(args) => {
                let settings = args.config.settings()?;
                let cluster = args.cluster.cluster(&settings)?;
                run::run(settings, cluster, format(args.output)).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Check(args) => check::check(args.config.settings()?, args.output).await,
            Command::Watch(args) => watch::watch(args.config.settings()?, args.output).await,
            Command::Replay(args) => replay::replay(&args.file, args.output),
            Command::Config(ConfigCommand::Check { file }) => config::check(&file),
            Command::Uninstall(args) => match args.cluster(&Settings::default())? {
                Some(cluster) => uninstall::uninstall(cluster).await,
                None => anyhow::bail!("there is no cluster: this is no pod, and no --kubeconfig is given"),
            },
        }
    }

    /// How much is logged unless the environment says otherwise: commands for people say only what matters to them.
    #[must_use]
    pub fn log_level(&self) -> &'static str {
        match self.command {
            Command::Run(_) => "info",
            Command::Check(_) | Command::Watch(_) | Command::Replay(_) | Command::Config(_) | Command::Uninstall(_) => "error",
        }
    }
}

fn format(output: Output) -> Format {
    match output {
        Output::Text => Format::Text,
        Output::Json => Format::Json,
    }
}

/// Prints to standard output. A reader that went away ends the command without noise.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// How the output looks
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// The saved log; - for standard input
    file: PathBuf,
    /// How the output looks
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}
