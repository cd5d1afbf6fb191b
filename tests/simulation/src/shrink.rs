//! Shortens a failing script: entries are left out, in halves and then one by one, while the same invariant is still violated.

use crate::{run, script::Disturbance};

/// The shortest script found that still violates the invariant that the whole one violates; none: that one violates nothing.
#[must_use]
pub fn shrink(seed: u64) -> Option<run::Outcome> {
    let mut best = run::run(seed, false);
    let invariant = best.violation.as_ref()?.invariant;
    let fails = |script: &[Disturbance]| {
        let outcome = run::play(seed, Some(script.to_vec()), false);
        outcome.violation.as_ref().is_some_and(|v| v.invariant == invariant).then_some(outcome)
    };
    let mut size = best.script.len().div_ceil(2);
    loop {
        let mut start = 0;
        while start < best.script.len() {
            let mut shorter = best.script.clone();
            shorter.drain(start..(start + size).min(shorter.len()));
            match fails(&shorter) {
                Some(outcome) => best = outcome,
                None => start += size,
            }
        }
        if size <= 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    Some(run::play(seed, Some(best.script.clone()), true))
}
