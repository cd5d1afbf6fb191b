//! `nodeward-controller`: the commands.
#![allow(clippy::print_stdout, clippy::print_stderr)] // commands for people at a terminal

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use controller_core::time::Time;
use kube::config::Kubeconfig;
use nodeward_controller::{clock, explain, fetch, manifest};

/// Reboots and replaces machines whose nodes stay unhealthy.
#[derive(Parser)]
#[command(version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what would be done now, and why not; changes nothing
    Explain(Explain),
    /// Write the definitions of the custom resources
    Crds {
        /// Folder to write them into
        folder: PathBuf,
    },
}

/// Where the objects come from, and which machines are asked about.
#[derive(Args)]
struct Explain {
    /// Exported objects, YAML or JSON (- for standard input): policies, Machines, their owners, Clusters, Nodes, Leases, our own objects
    #[arg(required_unless_present = "kubeconfig")]
    files: Vec<PathBuf>,
    /// Read a living management cluster instead, and the workload clusters by their Secrets
    #[arg(long, conflicts_with = "files")]
    kubeconfig: Option<PathBuf>,
    /// Only this machine; may be given several times
    #[arg(long)]
    machine: Vec<String>,
    /// The time to judge at, as in 2026-12-01T04:05:06Z; for files, else, the newest time that a node wrote in them
    #[arg(long)]
    now: Option<Time>,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Explain(asked) => say(&asked),
        Command::Crds { folder } => Ok(manifest::write(&folder)?),
    }
}

fn say(asked: &Explain) -> Result<()> {
    let (world, now) = match &asked.kubeconfig {
        None => {
            let world = explain::read(&asked.files)?;
            let now = asked.now.or_else(|| world.newest()).unwrap_or_else(clock::wall);
            (world, now)
        }
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (world, unread) = runtime.block_on(fetch::fetch(kubeconfig))?;
            unread.iter().for_each(|line| eprintln!("{line}"));
            (world, asked.now.unwrap_or_else(clock::wall))
        }
    };
    print!("{}", explain::explain(&world, now, &asked.machine)?);
    Ok(())
}
