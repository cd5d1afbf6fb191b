//! Keeps the Node's conditions as the core holds them: one patch in flight, the latest wins, and it goes on until the API server has taken it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_core::{BootTime, Condition, ConditionType};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tokio::{sync::watch, time};

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
    /// The credentials are not accepted (any more).
    Unauthorized(String),
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
struct Progress {
    /// What the API server last took, and as which version of which Node.
    accepted: Option<Accepted>,
    retry: Backoff,
    restore: Backoff,
    /// Types that were refused when written alone, with the answer.
    refused: BTreeMap<ConditionType, String>,
    last_conflict: Option<BootTime>,
}

struct Accepted {
    uid: String,
    version: Option<u64>,
    conditions: Vec<Condition>,
}

impl Writer {
    /// Writes until told to stop, then once more if something has not been written yet.
    pub(super) async fn run(mut self) {
        let mut progress = Progress { accepted: None, retry: RETRY, restore: RESTORE, refused: BTreeMap::new(), last_conflict: None };
        let mut pause = HEARTBEAT;
        loop {
            match self.wait(pause).await {
                Wake::Stop => break,
                Wake::Write => pause = self.write(&mut progress).await,
                Wake::Seen(seen) => match self.weigh(&seen, &mut progress) {
                    Verdict::AsItShouldBe => {}
                    Verdict::WriteNow => pause = self.write(&mut progress).await,
                    Verdict::WriteIn(wait) => pause = wait,
                },
            }
        }
        let is_written = progress.accepted.as_ref().is_some_and(|a| a.conditions == *self.desired.borrow());
        if !is_written {
            // One attempt: the pod has seconds left.
            let _ = self.write(&mut progress).await;
        }
    }

    /// Waits for a reason to write, at most so long.
    async fn wait(&mut self, pause: Duration) -> Wake {
        // Stopping first; then what is to be said before what others did to it.
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => Wake::Stop,
            changed = self.desired.changed() => if changed.is_ok() { Wake::Write } else { Wake::Stop },
            changed = self.seen.changed() => match (changed, self.seen.borrow_and_update().clone()) {
                (Err(_), _) => Wake::Stop,
                (Ok(()), Some(seen)) => Wake::Seen(seen),
                (Ok(()), None) => Wake::Write,
            },
            () = time::sleep(pause) => Wake::Write,
        }
    }

    /// What the Node as seen asks for.
    fn weigh(&self, seen: &Seen, progress: &mut Progress) -> Verdict {
        if self.desired.borrow().is_empty() {
            return Verdict::AsItShouldBe;
        }
        let Some(accepted) = &progress.accepted else { return Verdict::WriteNow };
        if accepted.uid != seen.uid {
            log::info!("Node {} was created anew: writing everything to it", self.shared.node);
            progress.accepted = None;
            return Verdict::WriteNow;
        }
        // The watch may be behind our own write.
        let is_old = accepted.version.zip(seen.version).is_some_and(|(ours, theirs)| theirs <= ours);
        let is_changed = |c: &&Condition| !progress.refused.contains_key(&c.kind) && !patch::stands(c, &seen.standing);
        let changed: Vec<_> = accepted.conditions.iter().filter(is_changed).map(|c| c.kind).collect();
        if is_old || (changed.is_empty() && seen.of_this_boot) {
            return Verdict::AsItShouldBe;
        }
        let now = self.shared.clock.now();
        let is_first = progress.last_conflict.is_none_or(|last| now.since(last) > 2 * HEARTBEAT);
        if is_first {
            progress.restore.reset();
        }
        progress.last_conflict = Some(now);
        for kind in &changed {
            let writer = seen.writers.get(kind).map_or("unknown", String::as_str);
            self.shared.metrics.condition_conflicts.with_label_values(&[kind.as_str(), writer]).inc();
            self.shared.alert(Alert {
                reason: "ConditionConflict",
                message: format!("{writer} changed condition {kind}, which nodeward-agent owns; it is being restored"),
            });
        }
        if is_first { Verdict::WriteNow } else { Verdict::WriteIn(progress.restore.pause()) }
    }

    /// Writes what is held now. Returns how long to wait for the next time if nothing happens.
    async fn write(&mut self, progress: &mut Progress) -> Duration {
        let conditions = self.desired.borrow_and_update().clone();
        if conditions.is_empty() {
            return HEARTBEAT;
        }
        if progress.accepted.is_none() {
            self.adopt(&conditions).await;
        }
        let boot_id = Some(self.shared.boot_id.as_str());
        let body = self.shared.with_stamps(|stamps| patch::of(&conditions, boot_id, stamps, self.shared.clock));
        match self.send(&body).await {
            Written::Accepted(node) => {
                progress.refused.clear();
                self.accepted(progress, &node, conditions);
                jitter::around(HEARTBEAT).min(HEARTBEAT)
            }
            Written::Refused(why) => {
                log::error!("the API server refuses our patch, writing type by type: {why}");
                self.write_one_by_one(progress, &conditions).await
            }
            Written::Unauthorized(why) => {
                log::warn!("the API server does not accept our credentials, reading them anew: {why}");
                match self.access.client().await {
                    Ok(client) => {
                        self.client.send_replace(client);
                    }
                    Err(e) => log::error!("{:#}", anyhow::Error::from(e)),
                }
                progress.retry.pause()
            }
            Written::Failed(why) => {
                log::warn!("conditions not written yet: {why}");
                progress.retry.pause()
            }
        }
    }

    /// One refused type must cost no other.
    async fn write_one_by_one(&self, progress: &mut Progress, conditions: &[Condition]) -> Duration {
        let mut last = None;
        let mut written = Vec::new();
        let mut bodies: Vec<_> = conditions
            .iter()
            .map(|c| (Some(c), self.shared.with_stamps(|stamps| patch::of(std::slice::from_ref(c), None, stamps, self.shared.clock))))
            .collect();
        bodies.push((None, self.shared.with_stamps(|stamps| patch::of(&[], Some(&self.shared.boot_id), stamps, self.shared.clock))));
        for (condition, body) in bodies {
            match (self.send(&body).await, condition) {
                (Written::Accepted(node), condition) => {
                    last = Some(node);
                    if let Some(c) = condition {
                        progress.refused.remove(&c.kind);
                        written.push(c.clone());
                    }
                }
                (Written::Refused(why), Some(c)) => {
                    if progress.refused.insert(c.kind, why.clone()).is_none() {
                        self.shared.alert(Alert {
                            reason: "ConditionRefused",
                            message: format!("the API server refuses condition {}: {why}", c.kind),
                        });
                    }
                }
                (Written::Refused(why), None) => log::error!("the API server refuses our annotation: {why}"),
                (Written::Unauthorized(why) | Written::Failed(why), _) => {
                    log::warn!("conditions not written yet: {why}");
                    return progress.retry.pause();
                }
            }
        }
        match last {
            Some(node) => {
                self.accepted(progress, &node, written);
                jitter::around(HEARTBEAT).min(HEARTBEAT)
            }
            None => progress.retry.pause(),
        }
    }

    fn accepted(&self, progress: &mut Progress, node: &Node, conditions: Vec<Condition>) {
        progress.retry.reset();
        let before = progress.accepted.take();
        let now = self.shared.clock.now();
        self.shared.with_stamps(|stamps| conditions.iter().for_each(|c| stamps.note_written(c)));
        for condition in &conditions {
            let had = before.as_ref().and_then(|b| b.conditions.iter().find(|c| c.kind == condition.kind));
            // Not what an earlier run had already written.
            if had.is_some_and(|had| had.status != condition.status) {
                self.shared.metrics.detection_to_patch.observe(now.since(condition.since).as_secs_f64());
            }
        }
        let seen = Seen::of(node, &self.shared.boot_id);
        self.shared.identify(&seen.uid);
        progress.accepted = Some(Accepted { uid: seen.uid, version: seen.version, conditions });
    }

    /// Keeps the transition times that an earlier run of this boot wrote, where nothing is remembered of them.
    async fn adopt(&self, conditions: &[Condition]) {
        if self.shared.with_stamps(|stamps| stamps.are_written(conditions)) {
            return;
        }
        let api: Api<Node> = Api::all(self.client.borrow().clone());
        if let Ok(Ok(node)) = time::timeout(REQUEST_TIMEOUT, api.get_status(&self.shared.node)).await {
            let (standing, of_this_boot) = patch::standing(&node, &self.shared.boot_id);
            if of_this_boot {
                self.shared.with_stamps(|stamps| standing.iter().for_each(|s| stamps.adopt(s.kind, s.status, s.since)));
            }
        }
    }

    async fn send(&self, body: &Value) -> Written {
        let api: Api<Node> = Api::all(self.client.borrow().clone());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let answer = time::timeout(REQUEST_TIMEOUT, api.patch_status(&self.shared.node, &params, &Patch::Strategic(body))).await;
        let written = match answer {
            Ok(Ok(node)) => Written::Accepted(Box::new(node)),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                401 => Written::Unauthorized(status.message),
                400 | 403 | 422 => Written::Refused(status.message),
                404 => Written::Failed(format!("there is no Node {}", self.shared.node)),
                code => Written::Failed(format!("{code}: {}", status.message)),
            },
            Ok(Err(other)) => Written::Failed(format!("{:#}", anyhow::Error::from(other))),
            Err(_) => Written::Failed(format!("no answer within {REQUEST_TIMEOUT:?}")),
        };
        let outcome = match written {
            Written::Accepted(_) => "accepted",
            Written::Refused(_) | Written::Unauthorized(_) => "refused",
            Written::Failed(_) => "failed",
        };
        self.shared.metrics.api_writes.with_label_values(&["node", outcome]).inc();
        self.shared.metrics.api_up.set(i64::from(!matches!(written, Written::Failed(_))));
        written
    }
}

/// Why the writer wakes.
enum Wake {
    /// Something changed, or it is time.
    Write,
    /// Our Node was seen.
    Seen(Seen),
    /// The agent ends.
    Stop,
}

/// What the Node as seen asks for.
enum Verdict {
    AsItShouldBe,
    WriteNow,
    WriteIn(Duration),
}
