//! Kernel log records: taken apart (`Documentation/ABI/testing/dev-kmsg`) and recognised.

use std::borrow::Cow;

use crate::{detection::Detection, observation::Subject};

/// One record of `/dev/kmsg`, its dictionary split off and its escapes undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// 0 is the kernel; anything else was written by a process.
    pub facility: u32,
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Grows by one with each record of a boot.
    pub sequence: u64,
    /// Microseconds of the scheduler's clock since boot; stands still in suspend.
    pub stamp_us: u64,
    /// The text, without dictionary; any bytes.
    pub text: Cow<'a, [u8]>,
    /// `SUBSYSTEM=...`, `DEVICE=...` lines, as they came.
    pub dictionary: &'a [u8],
}

/// Why a record could not be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel log record: {0}")]
pub struct MalformedRecord(pub &'static str);

/// What a line of the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// Which fault.
    pub detection: Detection,
    /// Of what. A device has its name only.
    pub subject: Subject,
}

impl<'a> LogRecord<'a> {
    /// Takes apart what one `read` of `/dev/kmsg` returned.
    ///
    /// # Errors
    /// If it has not the shape `PRI,SEQ,TIME,FLAGS;TEXT\n`.
    pub fn parse(_record: &'a [u8]) -> Result<Self, MalformedRecord> {
        Err(MalformedRecord("not implemented yet"))
    }
}

/// Whether a raw record could be recognised at all: cheap, and never wrong in the direction of no. Lets the reader skip the rest of the work
/// for nearly every record.
#[must_use]
pub fn could_matter(_record: &[u8]) -> bool {
    true
}

/// Says what a line of the kernel (facility 0) means, if it means anything to us. Patterns are anchored at the start and match the whole
/// known shape: process names and audit strings inside a line must not imitate another.
#[must_use]
pub fn recognise(_text: &[u8]) -> Option<Recognised> {
    None
}
