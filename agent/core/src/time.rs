//! The core's only notion of time: how long this boot has lasted.

use std::{ops, time::Duration};

use serde::{Deserialize, Serialize};

/// Time since boot, suspend included (`CLOCK_BOOTTIME`), with nanoseconds. The sources convert kernel stamps to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BootTime(Duration);

impl BootTime {
    /// The moment of boot.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// A moment this long after boot.
    #[must_use]
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after boot.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How much later than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl ops::Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}
