//! What one run of the controller remembers of itself, and loses when it ends: its calls, what providers answered, its clock.

use std::{collections::BTreeMap, time::Duration};

use crate::{state::Refusal, time::Time};

/// One run of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Unique for each run: an intent is sent by the run that wrote it, or by none.
    pub id: String,
    /// Since when it leads and sees both clusters; none: it does not yet.
    pub leading_since: Option<Time>,
    /// What it knows of its clock.
    pub clock: Clock,
    /// Power calls that it began, by intent. An entry is made before the first byte is sent.
    pub calls: BTreeMap<String, Call>,
    /// What providers said of intents that were asked after.
    pub evidence: BTreeMap<String, Evidence>,
}

/// How a power call of this run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// No answer yet.
    Sent,
    /// Answered, or given up.
    Answered(Answer),
}

/// What came of a power call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepted.
    Issued {
        /// The provider's name for it, if it has one.
        action_id: Option<String>,
        /// When.
        at: Time,
    },
    /// Certainly not executed.
    Refused {
        /// How.
        how: Refusal,
        /// When it may be tried again, if the provider said.
        retry_at: Option<Time>,
    },
    /// The send deadline was over before the request left, or a precondition failed: nothing was sent.
    NotSent,
    /// May have been executed.
    Unknown,
}

/// What a provider says of an earlier intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The call was made.
    Made {
        /// The provider's name for it.
        action_id: Option<String>,
        /// When it began.
        at: Time,
        /// Whether it went wrong afterwards.
        failed: bool,
    },
    /// There is no trace of it.
    NoTrace {
        /// When the provider was asked.
        asked_at: Time,
    },
    /// This provider cannot tell.
    CannotTell {
        /// When it was asked.
        asked_at: Time,
    },
}

/// What a run knows of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Offset of the local wall clock from the management API server's, in milliseconds, and when it was measured.
    pub offset: Option<(i64, Time)>,
    /// When the offset was last seen to move by more than [`Clock::MOST`].
    pub moved_at: Option<Time>,
    /// When time was last seen to jump forward by more than [`Clock::MOST`] between two looks.
    pub jumped_at: Option<Time>,
    /// Local wall clock at the last measurement, and the monotonic clock's time then: they must advance together.
    pub last_tick: Option<(Time, Duration)>,
}

impl Clock {
    /// How far a clock may move unnoticed.
    pub const MOST: Duration = Duration::from_secs(30);
    /// The offset is measured each minute; without three of them in a row it is unknown.
    pub const FRESH: Duration = Duration::from_secs(180);

    /// A measurement: the local wall clock and the API server's `Date` at the same moment.
    pub fn measured(&mut self, local: Time, server: Time) {
        let millis = |t: Time| i64::try_from(t.millis()).unwrap_or(i64::MAX);
        let offset = millis(server).saturating_sub(millis(local));
        if let Some((before, _)) = self.offset
            && offset.abs_diff(before) > u64::try_from(Self::MOST.as_millis()).unwrap_or(u64::MAX)
        {
            self.moved_at = Some(server);
        }
        self.offset = Some((offset, server));
        // What was noted on a clock that was ahead lies in the future now, and would distrust every look until then.
        self.jumped_at = self.jumped_at.map(|at| at.min(server));
    }

    /// A look at the process' own clocks, before each step: a jump of the one against the other, or a long gap, is noticed.
    pub fn ticked(&mut self, now: Time, monotonic: Duration) {
        if let Some((then, mono_then)) = self.last_tick {
            let wall = now.since(then);
            let mono = monotonic.saturating_sub(mono_then);
            if wall > mono + Self::MOST || wall > Self::MOST * 4 {
                self.jumped_at = Some(now);
            }
        }
        self.last_tick = Some((now, monotonic));
    }

    /// Why the clock cannot be trusted for anything destructive; none: it can.
    #[must_use]
    pub fn distrust(&self, now: Time) -> Option<&'static str> {
        let Some((_, measured)) = self.offset else { return Some("the offset to the API server's clock is unknown") };
        if now.since(measured) > Self::FRESH {
            return Some("the offset to the API server's clock was not measured for minutes");
        }
        if self.moved_at.is_some_and(|at| now.since(at) < Self::FRESH) {
            return Some("the clock moved against the API server's");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Time = Time::from_millis(1_796_097_600_000);
    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_unmeasured_clock_is_not_trusted() {
        let mut clock = Clock::default();
        assert!(clock.distrust(T).is_some());
        clock.measured(T, T + s(7));
        assert_eq!(clock.distrust(T + s(7)), None);
        assert_eq!(clock.distrust(T + s(187)), None);
        assert!(clock.distrust(T + s(188)).is_some());
    }

    #[test]
    fn a_clock_that_moved_is_trusted_again_after_three_measurements() {
        let mut clock = Clock::default();
        clock.measured(T, T);
        clock.measured(T + s(60), T + s(90));
        assert_eq!(clock.distrust(T + s(90)), None, "30 s are allowed");
        clock.measured(T + s(120), T + s(190));
        assert!(clock.distrust(T + s(190)).is_some());
        clock.measured(T + s(300), T + s(370));
        assert_eq!(clock.distrust(T + s(370)), None);
    }

    #[test]
    fn a_jump_that_was_corrected_does_not_lie_in_the_future() {
        let mut clock = Clock::default();
        clock.ticked(T, s(0));
        clock.ticked(T + s(3000), s(1));
        clock.measured(T + s(3000), T + s(1));
        assert_eq!(clock.jumped_at, Some(T + s(1)));
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_noticed_and_an_even_advance_is_not() {
        let mut clock = Clock::default();
        clock.ticked(T, s(0));
        clock.ticked(T + s(20), s(20));
        assert_eq!(clock.jumped_at, None);
        clock.ticked(T + s(71), s(40));
        assert_eq!(clock.jumped_at, Some(T + s(71)));
    }
}
