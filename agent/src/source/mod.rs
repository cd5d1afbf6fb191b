//! Where signals come from. Each source is one file and one line in [`start`]; it runs until something breaks and is then started again.

pub mod ebpf;
pub mod kmsg;
mod mounts;

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use agent_core::{Fact, Observation, Source, SourceState};
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{clock::Clock, config::Settings, host::Host, jitter, metrics::Metrics};

/// First wait before a source that broke is started again; doubled up to [`LONGEST_WAIT`], each with jitter.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A source that worked for so long had no trouble starting: the next failure is a new one.
const PROVED: Duration = Duration::from_secs(60);

/// How often a source that this node cannot have is tried all the same: a module may have been loaded, a permission given.
const ABSENT_WAIT: Duration = Duration::from_secs(300);

/// What every source gets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    /// The host.
    pub host: Arc<Host>,
    /// The clocks.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Metrics,
    /// The configuration.
    pub settings: Arc<Settings>,
    /// To the loop: bounded, and sources wait rather than drop.
    pub out: mpsc::Sender<Observation>,
}

/// A source runs for ever; it returns only how it ended.
pub type Run = Result<Infallible, Ending>;

/// Why a source ended.
#[derive(Debug)]
pub enum Ending {
    /// The loop is gone: so are we.
    Stopped,
    /// It broke, and will be started again.
    Broken(String),
    /// This node cannot have it: the reason, for a person.
    Absent(String),
}

impl Ending {
    /// That it broke while doing this.
    pub fn broken(doing: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Broken(format!("{doing}: {error}"))
    }
}

impl Context {
    /// Hands a fact of this moment to the loop.
    ///
    /// # Errors
    /// [`Ending::Stopped`] if the loop is gone.
    pub async fn tell(&self, fact: Fact) -> Result<(), Ending> {
        self.send(Observation { at: self.clock.now(), fact }).await
    }

    /// Hands an observation to the loop; waits while its queue is full.
    ///
    /// # Errors
    /// [`Ending::Stopped`] if the loop is gone.
    pub async fn send(&self, observation: Observation) -> Result<(), Ending> {
        self.out.send(observation).await.map_err(|_| Ending::Stopped)
    }

    /// A source says that it works, and what it cannot see (nothing: an empty list).
    ///
    /// # Errors
    /// [`Ending::Stopped`] if the loop is gone.
    pub async fn up(&self, source: Source, degraded: Vec<String>) -> Result<(), Ending> {
        self.metrics.source_up.with_label_values(&[source.as_str()]).set(1);
        self.tell(Fact::Source { source, state: SourceState::Up { degraded } }).await
    }

    async fn not_up(&self, source: Source, state: SourceState) -> Result<(), Ending> {
        self.metrics.source_up.with_label_values(&[source.as_str()]).set(0);
        self.tell(Fact::Source { source, state }).await
    }
}

/// Starts all sources. They end when the loop's receiver is dropped; join them then.
#[must_use]
pub fn start(context: &Context) -> JoinSet<()> {
    let mut sources = JoinSet::new();
    let log = kmsg::Cursor::default();
    sources.spawn(supervise(context.clone(), Source::KernelLog, move |context| kmsg::run(context, log.clone())));
    sources.spawn(supervise(context.clone(), Source::Mounts, mounts::run));
    sources.spawn(supervise(context.clone(), Source::Ebpf, ebpf::run));
    sources
}

/// Runs a source again and again, and tells how it is.
async fn supervise<F, R>(context: Context, source: Source, run: F)
where
    F: Fn(Context) -> R,
    R: Future<Output = Run>,
{
    let mut wait = FIRST_WAIT;
    let mut absent_because = None;
    loop {
        let running = run(context.clone());
        tokio::pin!(running);
        let ending = match time::timeout(PROVED, &mut running).await {
            Ok(Err(ending)) => ending,
            Err(_) => {
                wait = FIRST_WAIT;
                let Err(ending) = running.await;
                ending
            }
        };
        let (state, pause) = match ending {
            Ending::Stopped => return,
            Ending::Broken(why) => {
                log::warn!("source {} broke, next start in about {} s: {why}", source.as_str(), wait.as_secs());
                absent_because = None;
                let pause = wait;
                wait = (wait * 2).min(LONGEST_WAIT);
                (SourceState::Down { why }, pause)
            }
            Ending::Absent(why) => {
                if absent_because.replace(why.clone()).as_ref() != Some(&why) {
                    log::warn!("source {} is absent: {why}", source.as_str());
                }
                (SourceState::Absent { why }, ABSENT_WAIT)
            }
        };
        if context.not_up(source, state).await.is_err() {
            return;
        }
        // The order does not matter: either the wait is over or nobody waits for us any more.
        tokio::select! {
            () = time::sleep(jitter::around(pause)) => {}
            () = context.out.closed() => return,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::config::HostSettings;

    /// A context on this machine, and where its observations come out.
    pub(crate) fn context() -> (Context, mpsc::Receiver<Observation>) {
        context_of(Host::new(&HostSettings::default()), Settings::default())
    }

    pub(crate) fn context_of(host: Host, settings: Settings) -> (Context, mpsc::Receiver<Observation>) {
        let (out, observations) = mpsc::channel(64);
        let metrics = Metrics::new().unwrap();
        (Context { host: Arc::new(host), clock: Clock, metrics, settings: Arc::new(settings), out }, observations)
    }

    /// The next state of the source, which must come in this span of (paused) time and not before.
    async fn next(out: &mut mpsc::Receiver<Observation>, earliest: f64, latest: f64) -> SourceState {
        let earliest = Duration::from_secs_f64(earliest);
        if !earliest.is_zero() {
            assert!(time::timeout(earliest, out.recv()).await.is_err(), "before {earliest:?}");
        }
        let latest = Duration::from_secs_f64(latest).saturating_sub(earliest);
        let observation = time::timeout(latest, out.recv()).await.expect("in time").expect("the source still runs");
        let Fact::Source { source: Source::Mounts, state } = observation.fact else { panic!("unexpected {observation:?}") };
        state
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_breaks_is_started_again_ever_more_slowly() {
        let (context, mut out) = context();
        let task = tokio::spawn(supervise(context, Source::Mounts, |_| async { Err(Ending::broken("reading", "no")) }));
        next(&mut out, 0.0, 0.1).await;
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let state = next(&mut out, expected * 0.74, expected * 1.26).await;
            assert_eq!(state, SourceState::Down { why: "reading: no".into() });
        }
        drop(out);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_worked_for_a_while_is_soon_back() {
        let (context, mut out) = context();
        let runs = AtomicU32::new(0);
        let task = tokio::spawn(supervise(context, Source::Mounts, move |_| {
            let works = runs.fetch_add(1, Ordering::Relaxed) == 6;
            async move {
                if works {
                    time::sleep(PROVED * 2).await;
                }
                Err(Ending::Broken("no".into()))
            }
        }));
        for _ in 0..6 {
            next(&mut out, 0.0, 91.0).await;
        }
        next(&mut out, 120.0, 120.0 + 91.0).await;
        next(&mut out, 0.74, 1.26).await;
        drop(out);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_source_says_why_and_is_tried_again_slowly() {
        let (context, mut out) = context();
        let gauge = context.metrics.source_up.with_label_values(&["mounts"]);
        gauge.set(1);
        let task = tokio::spawn(supervise(context, Source::Mounts, |_| async { Err(Ending::Absent("no such thing".into())) }));
        for earliest in [0.0, 224.0] {
            assert_eq!(next(&mut out, earliest, 376.0).await, SourceState::Absent { why: "no such thing".into() });
        }
        assert_eq!(gauge.get(), 0);
        drop(out);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn sources_end_with_the_loop() {
        let (context, out) = context();
        let sources = start(&context);
        drop((context, out));
        time::timeout(Duration::from_secs(10), sources.join_all()).await.expect("all ended");
    }
}
