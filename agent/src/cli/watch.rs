//! `nodeward-agent watch`: prints what the kernel says as it says it, and what became of it.

use std::{process::ExitCode, sync::Arc};

use agent_core::{BootTime, Fact, Memory, Observation, Signal, SourceState, Subject};
use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{Output, format, say};
use crate::{clock::Clock, config::Settings, export::stdout::Printer, host::Host, metrics::Metrics, pipeline::Pipeline};

/// Watches until interrupted.
pub(super) async fn watch(settings: Settings, output: Output) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let settings = Arc::new(settings);
    let host = Arc::new(Host::new(&settings.host));
    let metrics = Metrics::new()?;
    let started = Clock.now();
    let mut pipeline = Pipeline::start(&settings, &host, &metrics, Memory::default());
    let mut printer = Printer::stdout(format(output));
    loop {
        // Signals first.
        let turn = tokio::select! {
            biased;
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            turn = pipeline.turn() => turn,
        };
        // What was before is not happening now.
        for observation in turn.observations.iter().filter(|o| o.at >= started) {
            if let Some(line) = line(observation, output) {
                say(&line)?;
            }
        }
        for effect in turn.effects {
            printer.print(&effect);
        }
    }
    pipeline.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// A line for what people want to see of an observation: signals and what cannot be seen.
fn line(observation: &Observation, output: Output) -> Option<String> {
    let at = observation.at;
    match &observation.fact {
        Fact::Signal(signal) => Some(signal_line(at, signal, output)),
        Fact::Lost { source, count } => Some(match output {
            Output::Text => format!("{} lost    {count} records of {}\n", time(at), source.as_str()),
            Output::Json => as_json("lost", at, json!({ "source": source.as_str(), "count": count })),
        }),
        Fact::Source { source, state } => {
            let (state, why) = match state {
                SourceState::Up { degraded } => ("up", degraded.join("; ")),
                SourceState::Down { why } => ("down", why.clone()),
                SourceState::Absent { why } => ("absent", why.clone()),
            };
            Some(match output {
                Output::Text => format!("{} source  {} {state} {why}", time(at), source.as_str()).trim_end().to_owned() + "\n",
                Output::Json => as_json("source", at, json!({ "source": source.as_str(), "state": state, "why": why })),
            })
        }
        Fact::OomContext(_) | Fact::CaughtUp(_) | Fact::Mounts(_) | Fact::Filesystem(_) | Fact::Task(_) => None,
    }
}

fn signal_line(at: BootTime, signal: &Signal, output: Output) -> String {
    let subject = match &signal.subject {
        Subject::Machine => String::new(),
        Subject::Task { pid, comm } => format!("{comm}:{pid}"),
        Subject::Device(device) => device.to_string(),
    };
    match output {
        Output::Text => format!("{} signal  {} {subject} by {}: {}\n", time(at), signal.detection, signal.source.as_str(), signal.detail),
        Output::Json => as_json(
            "signal",
            at,
            json!({ "detection": signal.detection.as_str(), "subject": subject, "source": signal.source.as_str(), "detail": signal.detail }),
        ),
    }
}

fn as_json(kind: &str, at: BootTime, mut fields: Value) -> String {
    fields["kind"] = kind.into();
    fields["at"] = Clock.wall_at(at).to_string().into();
    format!("{fields}\n")
}

fn time(at: BootTime) -> String {
    Clock.wall_at(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
