//! The shapes that one line of a saved kernel log can have.

use std::{sync::LazyLock, time::Duration};

use agent_core::log::LogRecord;
use regex::bytes::{Captures, Regex, RegexBuilder};
use serde::Deserialize;

use super::{Entry, Format, Time};

/// What a facility is called that is surely not the kernel's, where the log does not give its number: that of user processes.
const NOT_THE_KERNEL: u32 = 1;

/// Lines that stand in a log without being a record: blank ones, continuations and dictionaries (they begin with a blank), and journalctl's
/// own (`-- Boot ...`).
pub(super) fn is_remark(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b' ' | b'\t')) || line.starts_with(b"-- ")
}

/// Takes a line apart by its shape.
pub(super) fn parse(line: &[u8]) -> Option<(Format, Entry)> {
    // journalctl -o json-seq puts a record separator in front.
    let line = line.strip_prefix(b"\x1e").unwrap_or(line);
    let shaped = |format, entry: Option<Entry>| Some((format, entry?));
    shaped(Format::JournalJson, json(line))
        .or_else(|| shaped(Format::Kmsg, kmsg(line)))
        .or_else(|| shaped(Format::Journal, journal(line)))
        .or_else(|| shaped(Format::Dmesg, dmesg(line)))
}

fn kmsg(line: &[u8]) -> Option<Entry> {
    let record = LogRecord::parse(line).ok()?;
    let time = Time::SinceBoot(Duration::from_micros(record.stamp_us));
    Some(Entry { time, facility: Some(record.facility), text: record.text.into_owned() })
}

/// Fields of `systemd.journal-fields(7)`; numbers are strings there.
#[derive(Deserialize)]
struct Record {
    #[serde(rename = "MESSAGE")]
    message: Option<Message>,
    #[serde(rename = "_TRANSPORT")]
    transport: Option<String>,
    #[serde(rename = "SYSLOG_FACILITY")]
    facility: Option<String>,
    #[serde(rename = "_SOURCE_MONOTONIC_TIMESTAMP")]
    monotonic_us: Option<String>,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    realtime_us: Option<String>,
}

/// A text that is no UTF-8 or holds control characters comes as the numbers of its bytes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Text(String),
    Bytes(Vec<u8>),
}

fn json(line: &[u8]) -> Option<Entry> {
    if !line.starts_with(b"{") {
        return None;
    }
    let record: Record = serde_json::from_slice(line).ok()?;
    let text = match record.message? {
        Message::Text(text) => text.into_bytes(),
        Message::Bytes(bytes) => bytes,
    };
    let claimed = record.facility.and_then(|facility| facility.parse().ok());
    // Only what journald itself has read from the kernel can be the kernel's word.
    let facility = match record.transport.as_deref() {
        Some("kernel") => claimed.unwrap_or(0),
        Some(_) => claimed.filter(|facility| *facility != 0).unwrap_or(NOT_THE_KERNEL),
        None => return None,
    };
    let microseconds = |text: Option<String>| text?.parse().ok();
    let time = match (microseconds(record.monotonic_us), microseconds(record.realtime_us)) {
        (Some(since_boot), _) => Time::SinceBoot(Duration::from_micros(since_boot)),
        (None, Some(wall)) => wall_of(wall),
        (None, None) => Time::Unknown,
    };
    Some(Entry { time, facility: Some(facility), text })
}

fn wall_of(microseconds: u64) -> Time {
    let moment = i64::try_from(microseconds).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    moment.map_or(Time::Unknown, |moment| Time::Wall(moment.to_string()))
}

/// Short, precise, full and ISO forms, syslog's too; then the machine, who wrote it, and the text. (`dmesg` has a comma in its ISO form.)
static JOURNAL: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^(?:([A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:?\d\d)?|",
        r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+) \S+ ([^\s:\[]+)(?:\[\d+\])?: |\[ *(\d+\.\d+)\] \S+ (kernel): )(.*)$"
    ))
});

fn journal(line: &[u8]) -> Option<Entry> {
    let captures = JOURNAL.captures(line)?;
    let writer = captures.get(2).or_else(|| captures.get(4))?;
    let text = captures.get(5)?.as_bytes();
    if writer.as_bytes() != b"kernel" {
        return Some(Entry { time: wall(&captures, 1), facility: Some(NOT_THE_KERNEL), text: text.into() });
    }
    // Syslog daemons keep the kernel's own stamp.
    if let Some(inner) = STAMPED.captures(text) {
        return Some(Entry { time: since_boot(&inner, 1)?, facility: Some(0), text: inner.get(2)?.as_bytes().into() });
    }
    let time = since_boot(&captures, 3).unwrap_or_else(|| wall(&captures, 1));
    Some(Entry { time, facility: Some(0), text: text.into() })
}

/// `[   12.345678] text`, also with the time since the line before (`-d`) or the thread that wrote (`CONFIG_PRINTK_CALLER`).
static STAMPED: LazyLock<Regex> = LazyLock::new(|| regex(r"^\[ *(\d+\.\d+)(?: <[ \d.]+>)?\](?:\[ *[TC]\d+\])? (.*)$"));

/// `[Tue Dec  1 01:24:05 2026] text` (`-T`), `[Dec 1 01:24] text` and `[  +0.000012] text` (`-e`), `[<    0.000012>] text`,
/// `2026-12-01T01:24:05,123456+00:00 text`.
static DATED: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^(?:\[((?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d(?::\d\d \d{4})?)\]|\[ *\+\d+\.\d+\]|\[< *\d+\.\d+>\]|",
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d+[+-]\d\d:?\d\d)) (.*)$"
    ))
});

/// `<6>` (`-r`), `kern  :info  : ` (`-x`).
static PREFIXED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?:<(\d{1,4})>|(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *:\w+ *: )(.*)$"));

fn dmesg(line: &[u8]) -> Option<Entry> {
    let (facility, rest) = match PREFIXED.captures(line) {
        None => (None, line),
        Some(captures) => (facility_of(&captures), captures.get(3)?.as_bytes()),
    };
    if let Some(captures) = STAMPED.captures(rest) {
        return Some(Entry { time: since_boot(&captures, 1)?, facility, text: captures.get(2)?.as_bytes().into() });
    }
    let captures = DATED.captures(rest)?;
    let time = if captures.get(1).is_some() { wall(&captures, 1) } else { wall(&captures, 2) };
    Some(Entry { time, facility, text: captures.get(3)?.as_bytes().into() })
}

fn facility_of(captures: &Captures<'_>) -> Option<u32> {
    let group = |i: usize| std::str::from_utf8(captures.get(i)?.as_bytes()).ok();
    match (group(1), group(2)) {
        // dmesg leaves the facility out: a small number may be anybody's.
        (Some(priority), _) => priority.parse::<u32>().ok().map(|priority| priority >> 3).filter(|facility| *facility != 0),
        (None, Some("kern")) => Some(0),
        (None, Some(_)) => Some(NOT_THE_KERNEL),
        (None, None) => None,
    }
}

fn since_boot(captures: &Captures<'_>, group: usize) -> Option<Time> {
    let text = std::str::from_utf8(captures.get(group)?.as_bytes()).ok()?;
    let (seconds, fraction) = text.split_once('.')?;
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(Time::SinceBoot(Duration::new(seconds.parse().ok()?, nanoseconds)))
}

fn wall(captures: &Captures<'_>, group: usize) -> Time {
    captures.get(group).map_or(Time::Unknown, |found| Time::Wall(String::from_utf8_lossy(found.as_bytes()).into_owned()))
}

fn regex(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).unicode(false).build().expect("the patterns are valid, as every test of this file shows")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Option<(Format, Time, Option<u32>, String)> {
        let (format, entry) = parse(line.as_bytes())?;
        Some((format, entry.time, entry.facility, String::from_utf8(entry.text).unwrap()))
    }

    fn boot(micros: u64) -> Time {
        Time::SinceBoot(Duration::from_micros(micros))
    }

    fn wall(text: &str) -> Time {
        Time::Wall(text.into())
    }

    #[test]
    fn every_form_of_dmesg_is_read() {
        let cases = [
            ("[   12.345678] a: b", boot(12_345_678), None),
            ("[12345.000001 <    0.000001>] a: b", boot(12_345_000_001), None),
            ("[    0.000000][    T0] a: b", boot(0), None),
            ("<6>[   12.345678] a: b", boot(12_345_678), None),
            ("<30>[   12.345678] a: b", boot(12_345_678), Some(3)),
            ("kern  :info  : [   12.345678] a: b", boot(12_345_678), Some(0)),
            ("daemon:notice: [   12.345678] a: b", boot(12_345_678), Some(1)),
            ("[Tue Dec  1 01:24:05 2026] a: b", wall("Tue Dec  1 01:24:05 2026"), None),
            ("[Dec 1 01:24] a: b", wall("Dec 1 01:24"), None),
            ("[  +0.000012] a: b", Time::Unknown, None),
            ("[<    0.000012>] a: b", Time::Unknown, None),
            ("2026-12-01T01:24:05,123456+00:00 a: b", wall("2026-12-01T01:24:05,123456+00:00"), None),
            ("kern  :err   : 2026-12-01T01:24:05,123456+00:00 a: b", wall("2026-12-01T01:24:05,123456+00:00"), Some(0)),
        ];
        for (line, time, facility) in cases {
            assert_eq!(told(line), Some((Format::Dmesg, time, facility, "a: b".into())), "{line}");
        }
    }

    #[test]
    fn every_short_form_of_the_journal_is_read() {
        let cases = [
            ("Dec 01 01:24:05 node1 kernel: a: b", wall("Dec 01 01:24:05"), 0),
            ("Dec  1 01:24:05.123456 node1 kernel: a: b", wall("Dec  1 01:24:05.123456"), 0),
            ("2026-12-01T01:24:05+0000 node1 kernel: a: b", wall("2026-12-01T01:24:05+0000"), 0),
            ("2026-12-01T01:24:05.123456+00:00 node1 kernel: a: b", wall("2026-12-01T01:24:05.123456+00:00"), 0),
            ("Tue 2026-12-01 01:24:05 UTC node1 kernel: a: b", wall("Tue 2026-12-01 01:24:05 UTC"), 0),
            ("[   12.345678] node1 kernel: a: b", boot(12_345_678), 0),
            ("Dec  1 01:24:05 node1 kernel: [   12.345678] a: b", boot(12_345_678), 0),
            ("Dec 01 01:24:05 node1 systemd[1]: a: b", wall("Dec 01 01:24:05"), 1),
        ];
        for (line, time, facility) in cases {
            assert_eq!(told(line), Some((Format::Journal, time, Some(facility), "a: b".into())), "{line}");
        }
    }

    #[test]
    fn the_journals_json_is_read() {
        let text =
            r#"{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","MESSAGE":"a: b","_SOURCE_MONOTONIC_TIMESTAMP":"12345678","PRIORITY":"6"}"#;
        assert_eq!(told(text), Some((Format::JournalJson, boot(12_345_678), Some(0), "a: b".into())));
        let bytes = r#"{"MESSAGE":[97,9,98],"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1000000"}"#;
        assert_eq!(told(bytes), Some((Format::JournalJson, wall("1970-01-01T00:00:01Z"), Some(0), "a\tb".into())));
        let sequence = "\u{1e}{\"MESSAGE\":\"a\",\"_TRANSPORT\":\"kernel\"}";
        assert_eq!(told(sequence), Some((Format::JournalJson, Time::Unknown, Some(0), "a".into())));
    }

    #[test]
    fn what_a_process_logged_is_not_the_kernels_word_whatever_it_says() {
        let facility = |line: &str| told(line).map(|(_, _, facility, _)| facility);
        assert_eq!(facility(r#"{"MESSAGE":"a","_TRANSPORT":"syslog","SYSLOG_FACILITY":"0"}"#), Some(Some(1)));
        assert_eq!(facility(r#"{"MESSAGE":"a","_TRANSPORT":"kernel","SYSLOG_FACILITY":"3"}"#), Some(Some(3)));
        assert_eq!(facility(r#"{"MESSAGE":"a"}"#), None);
        assert_eq!(facility("12,1,2,-;a"), Some(Some(1)));
    }

    #[test]
    fn raw_records_are_read() {
        assert_eq!(told("6,339,5140900,-;a\\x09b"), Some((Format::Kmsg, boot(5_140_900), Some(0), "a\tb".into())));
    }

    #[test]
    fn what_has_no_known_shape_is_none() {
        for line in
            ["a: b", "[x] a", "{}", "{\"MESSAGE\":null,\"_TRANSPORT\":\"kernel\"}", "{broken", "6,1;a", "[99999999999999999999.1] a"]
        {
            assert_eq!(told(line), None, "{line}");
        }
    }

    #[test]
    fn kernel_text_that_looks_like_a_machines_name_stays_text() {
        assert_eq!(told("[    1.000000] usb 1-1: new device").unwrap().3, "usb 1-1: new device");
        assert_eq!(told("2026-12-01T01:24:05,123456+00:00 usb 1-1: new device").unwrap().3, "usb 1-1: new device");
    }
}
