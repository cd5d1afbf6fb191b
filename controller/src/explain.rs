//! `nodeward-controller explain`: what the controller would do now with the given objects, and why not. Changes nothing.

use std::{fmt::Write, fs, io, path::PathBuf, time::Duration};

use controller_core::{
    effect::{Held, Intention, PoolPlan},
    plan,
    process::Process,
    time::Time,
    view::PoolView,
};
use serde_json::Value;
use thiserror::Error;

use crate::world::{Seen, World, WorldError};

/// Why there is nothing to explain.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// A file that cannot be read.
    #[error("cannot read {0}")]
    File(String, #[source] io::Error),
    /// A file that is neither YAML nor JSON, with the place.
    #[error("{0} is not YAML")]
    Yaml(String, #[source] Box<serde_saphyr::Error>),
    /// Objects that are not understood.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// Reads exported objects: YAML, with any number of documents, or JSON; single objects or lists.
///
/// # Errors
/// If a file cannot be read or is not YAML.
pub fn read(paths: &[PathBuf]) -> Result<World, ExplainError> {
    let mut world = World::default();
    for path in paths {
        let name = path.display().to_string();
        let text = if name == "-" { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
        let text = text.map_err(|e| ExplainError::File(name.clone(), e))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|e| ExplainError::Yaml(name, Box::new(e)))?;
        documents.into_iter().filter(|d| !d.is_null()).for_each(|d| world.add(d));
    }
    Ok(world)
}

/// The text. `only`: names of the machines that are asked about; none: all that are not simply healthy.
///
/// # Errors
/// If one of our own objects is not understood.
pub fn explain(world: &World, now: Time, only: &[String]) -> Result<String, ExplainError> {
    let Seen { mut view, unselected } = world.see(now)?;
    view.process = Process { id: "explain".into(), leading_since: Some(now - Duration::from_secs(3600)), ..Process::default() };
    view.process.clock.measured(now, now);
    let mut text = format!("as of {now}\n");
    if world.all("Lease").next().is_none() {
        text.push_str("no Leases given: every Ready node is taken to renew its own\n");
    }
    if view.pools.is_empty() {
        text.push_str("no policy selects any Machine: nothing would be done\n");
    }
    for (pool, plan) in view.pools.iter().zip(plan(&view, now)) {
        let asked = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
        if pool.members.iter().any(|m| asked(&m.machine.name)) {
            describe(&mut text, pool, &plan, only);
        }
    }
    let shown = unselected.iter().filter(|(_, name)| only.is_empty() || only.contains(name));
    let names: Vec<_> = shown.map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    if !names.is_empty() {
        text.push_str(&format!("\nno policy selects, so nothing is ever done with: {}\n", names.join(", ")));
    }
    Ok(text)
}

fn describe(text: &mut String, pool: &PoolView, plan: &PoolPlan, only: &[String]) {
    let gate = &plan.gate;
    let cluster = &pool.cluster;
    let mut line = |words: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    line(format!("\npool {}/{} {} (policy {})", cluster.namespace, cluster.name, pool.name, pool.policy.name));
    let paused = if gate.paused == 0 { String::new() } else { format!(", {} paused", gate.paused) };
    line(format!(
        "  {} machines, {} unhealthy, {} of these confirmed{paused}, {} in flight",
        gate.machines, gate.unhealthy, gate.confirmed, gate.in_flight
    ));
    if gate.message.is_empty() {
        line("  gate: open".to_owned());
    } else {
        line(format!("  gate: closed: {}", gate.message));
    }
    for held in plan.holds.iter().filter(|held| only.is_empty() || only.contains(&held.machine)) {
        for words in machine(held) {
            line(words);
        }
    }
    for name in only.iter().filter(|name| plan.holds.iter().all(|held| held.machine != **name)) {
        if pool.members.iter().any(|m| m.machine.name == *name) {
            line(format!("  {name}: healthy or still booting: nothing to do"));
        }
    }
}

fn machine(held: &Held) -> Vec<String> {
    let would = match (held.intention, held.because.is_empty()) {
        (Intention::Wait, true) => match held.until {
            Some(until) => format!("waits until {until}"),
            None => "waits".to_owned(),
        },
        (Intention::Wait, false) => "is left alone".to_owned(),
        (Intention::Alert, _) => "a person is told".to_owned(),
        (Intention::Reboot, true) => "would be rebooted now".to_owned(),
        (Intention::Reboot, false) => "would be rebooted, but is held".to_owned(),
        (Intention::Replace, true) => "would be replaced now".to_owned(),
        (Intention::Replace, false) => "would be replaced, but is held".to_owned(),
    };
    let why = if held.why.is_empty() { String::new() } else { format!(" ({})", held.why) };
    let mut lines = vec![format!("  {}: {}{why}: {would}", held.machine, held.phase)];
    lines.extend(held.because.iter().map(|hold| format!("    {hold}")));
    lines
}
