//! The agent's entry point: reads the command line, starts logging and the runtime, and does what was asked.

use std::process::ExitCode;

use clap::Parser as _;
use nodeward_agent::cli::Cli;
use nodeward_common::logging;

/// Exit status of a command that could not do its work. `check` has its own: 1 and 2.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(cli.log_level());
    // One thread: the agent sleeps nearly always, and looks that may hang have threads of their own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            log::error!("cannot start: {e}");
            return ExitCode::from(FAILED);
        }
    };
    let result = runtime.block_on(cli.execute());
    // A look that hangs in the kernel must not hold the process up.
    runtime.shutdown_background();
    result.unwrap_or_else(|e| {
        log::error!("{e:#}");
        ExitCode::from(FAILED)
    })
}
