//! The core's door: observations and ticks in, effects out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    condition::{Condition, ConditionType, Status},
    config::Config,
    effect::{Effect, Event, Severity},
    memory::Memory,
    monitor::{self, Monitor},
    observation::{Fact, Observation},
    report::Report,
    time::BootTime,
    tracker::{Tracker, Verdict},
    world::World,
};

/// For how long after the start the first announcement of a boot waits for the first looks.
const FIRST_LOOKS: Duration = Duration::from_secs(30);

/// All detection state. One task owns it.
#[derive(Debug)]
pub struct Core {
    world: World,
    report: Report,
    monitors: Vec<Box<dyn Monitor>>,
    trackers: BTreeMap<ConditionType, Tracker>,
    /// Types that the last run or this one has announced.
    announced: BTreeSet<ConditionType>,
    memory: Memory,
}

impl Core {
    /// A core that starts now, with what the last run of this boot remembered. What it remembers is announced at once, unchanged.
    #[must_use]
    pub fn new(config: Config, started: BootTime, mut memory: Memory) -> Self {
        memory.conditions.retain(|condition| config.enabled.contains(&condition.kind));
        let mut report = Report::new(&config, &memory);
        let remembered = |kind| memory.conditions.iter().find(|condition| condition.kind == kind).cloned();
        let trackers =
            config.enabled.iter().map(|kind| (*kind, Tracker::new(*kind, config.unknown_after, started, remembered(*kind)))).collect();
        for condition in &memory.conditions {
            report.effect(Effect::Condition(condition.clone()));
        }
        Self {
            world: World::new(config, started, memory.log_cursor),
            report,
            monitors: monitor::all(&memory),
            trackers,
            announced: memory.conditions.iter().map(|condition| condition.kind).collect(),
            memory,
        }
    }

    /// Takes in one fact; `now` is when it is handed over.
    #[expect(clippy::needless_pass_by_value, reason = "facts are handed over, whatever becomes of them inside")]
    pub fn observe(&mut self, observation: Observation, now: BootTime) {
        self.pass(now);
        self.world.learn(&observation);
        for monitor in &mut self.monitors {
            monitor.observe(&observation, &self.world, &mut self.report);
        }
        if let Fact::Signal(signal) = &observation.fact {
            self.world.log_cursor = self.world.log_cursor.max(signal.sequence);
        }
        self.settle();
    }

    /// Lets time pass. How often it is called changes nothing but how soon.
    pub fn tick(&mut self, now: BootTime) {
        self.pass(now);
        self.settle();
    }

    /// When [`Core::tick`] has something to do next, if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<BootTime> {
        let monitors = self.monitors.iter().filter_map(|monitor| monitor.wake_at());
        let trackers = self.trackers.values().filter_map(Tracker::wake_at);
        let is_waiting = self.announced.len() < self.trackers.len();
        monitors.chain(trackers).chain(is_waiting.then(|| self.world.started + FIRST_LOOKS)).min()
    }

    /// Takes out what is to be done, in order. What is remembered from now on counts it as done.
    pub fn effects(&mut self) -> Vec<Effect> {
        if self.report.take_remember() {
            for monitor in &self.monitors {
                monitor.remember(&mut self.memory);
            }
        }
        self.memory.incidents = self.report.incidents.unmatched(self.world.now);
        let unfinished = self.monitors.iter().filter_map(|monitor| monitor.unfinished()).min();
        let cursor = match unfinished {
            Some(sequence) => sequence.checked_sub(1),
            None => self.world.log_cursor,
        };
        self.memory.log_cursor = self.memory.log_cursor.max(cursor);
        self.report.take()
    }

    /// The conditions announced so far, one a type.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.memory.conditions
    }

    /// What to keep for the next start, as of the last call of [`Core::effects`].
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What is due by now comes before what happens now.
    fn pass(&mut self, now: BootTime) {
        self.world.now = self.world.now.max(now);
        for monitor in &mut self.monitors {
            monitor.tick(&self.world, &mut self.report);
        }
    }

    /// Hands the monitors' verdicts to the trackers, and announces what came of them.
    fn settle(&mut self) {
        let now = self.world.now;
        let verdicts: Vec<_> = self.monitors.iter().flat_map(|monitor| monitor.verdicts(&self.world)).collect();
        let mut changed = BTreeSet::new();
        for (kind, verdict) in verdicts {
            if self.trackers.get_mut(&kind).is_some_and(|tracker| tracker.judge(verdict, now)) {
                changed.insert(kind);
            }
        }
        changed.retain(|kind| self.announced.contains(kind));
        changed.extend(self.first_announcement());
        for kind in changed {
            self.announce(kind);
        }
    }

    /// The types whose first announcement is due: all at once, so that the first write of a boot carries every type.
    fn first_announcement(&mut self) -> Vec<ConditionType> {
        let waiting: Vec<_> = self.trackers.keys().copied().filter(|kind| !self.announced.contains(kind)).collect();
        let is_over = self.world.now >= self.world.started + FIRST_LOOKS;
        if !is_over && !waiting.iter().all(|kind| self.trackers.get(kind).is_some_and(Tracker::is_looked_at)) {
            return Vec::new();
        }
        for kind in &waiting {
            if let Some(tracker) = self.trackers.get_mut(kind) {
                tracker.stop_waiting(self.world.now);
            }
        }
        self.announced.extend(&waiting);
        waiting
    }

    fn announce(&mut self, kind: ConditionType) {
        let Some(tracker) = self.trackers.get(&kind) else { return };
        let Some(condition) = tracker.settled().cloned() else { return };
        let problem = match tracker.verdict() {
            Verdict::Bad { reason, .. } => Some(*reason),
            Verdict::Good { .. } | Verdict::Pending | Verdict::Kept | Verdict::Blind { .. } => None,
        };
        let before = self.memory.conditions.iter_mut().find(|known| known.kind == kind);
        let was = before.as_ref().map(|known| known.status);
        match before {
            Some(known) => *known = condition.clone(),
            None => self.memory.conditions.push(condition.clone()),
        }
        self.report.effect(Effect::Condition(condition.clone()));
        if was == Some(condition.status) || (was.is_none() && condition.status != Status::True) {
            return;
        }
        if let (Status::True, Some(reason)) = (condition.status, problem) {
            self.report.count(reason);
        }
        let Condition { status, reason, message, since, .. } = condition;
        let severity = if status == Status::False { Severity::Normal } else { Severity::Warning };
        let message = format!("Node condition {kind} is now: {status}, reason: {reason}, message: \"{message}\"");
        self.report.transition(kind, Event { at: since, severity, reason, message, condition: Some(kind) }, self.world.now);
    }
}
