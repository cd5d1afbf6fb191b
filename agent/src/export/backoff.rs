//! Growing pauses between attempts.

use std::time::Duration;

use crate::jitter;

/// Doubles from the first pause to the longest, each with jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        jitter::around(pause).min(self.longest)
    }

    /// It worked: the next trouble starts from the first pause again.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_success() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let mut backoff = Backoff::new(first, longest);
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= first * 5 / 4 && pauses[3] > first * 4);
        assert!(pauses.iter().all(|p| *p <= longest));
        backoff.reset();
        assert!(backoff.pause() <= first * 5 / 4);
    }
}
