//! Seeds: some new ones, and all that ever failed.

use tests_simulation::{run, shrink};

fn assert_holds(seed: u64) -> u64 {
    let outcome = run::run(seed, false);
    if let Some(violation) = &outcome.violation {
        let shown = shrink::shrink(seed).map(|o| o.trace.join("\n")).unwrap_or_default();
        panic!("{shown}\nseed {seed}: {violation}\nagain with: cargo xtask sim --seed {seed} --shrink");
    }
    outcome.steps
}

#[test]
fn every_invariant_holds_in_two_hundred_worlds() {
    let steps: u64 = (1..=200).map(assert_holds).sum();
    assert!(steps > 100_000, "only {steps} steps: the worlds stand still");
}

#[test]
fn what_once_failed_holds() {
    let seeds = include_str!("../seeds.txt").lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let numbers = seeds.map(|line| line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a seed is a number"));
    let count = numbers.map(assert_holds).filter(|steps| *steps > 0).count();
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

#[test]
fn worlds_are_not_idle() {
    let all: Vec<_> = (1..=60).map(|seed| run::run(seed, false)).collect();
    assert!(all.iter().map(|o| o.reboots).sum::<usize>() > 10, "hardly a reboot in 60 worlds");
    assert!(all.iter().map(|o| o.removals.len()).sum::<usize>() > 10, "hardly a removal in 60 worlds");
}
