//! Spreads what many nodes would otherwise do at the same moment.

use std::time::Duration;

/// A span between three quarters and five quarters of the given one.
#[must_use]
pub fn around(span: Duration) -> Duration {
    span.mul_f64(0.75 + 0.5 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_differ_and_stay_within_a_quarter() {
        let spans: Vec<_> = (0..100).map(|_| around(Duration::from_secs(100))).collect();
        assert!(spans.iter().all(|s| (75..=125).contains(&s.as_secs())));
        assert!(spans.iter().any(|s| *s != spans[0]));
    }
}
