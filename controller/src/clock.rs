//! The only file of the controller that reads a clock.

use std::time::{SystemTime, UNIX_EPOCH};

use controller_core::time::Time;

/// The wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one file that reads a clock")]
pub fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
