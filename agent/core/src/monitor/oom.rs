//! Kills for want of memory: the tracepoint, the `oom-kill:` line and the `Killed process` line of one victim are one incident, told by
//! whose memory ran out and whose process died.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    detection::Detection,
    effect::Severity,
    incident::Repeats,
    observation::{OomContext, OomScope, Signal, Source, Subject},
    report::Report,
    time::BootTime,
    world::{News, World},
};

/// How long the tracepoint's report waits for the log to say whose memory it was.
const WAIT: Duration = Duration::from_secs(1);

/// How far apart the lines of one kill may be.
const TOGETHER: Duration = Duration::from_secs(10);

/// How many contexts and waiting victims are kept.
const MOST: usize = 64;

/// Kills of late.
#[derive(Debug, Default)]
pub(super) struct Kills {
    contexts: VecDeque<(BootTime, OomContext)>,
    waiting: BTreeMap<u32, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    at: BootTime,
    until: BootTime,
    comm: String,
    detail: String,
    news: News,
}

impl Kills {
    /// The `oom-kill:` line: known ones too, since their kill may be news.
    pub(super) fn explained(&mut self, at: BootTime, context: &OomContext) {
        if self.contexts.len() >= MOST {
            self.contexts.pop_front();
        }
        self.contexts.push_back((at, context.clone()));
    }

    /// A victim died.
    pub(super) fn killed(&mut self, at: BootTime, signal: &Signal, world: &World, report: &mut Report) {
        let Subject::Task { pid, comm } = &signal.subject else { return };
        let news = world.news(at, signal.sequence);
        if news == News::Known {
            return;
        }
        let victim = Waiting { at, until: world.now + WAIT, comm: comm.clone(), detail: signal.detail.clone(), news };
        let is_traced = signal.source == Source::Ebpf;
        let first = self.waiting.get(pid).map(|first| first.at).filter(|first| is_together(*first, at));
        if let Some(first) = first {
            if !is_traced {
                self.waiting.remove(pid);
                let victim = Waiting { at: first, news: News::Fresh, ..victim };
                self.tell(*pid, &victim, &[Source::Ebpf, signal.source], world, report);
            }
        } else if !report.incidents.is_new(&key(*pid), signal.source, at, Repeats::Same) {
            // Told by the other source.
        } else if is_traced && world.is_up(Source::KernelLog) && self.waiting.len() < MOST {
            // Not told until the log has said more: a restart must not take it for told.
            report.incidents.forget(&key(*pid));
            self.waiting.insert(*pid, victim);
        } else {
            self.tell(*pid, &victim, &[], world, report);
        }
    }

    pub(super) fn tick(&mut self, world: &World, report: &mut Report) {
        let due: Vec<u32> = self.waiting.iter().filter(|(_, victim)| victim.until <= world.now).map(|(pid, _)| *pid).collect();
        for pid in due {
            if let Some(victim) = self.waiting.remove(&pid) {
                self.tell(pid, &victim, &[Source::Ebpf], world, report);
            }
        }
    }

    pub(super) fn wake_at(&self) -> Option<BootTime> {
        self.waiting.values().map(|victim| victim.until).min()
    }

    /// Tells a kill, and takes note of the reports of it that were not yet.
    fn tell(&self, pid: u32, victim: &Waiting, reports: &[Source], world: &World, report: &mut Report) {
        for source in reports {
            report.incidents.is_new(&key(pid), *source, victim.at, Repeats::Same);
        }
        report.count(Detection::OomKill.reason());
        if victim.news != News::Fresh {
            return;
        }
        let is_it = |(at, c): &&(BootTime, OomContext)| c.pid == pid && is_together(victim.at, *at);
        let message = match self.contexts.iter().rev().find(is_it) {
            Some((_, context)) => {
                let (whose, why) = (whose(&context.victim_cgroup, world), why(&context.scope, world));
                format!("process {}:{pid} {whose} was killed: {why} ({})", victim.comm, victim.detail)
            }
            None => format!("process {}:{pid} was killed for want of memory ({})", victim.comm, victim.detail),
        };
        report.event(victim.at, Severity::Warning, Detection::OomKill.reason(), message, world.now);
    }
}

fn is_together(one: BootTime, other: BootTime) -> bool {
    one.since(other) <= TOGETHER && other.since(one) <= TOGETHER
}

fn key(pid: u32) -> String {
    format!("{} {pid}", Detection::OomKill)
}

/// Whose process died.
fn whose(cgroup: &str, world: &World) -> String {
    if let Some(uid) = pod_uid(cgroup) {
        return format!("of pod {}", pod_name(uid, world));
    }
    match cgroup.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope")) {
        Some(unit) if world.config.critical_units.contains(unit) => format!("of the node's {unit}"),
        Some(unit) => format!("of {unit}"),
        None => format!("of cgroup {cgroup}"),
    }
}

/// Whose memory ran out.
fn why(scope: &OomScope, world: &World) -> String {
    match scope {
        OomScope::System => "the machine ran out of memory".to_owned(),
        OomScope::Cgroup(limited) => match pod_uid(limited) {
            Some(uid) => format!("pod {} reached its memory limit", pod_name(uid.clone(), world)),
            None if limited.ends_with("/kubepods") || limited.ends_with("/kubepods.slice") => {
                "all pods together reached what the node allows them".to_owned()
            }
            None => format!("cgroup {limited} reached its memory limit"),
        },
    }
}

fn pod_name(uid: String, world: &World) -> String {
    world.mounts().and_then(|table| table.pod_name(&uid)).unwrap_or(uid)
}

/// The pod UID in a cgroup path: `/kubepods/burstable/podUID/...`, or `...-podUID.slice` with `_` for `-` where systemd keeps the cgroups.
fn pod_uid(cgroup: &str) -> Option<String> {
    cgroup.split('/').find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let at = part.rfind("pod")?;
        let is_start = at == 0 || part.get(..at)?.ends_with('-');
        let uid = part.get(at + 3..)?.replace('_', "-");
        let is_uid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        (is_start && is_uid).then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_in_the_cgroups_of_both_drivers() {
        let uid = "62015ce8-a46f-4b0e-a5a1-3082235c62dd";
        for (cgroup, found) in [
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod62015ce8_a46f_4b0e_a5a1_3082235c62dd.slice/x.scope",
                Some(uid),
            ),
            ("/kubepods/burstable/pod62015ce8-a46f-4b0e-a5a1-3082235c62dd/4f0c", Some(uid)),
            ("/kubepods.slice", None),
            ("/system.slice/podman.service", None),
            ("/leaker", None),
        ] {
            assert_eq!(pod_uid(cgroup).as_deref(), found, "{cgroup}");
        }
    }
}
