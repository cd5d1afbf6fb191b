//! Monitors: each turns observations into verdicts about the conditions that it owns. No two own the same one.

mod critical;
mod deadlock;
mod filesystem;
mod oom;
mod passing;
mod suspect;
mod watched;

use std::fmt;

use crate::{
    condition::ConditionType, memory::Memory, observation::Observation, report::Report, time::BootTime, tracker::Verdict, world::World,
};

/// All of them.
pub(crate) fn all(memory: &Memory) -> Vec<Box<dyn Monitor>> {
    vec![
        Box::new(deadlock::Deadlock::remembered(memory)),
        Box::new(filesystem::Filesystems::remembered(memory)),
        Box::new(passing::Passing::default()),
    ]
}

/// One of them.
pub(crate) trait Monitor: fmt::Debug + Send {
    /// Takes in a fact. What it says of the world, `world` knows already.
    fn observe(&mut self, observation: &Observation, world: &World, report: &mut Report);

    /// Does what is due.
    fn tick(&mut self, world: &World, report: &mut Report);

    /// When something is due next.
    fn wake_at(&self) -> Option<BootTime>;

    /// What it holds to be so now, one verdict for each condition that it owns.
    fn verdicts(&self, _world: &World) -> Vec<(ConditionType, Verdict)> {
        Vec::new()
    }

    /// Adds what must survive a restart.
    fn remember(&self, _memory: &mut Memory) {}

    /// The first log record whose Event waits for a look.
    fn unfinished(&self) -> Option<u64> {
        None
    }
}
