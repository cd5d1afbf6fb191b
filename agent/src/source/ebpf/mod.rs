//! The eBPF ring: faults at the moment when the kernel notices them, also where its log is silent.

mod format;
mod load;
mod program;
mod record;
mod tracefs;

use std::{os::fd::AsFd as _, time::Duration};

use agent_core::{Fact, Source, Subject};
use tokio::{io::Interest, time};

use self::{
    load::{Counters, Loaded},
    program::PROGRAMS,
    record::Decoded,
};
use super::{Context, Ending, Run};
use crate::{jitter, syscall::Watched};

/// How often counters are read, and how often it is tried again what was absent: a module (XFS) may have been loaded, which nothing tells us.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How many records are handed over before other tasks get their turn.
const BATCH: usize = 64;

/// Names of all programs.
pub fn programs() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.name)
}

/// The source.
///
/// # Errors
/// [`Ending::Absent`] if no program can be attached, [`Ending::Broken`] if the ring cannot be waited for.
pub async fn run(context: Context) -> Run {
    let mut loaded = load(&context)?;
    loop {
        let degraded = loaded.absent.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        context.up(Source::Ebpf, degraded).await?;
        listen(&context, &mut loaded).await?;
        // The new programs are attached before the old ones go: what both see is one incident.
        let more = load(&context)?;
        drain(&context, &mut loaded).await?;
        loaded = more;
    }
}

fn load(context: &Context) -> Result<Loaded, Ending> {
    let loaded = Loaded::new(&context.host);
    for name in programs() {
        let is_attached = loaded.as_ref().is_ok_and(|l| !l.absent.contains_key(name));
        context.metrics.program_attached.with_label_values(&[name]).set(i64::from(is_attached));
    }
    loaded.map_err(Ending::Absent)
}

/// Hands records over until there could be more programs.
async fn listen(context: &Context, loaded: &mut Loaded) -> Result<(), Ending> {
    let fd = loaded.records.as_fd().try_clone_to_owned().map_err(|e| Ending::broken("waiting for the ring buffer", e))?;
    let ready = Watched::new(fd, Interest::READABLE).map_err(|e| Ending::broken("waiting for the ring buffer", e))?;
    let mut known = Counters::default();
    loop {
        // Records first: counters can wait.
        tokio::select! {
            biased;
            guard = ready.ready() => {
                let mut guard = guard.map_err(|e| Ending::broken("waiting for the ring buffer", e))?;
                // Cleared before reading: what comes from now on wakes us again.
                guard.clear_ready();
                drain(context, loaded).await?;
                account(context, loaded, &mut known).await?;
            }
            () = time::sleep(jitter::around(LOOK_AGAIN)) => {
                account(context, loaded, &mut known).await?;
                if !loaded.absent.is_empty() && loaded.could_have_more(&context.host) {
                    return Ok(());
                }
            }
            () = context.out.closed() => return Err(Ending::Stopped),
        }
    }
}

/// Hands over what is in the ring.
async fn drain(context: &Context, loaded: &mut Loaded) -> Result<(), Ending> {
    let name = [Source::Ebpf.as_str()];
    let mut read = 0usize;
    loop {
        // The item borrows the ring: it is decoded before anything is awaited.
        let Some(decoded) = loaded.records.next().map(|item| record::decode(&item)) else { return Ok(()) };
        context.metrics.records_read.with_label_values(&name).inc();
        match decoded {
            Decoded::Seen(mut observation) => {
                if let Fact::Signal(signal) = &mut observation.fact
                    && let Subject::Device(device) = &mut signal.subject
                {
                    context.host.complete(device);
                    // Unlike a line of the log, a record does not say this for people.
                    signal.detail = format!("{device}: {}", signal.detail);
                }
                context.send(observation).await?;
            }
            Decoded::Harmless => {}
            Decoded::Malformed => context.metrics.records_malformed.with_label_values(&name).inc(),
        }
        read += 1;
        if read.is_multiple_of(BATCH) {
            tokio::task::yield_now().await;
        }
    }
}

/// Tells what was lost since the last time.
async fn account(context: &Context, loaded: &Loaded, known: &mut Counters) -> Result<(), Ending> {
    let now = loaded.counters();
    let lost = now.lost.saturating_sub(known.lost);
    let held_back = now.held_back.saturating_sub(known.held_back);
    *known = now;
    if held_back > 0 {
        context.metrics.records_held_back.inc_by(held_back);
    }
    if lost > 0 {
        context.metrics.records_lost.with_label_values(&[Source::Ebpf.as_str()]).inc_by(lost);
        context.tell(Fact::Lost { source: Source::Ebpf, count: lost }).await?;
    }
    Ok(())
}
