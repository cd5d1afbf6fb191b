//! Writes Events about the Node: in order, from a bounded queue that survives an outage of the API server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent_core::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{sync::watch, time};

use super::{Shared, backoff::Backoff, cluster::REQUEST_TIMEOUT, patch};

/// How many Events wait for the API server; beyond that the oldest goes, and is counted.
const QUEUE: usize = 256;

/// How many Events are remembered, so that a repetition raises a count instead of making another object.
const REMEMBERED: usize = 64;

/// Events of cluster-scoped objects live here: `kubectl describe node` looks nowhere else.
const NAMESPACE: &str = "default";

/// Longest name of an object.
const LONGEST_NAME: usize = 253;

/// The component that our Events name.
const COMPONENT: &str = "nodeward-agent";

/// Pauses while the API server does not answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// An Event with its wall-clock time.
#[derive(Clone, Debug)]
pub(super) struct Dated {
    pub(super) event: Event,
    pub(super) at: Timestamp,
}

/// The queue, and what has been written of it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Dated>,
}

impl Queue {
    /// Adds an Event. Returns whether the oldest had to go for it.
    pub(super) fn push(&mut self, dated: Dated) -> bool {
        let is_full = self.waiting.len() >= QUEUE;
        if is_full {
            self.waiting.pop_front();
        }
        self.waiting.push_back(dated);
        is_full
    }

    pub(super) fn next(&mut self) -> Option<Dated> {
        self.waiting.pop_front()
    }
}

/// What makes two Events the same. A Node that was created anew is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: String,
    reason: String,
    message: String,
}

/// An Event that stands on the API server.
struct Known {
    name: String,
    count: i32,
    last_used: u64,
}

/// Writes Events until told to stop, then what is left as far as the time allows.
pub(super) async fn run(shared: Arc<Shared>, client: watch::Receiver<Client>, mut stop: watch::Receiver<bool>) {
    let mut uid = shared.uid.subscribe();
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    let mut serial = 0u64;
    let mut retry = RETRY;
    loop {
        let Some(dated) = shared.next_event() else {
            // Stopping last: what is in the queue is written first.
            tokio::select! {
                biased;
                () = shared.event_added.notified() => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
        };
        let Ok(owner) = uid.wait_for(Option::is_some).await.map(|uid| uid.clone().unwrap_or_default()) else { return };
        serial += 1;
        while let Err(why) = write(&shared, &client, &dated, &owner, &mut known, serial).await {
            match why {
                Failure::Passing(why) => {
                    log::debug!("Event not written yet: {why}");
                    time::sleep(retry.pause()).await;
                }
                Failure::Final(why) => {
                    log::error!("the API server refuses an Event: {why}");
                    shared.metrics.events_dropped.with_label_values(&["refused"]).inc();
                    break;
                }
            }
        }
        retry.reset();
    }
}

enum Failure {
    Passing(String),
    Final(String),
}

async fn write(
    shared: &Shared,
    client: &watch::Receiver<Client>,
    dated: &Dated,
    uid: &str,
    known: &mut BTreeMap<Key, Known>,
    serial: u64,
) -> Result<(), Failure> {
    let api: Api<ApiEvent> = Api::namespaced(client.borrow().clone(), NAMESPACE);
    let key = Key { uid: uid.to_owned(), reason: dated.event.reason.clone(), message: dated.event.message.clone() };
    if let Some(one) = known.get_mut(&key) {
        let body = json!({ "count": one.count.saturating_add(1), "lastTimestamp": patch::time(dated.at) });
        let params = PatchParams { field_manager: Some(COMPONENT.into()), ..PatchParams::default() };
        match answered(shared, time::timeout(REQUEST_TIMEOUT, api.patch(&one.name, &params, &Patch::Merge(&body))).await) {
            Ok(_) => {
                one.count = one.count.saturating_add(1);
                one.last_used = serial;
                return Ok(());
            }
            // The API server forgets Events after an hour: then it is a new one.
            Err(Failure::Final(_)) => {
                known.remove(&key);
            }
            Err(passing) => return Err(passing),
        }
    }
    let name = name(&shared.node, dated.at, serial);
    let event: ApiEvent = serde_json::from_value(object(shared, dated, uid, &name)).map_err(|e| Failure::Final(e.to_string()))?;
    let params = PostParams { field_manager: Some(COMPONENT.into()), ..PostParams::default() };
    match time::timeout(REQUEST_TIMEOUT, api.create(&params, &event)).await {
        // Made by an attempt whose answer got lost.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
        other => drop(answered(shared, other)?),
    }
    if known.len() >= REMEMBERED {
        let oldest = known.iter().min_by_key(|(_, one)| one.last_used).map(|(key, _)| key.clone());
        oldest.map(|key| known.remove(&key));
    }
    known.insert(key, Known { name, count: 1, last_used: serial });
    Ok(())
}

fn answered<T>(shared: &Shared, answer: Result<Result<T, kube::Error>, time::error::Elapsed>) -> Result<T, Failure> {
    let result = match answer {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 403 | 404 | 422) => Err(Failure::Final(status.message)),
        Ok(Err(kube::Error::Api(status))) => Err(Failure::Passing(status.message)),
        Ok(Err(other)) => Err(Failure::Passing(format!("{:#}", anyhow::Error::from(other)))),
        Err(_) => Err(Failure::Passing(format!("no answer within {REQUEST_TIMEOUT:?}"))),
    };
    let outcome = match &result {
        Ok(_) => "accepted",
        Err(Failure::Final(_)) => "refused",
        Err(Failure::Passing(_)) => "failed",
    };
    shared.metrics.api_writes.with_label_values(&["event", outcome]).inc();
    result
}

/// Unique, and a name that Kubernetes takes: at most 253 characters, like the Node's own (RFC 1123).
fn name(node: &str, at: Timestamp, serial: u64) -> String {
    let unique = format!("{:x}", at.as_nanosecond().unsigned_abs() + u128::from(serial));
    let node: String = node.chars().take(LONGEST_NAME - 1 - unique.len()).collect();
    format!("{}.{unique}", node.trim_end_matches(['-', '.']))
}

/// A core/v1 Event on the Node. Its `apiVersion` and real UID are what makes `kubectl events --for` find it.
fn object(shared: &Shared, dated: &Dated, uid: &str, name: &str) -> Value {
    let at = patch::time(dated.at);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": shared.node, "uid": uid },
        "type": dated.event.severity.as_str(),
        "reason": dated.event.reason,
        "message": dated.event.message,
        "source": { "component": COMPONENT, "host": shared.node },
        "reportingComponent": COMPONENT,
        "reportingInstance": shared.node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use agent_core::{BootTime, effect::Severity};

    use super::*;

    fn dated(n: usize) -> Dated {
        let event = Event { at: BootTime::ZERO, severity: Severity::Warning, reason: "R".into(), message: n.to_string(), condition: None };
        Dated { event, at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn the_longest_node_name_still_makes_an_event_name() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(name("node-1.example", at, 2), "node-1.example.18fae27693b40002");
        let long = name(&"n".repeat(253), at, 0);
        assert_eq!((long.len(), &long[long.len() - 18..]), (253, "n.18fae27693b40000"));
        assert_eq!(name(&format!("{}{}", "n".repeat(235), "-".repeat(18)), at, 0), format!("{}.18fae27693b40000", "n".repeat(235)));
    }

    #[test]
    fn a_full_queue_loses_its_oldest_and_says_so() {
        let mut queue = Queue::default();
        let lost = (0..QUEUE + 3).filter(|n| queue.push(dated(*n))).count();
        assert_eq!(lost, 3);
        assert_eq!(queue.next().unwrap().event.message, "3");
    }
}
