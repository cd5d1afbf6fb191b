//! Carries effects out: Node conditions, Events, metrics, standard output. The loop hands them over and never waits.

mod backoff;
pub mod cluster;
mod event;
pub mod node;
pub mod patch;
mod stamps;
pub mod stdout;
mod tally;
mod warm;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_core::{Condition, ConditionType, Effect, Event, effect::Severity};
pub use stamps::Stamps;
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinSet,
    time,
};

use self::{
    cluster::Cluster,
    event::{Dated, Queue},
    stdout::Printer,
    tally::Tally,
};
use crate::{clock::Clock, metrics::Metrics};

/// How long the exporters may take to write what is left when the agent is told to stop. The kubelet gives a pod 30 s.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Pause between attempts to make a client, while the credentials cannot be read.
const NO_CLIENT: Duration = Duration::from_secs(5);

/// Where everything goes.
#[derive(Debug)]
pub struct Exporters {
    conditions: BTreeMap<ConditionType, Condition>,
    desired: channel::Sender<Vec<Condition>>,
    stop: channel::Sender<bool>,
    shared: Arc<Shared>,
    tally: Tally,
    printer: Option<Printer>,
    tasks: JoinSet<()>,
}

/// What the exporting tasks share with the loop.
#[derive(Debug)]
pub struct Shared {
    node: String,
    boot_id: String,
    clock: Clock,
    metrics: Metrics,
    stamps: Mutex<Stamps>,
    events: Mutex<Queue>,
    event_added: Notify,
    /// UID of the Node, once it is known.
    uid: channel::Sender<Option<String>>,
}

/// Something that an exporter itself has to say.
struct Alert {
    reason: &'static str,
    message: String,
}

impl Exporters {
    /// Starts the exporters. Without a cluster everything goes to `printer` instead. `stamps` are those remembered of this boot.
    #[must_use]
    pub fn start(cluster: Option<Cluster>, boot_id: String, stamps: Stamps, metrics: &Metrics, printer: Printer) -> Self {
        let (desired, _) = channel::channel(Vec::new());
        let (stop, _) = channel::channel(false);
        let shared = Arc::new(Shared {
            node: cluster.as_ref().map(|c| c.node.clone()).unwrap_or_default(),
            boot_id,
            clock: Clock,
            metrics: metrics.clone(),
            stamps: Mutex::new(stamps),
            events: Mutex::default(),
            event_added: Notify::new(),
            uid: channel::channel(None).0,
        });
        let mut exporters = Self {
            conditions: BTreeMap::new(),
            desired,
            stop,
            shared,
            tally: Tally::new(metrics.clone()),
            printer: cluster.is_none().then_some(printer),
            tasks: JoinSet::new(),
        };
        if let Some(cluster) = cluster {
            exporters.export_to(cluster);
        }
        exporters
    }

    /// Learns of a turn's conditions before they are told, so that [`Exporters::stamps`] has their times: what is told must be remembered first.
    pub fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Condition(condition) = effect {
                self.conditions.insert(condition.kind, condition.clone());
            }
        }
    }

    /// Carries an effect out, or sees to it that it will be. Never waits.
    pub fn carry_out(&mut self, effect: Effect) {
        self.tally.note(&effect);
        if let Some(printer) = &mut self.printer {
            printer.print(&effect);
        }
        match effect {
            Effect::Condition(condition) => {
                self.conditions.insert(condition.kind, condition);
            }
            Effect::Event(event) if self.printer.is_none() => self.shared.queue(event),
            Effect::Event(_) | Effect::Count { .. } | Effect::Stall { .. } | Effect::VolumeFault { .. } | Effect::Look(_) => {}
        }
    }

    /// Says that a turn of the loop is over: changed conditions go out together.
    pub fn turn_over(&mut self) {
        let now: Vec<_> = self.conditions.values().cloned().collect();
        self.desired.send_if_modified(|held| {
            let is_changed = *held != now;
            *held = now;
            is_changed
        });
    }

    /// The transition times that have been given out, to be remembered.
    #[must_use]
    pub fn stamps(&self) -> Stamps {
        self.shared.with_stamps(|stamps| {
            // Those of conditions that have not been written yet belong to them too.
            for condition in self.conditions.values() {
                stamps.of(condition, self.shared.clock);
            }
            stamps.clone()
        })
    }

    /// Writes what is left, for a few seconds at most, and ends all tasks. Returns the transition times as they are then.
    pub async fn stop(mut self) -> Stamps {
        self.stop.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if time::timeout(LAST_WORDS, all).await.is_err() {
            log::warn!("the API server did not take everything within {LAST_WORDS:?}");
        }
        self.tasks.shutdown().await;
        self.stamps()
    }

    fn export_to(&mut self, cluster: Cluster) {
        let (shared, stop, desired) = (Arc::clone(&self.shared), self.stop.subscribe(), self.desired.subscribe());
        self.tasks.spawn(async move {
            let mut stopping = stop.clone();
            let client = loop {
                match cluster.access.client().await {
                    Ok(client) => break client,
                    Err(e) => log::error!("no access to the API server yet: {:#}", anyhow::Error::from(e)),
                }
                // Stopping first.
                tokio::select! {
                    biased;
                    _ = stopping.wait_for(|stop| *stop) => return,
                    () = time::sleep(NO_CLIENT) => {}
                }
            };
            let (client, clients) = channel::channel(client);
            let (seen, seen_by_writer) = channel::channel(None);
            let writer = node::Writer {
                shared: Arc::clone(&shared),
                access: cluster.access,
                client,
                desired,
                seen: seen_by_writer,
                stop: stop.clone(),
            };
            // In this order: a condition that changed goes out before the Event that tells of it.
            tokio::join!(
                biased;
                writer.run(),
                watch::run(Arc::clone(&shared), clients.clone(), seen, stop.clone()),
                warm::run(Arc::clone(&shared), clients.clone(), stop.clone()),
                event::run(shared, clients, stop),
            );
        });
    }
}

impl Shared {
    fn with_stamps<T>(&self, change: impl FnOnce(&mut Stamps) -> T) -> T {
        change(&mut self.stamps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn queue(&self, event: Event) {
        let at = self.clock.wall_at(event.at);
        let is_lost = self.events.lock().unwrap_or_else(PoisonError::into_inner).push(Dated { event, at });
        if is_lost {
            self.metrics.events_dropped.with_label_values(&["queue_full"]).inc();
        }
        self.event_added.notify_one();
    }

    fn next_event(&self) -> Option<Dated> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn alert(&self, alert: Alert) {
        log::warn!("{}: {}", alert.reason, alert.message);
        let at = self.clock.now();
        self.queue(Event { at, severity: Severity::Warning, reason: alert.reason.into(), message: alert.message, condition: None });
    }

    /// Learns who the Node is.
    fn identify(&self, uid: &str) {
        self.uid.send_if_modified(|known| {
            let is_new = !uid.is_empty() && known.as_deref() != Some(uid);
            if is_new {
                *known = Some(uid.to_owned());
            }
            is_new
        });
    }
}
