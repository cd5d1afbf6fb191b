//! The loop around the core: takes in what sources and looks observed, lets time pass, starts the looks that the core asks for, and hands
//! everything else to the caller. `run`, `check` and `watch` differ only in what they do with that.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_core::{Core, Effect, Fact, Look, Memory, Observation, Source, SourceState};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time,
};

use crate::{clock::Clock, config::Settings, host::Host, look, metrics::Metrics, source};

/// How many observations may wait for the loop. Sources wait when it is full, and the kernel's own buffers hold what comes meanwhile.
const QUEUE: usize = 256;

/// How many observations are taken in before effects are carried out.
const BATCH: usize = 64;

/// The loop turns at least so often, with nothing to do: a last turn that is much older means that it is stuck.
pub const LONGEST_TURN: Duration = Duration::from_secs(60);

/// The running loop.
#[derive(Debug)]
pub struct Pipeline {
    core: Core,
    clock: Clock,
    metrics: Metrics,
    observations: mpsc::Receiver<Observation>,
    looks: mpsc::Sender<Look>,
    looking: JoinHandle<()>,
    sources: JoinSet<()>,
    states: BTreeMap<Source, SourceState>,
}

/// What one turn of the loop brought.
#[derive(Debug, Default)]
pub struct Turn {
    /// What was taken in, in order.
    pub observations: Vec<Observation>,
    /// What the core wants done, looks excepted: those are under way.
    pub effects: Vec<Effect>,
}

impl Pipeline {
    /// Starts the sources, and a core that remembers.
    #[must_use]
    pub fn start(settings: &Arc<Settings>, host: &Arc<Host>, metrics: &Metrics, memory: Memory) -> Self {
        let clock = Clock;
        let (out, observations) = mpsc::channel(QUEUE);
        let core = Core::new(settings.core(), clock.now(), memory);
        let context = source::Context { host: Arc::clone(host), clock, metrics: metrics.clone(), settings: Arc::clone(settings), out };
        let (looks, looking) = look::start(&context);
        let sources = source::start(&context);
        Self { core, clock, metrics: metrics.clone(), observations, looks, looking, sources, states: BTreeMap::new() }
    }

    /// Waits until there is something to do, and does it.
    pub async fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        let due = self.core.wake_at().map_or(LONGEST_TURN, |at| at.since(self.clock.now())).min(LONGEST_TURN);
        // Observations first: what has been seen is weighed before time is said to have passed.
        let first = tokio::select! {
            biased;
            first = self.observations.recv() => first,
            () = time::sleep(due) => None,
        };
        let now = self.clock.now();
        self.metrics.loop_last_turn.set(now.since_boot().as_secs_f64());
        let mut next = first;
        while let Some(observation) = next {
            log::trace!("observed {observation:?}");
            self.note(&observation);
            self.core.observe(observation.clone(), now);
            turn.observations.push(observation);
            next = if turn.observations.len() < BATCH { self.observations.try_recv().ok() } else { None };
        }
        self.core.tick(now);
        for effect in self.core.effects() {
            match effect {
                // It takes requests at once, and never waits for us.
                Effect::Look(look) => {
                    let _ = self.looks.send(look).await;
                }
                other @ (Effect::Condition(_)
                | Effect::Event(_)
                | Effect::Count { .. }
                | Effect::Stall { .. }
                | Effect::VolumeFault { .. }) => {
                    turn.effects.push(other);
                }
            }
        }
        turn
    }

    /// The core, to ask what it holds.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// How each source was last.
    #[must_use]
    pub fn sources(&self) -> &BTreeMap<Source, SourceState> {
        &self.states
    }

    /// Ends the sources and waits for them. Looks that hang in the kernel cannot be waited for.
    pub async fn stop(mut self) {
        drop((self.observations, self.looks));
        self.sources.shutdown().await;
        self.looking.abort();
        let _ = self.looking.await;
    }

    fn note(&mut self, observation: &Observation) {
        if let Fact::Source { source, state } = &observation.fact {
            self.states.insert(*source, state.clone());
        }
    }
}
