//! How many Events may go out: a budget for each kind, so that a storm of one never hides another.

use std::{collections::BTreeMap, time::Duration};

use crate::time::BootTime;

/// Token buckets, one a key.
#[derive(Debug)]
pub(crate) struct Budget {
    burst: u32,
    refill: Duration,
    buckets: BTreeMap<String, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    /// The moment up to which tokens have been given back.
    refilled: BootTime,
    held_back: u64,
}

impl Budget {
    pub(crate) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, buckets: BTreeMap::new() }
    }

    /// Spends one Event of this kind. `Some(n)`: it may go out, and `n` others were held back since the last. `None`: hold it back.
    pub(crate) fn spend(&mut self, key: &str, now: BootTime) -> Option<u64> {
        if !self.buckets.contains_key(key) {
            self.buckets.insert(key.to_owned(), Bucket { tokens: self.burst, refilled: now, held_back: 0 });
        }
        let bucket = self.buckets.get_mut(key)?;
        let periods = now.since(bucket.refilled).as_nanos().checked_div(self.refill.as_nanos()).unwrap_or(u128::MAX);
        if periods > 0 {
            let back = u32::try_from(periods).unwrap_or(u32::MAX);
            bucket.tokens = bucket.tokens.saturating_add(back).min(self.burst);
            bucket.refilled = bucket.refilled + self.refill.saturating_mul(back);
        }
        if bucket.tokens == 0 {
            bucket.held_back += 1;
            return None;
        }
        bucket.tokens -= 1;
        Some(std::mem::take(&mut bucket.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::after_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn a_storm_is_cut_and_the_next_event_says_by_how_much() {
        let mut budget = Budget::new(2, Duration::from_secs(60));
        let spent: Vec<_> = [0, 0, 1, 2, 3, 60, 61].map(|s| budget.spend("a", at(s))).into();
        assert_eq!(spent, [Some(0), Some(0), None, None, None, Some(3), None]);
    }

    #[test]
    fn one_storm_does_not_hide_another_reason() {
        let mut budget = Budget::new(1, Duration::from_secs(60));
        for _ in 0..1000 {
            budget.spend("a", at(5));
        }
        assert_eq!(budget.spend("b", at(5)), Some(0));
    }

    #[test]
    fn quiet_time_gives_back_no_more_than_the_burst() {
        let mut budget = Budget::new(2, Duration::from_secs(1));
        budget.spend("a", at(0));
        let spent: Vec<_> = (0..4).map(|_| budget.spend("a", at(1_000_000))).collect();
        assert_eq!(spent, [Some(0), Some(0), None, None]);
    }
}
