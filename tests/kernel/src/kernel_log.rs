//! The kernel log as a test sees it: how far it is, and floods of it.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::{Context, Result, bail};

/// Longer than any record.
const LONGEST: usize = 8192;

/// `O_NONBLOCK` of `include/uapi/asm-generic/fcntl.h`.
const NON_BLOCKING: i32 = 0o4000;

/// Writes a record and gives its number.
///
/// # Errors
/// If it cannot be written, or is overrun before it can be read.
pub fn mark(text: &str) -> Result<u64> {
    let mut log = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open("/dev/kmsg").context("cannot read /dev/kmsg")?;
    log.seek(SeekFrom::End(0))?;
    // Without the end of the line the record stays open, for more to be added, and cannot be read.
    writer()?.write_all(format!("{text}\n").as_bytes())?;
    let mut record = [0; LONGEST];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let record = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                if record.contains(text) {
                    let number = record.split(',').nth(1).context("a record without a number")?;
                    return number.parse().with_context(|| format!("record {number}"));
                }
            }
            // Something was overrun: the next read goes on after it.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => bail!("{text:?} did not get into the kernel log"),
            Err(e) => return Err(e).context("cannot read /dev/kmsg"),
        }
    }
}

/// Writes so many records as fast as the kernel takes them. `kernel.printk_devkmsg` must be `on`.
///
/// # Errors
/// If one cannot be written.
pub fn flood(records: u64, text: &str) -> Result<()> {
    let mut log = writer()?;
    for number in 0..records {
        log.write_all(format!("{text} {number}\n").as_bytes())?;
    }
    Ok(())
}

fn writer() -> Result<File> {
    OpenOptions::new().write(true).open("/dev/kmsg").context("cannot write /dev/kmsg")
}
