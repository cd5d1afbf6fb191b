//! Whether the simulation catches each deliberate fault of the core, and with how many seeds.

use std::sync::atomic::{AtomicU64, Ordering};

use controller_core::mutant::{self, MUTANTS, Mutant};

use crate::{check::Violation, run};

/// A fault that was caught: by which seed, and by which invariant.
pub type Caught = (u64, Violation);

/// The first of these seeds that catches the fault. The switch is the process': nothing else may run meanwhile.
#[must_use]
pub fn hunt(which: Mutant, seeds: u64, threads: usize, unsound: &[u64]) -> Option<Caught> {
    mutant::switch(Some(which));
    let (next, best) = (AtomicU64::new(1), std::sync::Mutex::new(None::<Caught>));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let Some(violation) = run::run(seed, false).violation.filter(|_| !unsound.contains(&seed)) else { continue };
                    next.store(seeds + 1, Ordering::Relaxed);
                    if let Ok(mut best) = best.lock()
                        && best.as_ref().is_none_or(|(old, _)| seed < *old)
                    {
                        *best = Some((seed, violation));
                    }
                    return;
                }
            });
        }
    });
    mutant::switch(None);
    best.into_inner().unwrap_or_default()
}

/// All faults, a line each; whether all were caught.
pub fn table(seeds: u64, threads: usize, mut print: impl FnMut(&str)) -> bool {
    // A seed that fails without any fault shows nothing.
    let unsound: Vec<u64> = (1..=seeds).filter(|seed| run::run(*seed, false).violation.is_some()).collect();
    let mut missed = 0;
    for (which, breaks) in MUTANTS {
        let name = format!("{which:?}");
        match hunt(which, seeds, threads, &unsound) {
            Some((seed, violation)) => print(&format!("caught  {name:<22} seed {seed:>5}  by {violation}  [{breaks}]")),
            None => {
                missed += 1;
                print(&format!("MISSED  {name:<22} in {seeds} seeds  [{breaks}]"));
            }
        }
    }
    print(&format!("{} of {} caught", MUTANTS.len() - missed, MUTANTS.len()));
    missed == 0
}
