//! Reads log records from a descriptor that keeps their boundaries: `/dev/kmsg`, or a packet socket in benchmarks. Nearly every record
//! means nothing to us, and costs one `read` and a glance.

use std::{io, os::fd::AsFd};

use agent_core::log::{LogRecord, could_matter};
use rustix::io::Errno;

use super::Line;

/// The longest record of any kernel that we know (`CONSOLE_EXT_LOG_MAX`; 2,048 since 6.3). A shorter buffer would lose long records.
const LONGEST_RECORD: usize = 8192;

/// What reading brought to light.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record that means something.
    Line(Line),
    /// So many records were overwritten between the last one read and the next.
    Lost(u64),
    /// The first record there is has this number, not 0.
    BeginsAt(u64),
}

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// As many records were read as were asked for.
    Limit,
    /// There is none at the moment.
    Empty,
    /// The other end was closed: `/dev/kmsg` has none.
    End,
}

/// What was read since the last time somebody asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records.
    pub read: u64,
    /// Records that the kernel overwrote before they were read.
    pub lost: u64,
    /// Reads that gave no record of the right shape.
    pub malformed: u64,
}

/// Reads records, and counts by their numbers those that it did not get.
#[derive(Debug)]
pub struct RecordReader<F> {
    fd: F,
    buffer: Vec<u8>,
    next: Option<u64>,
    accept_userspace: bool,
    counts: Counts,
}

impl<F: AsFd> RecordReader<F> {
    /// Reads from a descriptor opened with `O_NONBLOCK`. Records of facilities other than the kernel's mean nothing, unless accepted.
    #[must_use]
    pub fn new(fd: F, accept_userspace: bool) -> Self {
        Self { fd, buffer: vec![0; LONGEST_RECORD], next: None, accept_userspace, counts: Counts::default() }
    }

    /// Reads at most `limit` records and adds what they brought to light to `found`, in order.
    ///
    /// # Errors
    /// Those of `read`, other than the ones that are the log's way to say something.
    pub fn read_batch(&mut self, limit: usize, found: &mut Vec<Found>) -> io::Result<Stop> {
        for _ in 0..limit {
            match rustix::io::read(&self.fd, &mut self.buffer[..]) {
                Ok(0) => return Ok(Stop::End),
                Ok(length) => self.take_in(length, found),
                Err(Errno::AGAIN) => return Ok(Stop::Empty),
                // PIPE: records were overwritten; the next read gives the oldest that is left, whose number tells how many. INVAL: the
                // buffer was too small, and the record is gone (kernel/printk/printk.c devkmsg_read): its number will be missing.
                Err(Errno::PIPE | Errno::INTR | Errno::INVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Stop::Limit)
    }

    /// Number of the record that should come next; 0 before the first.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next.unwrap_or(0)
    }

    /// What was read since this was called last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn take_in(&mut self, length: usize, found: &mut Vec<Found>) {
        let record = self.buffer.get(..length).unwrap_or_default();
        self.counts.read += 1;
        let Some(sequence) = LogRecord::sequence_of(record) else {
            self.counts.malformed += 1;
            return;
        };
        match self.next {
            None if sequence > 0 => found.push(Found::BeginsAt(sequence)),
            Some(next) if sequence > next => {
                self.counts.lost += sequence - next;
                found.push(Found::Lost(sequence - next));
            }
            None | Some(_) => {}
        }
        self.next = Some(sequence.saturating_add(1));
        if !could_matter(record) {
            return;
        }
        match LogRecord::parse(record) {
            Ok(record) => found.extend(Line::of(&record, self.accept_userspace).map(Found::Line)),
            Err(_) => self.counts.malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use agent_core::{Detection, log::Recognised};
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    struct Log {
        writer: OwnedFd,
        reader: RecordReader<OwnedFd>,
    }

    impl Log {
        fn new(accept_userspace: bool) -> Self {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (writer, reader) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            Self { writer, reader: RecordReader::new(reader, accept_userspace) }
        }

        fn write(&self, record: &[u8]) {
            send(&self.writer, record, SendFlags::empty()).unwrap();
        }

        fn numbered(&self, sequences: impl IntoIterator<Item = u64>) {
            sequences.into_iter().for_each(|n| self.write(format!("6,{n},1,-;text\n").as_bytes()));
        }

        fn read(&mut self) -> Vec<Found> {
            let mut found = Vec::new();
            assert_eq!(self.reader.read_batch(1000, &mut found).unwrap(), Stop::Empty);
            found
        }
    }

    #[test]
    fn what_is_missing_is_counted_by_number() {
        let mut log = Log::new(false);
        log.numbered([0, 1, 2, 7, 8, 10]);
        assert_eq!(log.read(), [Found::Lost(4), Found::Lost(1)]);
        assert_eq!(log.reader.take_counts(), Counts { read: 6, lost: 5, malformed: 0 });
        log.numbered([12]);
        assert_eq!(log.read(), [Found::Lost(1)]);
        assert_eq!(log.reader.take_counts(), Counts { read: 1, lost: 1, malformed: 0 });
        assert_eq!(log.reader.next_sequence(), 13);
    }

    #[test]
    fn a_log_that_does_not_begin_at_its_beginning_says_so() {
        let mut log = Log::new(false);
        log.numbered([500, 501]);
        assert_eq!(log.read(), [Found::BeginsAt(500)]);
        assert_eq!(log.reader.take_counts().lost, 0);
    }

    const HUNG: &str = "INFO: task dd:7 blocked for more than 120 seconds.\n \"x\n SUBSYSTEM=none\n";

    fn detections(found: &[Found]) -> Vec<Detection> {
        let detection = |found: &Found| match found {
            Found::Line(Line { recognised: Recognised::Fault { detection, .. }, .. }) => Some(*detection),
            Found::Line(_) | Found::Lost(_) | Found::BeginsAt(_) => None,
        };
        found.iter().filter_map(detection).collect()
    }

    #[test]
    fn only_the_kernels_own_word_counts_unless_configured() {
        for (accept_userspace, expected) in [(false, vec![Detection::HungTask]), (true, vec![Detection::HungTask; 3])] {
            let mut log = Log::new(accept_userspace);
            for (i, priority) in [3, 11, 30].iter().enumerate() {
                log.write(format!("{priority},{i},5,-;{HUNG}").as_bytes());
            }
            assert_eq!(detections(&log.read()), expected);
        }
    }

    #[test]
    fn a_limit_ends_a_batch_and_nothing_is_skipped() {
        let mut log = Log::new(false);
        log.numbered(0..5);
        let mut found = Vec::new();
        assert_eq!(log.reader.read_batch(3, &mut found).unwrap(), Stop::Limit);
        assert_eq!(log.reader.next_sequence(), 3);
        assert_eq!(log.read(), []);
        assert_eq!(log.reader.take_counts(), Counts { read: 5, lost: 0, malformed: 0 });
    }

    #[test]
    fn what_is_no_record_is_counted_and_reading_goes_on() {
        let mut log = Log::new(false);
        log.write(b"nonsense");
        log.write(format!("3,0,5,-;{HUNG}").as_bytes());
        assert_eq!(detections(&log.read()), [Detection::HungTask]);
        assert_eq!(log.reader.take_counts(), Counts { read: 2, lost: 0, malformed: 1 });
    }

    #[test]
    fn a_closed_end_is_the_end() {
        let Log { writer, mut reader } = Log::new(false);
        drop(writer);
        assert_eq!(reader.read_batch(1, &mut Vec::new()).unwrap(), Stop::End);
    }

    proptest! {
        #[test]
        fn every_number_is_either_read_or_counted_as_lost(steps in prop::collection::vec(1..1000u64, 1..50)) {
            let mut log = Log::new(false);
            let numbers: Vec<u64> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
            log.numbered(numbers.iter().copied());
            log.read();
            let counts = log.reader.take_counts();
            prop_assert_eq!(counts.read + counts.lost, numbers[numbers.len() - 1] - numbers[0] + 1);
        }

        #[test]
        fn any_bytes_are_read_without_harm(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..100), 1..20)) {
            let mut log = Log::new(true);
            records.iter().for_each(|record| log.write(record));
            log.read();
            prop_assert_eq!(log.reader.take_counts().read, records.len() as u64);
        }
    }
}
