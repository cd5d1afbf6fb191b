//! The kernel log: every record of this boot, in order, and how many the kernel dropped before they could be read.

mod reader;

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_core::{
    BootTime, Fact, Observation, Signal, Source, Subject,
    log::{LogRecord, Recognised, recognise},
};
use rustix::fs::OFlags;
use tokio::{io::Interest, task};

pub use self::reader::{Counts, Found, RecordReader, Stop};
use super::{Context, Ending, Run};
use crate::syscall::Watched;

/// Records read at one go before others get their turn on the runtime's one thread: about a millisecond.
const BATCH: usize = 512;

/// What a person can use of a line; the kernel's own limit is about 1,000 bytes.
const LONGEST_DETAIL: usize = 512;

/// The number of the next record that has not been handed over: a source that is started again goes on there.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor(Arc<AtomicU64>);

/// Reads the log for ever.
pub(super) async fn run(context: Context, cursor: Cursor) -> Run {
    let settings = &context.settings.kernel_log;
    let file = open(&context, &settings.device)?;
    let cannot_wait = |e: io::Error| Ending::broken("cannot wait for records", e);
    // An overrun is announced as an error with priority, not as something to read.
    let interest = Interest::READABLE | Interest::PRIORITY | Interest::ERROR;
    let watched = file.try_clone().and_then(|file| Watched::new(file.into(), interest)).map_err(cannot_wait)?;
    let mut reader = RecordReader::new(file, settings.accept_userspace);
    let first = cursor.0.load(Ordering::Relaxed);
    let mut found = Vec::new();
    let mut caught_up = false;
    context.up(Source::KernelLog, degraded(&context)).await?;
    loop {
        let stop = reader.read_batch(BATCH, &mut found).map_err(|e| Ending::broken(settings.device.display(), e))?;
        count(&context, reader.take_counts());
        for found in found.drain(..) {
            hand_over(&context, found, first).await?;
        }
        cursor.0.fetch_max(reader.next_sequence(), Ordering::Relaxed);
        match stop {
            Stop::Limit => task::yield_now().await,
            Stop::Empty => {
                if !caught_up {
                    context.tell(Fact::CaughtUp(Source::KernelLog)).await?;
                    caught_up = true;
                }
                // The order does not matter: either there is something to read or nobody to read for.
                tokio::select! {
                    ready = watched.ready() => ready.map_err(cannot_wait)?.clear_ready(),
                    () = context.out.closed() => return Err(Ending::Stopped),
                }
            }
            Stop::End => return Err(Ending::Broken(format!("{} has ended", settings.device.display()))),
        }
    }
}

/// Opens the device as we see it, or else as the host does: a container that is not privileged has none of its own.
fn open(context: &Context, device: &Path) -> Result<File, Ending> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let open = |path: &Path| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let opened = open(device).or_else(|e| if e.kind() == io::ErrorKind::NotFound { open(&context.host.path(device)) } else { Err(e) });
    opened.map_err(|e| {
        let hint = if e.kind() == io::ErrorKind::NotFound {
            "there is no such device here: the host's /dev is needed"
        } else {
            "reading it needs CAP_SYSLOG (or kernel.dmesg_restrict=0) and, in a container, leave for device c 1:11"
        };
        Ending::Absent(format!("{}: {e}; {hint}", device.display()))
    })
}

fn degraded(context: &Context) -> Vec<String> {
    let accepted = context.settings.kernel_log.accept_userspace.then_some(USERSPACE_ACCEPTED);
    accepted.into_iter().chain(context.host.is_nested().then_some(NESTED)).map(String::from).collect()
}

const USERSPACE_ACCEPTED: &str = "what processes write to the kernel log is taken for the kernel's word (kernelLog.acceptUserspace)";
const NESTED: &str = "this is a PID namespace of its own (no hostPID): tasks that the kernel names cannot be looked up";

fn count(context: &Context, counts: Counts) {
    let label = [Source::KernelLog.as_str()];
    context.metrics.records_read.with_label_values(&label).inc_by(counts.read);
    context.metrics.records_lost.with_label_values(&label).inc_by(counts.lost);
    context.metrics.records_malformed.with_label_values(&label).inc_by(counts.malformed);
}

async fn hand_over(context: &Context, found: Found, first: u64) -> Result<(), Ending> {
    match found {
        Found::BeginsAt(sequence) if first == 0 => {
            // Context, not a loss: it was gone before anybody could have read it.
            log::info!("the kernel log begins with record {sequence}: what was before is overwritten");
            Ok(())
        }
        // Started again: what was overwritten meanwhile is lost.
        Found::BeginsAt(sequence) if sequence > first => lost(context, sequence - first, "while the log was not being read").await,
        Found::BeginsAt(_) => Ok(()),
        Found::Lost(count) => lost(context, count, "the kernel overwrote them before they could be read").await,
        Found::Line(line) if line.sequence < first => Ok(()),
        Found::Line(line) => {
            let fact = match line.recognised {
                Recognised::OomContext(oom) => Fact::OomContext(oom),
                Recognised::Fault { detection, mut subject } => {
                    if let Subject::Device(device) = &mut subject {
                        context.host.complete(device);
                    }
                    let (source, sequence) = (Source::KernelLog, Some(line.sequence));
                    Fact::Signal(Signal { detection, subject, detail: line.detail, source, sequence })
                }
            };
            context.send(Observation { at: when(context, line.stamp_us), fact }).await
        }
    }
}

async fn lost(context: &Context, count: u64, why: &str) -> Result<(), Ending> {
    log::warn!("{count} records of the kernel log are lost: {why}");
    context.tell(Fact::Lost { source: Source::KernelLog, count }).await
}

/// Stamps are of the scheduler's clock, which stands still in suspend. How much of the suspended time lies before an old record cannot be
/// told; no record is from the future.
fn when(context: &Context, stamp_us: u64) -> BootTime {
    let stamp = BootTime::after_boot(Duration::from_micros(stamp_us)) + context.clock.suspended();
    stamp.min(context.clock.now())
}

/// A recognised record of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub recognised: Recognised,
    /// Its number.
    pub sequence: u64,
    /// Microseconds since boot without suspended time.
    pub stamp_us: u64,
    /// Its text, fit to be shown: one line, at most 512 bytes.
    pub detail: String,
}

impl Line {
    /// The record's meaning, if it is the kernel's word (or anybody's, if so configured) and means something.
    fn of(record: &LogRecord<'_>, accept_userspace: bool) -> Option<Self> {
        if record.facility != 0 && !accept_userspace {
            return None;
        }
        let recognised = recognise(&record.text)?;
        Some(Self { recognised, sequence: record.sequence, stamp_us: record.stamp_us, detail: detail(&record.text) })
    }
}

/// Log text fit to be shown: one line of at most 512 bytes, without control characters.
#[must_use]
pub fn detail(text: &[u8]) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(text).trim_end().chars() {
        if shown.len() + c.len_utf8() > LONGEST_DETAIL {
            break;
        }
        shown.push(if c.is_control() { ' ' } else { c });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{KernelLogSettings, Settings},
        host::tests::FakeHost,
        source::tests::context_of,
    };

    fn log_at(device: &Path) -> Settings {
        Settings { kernel_log: KernelLogSettings { device: device.into(), accept_userspace: false }, ..Settings::default() }
    }

    #[tokio::test]
    async fn a_log_that_is_not_there_is_absent_and_says_what_is_needed() {
        let (context, _out) = context_of(FakeHost::new().host(), log_at(Path::new("/nowhere/kmsg")));
        let Err(Ending::Absent(why)) = run(context, Cursor::default()).await else { panic!("not absent") };
        assert!(why.contains("/nowhere/kmsg") && why.contains("the host's /dev is needed"), "{why}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_device_breaks_with_its_reason() {
        let fake = FakeHost::new().with("dev/kmsg", "6,1,1,-;text\n");
        let (context, _out) = context_of(fake.host(), log_at(&fake.0.path().join("dev/kmsg")));
        let Err(Ending::Broken(why)) = run(context, Cursor::default()).await else { panic!("not broken") };
        assert!(why.starts_with("cannot wait for records"), "{why}");
    }

    #[test]
    fn a_detail_is_one_short_line() {
        assert_eq!(detail(b"a\tb\nc\xff \n"), "a b c\u{fffd}");
        assert_eq!(detail("ä".repeat(400).as_bytes()).len(), 512);
    }

    async fn facts(found: Vec<Found>, first: u64) -> Vec<Fact> {
        let fake = FakeHost::new().with("sys/class/block/sdb1/dev", "8:17");
        let (context, mut out) = context_of(fake.host(), Settings::default());
        for found in found {
            hand_over(&context, found, first).await.unwrap();
        }
        drop(context);
        let mut facts = Vec::new();
        while let Some(observation) = out.recv().await {
            facts.push(observation.fact);
        }
        facts
    }

    fn shutdown(sequence: u64) -> Found {
        let text = format!("6,{sequence},1000,-;EXT4-fs (sdb1): shut down requested (2)\n");
        Found::Line(Line::of(&LogRecord::parse(text.as_bytes()).unwrap(), false).unwrap())
    }

    #[tokio::test]
    async fn a_device_of_the_log_gets_its_number() {
        let [Fact::Signal(signal)] = &facts(vec![shutdown(7)], 0).await[..] else { panic!("no signal") };
        let Subject::Device(device) = &signal.subject else { panic!("{signal:?}") };
        assert_eq!(device.number, Some(agent_core::DeviceNumber { major: 8, minor: 17 }));
        assert_eq!((signal.sequence, signal.detail.as_str()), (Some(7), "EXT4-fs (sdb1): shut down requested (2)"));
    }

    #[tokio::test]
    async fn a_beginning_that_was_overwritten_before_the_agent_started_is_no_loss() {
        assert_eq!(facts(vec![Found::BeginsAt(4812)], 0).await, []);
    }

    #[tokio::test]
    async fn a_source_that_is_started_again_repeats_nothing_and_counts_what_it_missed() {
        assert_eq!(facts(vec![Found::BeginsAt(3), shutdown(8), shutdown(9)], 10).await, []);
        assert_eq!(facts(vec![Found::BeginsAt(15)], 10).await, [Fact::Lost { source: Source::KernelLog, count: 5 }]);
    }

    #[test]
    fn no_record_is_from_the_future() {
        let (context, _out) = context_of(FakeHost::new().host(), Settings::default());
        assert!(when(&context, u64::MAX) <= context.clock.now());
        assert_eq!(when(&context, 5_000_000), BootTime::after_boot(Duration::from_secs(5)) + context.clock.suspended());
    }
}
