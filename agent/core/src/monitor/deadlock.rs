//! `KernelDeadlock`: a task that the node cannot live without is hung, or many are. The kernel's report makes the agent look at the task;
//! state, identity and switch count decide, and are looked at again until it runs.

use std::collections::BTreeMap;

use super::{
    Monitor,
    critical::{are_many, why_critical},
    suspect::{Suspect, Turn},
};
use crate::{
    condition::{ConditionType, reason},
    detection::Detection,
    effect::{Look, Severity},
    incident::Repeats,
    memory::Memory,
    observation::{Fact, Observation, Signal, Source, SourceState, Subject, TaskSeen},
    report::Report,
    task::{Owner, Task, WaitsFor},
    time::BootTime,
    tracker::Verdict,
    world::{News, World},
};

/// How many tasks are looked at at a time; of more, the kernel's report is told as it came.
const MOST: usize = 512;

/// How many tasks a message names.
const NAMED: usize = 3;

/// The eBPF program that sees hung tasks.
const HANG_PROGRAM: &str = "sched_process_hang";

/// Counter of the tasks beyond them.
const NOT_LOOKED_AT: &str = "HungTaskNotLookedAt";

/// Reason of the Event that says that pids cannot be looked up.
const OUT_OF_SIGHT: &str = "TasksOutOfSight";

/// Watches the tasks that the kernel reported.
#[derive(Debug, Default)]
pub(super) struct Deadlock {
    suspects: BTreeMap<u32, Suspect>,
    /// The kernel log reports no more hung tasks.
    is_log_silent: bool,
    /// That this agent cannot look tasks up has been said.
    is_out_of_sight_told: bool,
}

impl Deadlock {
    pub(super) fn remembered(memory: &Memory) -> Self {
        let suspects = memory.hung.iter().take(MOST).map(|task| (task.pid, Suspect::remembered(task)));
        Self { suspects: suspects.collect(), is_log_silent: memory.hung_reports_suppressed, is_out_of_sight_told: false }
    }

    fn reported(&mut self, at: BootTime, signal: &Signal, world: &World, report: &mut Report) {
        let Subject::Task { pid, comm } = &signal.subject else { return };
        if signal.source == Source::KernelLog && std::mem::take(&mut self.is_log_silent) {
            report.remember();
        }
        let mut news = world.news(at, signal.sequence);
        if let Some(suspect) = self.suspects.get_mut(pid).filter(|suspect| !suspect.is_hearsay || news == News::Known) {
            if news != News::Known {
                suspect.repeated(at);
            }
            if suspect.news == News::Known {
                report.incidents.is_new(&key(*pid), signal.source, at, Repeats::Same);
            } else {
                suspect.news = suspect.news.max(news);
                if !suspect.by.contains(&signal.source) {
                    suspect.by.push(signal.source);
                }
            }
            return;
        }
        let is_hearsay = news == News::Known;
        if !is_hearsay {
            if report.incidents.is_new(&key(*pid), signal.source, at, Repeats::Same) {
                // It is not told before the look: a restart must not take it for told.
                report.incidents.forget(&key(*pid));
            } else {
                news = News::Known;
            }
        }
        let mut suspect = Suspect::reported(at, signal, comm.clone(), news);
        suspect.is_hearsay = is_hearsay;
        if let Some(hearsay) = self.suspects.get_mut(pid) {
            hearsay.becomes(suspect);
            return;
        }
        if self.suspects.len() >= MOST {
            report.count(NOT_LOOKED_AT);
            tell(&mut suspect, *pid, "it is not looked at, since too many others are", world, report);
            return;
        }
        report.look(Look::Task { pid: *pid });
        report.remember();
        self.suspects.insert(*pid, suspect);
    }

    fn looked(&mut self, pid: u32, seen: &TaskSeen, world: &World, report: &mut Report) {
        let Some(suspect) = self.suspects.get_mut(&pid) else { return };
        report.remember();
        let is_over = match seen {
            TaskSeen::There(task) => match suspect.found((**task).clone(), world.now) {
                Turn::Same => false,
                Turn::Hung => {
                    let about = format!("{}it waits for {}", owner(&task.owner), waits_for(&task.waits_for));
                    tell(suspect, pid, &about, world, report);
                    false
                }
                Turn::Over => {
                    tell(suspect, pid, "it does not hang any more", world, report);
                    true
                }
            },
            TaskSeen::Gone => {
                tell(suspect, pid, "it is gone", world, report);
                true
            }
            TaskSeen::Unreadable(_) if suspect.is_hearsay => true,
            TaskSeen::Unreadable(why) => {
                tell(suspect, pid, &format!("it could not be looked at: {why}"), world, report);
                suspect.could_not_be_read(why.clone(), world.now);
                false
            }
            TaskSeen::OtherNamespace => {
                tell(suspect, pid, "it cannot be looked at from another PID namespace", world, report);
                if !std::mem::replace(&mut self.is_out_of_sight_told, true) {
                    let message =
                        "this agent is not in the host's PID namespace: hung tasks are told, but KernelDeadlock cannot turn True for them";
                    report.event(world.now, Severity::Warning, OUT_OF_SIGHT, message.to_owned(), world.now);
                }
                true
            }
        };
        suspect.is_critical = suspect.hung().map_or(suspect.is_critical, |task| why_critical(task, world).is_some());
        if is_over {
            self.suspects.remove(&pid);
        }
    }

    fn silenced(&mut self, at: BootTime, signal: &Signal, world: &World, report: &mut Report) {
        self.is_log_silent = true;
        report.remember();
        let news = world.news(at, signal.sequence);
        if news == News::Known || !report.incidents.is_new(Detection::HungTaskReportsSuppressed.as_str(), signal.source, at, Repeats::Same)
        {
            return;
        }
        report.count(Detection::HungTaskReportsSuppressed.reason());
        if news == News::Fresh {
            let then = match does_not_trace(world) {
                None => "hung tasks are seen by eBPF from now on".to_owned(),
                Some(why) => format!("further hung tasks cannot be seen, since eBPF does not see them either: {why}"),
            };
            let message = format!("the kernel log reports no more hung tasks (kernel.hung_task_warnings is used up); {then}");
            report.event(at, Severity::Warning, Detection::HungTaskReportsSuppressed.reason(), message, world.now);
        }
    }

    /// Why no new hung task would be seen, if so.
    fn why_blind(&self, world: &World) -> Option<String> {
        let log = match world.why_not(Source::KernelLog) {
            Some(why) => format!("the kernel log is not read: {why}"),
            None if self.is_log_silent => "the kernel log reports no more hung tasks (kernel.hung_task_warnings is used up)".to_owned(),
            None => return None,
        };
        Some(format!("{log}; {}", does_not_trace(world)?))
    }

    fn hung(&self) -> impl Iterator<Item = (&Suspect, &Task)> {
        self.suspects.values().filter_map(|suspect| Some((suspect, suspect.hung()?)))
    }

    fn verdict(&self, world: &World) -> Verdict {
        let critical: Vec<_> = self.hung().filter_map(|(suspect, task)| Some((suspect, task, why_critical(task, world)?))).collect();
        if let Some(from) = critical.iter().map(|(suspect, ..)| suspect.reported).min() {
            let tasks = critical.iter().map(|(suspect, task, why)| (*suspect, *task, Some(why.as_str()))).collect();
            return Verdict::Bad { reason: reason::CRITICAL_TASK_HUNG, message: name(tasks), from };
        }
        if are_many(self.hung().map(|(_, task)| task), world) {
            let mut reported: Vec<_> = self.hung().map(|(suspect, _)| suspect.reported).collect();
            reported.sort_unstable();
            let from = reported.get(world.config.many_hung.saturating_sub(1)).copied().unwrap_or(world.now);
            let tasks = self.hung().map(|(suspect, task)| (suspect, task, None)).collect();
            return Verdict::Bad { reason: reason::MANY_TASKS_HUNG, message: name(tasks), from };
        }
        if self.suspects.values().any(Suspect::is_open) || !world.has_caught_up(Source::KernelLog) {
            return Verdict::Pending;
        }
        let unreadable = self
            .suspects
            .iter()
            .filter(|(_, s)| s.is_critical)
            .find_map(|(pid, s)| Some(format!("hung task {}:{pid}: {}", s.comm, s.unreadable.as_ref()?)));
        match unreadable.or_else(|| self.why_blind(world)) {
            Some(why) => Verdict::Blind { why },
            None => Verdict::Good { reason: "KernelHasNoDeadlock", message: "kernel has no deadlock".to_owned() },
        }
    }
}

impl Monitor for Deadlock {
    fn observe(&mut self, observation: &Observation, world: &World, report: &mut Report) {
        match &observation.fact {
            Fact::Signal(signal) if signal.detection == Detection::HungTask => self.reported(observation.at, signal, world, report),
            Fact::Signal(signal) if signal.detection == Detection::HungTaskReportsSuppressed => {
                self.silenced(observation.at, signal, world, report);
            }
            Fact::Task(look) => self.looked(look.pid, &look.seen, world, report),
            Fact::Signal(_)
            | Fact::OomContext(_)
            | Fact::Lost { .. }
            | Fact::Source { .. }
            | Fact::CaughtUp(_)
            | Fact::Mounts(_)
            | Fact::Filesystem(_) => {}
        }
    }

    fn tick(&mut self, world: &World, report: &mut Report) {
        for (pid, suspect) in &mut self.suspects {
            if suspect.look_at.is_some_and(|at| at <= world.now) {
                suspect.look_at = None;
                report.look(Look::Task { pid: *pid });
            }
        }
    }

    fn wake_at(&self) -> Option<BootTime> {
        self.suspects.values().filter_map(|suspect| suspect.look_at).min()
    }

    fn verdicts(&self, world: &World) -> Vec<(ConditionType, Verdict)> {
        vec![(ConditionType::KernelDeadlock, self.verdict(world))]
    }

    fn remember(&self, memory: &mut Memory) {
        memory.hung_reports_suppressed = self.is_log_silent;
        memory.hung = self.suspects.iter().filter_map(|(pid, suspect)| suspect.to_remember(*pid)).collect();
    }

    fn unfinished(&self) -> Option<u64> {
        self.suspects.values().filter(|suspect| suspect.news != News::Known).filter_map(|suspect| suspect.sequence).min()
    }
}

/// Tells once what the kernel reported of a task, and what was found.
fn tell(suspect: &mut Suspect, pid: u32, found: &str, world: &World, report: &mut Report) {
    let news = std::mem::replace(&mut suspect.news, News::Known);
    if news == News::Known {
        return;
    }
    for source in std::mem::take(&mut suspect.by) {
        report.incidents.is_new(&key(pid), source, suspect.reported, Repeats::Same);
    }
    report.count(Detection::HungTask.reason());
    if news == News::Fresh || suspect.hung().is_some() {
        let message = format!("task {}:{pid} was reported hung; {found} ({})", suspect.comm, suspect.detail);
        report.event(suspect.reported, Severity::Warning, Detection::HungTask.reason(), message, world.now);
    }
}

fn key(pid: u32) -> String {
    format!("{} {pid}", Detection::HungTask)
}

/// Why the tracepoint of hung tasks is not seen, if so.
fn does_not_trace(world: &World) -> Option<String> {
    match world.source(Source::Ebpf) {
        None => Some("the eBPF source has not started".to_owned()),
        Some(SourceState::Up { degraded }) => degraded.iter().find(|what| what.contains(HANG_PROGRAM)).cloned(),
        Some(SourceState::Down { why } | SourceState::Absent { why }) => Some(format!("the eBPF source is not up: {why}")),
    }
}

/// Names tasks, the longest hung first. No durations: the message must only change with the state.
fn name(mut tasks: Vec<(&Suspect, &Task, Option<&str>)>) -> String {
    tasks.sort_by_key(|(suspect, task, _)| (suspect.reported, task.pid));
    let named: Vec<String> = tasks
        .iter()
        .take(NAMED)
        .map(|(_, task, why)| {
            let whose = why.map_or_else(|| owner(&task.owner), |why| format!("{why}, "));
            format!("task {}:{} is hung ({whose}waits for {})", task.comm, task.pid, waits_for(&task.waits_for))
        })
        .collect();
    let more = tasks.len().saturating_sub(NAMED);
    if more > 0 { format!("{}; and {more} more", named.join("; ")) } else { named.join("; ") }
}

fn owner(owner: &Owner) -> String {
    match owner {
        Owner::Init => "init, ".to_owned(),
        Owner::Kernel => "a kernel thread, ".to_owned(),
        Owner::Unit(unit) => format!("of {unit}, "),
        Owner::Pod(pod) => format!("of pod {}, ", pod.name.as_ref().unwrap_or(&pod.uid)),
        Owner::Other(cgroup) => format!("of cgroup {cgroup}, "),
    }
}

fn waits_for(what: &WaitsFor) -> String {
    match what {
        WaitsFor::Network => "a network filesystem or device".to_owned(),
        WaitsFor::Fuse => "a FUSE server".to_owned(),
        WaitsFor::Filesystem { device, mount_point } => format!("filesystem {mount_point} ({device})"),
        WaitsFor::Kernel => "the kernel itself".to_owned(),
        WaitsFor::Unknown => "something that cannot be told".to_owned(),
    }
}
