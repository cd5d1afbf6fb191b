//! The core's door: observations and ticks in, effects out.

use serde::{Deserialize, Serialize};

use crate::{condition::Condition, config::Config, effect::Effect, observation::Observation, time::BootTime};

/// What must survive a restart of the agent within one boot. The shell keeps it beside the boot id and drops it when that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Conditions as last announced.
    pub conditions: Vec<Condition>,
    /// Sequence number of the last kernel log record whose Events have gone out.
    pub log_cursor: Option<u64>,
    /// Tasks that hung when this was written.
    #[serde(default)]
    pub hung: Vec<HungTask>,
    /// Filesystems whose probe had no answer when this was written.
    #[serde(default)]
    pub stalled: Vec<StalledFilesystem>,
    /// What a tracepoint has reported and the kernel log not yet.
    #[serde(default)]
    pub incidents: Vec<Incident>,
}

/// A task that hung, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HungTask {
    /// Thread id.
    pub pid: u32,
    /// With the pid, its identity.
    pub start_ticks: u64,
    /// How often it had run.
    pub switches: u64,
    /// Name as the kernel gave it.
    pub comm: String,
    /// When the kernel first said so.
    pub since: BootTime,
}

/// A filesystem whose probe had no answer, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalledFilesystem {
    /// Where.
    pub mount_point: String,
    /// Which mount there.
    pub mount_id: u64,
    /// Since when.
    pub since: BootTime,
}

/// A fault of one object, however many sources report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Which fault of what.
    pub key: String,
    /// When it was last reported.
    pub at: BootTime,
    /// Reports by tracepoint.
    pub traced: u64,
    /// Reports in the kernel log.
    pub logged: u64,
}

/// All detection state. One task owns it.
#[derive(Debug)]
pub struct Core {
    config: Config,
    memory: Memory,
    effects: Vec<Effect>,
}

impl Core {
    /// A core that starts now, with what the last run of this boot remembered.
    #[must_use]
    pub fn new(config: Config, _started: BootTime, memory: Memory) -> Self {
        Self { config, memory, effects: Vec::new() }
    }

    /// Takes in one fact; `now` is when it is handed over.
    pub fn observe(&mut self, _observation: Observation, _now: BootTime) {
        let _ = &self.config;
    }

    /// Lets time pass. How often it is called changes nothing but how soon.
    pub fn tick(&mut self, _now: BootTime) {}

    /// When [`Core::tick`] has something to do next, if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<BootTime> {
        None
    }

    /// Takes out what is to be done, in order.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The conditions announced so far, one a type.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.memory.conditions
    }

    /// What to keep for the next start.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}
