//! What a kernel log record that means nothing costs the agent, beside a bare `read` of the same record. Prints one row for `cargo xtask
//! bench`: what, measured, beside it, goal.
#![allow(clippy::print_stdout)]

use std::{
    hint::black_box,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use agent_core::log::recognise;
use anyhow::{Result, ensure};
use nodeward_agent::source::kmsg::{Found, RecordReader, Stop};
use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt},
};

/// Recorded lines of healthy and of sick machines: id, category, expected detection, two more, text.
const CORPUS: &str = include_str!("../../tests/corpus/kernel_lines.tsv");
const RECORDS: usize = 100_000;
/// Each way reads all records so often; the ways alternate, and the fastest round of each counts: what else the machine does only adds.
const ROUNDS: usize = 15;
/// Room in the socket for some thousands of records.
const BUFFER: usize = 8 << 20;
/// As in `source::kmsg`.
const BATCH: usize = 512;

fn main() -> Result<()> {
    let records = records();
    let (mut bare, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        bare = bare.min(time_of(&records, read_bare)?);
        ours = ours.min(time_of(&records, read_as_agent)?);
    }
    let each = |all: Duration| all.as_secs_f64() * 1e9 / RECORDS as f64;
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!("kernel log record that means nothing\t{ratio:.2}x ({:.0} ns)\tbare read: {:.0} ns\t< 1.5x", each(ours), each(bare));
    Ok(())
}

/// Log records in the form of `/dev/kmsg`, numbered on. Their texts are those of the corpus that mean nothing: many look as if they did, which
/// costs more than what a healthy machine says.
fn records() -> Vec<Vec<u8>> {
    let fields = CORPUS.lines().map(|line| line.splitn(6, '\t').collect::<Vec<_>>());
    let texts: Vec<&str> = fields.filter(|f| f.get(2) == Some(&"none")).filter_map(|f| f.get(5).copied()).collect();
    // What only tells more about an OOM kill is no detection, but does mean something.
    let texts: Vec<&str> = texts.into_iter().filter(|text| recognise(text.as_bytes()).is_none()).collect();
    let record = |(number, text): (usize, &&str)| format!("6,{number},{},-;{text}\n", number * 1000).into_bytes();
    texts.iter().cycle().take(RECORDS).enumerate().map(record).collect()
}

/// Fills a socket that keeps the records' boundaries and has it emptied, again and again. Only the emptying is timed.
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn time_of(records: &[Vec<u8>], mut empty: impl FnMut(&OwnedFd) -> Result<usize>) -> Result<Duration> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (writer, reader) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_send_buffer_size_force(&writer, BUFFER).or_else(|_| sockopt::set_socket_send_buffer_size(&writer, BUFFER))?;
    let mut spent = Duration::ZERO;
    let mut read = 0;
    let mut left = records;
    while !left.is_empty() {
        while let Some((record, rest)) = left.split_first() {
            match send(&writer, record, SendFlags::empty()) {
                Ok(_) => left = rest,
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        let start = Instant::now();
        read += empty(&reader)?;
        spent += start.elapsed();
    }
    ensure!(read == records.len(), "{read} of {} records came through", records.len());
    Ok(spent)
}

fn read_bare(fd: &OwnedFd) -> Result<usize> {
    let mut buffer = vec![0; 8192];
    let mut read = 0;
    loop {
        match rustix::io::read(fd, &mut buffer[..]) {
            Ok(length) => {
                black_box(&buffer[..length]);
                read += 1;
            }
            Err(Errno::AGAIN) => return Ok(read),
            Err(e) => return Err(e.into()),
        }
    }
}

fn read_as_agent(fd: &OwnedFd) -> Result<usize> {
    let mut reader = RecordReader::new(fd.as_fd(), false);
    let mut found: Vec<Found> = Vec::new();
    while reader.read_batch(BATCH, &mut found)? == Stop::Limit {}
    found.retain(|one| !matches!(one, Found::BeginsAt(_)));
    ensure!(found.is_empty(), "{found:?} were to mean nothing");
    Ok(usize::try_from(reader.take_counts().read)?)
}
