//! `nodeward-agent replay`: says what a saved kernel log would have made the agent do. A line is a hint: what it leads to depends on what a look
//! would have found, so both are said.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    process::ExitCode,
};

use agent_core::{
    ConditionType, Detection, Subject,
    log::{Recognised, recognise},
    observation::{OomContext, OomScope},
};
use anyhow::Context as _;
use serde_json::json;

use super::{Output, say};
use crate::{
    replay::{Entry, SavedLog, Time},
    source::kmsg,
};

/// Reads a saved log and prints what it means.
pub(super) fn replay(file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?))
    };
    let mut log = SavedLog::new(input);
    let mut memory_of = None;
    let mut found = 0u64;
    for entry in log.by_ref() {
        let entry = entry.with_context(|| format!("cannot read {}", file.display()))?;
        // Where the log does not say who wrote a line, it may be a process's: the live agent would have known.
        if entry.facility.is_some_and(|facility| facility != 0) {
            continue;
        }
        match recognise(&entry.text) {
            Some(Recognised::Fault { detection, subject }) => {
                found += 1;
                let meaning = Meaning::of(detection, &subject, memory_of.as_ref());
                say(&meaning.printed(&entry, output))?;
            }
            Some(Recognised::OomContext(context)) => memory_of = Some(context),
            None => {}
        }
    }
    if output == Output::Text {
        let tally = log.tally();
        let format = tally.format.map_or("no kernel log that is known", |f| f.as_str());
        let unread = tally.unknown + tally.too_long;
        let skipped = if unread > 0 { format!(", {unread} lines not understood") } else { String::new() };
        say(&format!("{} records ({format}), {found} recognised{skipped}\n", tally.records))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a line would have led to.
struct Meaning {
    detection: Detection,
    subject: String,
    /// What the agent would have looked at.
    look: Option<String>,
    /// What it would have been, had the look confirmed it.
    confirmed: Option<(ConditionType, &'static str)>,
    cgroup: Option<String>,
}

impl Meaning {
    fn of(detection: Detection, subject: &Subject, memory_of: Option<&OomContext>) -> Self {
        let is_of_disk = detection.is_of_filesystem() || matches!(detection, Detection::BlockIoError | Detection::BufferIoError);
        let (look, confirmed) = match subject {
            Subject::Task { pid, .. } if detection == Detection::HungTask => {
                let confirmed = (ConditionType::KernelDeadlock, "if it still hangs and the node depends on it, or many hang");
                (Some(format!("task {pid}")), Some(confirmed))
            }
            Subject::Device(device) if is_of_disk => {
                let confirmed = (ConditionType::ReadonlyFilesystem, "if it is the node's and refuses writes");
                (Some(format!("the filesystem on {device}")), Some(confirmed))
            }
            Subject::Machine | Subject::Task { .. } | Subject::Device(_) => (None, None),
        };
        let (subject, pid) = match subject {
            Subject::Machine => (String::new(), None),
            Subject::Task { pid, comm } => (format!("{comm}:{pid}"), Some(*pid)),
            Subject::Device(device) => (device.to_string(), None),
        };
        let context = memory_of.filter(|context| detection == Detection::OomKill && Some(context.pid) == pid);
        let cgroup = context.map(|context| match &context.scope {
            OomScope::System => "the machine".to_owned(),
            OomScope::Cgroup(path) => path.clone(),
        });
        Self { detection, subject, look, confirmed, cgroup }
    }

    fn printed(&self, entry: &Entry, output: Output) -> String {
        let text = kmsg::detail(&entry.text);
        match output {
            Output::Json => {
                let at = match &entry.time {
                    Time::SinceBoot(after) => json!(after.as_secs_f64()),
                    Time::Wall(wall) => json!(wall),
                    Time::Unknown => json!(null),
                };
                let object = json!({
                    "kind": if self.look.is_some() { "hint" } else { "event" },
                    "at": at,
                    "detection": self.detection.as_str(),
                    "subject": self.subject,
                    "reason": self.detection.reason(),
                    "lookAt": self.look,
                    "confirmed": self.confirmed.map(|(kind, _)| kind.as_str()),
                    "outOfMemory": self.cgroup,
                    "text": text,
                });
                format!("{object}\n")
            }
            Output::Text => {
                let time = match &entry.time {
                    Time::SinceBoot(after) => format!("[{:12.6}] ", after.as_secs_f64()),
                    Time::Wall(wall) => format!("[{wall}] "),
                    Time::Unknown => String::new(),
                };
                let mut lines = format!("{time}{text}\n    {} {}: Event {}", self.detection, self.subject, self.detection.reason());
                if let Some(cgroup) = &self.cgroup {
                    lines.push_str(&format!("; out of memory: {cgroup}"));
                }
                if let (Some(look), Some((kind, when))) = (&self.look, self.confirmed) {
                    lines.push_str(&format!("; would look at {look}: {kind}=True {when}"));
                }
                lines.replace(" : ", ": ") + "\n"
            }
        }
    }
}
