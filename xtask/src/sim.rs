//! `cargo xtask sim`: the controller's simulation, built with optimisation; with the core's deliberate faults only for `--mutants`.

use anyhow::Result;

use crate::process::{cargo, run as run_program};

/// Builds and runs it; arguments are its own.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut sim = cargo();
    sim.args(["run", "--quiet", "--profile", "sim", "--package", "tests-simulation"]);
    if args.iter().any(|arg| arg == "--mutants") {
        sim.args(["--features", "mutants"]);
    }
    run_program(sim.arg("--").args(args))
}
