//! The repository's own commands: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command for people at a terminal

mod bench;
mod build_ebpf;
mod cache;
mod image;
mod manifests;
mod node_root;
mod process;
mod servers;
mod sim;
mod test;
mod tidy;
mod tool;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds, runs, tests and packs nodeward. What it makes or downloads is kept in $NODEWARD_CACHE (default: ~/.cache/nodeward).
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent on this machine, without a cluster: prints the node's state and keeps running
    Run {
        /// Arguments for `nodeward-agent run`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Break a throw-away filesystem, show what the agent says, and mend it; as root. The README shows its output
    Demo,
    /// Run the tests, all tiers unless told; sets up what a tier needs and fails if it cannot
    Test {
        /// Only this tier; may be given several times
        #[arg(long, value_enum)]
        tier: Vec<test::Tier>,
        /// Arguments for the test runner, such as a test's name
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// What continuous integration runs: all tiers
    Ci,
    /// Check the rules that no compiler checks: direction of dependence, who reads a clock, file length, leftovers
    Tidy,
    /// Measure cost per kernel record, latency from fault to PATCH, memory and wake-ups, as ratios in one run
    Bench,
    /// Pack the agent, as one static binary, into an OCI archive that containerd imports
    Image {
        /// Where to write it
        #[arg(long, default_value = "target/nodeward-agent.tar")]
        output: PathBuf,
        /// What the image is called
        #[arg(long, default_value = image::DEFAULT_NAME)]
        name: String,
    },
    /// Write the generated parts of deploy/ anew
    Manifests {
        /// Write nothing; fail if they are stale
        #[arg(long)]
        check: bool,
    },
    /// Build the eBPF object that is checked in
    BuildEbpf {
        /// Write nothing; fail if it is not what the sources give
        #[arg(long)]
        check: bool,
    },
    /// Play the controller against simulated clusters: --seeds N, --mutants, --seed S --trace, --seed S --shrink
    Sim {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the servers of the cluster tier (Kubernetes, etcd, containerd) into the cache and print where they are
    Servers,
    /// Make the root filesystem of the whole tier's node in the cache and print where it is
    NodeRoot,
}

fn main() -> ExitCode {
    match carry_out(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> Result<()> {
    match command {
        Command::Run { args } => process::exec_agent(&args),
        Command::Demo => process::demo(),
        Command::Test { tier, args } => test::run(&tier, &args),
        Command::Ci => test::run(&[], &[]),
        Command::Tidy => tidy::run(),
        Command::Bench => bench::run(),
        Command::Image { output, name } => image::run(&output, &name),
        Command::Manifests { check } => manifests::run(check),
        Command::BuildEbpf { check } => build_ebpf::run_command(check),
        Command::Sim { args } => sim::run(&args),
        Command::Servers => {
            println!("{}", servers::directory()?.display());
            Ok(())
        }
        Command::NodeRoot => {
            println!("{}", node_root::directory()?.display());
            Ok(())
        }
    }
}
