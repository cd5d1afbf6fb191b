//! A simulated node around the core: it answers looks from a state that a test sets, wakes the core when it asks to be woken, and writes
//! down every effect as one line.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod command;

use std::{collections::BTreeMap, time::Duration};

use agent_core::{
    BootTime, Config, Core, Effect, Fact, Look, Memory, Observation, Signal, Source, Stall,
    log::{LogRecord, Recognised, could_matter, recognise},
    mount::MountTable,
    observation::{FilesystemLook, Probe, Subject, TaskLook, TaskSeen},
};

/// How long a look takes that finds an answer.
const LOOK_TAKES: Duration = Duration::from_millis(1);

/// When a look without an answer says so.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);

/// How often a core may want to be woken without time passing, before that is a busy loop.
const MOST_TURNS: usize = 10_000;

pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) core: Option<Core>,
    pub(crate) now: BootTime,
    pub(crate) table: MountTable,
    /// What a probe of a mount point finds; `Writable` where nothing is set.
    pub(crate) filesystems: BTreeMap<String, Probe>,
    pub(crate) tasks: BTreeMap<u32, TaskSeen>,
    /// Ticks that nobody asked for, so often.
    pub(crate) needless_ticks: Option<Duration>,
    pub(crate) shows_looks: bool,
    /// One line an effect.
    pub(crate) lines: Vec<String>,
    pub(crate) effects: Vec<(BootTime, Effect)>,
    pending: BTreeMap<(BootTime, u64), Look>,
    blocked: Vec<(BootTime, Look)>,
    number: u64,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            config: Config::default(),
            core: None,
            now: BootTime::ZERO,
            table: MountTable::default(),
            filesystems: BTreeMap::new(),
            tasks: BTreeMap::new(),
            needless_ticks: None,
            shows_looks: false,
            lines: Vec::new(),
            effects: Vec::new(),
            pending: BTreeMap::new(),
            blocked: Vec::new(),
            number: 0,
        }
    }
}

impl Node {
    /// Starts the agent, with what is remembered; answers to an earlier run's looks are lost with it.
    pub(crate) fn start(&mut self, memory: Memory) {
        self.pending.clear();
        self.blocked.clear();
        self.core = Some(Core::new(self.config.clone(), self.now, memory));
        self.drain();
    }

    /// Kills the agent and starts it with what it had written down.
    pub(crate) fn restart(&mut self) {
        let memory = self.core.as_ref().map(|core| serde_json::to_string(core.memory()).expect("memory has only string keys"));
        self.start(memory.map(|json| serde_json::from_str(&json).expect("what was written can be read")).unwrap_or_default());
    }

    /// Lets time pass up to a moment, waking the core when it wants to be.
    pub(crate) fn advance(&mut self, to: BootTime) {
        for _ in 0..MOST_TURNS {
            let wake = self.core.as_ref().and_then(Core::wake_at);
            let answer = self.pending.keys().next().map(|(at, _)| *at);
            let needless = self.needless_ticks.map(|every| self.now + every);
            let Some(next) = [wake, answer, needless].into_iter().flatten().min().filter(|at| *at <= to) else {
                self.now = self.now.max(to);
                return;
            };
            self.now = self.now.max(next);
            match answer {
                Some(at) if at <= self.now => self.answer(),
                _ => self.tick(),
            }
        }
        panic!("the core does not sleep at {:?}", self.now);
    }

    pub(crate) fn tick(&mut self) {
        let now = self.now;
        if let Some(core) = &mut self.core {
            core.tick(now);
        }
        self.drain();
    }

    pub(crate) fn observe_at(&mut self, at: BootTime, fact: Fact) {
        let now = self.now;
        if let Some(core) = &mut self.core {
            core.observe(Observation { at, fact }, now);
        }
        self.drain();
    }

    pub(crate) fn observe(&mut self, fact: Fact) {
        self.observe_at(self.now, fact);
    }

    /// A line of the kernel, as the shell would read it from the kernel log.
    pub(crate) fn log_line(&mut self, at: BootTime, sequence: u64, text: &str) {
        self.record(at, format!("3,{sequence},{},-;{text}\n", at.since_boot().as_micros()).as_bytes());
    }

    /// A raw record of the kernel log.
    pub(crate) fn record(&mut self, at: BootTime, raw: &[u8]) {
        if !could_matter(raw) {
            return;
        }
        let record = LogRecord::parse(raw).expect("a record as the kernel writes it");
        if record.facility != 0 {
            return;
        }
        match recognise(&record.text) {
            None => {}
            Some(Recognised::OomContext(context)) => self.observe_at(at, Fact::OomContext(context)),
            Some(Recognised::Fault { detection, mut subject }) => {
                if let Subject::Device(device) = &mut subject {
                    let known = self.table.device_names.iter().find(|(_, name)| Some(name) == device.name.as_ref());
                    device.number = known.map(|(number, _)| *number);
                }
                let detail = String::from_utf8_lossy(&record.text).into_owned();
                let signal = Signal { detection, subject, detail, source: Source::KernelLog, sequence: Some(record.sequence) };
                self.observe_at(at, Fact::Signal(signal));
            }
        }
    }

    /// Sets what probes of a mount point find. One that waits for an answer gets it.
    pub(crate) fn set_filesystem(&mut self, mount_point: &str, probe: Probe) {
        self.filesystems.insert(mount_point.to_owned(), probe);
        if probe != Probe::Blocked {
            let (answered, waiting) = std::mem::take(&mut self.blocked).into_iter().partition(|(_, look)| is_at(look, mount_point));
            self.blocked = waiting;
            for (_, look) in answered {
                self.schedule(LOOK_TAKES, look);
            }
        }
    }

    /// The reasons and statuses of the announced conditions, one line each.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let conditions = self.core.as_ref().map(Core::conditions).unwrap_or_default();
        let mut lines: Vec<_> = conditions.iter().map(|c| format!("{} {} {}", c.kind, c.status, c.reason)).collect();
        lines.sort();
        lines
    }

    fn schedule(&mut self, after: Duration, look: Look) {
        self.number += 1;
        self.pending.insert((self.now + after, self.number), look);
    }

    fn answer(&mut self) {
        let Some((_, look)) = self.pending.pop_first() else { return };
        let fact = match &look {
            Look::Task { pid } => Fact::Task(TaskLook { pid: *pid, seen: self.tasks.get(pid).cloned().unwrap_or(TaskSeen::Gone) }),
            Look::Filesystem { mount_point, mount_id } => {
                let is_there = self.table.mounts.iter().any(|mount| mount.id == *mount_id && mount.mount_point == *mount_point);
                let outcome = if is_there { self.filesystems.get(mount_point).copied().unwrap_or(Probe::Writable) } else { Probe::Gone };
                let took = if outcome == Probe::Blocked { LOOK_DEADLINE } else { LOOK_TAKES };
                if outcome == Probe::Blocked {
                    self.blocked.push((self.now, look.clone()));
                }
                Fact::Filesystem(FilesystemLook { mount_point: mount_point.clone(), mount_id: *mount_id, outcome, took })
            }
        };
        self.observe(fact);
    }

    fn drain(&mut self) {
        let effects = self.core.as_mut().map(Core::effects).unwrap_or_default();
        for effect in effects {
            if let Effect::Look(look) = &effect {
                let is_blocked = |point| self.filesystems.get(point) == Some(&Probe::Blocked);
                let after = match look {
                    Look::Filesystem { mount_point, .. } if is_blocked(mount_point) => LOOK_DEADLINE,
                    Look::Filesystem { .. } | Look::Task { .. } => LOOK_TAKES,
                };
                self.schedule(after, look.clone());
            }
            if self.shows_looks || !matches!(effect, Effect::Look(_)) {
                self.lines.push(format!("> {} {}", seconds(self.now), line(&effect)));
            }
            self.effects.push((self.now, effect));
        }
    }
}

fn is_at(look: &Look, point: &str) -> bool {
    match look {
        Look::Filesystem { mount_point, .. } => mount_point == point,
        Look::Task { .. } => false,
    }
}

/// Seconds with milliseconds, as they stand in scenarios.
pub(crate) fn seconds(at: BootTime) -> String {
    let ms = at.since_boot().as_millis();
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn line(effect: &Effect) -> String {
    match effect {
        Effect::Condition(c) => format!("condition {} {} {} since {}: {}", c.kind, c.status, c.reason, seconds(c.since), c.message),
        Effect::Event(e) => format!("event {} {} at {}: {}", e.severity.as_str(), e.reason, seconds(e.at), e.message),
        Effect::Count { reason, by } => format!("count {reason} +{by}"),
        Effect::Stall { mount_point, is: Stall::Begun } => format!("stall of {mount_point} begun"),
        Effect::Stall { mount_point, is: Stall::Over } => format!("stall of {mount_point} over"),
        Effect::VolumeFault { pod, reason } => format!("volume fault of {pod} {reason}"),
        Effect::Look(Look::Filesystem { mount_point, mount_id }) => format!("look filesystem {mount_point} {mount_id}"),
        Effect::Look(Look::Task { pid }) => format!("look task {pid}"),
    }
}
