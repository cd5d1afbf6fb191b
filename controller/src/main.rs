//! `nodeward-controller`: the commands.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use nodeward_controller::manifest;

/// Reboots and replaces machines whose nodes stay unhealthy.
#[derive(Parser)]
#[command(version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the definitions of the custom resources
    Crds {
        /// Folder to write them into
        folder: PathBuf,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Crds { folder } => Ok(manifest::write(&folder)?),
    }
}
