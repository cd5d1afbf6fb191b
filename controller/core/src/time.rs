//! The controller's only time: the management API server's wall clock, as an argument. Persisted as RFC 3339 in UTC.

use std::{
    borrow::Cow,
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::{Duration, SystemTime},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, in whole milliseconds since the Unix epoch, on the clock of the management API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A text that is no RFC 3339 time in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATime(String);

impl Time {
    /// The moment this long after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it. A clock that went backwards makes no timer fire.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // humantime refuses years after 9999.
        let shown = Duration::from_millis(self.0.min(253_402_300_799_000));
        let at = SystemTime::UNIX_EPOCH + shown;
        if self.0.is_multiple_of(1000) { humantime::format_rfc3339_seconds(at).fmt(f) } else { humantime::format_rfc3339_millis(at).fmt(f) }
    }
}

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a time as in 2026-12-01T04:05:06Z: {:?}", self.0)
    }
}

impl std::error::Error for NotATime {}

impl FromStr for Time {
    type Err = NotATime;

    fn from_str(s: &str) -> Result<Self, NotATime> {
        let wrong = || NotATime(s.chars().take(64).collect());
        let at = humantime::parse_rfc3339(s).map_err(|_| wrong())?;
        let since = at.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| wrong())?;
        u64::try_from(since.as_millis()).map(Self).map_err(|_| wrong())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A length of time in a custom resource: whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub u32);

impl Seconds {
    /// As the standard library has it.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }
}

impl JsonSchema for Seconds {
    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A month: nobody waits longer on purpose, and it keeps sums far from any overflow.
        json_schema!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 2_592_000})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_as_it_was_written() {
        for (text, millis) in [("2026-12-01T04:05:06Z", 1_796_097_906_000), ("2026-12-01T04:05:06.250Z", 1_796_097_906_250)] {
            assert_eq!(text.parse(), Ok(Time::from_millis(millis)));
            assert_eq!(Time::from_millis(millis).to_string(), text);
        }
        assert_eq!("2026-12-01T04:05:06.250999Z".parse(), Ok(Time::from_millis(1_796_097_906_250)));
    }

    #[test]
    fn what_is_no_time_is_refused_not_guessed() {
        for text in ["", "yesterday", "2026-12-01", "1960-01-01T00:00:00Z", "2026-13-01T04:05:06Z"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_clock_that_went_backwards_has_not_waited() {
        let (early, late) = (Time::from_millis(1000), Time::from_millis(4000));
        assert_eq!(late.since(early), Duration::from_secs(3));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(9), Time::from_millis(0));
    }
}
