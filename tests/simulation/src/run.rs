//! One run: the world of a seed, its script, then a long calm; every event is followed by every check.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    check::{Checks, Violation},
    controller, disturb,
    script::{self, Disturbance},
    seconds, setup,
    world::{Event, World},
};

/// The script begins so long after the machines.
const SETTLE: Duration = seconds(700);
/// And lasts so long.
const SCRIPT: Duration = seconds(5_400);
/// Then nothing happens any more: what must come about in the end has come about.
const CALM: Duration = seconds(9_000);
/// A run has some thousands of events; one with so many goes round in a circle.
const MOST: u64 = 100_000;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Events, each followed by all checks.
    pub steps: u64,
    /// How often the core was asked.
    pub decisions: u64,
    /// Power calls that were carried out.
    pub reboots: usize,
    /// Machines whose removal was asked for.
    pub removals: Vec<String>,
    /// The invariant that did not hold.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub trace: Vec<String>,
    /// What went wrong from outside.
    pub script: Vec<Disturbance>,
}

/// Plays a seed.
#[must_use]
pub fn run(seed: u64, traced: bool) -> Outcome {
    play(seed, None, traced)
}

/// Plays a seed with a script that may be another than its own.
#[must_use]
pub fn play(seed: u64, script: Option<Vec<Disturbance>>, traced: bool) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let mut world = World::new(seed, traced);
    setup::populate(&mut world, &mut rng);
    let drawn = script::draw(&mut rng, world.state.pools.len(), SCRIPT);
    follow(world, seed, script.unwrap_or(drawn))
}

/// Lets a world that has its machines follow a script to the end.
#[must_use]
pub fn follow(mut world: World, seed: u64, script: Vec<Disturbance>) -> Outcome {
    world.script.clone_from(&script);
    for pool in 0..world.state.pools.len() {
        world.after(seconds(1), Event::Owner(pool));
    }
    for (entry, disturbance) in script.iter().enumerate() {
        world.at(world.began + SETTLE + disturbance.at, Event::Script(entry));
    }
    world.after(seconds(2), Event::Start(0, 0));
    world.after(seconds(9), Event::Start(1, 0));
    let mut checks = Checks::default();
    let calm_at = world.began + SETTLE + SCRIPT;
    let mut violation = until(&mut world, &mut checks, calm_at).err();
    if violation.is_none() {
        calm(&mut world);
        violation = until(&mut world, &mut checks, calm_at + CALM).err();
    }
    if violation.is_none() {
        violation = checks.at_end(&world).err();
    }
    let mut removals: Vec<String> = checks.memory.removals.iter().map(|(_, uid, ..)| uid.clone()).collect();
    removals.sort();
    removals.dedup();
    Outcome {
        seed,
        steps: checks.memory.events,
        decisions: world.decisions,
        reboots: checks.memory.executed.len(),
        removals,
        violation,
        trace: world.trace.take().unwrap_or_default(),
        script,
    }
}

fn until(world: &mut World, checks: &mut Checks, end: controller_core::time::Time) -> Result<(), Violation> {
    while world.advance(end).is_some() {
        checks.after(world)?;
        if checks.memory.events > MOST {
            let what = format!("{MOST} events, and no end: something is done over and over");
            return Err(Violation { invariant: 28, at: world.now.since(world.began), what });
        }
    }
    Ok(())
}

/// No more faults of servers, providers and controllers; people end their pauses and acknowledge what they find.
fn calm(world: &mut World) {
    world.say(|_| "** calm".to_owned());
    world.infrastructure.fates.clear();
    world.infrastructure.lies.clear();
    world.slow_boots.clear();
    world.controllers.iter_mut().for_each(|c| c.accidents.clear());
    world.state.clusters.iter_mut().for_each(|c| c.paused = false);
    world.state.pools.iter_mut().for_each(|p| {
        p.owner.paused = false;
        p.bad_images = 0;
    });
    disturb::acknowledge(world);
    world.state.note_pauses(world.now);
    for pool in 0..world.state.pools.len() {
        world.after(seconds(1), Event::Owner(pool));
    }
    for who in 0..world.controllers.len() {
        let run = world.controllers.get(who).map_or(0, |c| c.run);
        controller::start(world, who, run);
    }
}
