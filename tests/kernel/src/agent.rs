//! A real agent, as it runs on a node without a cluster, and what it says.

use std::{
    fs::{self, File},
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{metrics::Reading, process::Server, wait};

/// How long the first looks may take on a busy machine.
const START: Duration = Duration::from_secs(30);

/// How long an agent may take to end when it is asked to.
const STOP: Duration = Duration::from_secs(10);

/// What one agent watches, and what it remembers of this boot.
#[derive(Debug)]
pub struct Watch {
    directory: Rc<TempDir>,
}

impl Watch {
    /// A node whose only filesystem is that of this path, and whose only critical unit has this name: nothing else on this machine may
    /// make a condition true. What the log says of the time before is no Event: earlier tests had devices of the same names.
    ///
    /// # Errors
    /// If the configuration cannot be written.
    pub fn over(path: &Path, unit: &str) -> Result<Self> {
        let directory = Rc::new(tempfile::Builder::new().prefix("nodeward-test-agent-").tempdir()?);
        let configuration = format!(
            "kernelDeadlock:\n  criticalUnits: [{unit}]\n  manyHungTasks: 1000000\n\
             nodeFilesystems:\n  paths: ['{}']\n\
             events:\n  lookback: 0s\n\
             http:\n  address: 127.0.0.1:0\n\
             host:\n  stateDirectory: '{}'\n",
            path.display(),
            directory.path().join("state").display()
        );
        let watch = Self { directory };
        watch.configure(&configuration)?;
        Ok(watch)
    }

    /// Adds to the configuration of agents that are started from now on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn configure(&self, more: &str) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.configuration())?;
        Ok(file.write_all(more.as_bytes())?)
    }

    /// Starts an agent and waits until it has looked at everything once.
    ///
    /// # Errors
    /// If it does not come so far, with what it said.
    pub fn start(&self) -> Result<Agent> {
        self.start_without(&[])
    }

    /// The same, of an agent that lacks these capabilities: `sys_admin`.
    ///
    /// # Errors
    /// If it does not come so far, with what it said.
    pub fn start_without(&self, capabilities: &[&str]) -> Result<Agent> {
        let number = fs::read_dir(self.directory.path())?.count();
        let log = self.directory.path().join(format!("agent-{number}.log"));
        let program = program()?;
        let server = Server::start(&log, "setpriv", |command| {
            // What is not in the bounding set is lost with the next program that is started.
            if !capabilities.is_empty() {
                let dropped: Vec<_> = capabilities.iter().map(|capability| format!("-{capability}")).collect();
                command.args(["--bounding-set", &dropped.join(",")]);
            }
            command.arg("--").arg(program);
            command.args(["run", "--no-cluster", "--output", "json", "--config"]).arg(self.configuration());
            command.env("RUST_LOG", "info");
        })?;
        let mut agent = Agent { server, _directory: Rc::clone(&self.directory) };
        // Without eBPF, a log that went silent before cannot tell whether tasks hang.
        let conditions = ["ReadonlyFilesystem", "StorageFault", "KernelDeadlock"];
        for condition in conditions.into_iter().take(if capabilities.is_empty() { 3 } else { 2 }) {
            agent.wait(&format!("the first {condition}"), START, |agent| agent.condition(condition))?;
        }
        Ok(agent)
    }

    fn configuration(&self) -> PathBuf {
        self.directory.path().join("config.yaml")
    }
}

fn program() -> Result<PathBuf> {
    let named = std::env::var_os("NODEWARD_AGENT").map(PathBuf::from);
    named.context("NODEWARD_AGENT is not set: run these tests by `cargo xtask test --tier kernel`")
}

/// A running agent. It is killed when this is dropped.
#[derive(Debug)]
pub struct Agent {
    server: Server,
    /// Its log, configuration and state.
    _directory: Rc<TempDir>,
}

/// One line of it about a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since_boot_seconds: f64,
}

impl Agent {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// What it says last of a condition.
    #[must_use]
    pub fn condition(&self, condition: &str) -> Option<Condition> {
        self.lines("condition").into_iter().rev().find(|line| line["type"] == condition).map(|line| Condition {
            status: text(&line["status"]),
            reason: text(&line["reason"]),
            message: text(&line["message"]),
            since_boot_seconds: line["sinceBootSeconds"].as_f64().unwrap_or(f64::NAN),
        })
    }

    /// How often a condition has turned to this status so far. One that only says something else is no turn.
    #[must_use]
    pub fn times(&self, condition: &str, status: &str) -> usize {
        let lines = self.lines("condition");
        let mut said: Vec<_> = lines.iter().filter(|line| line["type"] == condition).map(|line| &line["status"]).collect();
        said.dedup();
        said.into_iter().filter(|said| *said == status).count()
    }

    /// The messages of all Events of a reason so far.
    #[must_use]
    pub fn events(&self, reason: &str) -> Vec<String> {
        self.lines("event").iter().filter(|line| line["reason"] == reason).map(|line| text(&line["message"])).collect()
    }

    /// Waits until a condition has this status.
    ///
    /// # Errors
    /// If it does not get it in time, or the agent ended; with what it said.
    pub fn wait_for(&mut self, condition: &str, status: &str, within: Duration) -> Result<Condition> {
        self.wait(&format!("{condition} to be {status}"), within, |agent| agent.condition(condition).filter(|c| c.status == status))
    }

    /// Waits until what it says of a condition holds this text, and gives all that it says then.
    ///
    /// # Errors
    /// If it does not in time, or the agent ended; with what it said.
    pub fn wait_for_message(&mut self, condition: &str, part: &str, within: Duration) -> Result<String> {
        let find = |agent: &Self| agent.condition(condition).map(|c| c.message).filter(|message| message.contains(part));
        self.wait(&format!("{condition} to speak of {part}"), within, find)
    }

    /// Waits for an Event of this reason whose message holds this text.
    ///
    /// # Errors
    /// If it does not come in time, or the agent ended; with what it said.
    pub fn wait_for_event(&mut self, reason: &str, part: &str, within: Duration) -> Result<String> {
        let find = |agent: &Self| agent.events(reason).into_iter().find(|message| message.contains(part));
        self.wait(&format!("an Event {reason} about {part}"), within, find)
    }

    /// Reads its metrics.
    ///
    /// # Errors
    /// If it does not serve them.
    pub fn metrics(&self) -> Result<Reading> {
        Reading::of(self.address()?)
    }

    /// Waits until its metrics are so.
    ///
    /// # Errors
    /// If they do not get so in time.
    pub fn wait_for_metrics(&self, what: &str, within: Duration, is_so: impl Fn(&Reading) -> bool) -> Result<Reading> {
        wait::until(what, within, || {
            let reading = self.metrics()?;
            ensure!(is_so(&reading), "{}", reading.text());
            Ok(reading)
        })
    }

    /// Stops it, and what it does, for a while.
    ///
    /// # Errors
    /// If it is gone.
    pub fn pause(&self) -> Result<()> {
        Ok(self.server.signal(Signal::STOP)?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resume(&self) -> Result<()> {
        Ok(self.server.signal(Signal::CONT)?)
    }

    /// Kills it with a signal that it cannot see coming, and waits until it is gone.
    pub fn kill(mut self) {
        self.server.kill();
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// If it does not, or ends with an error; with what it said.
    pub fn stop(mut self) -> Result<()> {
        self.server.signal(Signal::TERM)?;
        let server = &mut self.server;
        let status = wait::until("the agent to end", STOP, || server.ended()?.context("it runs on"))?;
        ensure!(status.success(), "{status}\n{}", self.server.last_words());
        Ok(())
    }

    fn wait<T>(&mut self, what: &str, within: Duration, find: impl Fn(&Self) -> Option<T>) -> Result<T> {
        let found = wait::until(what, within, || {
            let ended = self.server.ended().map_err(|e| e.to_string())?;
            match (find(self), ended) {
                (Some(found), _) => Ok(Ok(found)),
                (None, Some(status)) => Ok(Err(anyhow!("the agent ended: {status}"))),
                (None, None) => Err("not yet".to_owned()),
            }
        });
        found.and_then(|found| found).with_context(|| format!("the agent said:\n{}", self.server.last_words()))
    }

    fn address(&self) -> Result<SocketAddr> {
        let said = self.server.said();
        let address = said.lines().find_map(|line| line.split_once("http://")?.1.trim().parse().ok());
        address.with_context(|| format!("the agent did not say where it serves:\n{said}"))
    }

    /// Its lines of this kind. Its log, which is not JSON, goes to the same file.
    fn lines(&self, kind: &str) -> Vec<Value> {
        let said = self.server.said();
        let objects = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|line| line["kind"] == kind).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
