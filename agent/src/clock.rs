//! The only file of the agent that reads a clock.

use std::time::{Duration, SystemTime};

use agent_core::BootTime;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Time since boot, suspend included (`CLOCK_BOOTTIME`).
    #[must_use]
    pub fn now(self) -> BootTime {
        BootTime::after_boot(read(ClockId::Boottime))
    }

    /// The wall clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one file that reads a clock")]
    pub fn wall(self) -> Timestamp {
        Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// What the wall clock says now of a moment of this boot. A step of the wall clock moves it: whoever publishes the result keeps it.
    #[must_use]
    pub fn wall_at(self, moment: BootTime) -> Timestamp {
        let ago = self.now().since(moment);
        let ahead = moment.since(self.now());
        let ago = jiff::SignedDuration::try_from(ago).unwrap_or_default();
        let ahead = jiff::SignedDuration::try_from(ahead).unwrap_or_default();
        self.wall().checked_sub(ago).and_then(|t| t.checked_add(ahead)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// How far `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`: the time spent in suspend. Kernel log stamps stand still in suspend too.
    #[must_use]
    pub fn suspended(self) -> Duration {
        read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
    }
}

fn read(clock: ClockId) -> Duration {
    let t = clock_gettime(clock);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}
