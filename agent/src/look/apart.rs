//! Work that may hang for ever, on threads of its own: a bounded number, so that what hangs cannot use up the machine.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time,
};

/// Small: these threads run shallow code, and many may hang at once.
const STACK: usize = 256 << 10;

/// Threads for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    name: &'static str,
    free: Arc<Semaphore>,
}

/// Why work apart has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoResult {
    /// Too many threads hang already.
    #[error("too many threads hang already")]
    Full,
    /// It is still running.
    #[error("no answer in time")]
    Late,
    /// It could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl Apart {
    /// At most so many threads at once.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Self { name, free: Arc::new(Semaphore::new(most)) }
    }

    /// Does something apart and waits for it, but not for ever. It runs on all the same, and its thread stays counted until it ends.
    pub(crate) async fn run<T: Send + 'static>(&self, at_most: Duration, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoResult> {
        let (done, result) = oneshot::channel();
        self.start(move || drop(done.send(work())))?;
        time::timeout(at_most, result).await.ok().and_then(Result::ok).ok_or(NoResult::Late)
    }

    /// As [`Apart::run`], for a thread that may wait.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        at_most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let (done, result) = mpsc::sync_channel(1);
        self.start(move || drop(done.send(work())))?;
        result.recv_timeout(at_most).map_err(|_| NoResult::Late)
    }

    fn start(&self, work: impl FnOnce() + Send + 'static) -> Result<(), NoResult> {
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| NoResult::Full)?;
        let counted = move || {
            work();
            drop(permit);
        };
        Ok(spawn(self.name, counted)?)
    }
}

/// Starts a thread of which nobody knows when it ends.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_hangs_is_left_behind_and_counted() {
        let apart = Apart::new("test", 1);
        let (go, wait) = mpsc::sync_channel::<()>(0);
        let hanging = apart.run(Duration::from_millis(10), move || wait.recv().is_ok()).await;
        assert!(matches!(hanging, Err(NoResult::Late)));
        assert!(matches!(apart.run(Duration::from_secs(10), || 1).await, Err(NoResult::Full)));
        drop(go);
        drop(apart.free.acquire().await.unwrap());
        assert_eq!(apart.run(Duration::from_secs(10), || 2).await.unwrap(), 2);
    }

    #[test]
    fn a_thread_may_wait_for_work_apart() {
        let apart = Apart::new("test", 1);
        assert_eq!(apart.run_blocking(Duration::from_secs(10), || 3).unwrap(), 3);
    }
}
