//! What the monitors want done: looks, counters, and Events through the budget of their reason.

use crate::{
    budget::Budget,
    condition::{ConditionType, within_limit},
    config::Config,
    effect::{Effect, Event, Look, Severity},
    incident::Incidents,
    memory::Memory,
    time::BootTime,
};

/// Collects effects in order.
#[derive(Debug)]
pub(crate) struct Report {
    effects: Vec<Effect>,
    budget: Budget,
    is_memory_old: bool,
    /// Tells reports of one fault from reports of several.
    pub(crate) incidents: Incidents,
}

impl Report {
    pub(crate) fn new(config: &Config, memory: &Memory) -> Self {
        Self {
            effects: Vec::new(),
            budget: Budget::new(config.event_burst, config.event_refill),
            is_memory_old: true,
            incidents: Incidents::remembered(&memory.incidents),
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// A monitor has something else to remember.
    pub(crate) fn remember(&mut self) {
        self.is_memory_old = true;
    }

    /// Whether a monitor had something else to remember since this was last asked.
    pub(crate) fn take_remember(&mut self) -> bool {
        std::mem::take(&mut self.is_memory_old)
    }

    pub(crate) fn look(&mut self, look: Look) {
        self.effects.push(Effect::Look(look));
    }

    pub(crate) fn count(&mut self, reason: &'static str) {
        self.effects.push(Effect::Count { reason, by: 1 });
    }

    /// An Event about a problem that passes, within the budget of its reason.
    pub(crate) fn event(&mut self, at: BootTime, severity: Severity, reason: &'static str, message: String, now: BootTime) {
        self.spend(reason, Event { at, severity, reason: reason.to_owned(), message, condition: None }, now);
    }

    /// An Event about a change of a condition: it has a budget of its own, so that no storm of its reason hides it.
    pub(crate) fn transition(&mut self, kind: ConditionType, event: Event, now: BootTime) {
        self.spend(kind.as_str(), event, now);
    }

    pub(crate) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn spend(&mut self, key: &str, mut event: Event, now: BootTime) {
        let Some(held_back) = self.budget.spend(key, now) else { return };
        if held_back > 0 {
            // In front, so that a long message does not cut it off.
            event.message = format!("({held_back} of this reason held back before) {}", event.message);
        }
        event.message = within_limit(event.message);
        self.effects.push(Effect::Event(event));
    }
}
