//! `nodeward-agent check`: looks once, and says what was found and what could not be looked at.

use std::{process::ExitCode, sync::Arc, time::Duration};

use agent_core::{Condition, Memory, Source, SourceState, Status};
use anyhow::Context as _;
use serde::Serialize;
use tokio::time;

use super::{Output, say};
use crate::{config::Settings, host::Host, metrics::Metrics, pipeline::Pipeline, source::ebpf};

/// How long the first looks may take. The core itself gives up after 30 s.
const PATIENCE: Duration = Duration::from_secs(35);

/// Everything that `check` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    node: String,
    kernel: String,
    boot_id: String,
    conditions: Vec<ConditionRow>,
    sources: Vec<SourceRow>,
    ebpf_programs: Vec<ProgramRow>,
}

#[derive(Debug, Serialize)]
struct ConditionRow {
    r#type: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

#[derive(Debug, Serialize)]
struct SourceRow {
    name: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ProgramRow {
    name: &'static str,
    attached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Looks once and prints. Exit status 1 if there is any problem, else 2 if anything could not be looked at, else 0.
pub(super) async fn check(settings: Settings, output: Output) -> anyhow::Result<ExitCode> {
    let settings = Arc::new(settings);
    let host = Arc::new(Host::new(&settings.host));
    let metrics = Metrics::new()?;
    let mut pipeline = Pipeline::start(&settings, &host, &metrics, Memory::default());
    let all = settings.core().enabled.len();
    let looked = async {
        while pipeline.core().conditions().len() < all || pipeline.sources().len() < Source::ALL.len() {
            pipeline.turn().await;
        }
    };
    // Whatever has not answered by then is reported as not looked at.
    let _ = time::timeout(PATIENCE, looked).await;
    let report = Report {
        node: host.hostname().context("cannot read the machine's name")?,
        kernel: host.kernel_release().context("cannot read the kernel's version")?,
        boot_id: host.boot_id().context("cannot read the boot id")?,
        conditions: settings.core().enabled.iter().map(|kind| condition_row(*kind, pipeline.core().conditions())).collect(),
        sources: Source::ALL.iter().map(|source| source_row(*source, pipeline.sources().get(source))).collect(),
        ebpf_programs: ebpf::programs().map(|name| program_row(name, pipeline.sources().get(&Source::Ebpf))).collect(),
    };
    pipeline.stop().await;
    match output {
        Output::Json => say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        Output::Text => say(&as_text(&report))?,
    }
    Ok(report.exit_code())
}

impl Report {
    fn exit_code(&self) -> ExitCode {
        let has = |status: Status| self.conditions.iter().any(|c| c.status == status.as_str());
        if has(Status::True) {
            ExitCode::from(1)
        } else if has(Status::Unknown) || self.sources.iter().any(|s| s.state != "up") {
            ExitCode::from(2)
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn condition_row(kind: agent_core::ConditionType, held: &[Condition]) -> ConditionRow {
    match held.iter().find(|c| c.kind == kind) {
        Some(c) => ConditionRow { r#type: kind.as_str(), status: c.status.as_str(), reason: c.reason.clone(), message: c.message.clone() },
        None => ConditionRow {
            r#type: kind.as_str(),
            status: Status::Unknown.as_str(),
            reason: "NotLookedAtYet".into(),
            message: "the first look has had no answer yet".into(),
        },
    }
}

fn source_row(source: Source, state: Option<&SourceState>) -> SourceRow {
    let (state, why) = match state {
        Some(SourceState::Up { degraded }) => ("up", degraded.clone()),
        Some(SourceState::Down { why }) => ("down", vec![why.clone()]),
        Some(SourceState::Absent { why }) => ("absent", vec![why.clone()]),
        None => ("down", vec!["it did not answer in time".into()]),
    };
    SourceRow { name: source.as_str(), state, why }
}

/// Whether a program is attached: a source that is up names those that are not, `NAME: WHY`.
fn program_row(name: &'static str, state: Option<&SourceState>) -> ProgramRow {
    let why = match state {
        Some(SourceState::Up { degraded }) => degraded.iter().find_map(|d| d.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned),
        Some(SourceState::Down { why } | SourceState::Absent { why }) => Some(why.clone()),
        None => Some("it did not answer in time".into()),
    };
    ProgramRow { name, attached: why.is_none(), why }
}

fn as_text(report: &Report) -> String {
    let mut text = format!("node {}, kernel {}, boot {}\n\n", report.node, report.kernel, report.boot_id);
    let widest = report.conditions.iter().map(|c| c.r#type.len()).max().unwrap_or(0).max("CONDITION".len());
    text.push_str(&format!("{:widest$}  {:7}  {}\n", "CONDITION", "STATUS", "WHY"));
    for c in &report.conditions {
        text.push_str(&format!("{:widest$}  {:7}  {}: {}\n", c.r#type, c.status, c.reason, c.message));
    }
    let widest = report.ebpf_programs.iter().map(|p| p.name.len()).max().unwrap_or(0).max("SOURCE".len());
    text.push_str(&format!("\n{:widest$}  {:8}  {}\n", "SOURCE", "STATE", "WHY"));
    for s in &report.sources {
        text.push_str(format!("{:widest$}  {:8}  {}", s.name, s.state, s.why.join("; ")).trim_end());
        text.push('\n');
    }
    text.push_str(&format!("\n{:widest$}  {:8}  {}\n", "PROGRAM", "STATE", "WHY"));
    for p in &report.ebpf_programs {
        let state = if p.attached { "attached" } else { "absent" };
        text.push_str(format!("{:widest$}  {:8}  {}", p.name, state, p.why.as_deref().unwrap_or_default()).trim_end());
        text.push('\n');
    }
    text
}
