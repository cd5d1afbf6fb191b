//! Keeps the Node's conditions as the core holds them: one patch in flight, the latest wins, and it goes on until the API server has taken it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_core::{BootTime, Condition, ConditionType};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{self, error::Elapsed},
};

use super::{
    Alert, Shared,
    backoff::Backoff,
    cluster::{Access, REQUEST_TIMEOUT},
    patch::{self, Standing},
};
use crate::jitter;

/// The name under which our writes stand in `managedFields`.
pub const FIELD_MANAGER: &str = "nodeward-agent";

/// How often everything is written without a change: a reader takes our conditions for stale after three of these.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// Pauses while the API server does not answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Pauses while another writer keeps changing our conditions: down to once a heartbeat.
const RESTORE: Backoff = Backoff::new(Duration::from_secs(1), HEARTBEAT);

/// What was seen of our Node by the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its UID: another one is another Node of the same name.
    pub uid: String,
    /// Its version; grows with each change.
    pub version: Option<u64>,
    /// Our conditions on it.
    pub standing: Vec<Standing>,
    /// Whether the annotation is that of this boot.
    pub of_this_boot: bool,
    /// Who wrote each of our types last.
    pub writers: BTreeMap<ConditionType, String>,
}

impl Seen {
    /// What matters to us of a Node.
    #[must_use]
    pub fn of(node: &Node, boot_id: &str) -> Self {
        let (standing, of_this_boot) = patch::standing(node, boot_id);
        let writers = ConditionType::ALL.iter().filter_map(|kind| Some((*kind, patch::writer_of(node, *kind)?))).collect();
        let version = node.metadata.resource_version.as_ref().and_then(|v| v.parse().ok());
        Self { uid: node.metadata.uid.clone().unwrap_or_default(), version, standing, of_this_boot, writers }
    }
}

/// What became of a write.
enum Written {
    Accepted(Box<Node>),
    /// The API server understood, and will not have it: forbidden, or invalid.
    Refused(String),
    /// Anything that may pass: no answer, no such Node yet, an error of the server.
    Failed(String),
}

/// The writer.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) access: Access,
    pub(super) client: watch::Sender<Client>,
    pub(super) desired: watch::Receiver<Vec<Condition>>,
    pub(super) seen: watch::Receiver<Option<Seen>>,
    pub(super) stop: watch::Receiver<bool>,
}

/// Where the writer is.
#[derive(Debug)]
struct Progress {
    /// UID of the Node that was last seen or written.
    node: Option<String>,
    /// What the API server last took.
    accepted: Option<Accepted>,
    retry: Backoff,
    restore: Backoff,
    /// Types that were refused when written alone.
    refused: BTreeSet<ConditionType>,
    last_conflict: Option<BootTime>,
    /// A restoration is due: what others write until then is part of the same conflict.
    is_restoring: bool,
}

#[derive(Debug)]
struct Accepted {
    version: Option<u64>,
    conditions: Vec<Condition>,
    /// The same as they must stand on the Node.
    standing: Vec<Standing>,
}

impl Writer {
    /// Writes until told to stop, then once more if something has not been written yet.
    pub(super) async fn run(mut self) {
        let mut progress = Progress::new();
        // A moment, not a pause: whatever else wakes the writer must not put the next write off.
        let mut due = self.shared.clock.now() + HEARTBEAT;
        loop {
            match self.wait(due).await {
                Wake::Stop => break,
                Wake::Write => due = self.write(&mut progress).await,
                Wake::Seen(seen) => {
                    if let Some(at) = self.weigh(seen, &mut progress) {
                        due = due.min(at);
                    }
                }
            }
        }
        let is_written = progress.accepted.as_ref().is_some_and(|a| a.conditions == *self.desired.borrow());
        if !is_written {
            // One attempt: the pod has seconds left.
            let _ = self.write(&mut progress).await;
        }
    }

    /// Waits for a reason to write, until this moment at the most.
    async fn wait(&mut self, due: BootTime) -> Wake {
        let pause = due.since(self.shared.clock.now());
        // Stopping first; then what is to be said before what others did to it.
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => Wake::Stop,
            changed = self.desired.changed() => if changed.is_ok() { Wake::Write } else { Wake::Stop },
            changed = self.seen.changed() => match changed {
                Err(_) => Wake::Stop,
                Ok(()) => Wake::Seen(self.seen.borrow_and_update().clone()),
            },
            () = time::sleep(pause) => Wake::Write,
        }
    }

    /// When the Node as seen asks for a write, if it does.
    fn weigh(&self, seen: Option<Seen>, progress: &mut Progress) -> Option<BootTime> {
        let now = self.shared.clock.now();
        let Some(seen) = seen else {
            // Deleted: what was written is gone with it.
            progress.forget_node(None);
            return None;
        };
        if progress.node.as_ref() != Some(&seen.uid) {
            if progress.accepted.is_some() {
                log::info!("Node {} was created anew: writing everything to it", self.shared.node);
            }
            progress.forget_node(Some(seen.uid));
            return Some(now);
        }
        // Without an accepted write one is under way already, with pauses that nobody else shortens.
        let accepted = progress.accepted.as_ref()?;
        // The watch may be behind our own write.
        let is_old = accepted.version.zip(seen.version).is_some_and(|(ours, theirs)| theirs <= ours);
        let changed: Vec<_> = accepted.standing.iter().filter(|s| !seen.standing.contains(s)).map(|s| s.kind).collect();
        if is_old || progress.is_restoring || (changed.is_empty() && seen.of_this_boot) {
            return None;
        }
        let is_first = progress.last_conflict.is_none_or(|last| now.since(last) > 2 * HEARTBEAT);
        if is_first {
            progress.restore.reset();
        }
        progress.last_conflict = Some(now);
        progress.is_restoring = true;
        for kind in &changed {
            let writer = seen.writers.get(kind).map_or("unknown", String::as_str);
            self.shared.metrics.condition_conflicts.with_label_values(&[kind.as_str(), writer]).inc();
            self.shared.alert(Alert {
                reason: "ConditionConflict",
                message: format!("{writer} changed condition {kind}, which {FIELD_MANAGER} owns; it is being restored"),
            });
        }
        Some(if is_first { now } else { now + progress.restore.pause() })
    }

    /// Writes what is held now. Returns when to write the next time if nothing happens.
    async fn write(&mut self, progress: &mut Progress) -> BootTime {
        let conditions = self.desired.borrow_and_update().clone();
        let pause = if conditions.is_empty() {
            HEARTBEAT
        } else {
            match self.try_write(progress, conditions).await {
                Ok(()) => jitter::around(HEARTBEAT),
                Err(why) => {
                    log::warn!("conditions not written yet: {why}");
                    progress.retry.pause()
                }
            }
        };
        self.shared.clock.now() + pause
    }

    /// Brings as much of it to the Node as the API server takes.
    async fn try_write(&self, progress: &mut Progress, conditions: Vec<Condition>) -> Result<(), String> {
        if progress.accepted.is_none() {
            self.adopt(&conditions).await?;
        }
        match self.send(&self.patch(&conditions, true)).await {
            Written::Accepted(node) => {
                progress.refused.clear();
                self.note_accepted(progress, &node, conditions);
                Ok(())
            }
            Written::Refused(why) => {
                log::error!("the API server refuses our patch, writing type by type: {why}");
                self.write_one_by_one(progress, conditions).await
            }
            Written::Failed(why) => Err(why),
        }
    }

    /// One refused type must cost no other.
    async fn write_one_by_one(&self, progress: &mut Progress, conditions: Vec<Condition>) -> Result<(), String> {
        let mut last = None;
        let mut written = Vec::new();
        for condition in conditions {
            match self.send(&self.patch(std::slice::from_ref(&condition), false)).await {
                Written::Accepted(node) => {
                    last = Some(node);
                    progress.refused.remove(&condition.kind);
                    written.push(condition);
                }
                Written::Refused(why) => {
                    if progress.refused.insert(condition.kind) {
                        let message = format!("the API server refuses condition {}: {why}", condition.kind);
                        self.shared.alert(Alert { reason: "ConditionRefused", message });
                    }
                }
                Written::Failed(why) => return Err(why),
            }
        }
        match self.send(&self.patch(&[], true)).await {
            Written::Accepted(node) => last = Some(node),
            Written::Refused(why) => log::error!("the API server refuses our annotation: {why}"),
            Written::Failed(why) => return Err(why),
        }
        let node = last.ok_or("everything was refused")?;
        self.note_accepted(progress, &node, written);
        Ok(())
    }

    fn patch(&self, conditions: &[Condition], with_boot_id: bool) -> Value {
        let boot_id = with_boot_id.then_some(self.shared.boot_id.as_str());
        self.shared.with_stamps(|stamps| patch::of(conditions, boot_id, stamps, self.shared.clock))
    }

    fn note_accepted(&self, progress: &mut Progress, node: &Node, conditions: Vec<Condition>) {
        progress.retry.reset();
        progress.is_restoring = false;
        let before = progress.accepted.take();
        let now = self.shared.clock.now();
        let standing = self.shared.with_stamps(|stamps| {
            conditions.iter().for_each(|c| stamps.note_written(c));
            conditions.iter().map(|c| Standing::of(c, stamps.of(c, self.shared.clock))).collect()
        });
        for condition in &conditions {
            let had = before.as_ref().and_then(|b| b.conditions.iter().find(|c| c.kind == condition.kind));
            // Not what an earlier run had already written.
            if had.is_some_and(|had| had.status != condition.status) {
                self.shared.metrics.detection_to_patch.observe(now.since(condition.since).as_secs_f64());
            }
        }
        let Seen { uid, version, .. } = Seen::of(node, &self.shared.boot_id);
        self.shared.identify(&uid);
        progress.node = Some(uid);
        progress.accepted = Some(Accepted { version, conditions, standing });
    }

    /// Keeps the transition times that an earlier run of this boot wrote, where nothing is remembered of them.
    async fn adopt(&self, conditions: &[Condition]) -> Result<(), String> {
        if self.shared.with_stamps(|stamps| stamps.are_written(conditions)) {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.client.borrow().clone());
        // Not its status subresource: our rights do not cover reading that.
        let node = match self.answered(time::timeout(REQUEST_TIMEOUT, api.get(&self.shared.node)).await).await {
            Written::Accepted(node) => node,
            Written::Failed(why) => {
                // The write that could not even begin.
                self.shared.metrics.api_writes.with_label_values(&["node", "failed"]).inc();
                return Err(why);
            }
            Written::Refused(why) => {
                log::warn!("Node {} cannot be read, transition times begin anew: {why}", self.shared.node);
                return Ok(());
            }
        };
        let (standing, of_this_boot) = patch::standing(&node, &self.shared.boot_id);
        if of_this_boot {
            self.shared.with_stamps(|stamps| standing.iter().for_each(|s| stamps.adopt(s.kind, s.status, s.since)));
        }
        Ok(())
    }

    async fn send(&self, body: &Value) -> Written {
        let api: Api<Node> = Api::all(self.client.borrow().clone());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patched = time::timeout(REQUEST_TIMEOUT, api.patch_status(&self.shared.node, &params, &Patch::Strategic(body))).await;
        let written = self.answered(patched).await;
        let outcome = match written {
            Written::Accepted(_) => "accepted",
            Written::Refused(_) => "refused",
            Written::Failed(_) => "failed",
        };
        self.shared.metrics.api_writes.with_label_values(&["node", outcome]).inc();
        written
    }

    /// What an answer means. Credentials that are not accepted (any more) are read anew.
    async fn answered(&self, answer: Result<Result<Node, kube::Error>, Elapsed>) -> Written {
        let is_answered = matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))));
        self.shared.metrics.api_up.set(i64::from(is_answered));
        match answer {
            Ok(Ok(node)) => Written::Accepted(Box::new(node)),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                401 => {
                    match self.access.client().await {
                        Ok(client) => drop(self.client.send_replace(client)),
                        Err(e) => log::error!("{:#}", anyhow::Error::from(e)),
                    }
                    Written::Failed(format!("our credentials are not accepted: {}", status.message))
                }
                400 | 403 | 422 => Written::Refused(status.message),
                404 => Written::Failed(format!("there is no Node {}", self.shared.node)),
                code => Written::Failed(format!("{code}: {}", status.message)),
            },
            Ok(Err(other)) => Written::Failed(format!("{:#}", anyhow::Error::from(other))),
            Err(_) => Written::Failed(format!("no answer within {REQUEST_TIMEOUT:?}")),
        }
    }
}

impl Progress {
    const fn new() -> Self {
        Self {
            node: None,
            accepted: None,
            retry: RETRY,
            restore: RESTORE,
            refused: BTreeSet::new(),
            last_conflict: None,
            is_restoring: false,
        }
    }

    /// Nothing of ours is on the Node, or there is none.
    fn forget_node(&mut self, now: Option<String>) {
        *self = Self { node: now, ..Self::new() };
    }
}

/// Why the writer wakes.
enum Wake {
    /// Something changed, or it is time.
    Write,
    /// Our Node was seen, or is gone.
    Seen(Option<Seen>),
    /// The agent ends.
    Stop,
}
