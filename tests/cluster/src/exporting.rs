//! The agent's exporters as the agent runs them, on one thread with a loop that hands them effects; only the core is left out.

use std::{
    path::Path,
    thread::{self, JoinHandle},
    time::Duration,
};

use agent_core::{Condition, ConditionType, Effect, Event, Status, effect::Severity};
use anyhow::{Context, Result, ensure};
use nodeward_agent::{
    clock::Clock,
    export::{
        Exporters, Stamps,
        cluster::{Access, Cluster as Target},
        stdout::{Format, Printer},
    },
    metrics::Metrics,
};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{cluster::Cluster, wait};

/// How long something may take that needs nothing but the API server: some milliseconds on idle cores.
pub const SOON: Duration = Duration::from_secs(20);

/// Effects that wait: more than any test sends.
const QUEUE: usize = 1024;

/// The running exporters. Dropped, they end in their own time.
#[derive(Debug)]
pub struct Exporting {
    effects: Option<mpsc::Sender<Vec<Effect>>>,
    thread: Option<JoinHandle<Result<Stamps>>>,
    /// Their metrics.
    pub metrics: Metrics,
}

impl Exporting {
    /// Starts them for this Node, with what is remembered of this boot.
    ///
    /// # Errors
    /// If their metrics cannot be made.
    pub fn start(kubeconfig: &Path, node: &str, boot_id: &str, stamps: Stamps) -> Result<Self> {
        let target = Target { access: Access::File(kubeconfig.to_owned()), node: node.to_owned() };
        let metrics = Metrics::new()?;
        let (effects, mut turns) = mpsc::channel::<Vec<Effect>>(QUEUE);
        let (boot_id, handles) = (boot_id.to_owned(), metrics.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let printer = Printer::stdout(Format::Text);
                let mut exporters = Exporters::start(Some(target), boot_id, stamps, &handles, printer);
                while let Some(effects) = turns.recv().await {
                    effects.into_iter().for_each(|effect| exporters.carry_out(effect));
                    exporters.turn_over();
                }
                Ok(exporters.stop().await)
            })
        });
        Ok(Self { effects: Some(effects), thread: Some(thread), metrics })
    }

    /// One turn of the loop.
    ///
    /// # Errors
    /// If they have ended.
    pub fn turn(&self, effects: Vec<Effect>) -> Result<()> {
        self.effects.as_ref().context("the exporters were stopped")?.blocking_send(effects).context("the exporters have ended")
    }

    /// Ends them as SIGTERM does; gives what is to be remembered of this boot.
    ///
    /// # Errors
    /// If they failed.
    pub fn stop(mut self) -> Result<Stamps> {
        self.effects = None;
        self.thread.take().context("stopped once")?.join().map_err(|_| anyhow::anyhow!("the exporters panicked"))?
    }

    /// How often the API server answered a write of this object (`node`, `event`) so (`accepted`, `refused`, `failed`).
    #[must_use]
    pub fn writes(&self, object: &str, outcome: &str) -> u64 {
        self.metrics.api_writes.with_label_values(&[object, outcome]).get()
    }
}

/// A condition as the core would give it, changed now.
#[must_use]
pub fn condition(kind: ConditionType, status: Status, reason: &str, message: &str) -> Condition {
    Condition { kind, status, reason: reason.into(), message: message.into(), since: Clock.now() }
}

/// All conditions as the core announces them on a healthy node.
#[must_use]
pub fn healthy() -> Vec<Effect> {
    let good = [
        (ConditionType::KernelDeadlock, "KernelHasNoDeadlock", "kernel has no deadlock"),
        (ConditionType::ReadonlyFilesystem, "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
        (ConditionType::StorageFault, "FilesystemsRespond", "the node's filesystems answer"),
    ];
    good.map(|(kind, reason, message)| Effect::Condition(condition(kind, Status::False, reason, message))).into()
}

/// A filesystem that turned read-only, or is writable again.
#[must_use]
pub fn readonly(status: Status, message: &str) -> Effect {
    let reason = if status == Status::True { "FilesystemIsReadOnly" } else { "FilesystemIsNotReadOnly" };
    Effect::Condition(condition(ConditionType::ReadonlyFilesystem, status, reason, message))
}

/// An Event, told now.
#[must_use]
pub fn event(reason: &str, message: &str) -> Effect {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    Effect::Event(Event { at: Clock.now(), severity: Severity::Warning, reason, message, condition: None })
}

/// A condition as it stands on a Node; null if it does not.
#[must_use]
pub fn standing(node: &Value, kind: &str) -> Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == kind).cloned().unwrap_or_default()
}

/// Waits until a condition of a Node has this status and message, and gives the Node.
///
/// # Errors
/// If it does not come to that.
pub fn wait_for(cluster: &Cluster, node: &str, kind: &str, status: &str, message: &str, within: Duration) -> Result<Value> {
    wait::until("a condition", within, || {
        let node = cluster.get(&["node", node])?;
        let now = standing(&node, kind);
        ensure!(now["status"] == status && now["message"] == message, "{kind} is {now}, not {status} ({message})");
        Ok::<_, anyhow::Error>(node)
    })
}

/// Waits until there are this many Events of a reason about a Node (by its present UID), and gives them.
///
/// # Errors
/// If it does not come to that.
pub fn wait_for_events(cluster: &Cluster, node: &Value, reason: &str, count: usize, within: Duration) -> Result<Vec<Value>> {
    let uid = node["metadata"]["uid"].as_str().context("a Node has a UID")?;
    let selector = format!("involvedObject.kind=Node,involvedObject.uid={uid},reason={reason}");
    wait::until("Events", within, || {
        let list = cluster.get(&["events", "--namespace", "default", "--field-selector", &selector])?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        ensure!(events.len() == count, "{} Events {reason}, not {count}: {events:?}", events.len());
        Ok::<_, anyhow::Error>(events)
    })
}
