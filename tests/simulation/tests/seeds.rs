//! Seeds: some new ones, and all that ever failed.

use tests_simulation::{
    run::{self, Outcome},
    shrink,
};

fn holds(seed: u64) -> Outcome {
    let outcome = run::run(seed, false);
    if let Some(violation) = &outcome.violation {
        let shown = shrink::shrink(seed).map(|o| o.trace.join("\n")).unwrap_or_default();
        panic!("{shown}\nseed {seed}: {violation}\nagain with: cargo xtask sim --seed {seed} --shrink");
    }
    outcome
}

#[test]
fn every_invariant_holds_in_a_hundred_worlds_that_are_not_idle() {
    let all: Vec<_> = (1..=100).map(holds).collect();
    assert!(all.iter().map(|o| o.steps).sum::<u64>() > 50_000, "the worlds stand still");
    assert!(all.iter().map(|o| o.reboots).sum::<usize>() > 20, "hardly a reboot");
    assert!(all.iter().map(|o| o.removals.len()).sum::<usize>() > 20, "hardly a removal");
}

#[test]
fn what_once_failed_holds() {
    let seeds = include_str!("../seeds.txt").lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let numbers = seeds.map(|line| line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a seed is a number"));
    let count = numbers.map(holds).filter(|o| o.steps > 0).count();
    assert!(count >= 6);
}

#[test]
fn a_seed_plays_the_same_every_time() {
    for seed in [3, 11, 42] {
        let (first, second) = (run::run(seed, true), run::run(seed, true));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!((first.steps, first.decisions), (second.steps, second.decisions));
        assert!(first.trace.len() > 10);
    }
}
