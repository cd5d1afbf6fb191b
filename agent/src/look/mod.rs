//! Looks: confirmations of the present state. Each runs on a thread of its own, because any of them may hang for as long as what it looks
//! at; not to come back in time is an answer too.

mod apart;
mod filesystem;
mod task;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use agent_core::{
    BootTime, Fact, Look, Observation,
    observation::{FilesystemLook, Probe, TaskLook, TaskSeen},
};
pub(crate) use apart::Apart;
use futures_util::FutureExt as _;
use rustix::io::Errno;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time,
};

use crate::{host::Host, source::Context};

/// Looks that may run at once and have not missed their deadline. The others wait for their turn.
const AT_ONCE: usize = 16;

/// Looks that may hang beyond their deadline before they count against [`AT_ONCE`] again: with that the bound of our threads.
const HANGING: usize = 64;

/// How long what may take.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// A write probe without an answer for so long is `Blocked`.
    filesystem: Duration,
    /// `/proc` answers in microseconds, or the task's own locks are in the way.
    task: Duration,
    /// A look that waits for its turn for so long says that it cannot be made.
    turn: Duration,
}

const PATIENCE: Patience = Patience { filesystem: Duration::from_secs(5), task: Duration::from_secs(2), turn: Duration::from_secs(30) };

/// Threads for those parts of a look that can hang, and that it can do without.
const ASIDE: usize = 8;

/// Requests on their way to us. We take them at once, so this is for bursts within one turn of the loop.
const REQUESTS: usize = 256;

/// Starts the task that makes looks. It ends when the sender is dropped; what hangs then is left behind.
#[must_use]
pub fn start(context: &Context) -> (mpsc::Sender<Look>, JoinHandle<()>) {
    let (requests, inbox) = mpsc::channel(REQUESTS);
    let aside = Apart::new("aside", ASIDE);
    let perform = move |context: &Context, look: &Look| perform(&context.host, &aside, look);
    (requests, tokio::spawn(serve(context.clone(), inbox, Arc::new(perform), PATIENCE)))
}

/// How a look is made, on the thread that may hang.
type Perform = dyn Fn(&Context, &Look) -> Outcome + Send + Sync;

/// What a look found.
#[derive(Clone, Debug)]
enum Outcome {
    Filesystem(Probe),
    Task(TaskSeen),
}

fn perform(host: &Host, aside: &Apart, look: &Look) -> Outcome {
    match look {
        Look::Filesystem { mount_point, mount_id } => Outcome::Filesystem(filesystem::probe(host, mount_point, *mount_id)),
        Look::Task { pid } => Outcome::Task(task::look(host, aside, *pid)),
    }
}

/// The places that looks take up.
#[derive(Clone, Debug)]
struct Places {
    running: Arc<Semaphore>,
    hanging: Arc<Semaphore>,
}

/// Never waits for the loop: that may be waiting for us.
async fn serve(context: Context, mut inbox: mpsc::Receiver<Look>, perform: Arc<Perform>, patience: Patience) {
    let places = Places { running: Arc::new(Semaphore::new(AT_ONCE)), hanging: Arc::new(Semaphore::new(HANGING)) };
    let mut going: HashMap<Look, Arc<Notify>> = HashMap::new();
    let mut looks = JoinSet::new();
    let begin = |look: Look, again: Arc<Notify>| {
        One { context: context.clone(), look, again, places: places.clone(), perform: Arc::clone(&perform), patience }.make()
    };
    loop {
        // The order does not matter: an ended look and a new request are independent.
        tokio::select! {
            request = inbox.recv() => match request.map(|look| going.entry(look)) {
                None => return,
                Some(Entry::Occupied(already)) => already.get().notify_one(),
                Some(Entry::Vacant(free)) => {
                    looks.spawn(begin(free.key().clone(), Arc::clone(free.insert(Arc::default()))));
                }
            },
            Some(Ok(ended)) = looks.join_next() => match going.entry(ended) {
                // Asked for after the last answer had gone out, before we knew of it: that answer may be of the time before.
                Entry::Occupied(one) if one.get().notified().now_or_never().is_some() => {
                    looks.spawn(begin(one.key().clone(), Arc::clone(one.get())));
                }
                Entry::Occupied(one) => drop(one.remove()),
                Entry::Vacant(_) => {}
            },
        }
    }
}

/// One look, from the request to its last answer.
struct One {
    context: Context,
    look: Look,
    /// Somebody asked for it again while it is being made.
    again: Arc<Notify>,
    places: Places,
    perform: Arc<Perform>,
    patience: Patience,
}

impl One {
    async fn make(self) -> Look {
        let turn = time::timeout(self.patience.turn, Arc::clone(&self.places.running).acquire_owned()).await;
        match turn.ok().and_then(Result::ok) {
            Some(place) => self.run(place).await,
            None => self.answer(self.impossible("too many looks hang already"), Duration::ZERO).await,
        }
        self.look
    }

    async fn run(&self, place: OwnedSemaphorePermit) {
        let started = self.context.clock.now();
        let (done, mut outcome) = oneshot::channel();
        let (context, look, perform) = (self.context.clone(), self.look.clone(), Arc::clone(&self.perform));
        if let Err(e) = apart::spawn("look", move || drop(done.send(perform(&context, &look)))) {
            self.answer(self.impossible(&format!("cannot start a thread: {e}")), Duration::ZERO).await;
            return;
        }
        // While it is late it takes a place among the hanging ones, if there is one left.
        let mut place = Some(place);
        let mut late = false;
        let deadline = time::sleep(self.deadline());
        tokio::pin!(deadline);
        loop {
            // An answer goes before everything that says that there is none.
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    let outcome = outcome.unwrap_or_else(|_| self.impossible("it ended without an answer"));
                    self.finish(outcome, self.since(started)).await;
                    return;
                }
                () = &mut deadline, if !late => {
                    late = true;
                    if let Ok(hanging) = Arc::clone(&self.places.hanging).try_acquire_owned() {
                        place = Some(hanging);
                    }
                    self.late(self.since(started)).await;
                }
                () = self.again.notified() => if late {
                    self.late(self.since(started)).await;
                },
            }
            // Keeps the place until here.
            let _ = &place;
        }
    }

    fn deadline(&self) -> Duration {
        match self.look {
            Look::Filesystem { .. } => self.patience.filesystem,
            Look::Task { .. } => self.patience.task,
        }
    }

    async fn finish(&self, outcome: Outcome, took: Duration) {
        let metrics = &self.context.metrics;
        let kind = match &outcome {
            Outcome::Filesystem(_) => "filesystem",
            Outcome::Task(_) => "task",
        };
        metrics.look_seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
        if let Look::Filesystem { mount_point, .. } = &self.look {
            // A mount point that answers needs no row; there is none, which is no error, unless it was late before.
            let _ = metrics.filesystem_stalled.remove_label_values(&[mount_point]);
        }
        self.answer(outcome, took).await;
    }

    async fn late(&self, took: Duration) {
        let outcome = match &self.look {
            Look::Filesystem { mount_point, .. } => {
                self.context.metrics.filesystem_stalled.with_label_values(&[mount_point]).set(1);
                Outcome::Filesystem(Probe::Blocked)
            }
            Look::Task { .. } => Outcome::Task(TaskSeen::Unreadable("/proc did not answer in time".into())),
        };
        self.answer(outcome, took).await;
    }

    /// If nobody takes the answer, the loop is gone, and nobody misses it.
    async fn answer(&self, outcome: Outcome, took: Duration) {
        let fact = match (&self.look, outcome) {
            (Look::Filesystem { mount_point, mount_id }, Outcome::Filesystem(outcome)) => {
                Fact::Filesystem(FilesystemLook { mount_point: mount_point.clone(), mount_id: *mount_id, outcome, took })
            }
            (Look::Task { pid }, Outcome::Task(seen)) => Fact::Task(TaskLook { pid: *pid, seen }),
            (Look::Filesystem { .. }, Outcome::Task(_)) | (Look::Task { .. }, Outcome::Filesystem(_)) => return,
        };
        let _ = self.context.send(Observation { at: self.context.clock.now(), fact }).await;
    }

    fn impossible(&self, why: &str) -> Outcome {
        log::warn!("cannot look: {why}");
        match self.look {
            Look::Filesystem { .. } => Outcome::Filesystem(Probe::Failed(Errno::AGAIN.raw_os_error())),
            Look::Task { .. } => Outcome::Task(TaskSeen::Unreadable(why.into())),
        }
    }

    fn since(&self, started: BootTime) -> Duration {
        self.context.clock.now().since(started)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as threads;

    use super::*;
    use crate::{config::Settings, host::tests::FakeHost, source::tests::context_of};

    /// Looks whose answers the test gives, one a message; they hang until then.
    struct Scripted {
        requests: mpsc::Sender<Look>,
        out: mpsc::Receiver<Observation>,
        begun: mpsc::UnboundedReceiver<Look>,
        answers: threads::SyncSender<Probe>,
        context: Context,
    }

    impl Scripted {
        fn new() -> Self {
            let (context, out) = context_of(FakeHost::new().host(), Settings::default());
            let (requests, inbox) = mpsc::channel(1000);
            #[expect(clippy::disallowed_methods, reason = "a test tells how many threads there are by it")]
            let (begin, begun) = mpsc::unbounded_channel();
            let (answers, given) = threads::sync_channel(1000);
            let given = std::sync::Mutex::new(given);
            let perform = move |_: &Context, look: &Look| {
                let _ = begin.send(look.clone());
                Outcome::Filesystem(given.lock().unwrap().recv().unwrap_or(Probe::Gone))
            };
            let (deadline, turn) = (Duration::from_millis(50), Duration::from_secs(2));
            let patience = Patience { filesystem: deadline, task: deadline, turn };
            tokio::spawn(serve(context.clone(), inbox, Arc::new(perform), patience));
            Self { requests, out, begun, answers, context }
        }

        async fn ask(&self, number: u64) {
            self.requests.send(filesystem(number)).await.unwrap();
        }

        async fn begun(&mut self) -> Look {
            time::timeout(Duration::from_secs(30), self.begun.recv()).await.expect("begun in time").unwrap()
        }

        async fn outcome(&mut self) -> Probe {
            let observation = time::timeout(Duration::from_secs(30), self.out.recv()).await.expect("answered in time").unwrap();
            let Fact::Filesystem(look) = observation.fact else { panic!("{observation:?}") };
            look.outcome
        }

        fn stalled(&self) -> i64 {
            self.context.metrics.filesystem_stalled.with_label_values(&["/mnt/1"]).get()
        }
    }

    fn filesystem(number: u64) -> Look {
        Look::Filesystem { mount_point: format!("/mnt/{number}"), mount_id: number }
    }

    #[tokio::test]
    async fn a_look_that_hangs_says_so_at_its_deadline_and_again_when_it_ends() {
        let mut looks = Scripted::new();
        looks.ask(1).await;
        assert_eq!(looks.outcome().await, Probe::Blocked);
        assert_eq!(looks.stalled(), 1);
        looks.answers.send(Probe::Writable).unwrap();
        assert_eq!(looks.outcome().await, Probe::Writable);
        assert_eq!(looks.stalled(), 0);
    }

    #[tokio::test]
    async fn whoever_asks_again_as_soon_as_there_is_an_answer_gets_another() {
        let mut looks = Scripted::new();
        // On a task of its own it is often quicker than whoever strikes the look off the books.
        let asking = tokio::spawn(async move {
            for _ in 0..200 {
                looks.answers.send(Probe::Writable).unwrap();
                looks.ask(1).await;
                assert_eq!(looks.outcome().await, Probe::Writable);
            }
        });
        asking.await.unwrap();
    }

    #[tokio::test]
    async fn one_object_has_one_look_however_often_it_is_asked_for() {
        let mut looks = Scripted::new();
        looks.ask(1).await;
        looks.begun().await;
        assert_eq!(looks.outcome().await, Probe::Blocked);
        looks.ask(1).await;
        assert_eq!(looks.outcome().await, Probe::Blocked);
        assert!(looks.begun.try_recv().is_err());
        looks.answers.send(Probe::Writable).unwrap();
        assert_eq!(looks.outcome().await, Probe::Writable);
        // Now it is free again.
        looks.ask(1).await;
        looks.begun().await;
    }

    #[tokio::test]
    async fn what_hangs_holds_up_nothing_else_until_too_much_does() {
        let mut looks = Scripted::new();
        let most = (AT_ONCE + HANGING) as u64;
        for number in 0..most + 10 {
            looks.ask(number).await;
        }
        let mut blocked = 0;
        let mut failed = 0;
        while blocked + failed < most + 10 {
            match looks.outcome().await {
                Probe::Blocked => blocked += 1,
                Probe::Failed(11) => failed += 1,
                other @ (Probe::Writable | Probe::Refused(_) | Probe::Gone | Probe::Failed(_)) => panic!("{other:?}"),
            }
        }
        assert_eq!((blocked, failed), (most, 10));
        let mut threads = 0;
        while looks.begun.try_recv().is_ok() {
            threads += 1;
        }
        assert_eq!(threads, most);
    }

    #[tokio::test]
    async fn a_real_look_comes_back_as_a_fact() {
        let (context, mut out) = crate::source::tests::context();
        let (requests, task) = start(&context);
        requests.send(Look::Task { pid: 2 }).await.unwrap();
        let observation = time::timeout(Duration::from_secs(10), out.recv()).await.unwrap().unwrap();
        let Fact::Task(TaskLook { pid: 2, seen: TaskSeen::There(_) }) = observation.fact else { panic!("{observation:?}") };
        drop(requests);
        task.await.unwrap();
    }
}
