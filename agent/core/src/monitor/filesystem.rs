//! `ReadonlyFilesystem` and `StorageFault`: a filesystem that the node depends on refuses writes, or has not answered for minutes. What the
//! kernel says makes the agent probe; only a probe's outcome decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Monitor,
    watched::{Answer, Blocked, Health, Watched, errno},
};
use crate::{
    condition::{ConditionType, reason},
    device::Device,
    effect::{Effect, Look, Severity, Stall},
    memory::{KernelWords, Memory, StalledFilesystem},
    mount::SuperState,
    observation::{Fact, FilesystemLook, Observation, Signal, Source, SourceState, Subject},
    report::Report,
    time::BootTime,
    tracker::Verdict,
    world::{NodeMount, World},
};

/// How many filesystems a message names, and how many paths of each.
const NAMED: usize = 3;

/// Of how many devices the kernel's words are kept.
const MOST_WORDS: usize = 32;

/// Words nearer together than this are of one incident, and its first say most.
const ONE_INCIDENT: Duration = Duration::from_secs(10);

/// Reasons of the Events of a stall.
const STALLED: &str = "FilesystemStalled";
const RESPONDS: &str = "FilesystemResponds";

/// Watches the node's filesystems.
#[derive(Debug, Default)]
pub(super) struct Filesystems {
    watched: BTreeMap<u64, Watched>,
    stalled_before: Vec<StalledFilesystem>,
    words: Vec<Words>,
    /// Sources that are down: when they are back, hints may have been missed.
    down: BTreeSet<Source>,
}

/// What the kernel said about a device.
#[derive(Debug)]
struct Words {
    device: Device,
    at: BootTime,
    source: Source,
    text: String,
    /// By the last run of the agent.
    is_remembered: bool,
}

impl Filesystems {
    pub(super) fn remembered(memory: &Memory) -> Self {
        let words = memory.kernel_words.iter().map(|words| Words {
            device: Device { name: words.name.clone(), number: words.number },
            at: words.at,
            source: Source::KernelLog,
            text: words.text.clone(),
            is_remembered: true,
        });
        Self { stalled_before: memory.stalled.clone(), words: words.collect(), ..Self::default() }
    }

    fn mounts_changed(&mut self, world: &World, report: &mut Report) {
        let Some(table) = world.mounts() else { return };
        report.remember();
        let mut before = std::mem::take(&mut self.watched);
        for node in world.node_mounts() {
            let id = node.mount.id;
            let by_design = table.is_read_only_by_design(&node.mount);
            let (watched, look) = match before.remove(&id) {
                Some(mut watched) => {
                    let look = watched.changed(node.clone(), by_design);
                    (watched, look)
                }
                None => {
                    let is_it = |s: &&StalledFilesystem| s.mount_id == id && s.mount_point == node.mount.mount_point;
                    let stalled = self.stalled_before.iter().find(is_it).map(|s| s.since);
                    let mut watched = Watched::new(node.clone(), by_design, stalled);
                    let look = watched.ask();
                    (watched, look)
                }
            };
            if look {
                report.look(look_at(&watched));
            }
            self.watched.insert(id, watched);
        }
        self.stalled_before.clear();
        for gone in before.into_values().filter(|watched| watched.blocked.is_some()) {
            report.effect(Effect::Stall { mount_point: gone.node.mount.mount_point, is: Stall::Over });
        }
    }

    fn hinted(&mut self, at: BootTime, signal: &Signal, world: &World, report: &mut Report) {
        let Subject::Device(device) = &signal.subject else { return };
        if signal.detection.is_of_filesystem() {
            self.hear(at, signal, device, world);
        }
        // The first look at each filesystem is younger than this hint.
        if at < world.started && world.now.since(at) > ONE_INCIDENT {
            return;
        }
        for node in world.node_mounts_on(device) {
            if let Some(watched) = self.watched.get_mut(&node.mount.id)
                && watched.hint(at, world.now)
            {
                report.look(look_at(watched));
            }
        }
    }

    /// Keeps what the kernel says of a device: the first words of an incident, those of the log rather than of a tracepoint. While the
    /// filesystem is ill they stay, so that the message does not change with each repetition.
    fn hear(&mut self, at: BootTime, signal: &Signal, device: &Device, world: &World) {
        let new = Words { device: device.clone(), at, source: signal.source, text: signal.detail.clone(), is_remembered: false };
        let known = world.canonical(device);
        let is_ill = self.is_ill_on(device, world);
        let Some(old) = self.words.iter_mut().find(|words| world.canonical(&words.device) == known) else {
            if self.words.len() >= MOST_WORDS {
                self.words.remove(0);
            }
            self.words.push(new);
            return;
        };
        // What the log says once more after a restart: it may be of another filesystem that had the device before.
        if old.is_remembered && at < world.started {
            return;
        }
        let is_same = is_ill || at.since(old.at) <= ONE_INCIDENT;
        let is_better = old.source == Source::Ebpf && new.source == Source::KernelLog;
        if !is_same || is_better {
            *old = new;
        }
    }

    fn is_ill_on(&self, device: &Device, world: &World) -> bool {
        let is_ill = |node: &NodeMount| self.watched.get(&node.mount.id).is_some_and(|w| matches!(w.health, Health::Refuses { .. }));
        world.node_mounts_on(device).any(is_ill)
    }

    fn looked(&mut self, look: &FilesystemLook, world: &World, report: &mut Report) {
        let (rank, count) = (self.watched.range(..look.mount_id).count(), self.watched.len());
        let Some(watched) = self.watched.get_mut(&look.mount_id) else { return };
        report.remember();
        match Answer::of(look.outcome) {
            Some(answer) => {
                let was_blocked = watched.blocked.take();
                // The first looks are made together; the next are spread over the interval.
                let every = world.config.probe_interval;
                let is_first = watched.health == Health::NotLooked && count > 1;
                let share = u32::try_from(rank + 1).unwrap_or(1);
                let interval = if is_first { every / u32::try_from(count).unwrap_or(1) * share } else { every };
                watched.answered(answer, interval, world.now);
                if let Some(blocked) = was_blocked {
                    report.effect(Effect::Stall { mount_point: look.mount_point.clone(), is: Stall::Over });
                    if !blocked.is_remembered {
                        let message =
                            format!("{} answers again after {} s", named(watched, world), world.now.since(blocked.since).as_secs());
                        report.event(world.now, Severity::Normal, RESPONDS, message, world.now);
                    }
                }
                if watched.asked_meanwhile() {
                    report.look(look_at(watched));
                }
            }
            None => blocked(watched, look.took, world, report),
        }
    }

    fn look_at_all(&mut self, report: &mut Report) {
        for watched in self.watched.values_mut() {
            if watched.ask() {
                report.look(look_at(watched));
            }
        }
    }

    /// Why the node's filesystems are not known, if so.
    fn why_blind(&self, world: &World) -> Option<String> {
        let is_empty = world.mounts().is_some() && self.watched.is_empty();
        world.why_mounts_unknown().or_else(|| is_empty.then(|| "no mount holds any of the node's paths".to_owned()))
    }

    fn read_only(&self, world: &World) -> Verdict {
        let ill: Vec<_> = self
            .watched
            .values()
            .filter_map(|w| match w.health {
                Health::Refuses { refusal, from } if w.failed.is_none() => Some((w, refusal, from)),
                Health::Refuses { .. } | Health::NotLooked | Health::Writable | Health::Gone => None,
            })
            .collect();
        if let Some(from) = ill.iter().map(|(.., from)| *from).min() {
            let told = ill.iter().map(|(watched, refusal, _)| {
                let why = self.why_ill(watched, world).map(|why| format!("; {why}")).unwrap_or_default();
                format!("{} refuses writes: {}{why}", named(watched, world), errno(*refusal))
            });
            return Verdict::Bad { reason: reason::FILESYSTEM_IS_READ_ONLY, message: list(told.collect()), from };
        }
        if let Some(why) = self.why_blind(world) {
            return Verdict::Blind { why };
        }
        if let Some((watched, errno)) = self.watched.values().find_map(|w| Some((w, w.failed?))) {
            return Verdict::Blind { why: format!("the probe of {} failed with errno {errno}", named(watched, world)) };
        }
        let not_looked = |w: &&Watched| w.health == Health::NotLooked;
        if world.mounts().is_none() || self.watched.values().filter(not_looked).any(|w| w.blocked.is_none_or(|b| b.is_remembered)) {
            return Verdict::Pending;
        }
        if self.watched.values().any(|w| not_looked(&w)) {
            return Verdict::Kept;
        }
        Verdict::Good { reason: "FilesystemIsNotReadOnly", message: "Filesystem is not read-only".to_owned() }
    }

    fn stalled(&self, world: &World) -> Verdict {
        let after = world.config.stalled_after;
        let stalled: Vec<_> = self.watched.values().filter_map(|w| Some((w, w.blocked.filter(|b| b.is_fault)?))).collect();
        if let Some(from) = stalled.iter().map(|(_, blocked)| blocked.since + after).min() {
            let told = stalled.iter().map(|(watched, _)| format!("{} does not answer a write", named(watched, world)));
            return Verdict::Bad { reason: reason::STORAGE_DOES_NOT_RESPOND, message: list(told.collect()), from };
        }
        if let Some(why) = self.why_blind(world) {
            return Verdict::Blind { why };
        }
        let is_open = |w: &Watched| w.blocked.is_some_and(|b| b.is_remembered) || (w.health == Health::NotLooked && w.failed.is_none());
        if world.mounts().is_none() || self.watched.values().any(is_open) {
            return Verdict::Pending;
        }
        Verdict::Good { reason: "StorageResponds", message: "the node's filesystems answer".to_owned() }
    }

    /// What is known of the cause: an administrator's doing by the mount table, else the kernel's words.
    fn why_ill(&self, watched: &Watched, world: &World) -> Option<String> {
        let mount = &watched.node.mount;
        if watched.was_read_only {
            return Some("the mount itself is read-only, as after a remount by an administrator".to_owned());
        }
        let table = world.mounts()?;
        match self.words.iter().find(|words| table.is_on(mount, &words.device)) {
            Some(words) => Some(format!("the kernel said: {}", words.text)),
            None if watched.was_super == SuperState::ReadOnly => Some("the superblock is read-only".to_owned()),
            None => None,
        }
    }
}

impl Monitor for Filesystems {
    fn observe(&mut self, observation: &Observation, world: &World, report: &mut Report) {
        match &observation.fact {
            Fact::Mounts(_) => self.mounts_changed(world, report),
            Fact::Signal(signal) => self.hinted(observation.at, signal, world, report),
            Fact::Filesystem(look) => self.looked(look, world, report),
            Fact::Lost { .. } => self.look_at_all(report),
            Fact::Source { source, state } => match state {
                SourceState::Up { .. } => {
                    if self.down.remove(source) {
                        self.look_at_all(report);
                    }
                }
                SourceState::Down { .. } | SourceState::Absent { .. } => {
                    self.down.insert(*source);
                }
            },
            Fact::OomContext(_) | Fact::CaughtUp(_) | Fact::Task(_) => {}
        }
    }

    fn tick(&mut self, world: &World, report: &mut Report) {
        for watched in self.watched.values_mut() {
            if watched.is_due(world.now) {
                report.look(look_at(watched));
            }
        }
    }

    fn wake_at(&self) -> Option<BootTime> {
        self.watched.values().filter_map(Watched::wake_at).min()
    }

    fn verdicts(&self, world: &World) -> Vec<(ConditionType, Verdict)> {
        vec![(ConditionType::ReadonlyFilesystem, self.read_only(world)), (ConditionType::StorageFault, self.stalled(world))]
    }

    fn remember(&self, memory: &mut Memory) {
        let stalled = self.watched.values().filter_map(|watched| {
            let mount = &watched.node.mount;
            let since = watched.blocked?.since;
            Some(StalledFilesystem { mount_point: mount.mount_point.clone(), mount_id: mount.id, since })
        });
        memory.stalled = stalled.chain(self.stalled_before.iter().cloned()).collect();
        // Until the first looks after a restart are in, what was remembered stays so.
        let is_kept = |words: &&Words| {
            let on = self.watched.values().filter(|w| is_about(words, w));
            let mut on = on.peekable();
            (words.is_remembered && on.peek().is_none()) || on.any(|w| matches!(w.health, Health::Refuses { .. } | Health::NotLooked))
        };
        let to_keep = |words: &Words| KernelWords {
            name: words.device.name.clone(),
            number: words.device.number,
            at: words.at,
            text: words.text.clone(),
        };
        memory.kernel_words = self.words.iter().filter(is_kept).map(to_keep).collect();
    }
}

fn is_about(words: &Words, watched: &Watched) -> bool {
    let mount = &watched.node.mount;
    words.device.number == Some(mount.device)
        || (words.device.name.is_some() && words.device.name.as_deref() == mount.source.strip_prefix("/dev/"))
}

/// A probe has no answer yet.
fn blocked(watched: &mut Watched, took: Duration, world: &World, report: &mut Report) {
    match &mut watched.blocked {
        Some(blocked) if !blocked.is_remembered => {}
        known => {
            let since = BootTime::after_boot(world.now.since_boot().saturating_sub(took));
            let is_told = known.is_some();
            let since = known.map_or(since, |blocked| blocked.since);
            let is_fault = world.now.since(since) >= world.config.stalled_after;
            *known = Some(Blocked { since, is_remembered: false, fault_at: since + world.config.stalled_after, is_fault });
            report.effect(Effect::Stall { mount_point: watched.node.mount.mount_point.clone(), is: Stall::Begun });
            if !is_told {
                report.count(STALLED);
                let message = format!("{} has not answered a write for {} s", named(watched, world), took.as_secs());
                report.event(since, Severity::Warning, STALLED, message, world.now);
            }
        }
    }
}

fn look_at(watched: &Watched) -> Look {
    let mount = &watched.node.mount;
    Look::Filesystem { mount_point: mount.mount_point.clone(), mount_id: mount.id }
}

/// `sda1 (8:1) on /var (holds /var/log)`.
fn named(watched: &Watched, world: &World) -> String {
    let mount = &watched.node.mount;
    let device = world.mounts().and_then(|table| table.device_name(mount)).unwrap_or(&mount.source);
    let others: Vec<_> = watched.node.paths.iter().filter(|path| **path != mount.mount_point).map(String::as_str).collect();
    let holds = if others.is_empty() { String::new() } else { format!(" (holds {})", others.join(", ")) };
    format!("{device} ({}) on {}{holds}", mount.device, mount.mount_point)
}

fn list(mut told: Vec<String>) -> String {
    let more = told.len().saturating_sub(NAMED);
    told.truncate(NAMED);
    let told = told.join("; ");
    if more > 0 { format!("{told}; and {more} more") } else { told }
}
