//! Real lines of many kernels, each through the same path as a live record: raw bytes, glance, grammar, recognition.

mod sim;

use agent_core::{
    Detection, Memory,
    log::{LogRecord, Recognised, could_matter, recognise},
};

/// Categories in which every expected detection is one of ours.
const COVERED: [&str; 6] = ["hung_task", "ext4_readonly", "xfs_shutdown", "oom_kill", "io_error", "rcu_stall"];

struct Row {
    id: String,
    category: String,
    expected: String,
    text: Vec<u8>,
    dictionary: Vec<u8>,
}

fn rows() -> Vec<Row> {
    let file = include_str!("../../../tests/corpus/kernel_lines.tsv");
    file.lines().skip(1).map(row).collect()
}

fn row(line: &str) -> Row {
    let fields: Vec<_> = line.splitn(6, '\t').collect();
    let [id, category, expected, _npd, _source, text] = fields[..] else { panic!("six columns: {line:?}") };
    let plain = unfold(text);
    // A newline before a blank begins the dictionary; any other belongs to the text.
    let at = plain.windows(2).position(|w| w == b"\n ").unwrap_or(plain.len());
    let dictionary = plain.get(at + 1..).unwrap_or_default().to_vec();
    Row { id: id.into(), category: category.into(), expected: expected.into(), text: plain[..at].to_vec(), dictionary }
}

/// Undoes the fixture's own `\n`, `\t` and `\\`.
fn unfold(text: &str) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                other => other.unwrap_or(b'\\'),
            },
            other => other,
        });
    }
    plain
}

/// As `/dev/kmsg` would hand it over.
fn raw(row: &Row, facility: u32) -> Vec<u8> {
    let mut record = format!("{},77,123456,-;", facility * 8 + 4).into_bytes();
    for byte in &row.text {
        match byte {
            b' '..=b'~' if *byte != b'\\' => record.push(*byte),
            other => record.extend(format!("\\x{other:02x}").bytes()),
        }
    }
    record.push(b'\n');
    if !row.dictionary.is_empty() {
        record.extend(&row.dictionary);
        record.push(b'\n');
    }
    record
}

fn detected(record: &[u8]) -> Option<Detection> {
    let parsed = LogRecord::parse(record).expect("a well-formed record");
    let found = match (parsed.facility, recognise(&parsed.text)) {
        (0, Some(Recognised::Fault { detection, .. })) => Some(detection),
        _ => None,
    };
    assert!(found.is_none() || could_matter(record), "glanced over");
    found
}

#[test]
fn every_line_of_the_corpus_gives_what_it_must() {
    let mut wrong = Vec::new();
    let (mut recognised, mut silent) = (0, 0);
    for row in rows() {
        let facilities: &[u32] = if row.category == "benign_userspace_write" { &[1, 3] } else { &[0] };
        let ours = Detection::ALL.into_iter().find(|d| d.as_str() == row.expected);
        if COVERED.contains(&row.category.as_str()) {
            assert!(ours.is_some() || row.expected == "none", "{}: {} is not one of ours", row.id, row.expected);
        }
        for facility in facilities {
            let found = detected(&raw(&row, *facility));
            if found != ours {
                wrong.push(format!("{}: expected {ours:?}, found {found:?}: {}", row.id, String::from_utf8_lossy(&row.text)));
            }
        }
        if ours.is_some() { recognised += 1 } else { silent += 1 }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(recognised >= 60 && silent >= 140, "the fixture has shrunk: {recognised} recognised, {silent} silent");
}

#[test]
fn no_line_that_means_nothing_makes_anything_happen() {
    let mut node = sim::Node::default();
    node.shows_looks = true;
    node.start(Memory::default());
    for row in rows().iter().filter(|row| row.expected == "none") {
        let facilities: &[u32] = if row.category == "benign_userspace_write" { &[1, 3] } else { &[0] };
        for facility in facilities {
            node.record(node.now, &raw(row, *facility));
            assert_eq!(node.lines, Vec::<String>::new(), "{}", row.id);
        }
    }
}

#[test]
fn every_line_that_means_something_is_told_or_makes_the_agent_look() {
    for row in rows().iter().filter(|row| Detection::ALL.iter().any(|detection| detection.as_str() == row.expected)) {
        let mut node = sim::Node::default();
        node.shows_looks = true;
        node.start(Memory::default());
        node.record(node.now, &raw(row, 0));
        let happened = node.lines.iter().any(|line| line.contains(" event Warning ") || line.contains(" look task "));
        assert!(happened, "{}: {:?}", row.id, node.lines);
    }
}
