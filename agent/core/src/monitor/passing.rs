//! Problems that pass: one Event and one count for each, whichever sources report it. They decide no condition.

use super::{Monitor, oom::Kills};
use crate::{
    detection::Detection,
    effect::{Effect, Severity},
    incident::Repeats,
    observation::{Fact, Observation, Signal, Source, Subject},
    report::Report,
    time::BootTime,
    world::{News, Place, World},
};

/// Reason of the Event that says that reports of the kernel were lost.
const LOST: &str = "KernelReportsLost";

/// Tells them.
#[derive(Debug, Default)]
pub(super) struct Passing {
    kills: Kills,
}

impl Monitor for Passing {
    fn observe(&mut self, observation: &Observation, world: &World, report: &mut Report) {
        let at = observation.at;
        match &observation.fact {
            Fact::Signal(signal) => match signal.detection {
                Detection::OomKill => self.kills.killed(at, signal, world, report),
                // Told by the monitor that looks at the task.
                Detection::HungTask | Detection::HungTaskReportsSuppressed => {}
                // Lines that come in several pieces, or again and again while it lasts.
                Detection::RcuStall | Detection::KernelPanic => told(at, signal, Repeats::Same, world, report),
                Detection::Ext4Error
                | Detection::Ext4Warning
                | Detection::Ext4ReadOnly
                | Detection::Ext4Shutdown
                | Detection::JournalError
                | Detection::WritebackDataLoss
                | Detection::XfsShutdown
                | Detection::XfsCorruption
                | Detection::BlockIoError
                | Detection::BufferIoError
                | Detection::ScsiFault
                | Detection::RaidDegraded => told(at, signal, Repeats::Another, world, report),
            },
            Fact::OomContext(context) => self.kills.explained(at, context),
            Fact::Lost { source, count } => lost(at, *source, *count, world, report),
            Fact::Source { .. } | Fact::CaughtUp(_) | Fact::Mounts(_) | Fact::Filesystem(_) | Fact::Task(_) => {}
        }
    }

    fn tick(&mut self, world: &World, report: &mut Report) {
        self.kills.tick(world, report);
    }

    fn wake_at(&self) -> Option<BootTime> {
        self.kills.wake_at()
    }
}

fn told(at: BootTime, signal: &Signal, repeats: Repeats, world: &World, report: &mut Report) {
    let news = world.news(at, signal.sequence);
    let (object, place) = match &signal.subject {
        Subject::Machine => (String::new(), None),
        Subject::Task { pid, .. } => (pid.to_string(), None),
        Subject::Device(device) => (world.canonical(device), Some(world.place(device))),
    };
    // Of a node filesystem the condition says it, after a look.
    let is_left_to_condition = signal.detection == Detection::Ext4ReadOnly && matches!(place, Some(Place::Node { .. }));
    if news == News::Known || is_left_to_condition {
        return;
    }
    let key = format!("{} {object}", signal.detection);
    if !report.incidents.is_new(&key, signal.source, at, repeats) {
        return;
    }
    let reason = signal.detection.reason();
    report.count(reason);
    let message = match place {
        Some(Place::Volume { pod, mount_point }) => {
            let pod = pod.unwrap_or_else(|| "unknown".to_owned());
            report.effect(Effect::VolumeFault { pod: pod.clone(), reason });
            format!("volume of pod {pod} on {mount_point}: {}", signal.detail)
        }
        Some(Place::Node { mount_point }) => format!("node filesystem {mount_point}: {}", signal.detail),
        Some(Place::Elsewhere { mount_point: Some(mount_point) }) => format!("filesystem {mount_point}: {}", signal.detail),
        Some(Place::Elsewhere { mount_point: None }) | None => signal.detail.clone(),
    };
    if news == News::Fresh {
        report.event(at, Severity::Warning, reason, message, world.now);
    }
}

fn lost(at: BootTime, source: Source, count: u64, world: &World, report: &mut Report) {
    report.count(LOST);
    let message = format!(
        "{count} reports of source {} were lost; looking at the node's filesystems, since hints may be among them",
        source.as_str()
    );
    report.event(at, Severity::Warning, LOST, message, world.now);
}
