//! `cargo xtask sim`: many seeds with their steps per second, one seed with its trace, or the table of deliberate faults.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command for people at a terminal

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use clap::Parser;
use tests_simulation::{clock, run, shrink};

/// Plays the controller against simulated clusters, in virtual time, and checks every invariant after each event.
#[derive(Parser)]
#[command(name = "sim", max_term_width = 110)]
struct Cli {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Play only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print all that happened in that seed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Leave out of that seed's script what its violation does not need
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Switch the core's deliberate faults on, one after the other, and print which are caught
    #[arg(long)]
    mutants: bool,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let good = if cli.mutants {
        mutants(&cli)
    } else if let Some(seed) = cli.seed {
        one(seed, &cli)
    } else {
        many(&cli)
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, cli: &Cli) -> bool {
    let outcome = if cli.shrink { shrink::shrink(seed).unwrap_or_else(|| run::run(seed, cli.trace)) } else { run::run(seed, cli.trace) };
    println!("seed {seed}: {} steps, {} decisions, {} reboots", outcome.steps, outcome.decisions, outcome.reboots);
    println!("removed: {}", outcome.removals.join(" "));
    println!("script, in seconds after the machines had settled:");
    outcome.script.iter().for_each(|d| println!("  {d}"));
    if cli.trace || cli.shrink {
        outcome.trace.iter().for_each(|line| println!("{line}"));
    }
    if let Some(violation) = &outcome.violation {
        println!("VIOLATION of {violation}");
    }
    outcome.violation.is_none()
}

fn many(cli: &Cli) -> bool {
    let elapsed = clock::start();
    let next = AtomicU64::new(cli.from);
    let end = cli.from + cli.seeds;
    let (steps, decisions, reboots, removals) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cli.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = run::run(seed, false);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    decisions.fetch_add(outcome.decisions, Ordering::Relaxed);
                    reboots.fetch_add(outcome.reboots as u64, Ordering::Relaxed);
                    removals.fetch_add(outcome.removals.len() as u64, Ordering::Relaxed);
                    if let (Some(violation), Ok(mut failed)) = (outcome.violation, failed.lock()) {
                        failed.push((seed, violation));
                    }
                }
            });
        }
    });
    let took = elapsed().as_secs_f64();
    let steps = steps.into_inner();
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_by_key(|(seed, _)| *seed);
    for (seed, violation) in failed.iter().take(100) {
        println!("seed {seed}: {violation}");
    }
    println!(
        "{} seeds, {steps} steps, {} decisions, {} reboots, {} removals in {took:.1} s: {:.0} steps per second; {} violations",
        cli.seeds,
        decisions.into_inner(),
        reboots.into_inner(),
        removals.into_inner(),
        steps as f64 / took.max(0.001),
        failed.len()
    );
    if !failed.is_empty() {
        println!("see one with: cargo xtask sim --seed N --shrink");
    }
    failed.is_empty()
}

#[cfg(feature = "mutants")]
fn mutants(cli: &Cli) -> bool {
    tests_simulation::mutants::table(cli.seeds.min(2000), cli.threads, |line| println!("{line}"))
}

#[cfg(not(feature = "mutants"))]
fn mutants(_: &Cli) -> bool {
    eprintln!("built without the feature `mutants`: use cargo xtask sim --mutants");
    false
}
