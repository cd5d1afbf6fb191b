//! Saved kernel logs, of whatever tool: read line by line, each line of the shape that it has.

mod line;

use std::{
    io::{self, BufRead, Read as _},
    time::Duration,
};

/// A record of the kernel is at most about 2,000 bytes; as JSON with a number for each byte and all of journald's fields it stays below this.
const LONGEST_LINE: usize = 64 << 10;

/// One record of a saved log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, as far as the log says.
    pub time: Time,
    /// Who wrote it: 0 is the kernel, anything else a process. `None` if the log does not say; `dmesg` shows both alike.
    pub facility: Option<u32>,
    /// The text alone; any bytes.
    pub text: Vec<u8>,
}

/// When a record was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Time {
    /// So long after boot, suspended time left out.
    SinceBoot(Duration),
    /// By the wall clock, as it stands in the log.
    Wall(String),
    /// The log does not say.
    Unknown,
}

/// The shapes of lines that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// `[   12.345678] text` and its variants (`-T`, `-x`, `-r`, `--time-format iso`).
    Dmesg,
    /// `Dec 01 12:00:00 node1 kernel: text` and its variants: `journalctl -k`, and the files of syslog daemons.
    Journal,
    /// One object a line: `journalctl -k -o json`.
    JournalJson,
    /// `6,339,5140900,-;text`: what `/dev/kmsg` gives.
    Kmsg,
}

impl Format {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dmesg => "dmesg",
            Self::Journal => "journalctl -k",
            Self::JournalJson => "journalctl -k -o json",
            Self::Kmsg => "/dev/kmsg",
        }
    }
}

/// What the lines so far were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The shape of the first record.
    pub format: Option<Format>,
    /// Records.
    pub records: u64,
    /// Lines of no known shape. Continuations of the record before, blank lines and journalctl's own remarks are not among them.
    pub unknown: u64,
    /// Lines of more than 64 KiB, which were skipped.
    pub too_long: u64,
}

/// Reads a saved log, holding one line at a time.
#[derive(Debug)]
pub struct SavedLog<R> {
    input: R,
    line: Vec<u8>,
    tally: Tally,
}

impl<R: BufRead> SavedLog<R> {
    /// Reads from here.
    pub fn new(input: R) -> Self {
        Self { input, line: Vec::new(), tally: Tally::default() }
    }

    /// What the lines so far were. A file without a single record is no kernel log.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Reads the next line, without its end; `false` at the end of the input.
    fn read_line(&mut self) -> io::Result<bool> {
        loop {
            self.line.clear();
            let mut limited = self.input.by_ref().take(LONGEST_LINE as u64);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(false);
            }
            if self.line.ends_with(b"\n") || self.line.len() < LONGEST_LINE {
                while let Some(b'\n' | b'\r') = self.line.last() {
                    self.line.pop();
                }
                return Ok(true);
            }
            self.tally.too_long += 1;
            self.skip_line()?;
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffered = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if buffered.is_empty() {
                return Ok(());
            }
            match buffered.iter().position(|b| *b == b'\n') {
                Some(end) => {
                    self.input.consume(end + 1);
                    return Ok(());
                }
                None => {
                    let all = buffered.len();
                    self.input.consume(all);
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for SavedLog<R> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => return Some(Err(e)),
            }
            if line::is_remark(&self.line) {
                continue;
            }
            match line::parse(&self.line) {
                Some((format, entry)) => {
                    self.tally.records += 1;
                    self.tally.format.get_or_insert(format);
                    return Some(Ok(entry));
                }
                None => self.tally.unknown += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> (Vec<Entry>, Tally) {
        let mut log = SavedLog::new(text);
        let entries = log.by_ref().map(Result::unwrap).collect();
        (entries, log.tally())
    }

    #[test]
    fn what_is_no_record_is_counted_and_costs_no_other() {
        let (entries, tally) = read(b"[    1.000000] one\r\nnonsense\n\n   continued\n-- Boot 0a1b --\n\xff\xfe\n[    2.000000] two");
        assert_eq!(entries.iter().map(|e| &e.text[..]).collect::<Vec<_>>(), [&b"one"[..], b"two"]);
        assert_eq!(tally, Tally { format: Some(Format::Dmesg), records: 2, unknown: 2, too_long: 0 });
    }

    #[test]
    fn a_line_without_end_is_skipped_whole() {
        let mut text = b"[    1.000000] ".to_vec();
        text.extend(vec![b'x'; 3 * LONGEST_LINE]);
        text.extend(b"[    2.000000] not a line of its own\n[    3.000000] three\n");
        let (entries, tally) = read(&text);
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].text.as_slice(), tally.too_long), (&b"three"[..], 1));
    }

    #[test]
    fn an_empty_file_has_no_records() {
        assert_eq!(read(b""), (vec![], Tally::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_counted(lines in prop::collection::vec("(\\PC|[\\x00-\\x09\\x0b-\\xff]){0,40}", 0..20)) {
            let (entries, tally) = read(lines.join("\n").as_bytes());
            prop_assert_eq!(entries.len() as u64, tally.records);
            prop_assert!(tally.records + tally.unknown <= lines.len() as u64);
        }
    }
}
