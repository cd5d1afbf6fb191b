//! What the agent says where there is no cluster: a line for each condition that changes and each Event, for people or for scripts.

use std::io::{self, Write};

use agent_core::{BootTime, Condition, Effect, Event};
use serde_json::{Value, json};

use crate::clock::Clock;

/// Prints effects to a writer.
pub struct Printer {
    out: Box<dyn Write + Send>,
    format: Format,
    clock: Clock,
}

/// How it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `2026-12-01T03:29:06Z KernelDeadlock=True TaskHung: ...`
    Text,
    /// One object a line, with `kind` `condition` or `event`.
    Json,
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer").field("format", &self.format).finish_non_exhaustive()
    }
}

impl Printer {
    /// Prints to standard output.
    #[must_use]
    pub fn stdout(format: Format) -> Self {
        Self::to(Box::new(io::stdout()), format)
    }

    /// Prints to this.
    #[must_use]
    pub fn to(out: Box<dyn Write + Send>, format: Format) -> Self {
        Self { out, format, clock: Clock }
    }

    /// Prints an effect, if it is one for people. A reader that went away is no reason to stop watching the node.
    pub fn print(&mut self, effect: &Effect) {
        let line = match effect {
            Effect::Condition(condition) => self.condition(condition),
            Effect::Event(event) => self.event(event),
            Effect::Count { .. } | Effect::Stall { .. } | Effect::VolumeFault { .. } | Effect::Look(_) => return,
        };
        let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }

    fn condition(&self, c: &Condition) -> String {
        match self.format {
            Format::Text => format!("{} {}={} {}: {}", self.time(c.since), c.kind, c.status, c.reason, c.message),
            Format::Json => self.json(
                "condition",
                c.since,
                json!({ "type": c.kind.as_str(), "status": c.status.as_str(), "reason": c.reason, "message": c.message }),
            ),
        }
    }

    fn event(&self, e: &Event) -> String {
        match self.format {
            Format::Text => format!("{} {} {}: {}", self.time(e.at), e.severity.as_str(), e.reason, e.message),
            Format::Json => {
                let fields = json!({ "severity": e.severity.as_str(), "reason": e.reason, "message": e.message });
                self.json("event", e.at, fields)
            }
        }
    }

    fn json(&self, kind: &str, at: BootTime, mut fields: Value) -> String {
        fields["kind"] = kind.into();
        fields["at"] = self.clock.wall_at(at).to_string().into();
        fields["sinceBootSeconds"] = at.since_boot().as_secs_f64().into();
        fields.to_string()
    }

    fn time(&self, at: BootTime) -> String {
        self.clock.wall_at(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use agent_core::{ConditionType, Status};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_script_gets_one_object_a_line() {
        let lines = Lines::default();
        let mut printer = Printer::to(Box::new(lines.clone()), Format::Json);
        let condition = Condition {
            kind: ConditionType::KernelDeadlock,
            status: Status::True,
            reason: "TaskHung".into(),
            message: "a \"quoted\"\nmessage".into(),
            since: BootTime::ZERO,
        };
        printer.print(&Effect::Condition(condition));
        printer.print(&Effect::Count { reason: "TaskHung", by: 1 });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["kind"], &value["type"], &value["status"]), (&json!("condition"), &json!("KernelDeadlock"), &json!("True")));
        assert_eq!(value["message"], json!("a \"quoted\"\nmessage"));
    }
}
