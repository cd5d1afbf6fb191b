//! One filesystem of the node: what its probes have shown, and when the next one is due.

use std::time::Duration;

use crate::{
    mount::SuperState,
    observation::{Probe, Refusal},
    time::BootTime,
    world::NodeMount,
};

/// After a hint the kernel may still be on its way to read-only (ext4's tracepoint fires before it acts; XFS shuts down when it next
/// writes its log): looked at again after these times.
const AFTER_HINT: [Duration; 6] = [
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Hints nearer together than this share one series of looks, so that a storm of them is no storm of probes.
const HINT_GAP: Duration = Duration::from_millis(500);

/// How often one that is ill, or whose probe fails, is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A look says within seconds at least that it has no answer yet; one that says nothing for so long is lost.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A filesystem that holds paths of the node.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) node: NodeMount,
    /// Somebody wrote down that it is read-only: it is not probed.
    pub(super) by_design: bool,
    pub(super) health: Health,
    /// Since when a probe has no answer.
    pub(super) blocked: Option<Blocked>,
    /// The errno with which the last probe itself failed.
    pub(super) failed: Option<i32>,
    /// What the mount table said of the mount, and of its superblock, at the last answer.
    pub(super) was_read_only: bool,
    pub(super) was_super: SuperState,
    is_asked: bool,
    /// Since when a look that was asked for has had no answer of any kind, as far as it was noticed.
    unanswered: Option<BootTime>,
    ask_again: bool,
    /// The next look without a hint; nothing while one is under way.
    periodic: Option<BootTime>,
    hinted: Option<BootTime>,
    /// The kernel's stamp of that hint.
    reported: BootTime,
    /// Looks of the present series that have been made.
    stage: usize,
}

/// What the last answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// None came yet.
    NotLooked,
    /// It takes writes.
    Writable,
    /// It refuses them.
    Refuses { refusal: Refusal, from: BootTime },
    /// It is not there any more, or covered.
    Gone,
}

/// A probe without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) since: BootTime,
    /// An earlier run told so; this run has not seen it yet.
    pub(super) is_remembered: bool,
    /// When it becomes a fault, if no answer comes.
    pub(super) fault_at: BootTime,
    pub(super) is_fault: bool,
}

impl Watched {
    pub(super) fn new(node: NodeMount, by_design: bool, stalled_since: Option<BootTime>) -> Self {
        Self {
            node,
            by_design,
            health: if by_design { Health::Writable } else { Health::NotLooked },
            blocked: stalled_since.map(|since| Blocked { since, is_remembered: true, fault_at: since, is_fault: false }),
            failed: None,
            was_read_only: false,
            was_super: SuperState::ReadWrite,
            is_asked: false,
            unanswered: None,
            ask_again: false,
            periodic: None,
            hinted: None,
            reported: BootTime::ZERO,
            stage: AFTER_HINT.len(),
        }
    }

    /// Wants a look. Returns whether it is to be made now; with one under way, it follows that one's end.
    pub(super) fn ask(&mut self) -> bool {
        if self.by_design {
            return false;
        }
        if self.is_asked {
            self.ask_again = true;
            return false;
        }
        self.is_asked = true;
        self.periodic = None;
        true
    }

    /// The kernel said something about it. Returns whether to look now.
    pub(super) fn hint(&mut self, reported: BootTime, now: BootTime) -> bool {
        // What refuses writes is looked at often enough.
        let is_ill = matches!(self.health, Health::Refuses { .. });
        if is_ill || self.hinted.is_some_and(|hinted| now.since(hinted) < HINT_GAP) {
            return false;
        }
        self.hinted = Some(now);
        self.reported = reported.min(now);
        self.stage = 0;
        self.ask()
    }

    /// An answer; the next look without a hint is made after `interval`, or sooner if it is ill.
    pub(super) fn answered(&mut self, outcome: Answer, interval: Duration, now: BootTime) {
        self.is_asked = false;
        self.unanswered = None;
        self.blocked = None;
        self.failed = None;
        self.was_read_only = self.node.mount.read_only;
        self.was_super = self.node.mount.super_state;
        self.health = match outcome {
            Answer::Writable => Health::Writable,
            Answer::Gone => Health::Gone,
            Answer::Refused(refusal) => {
                self.stage = AFTER_HINT.len();
                Health::Refuses { refusal, from: self.ill_since(now) }
            }
            Answer::Failed(errno) => {
                self.failed = Some(errno);
                self.health
            }
        };
        let is_well = matches!(outcome, Answer::Writable | Answer::Gone);
        self.periodic = Some(now + if is_well { interval } else { interval.min(LOOK_AGAIN) });
    }

    /// Since the kernel's report, if there was one just now.
    fn ill_since(&self, now: BootTime) -> BootTime {
        match self.health {
            Health::Refuses { from, .. } => from,
            Health::NotLooked | Health::Writable | Health::Gone => {
                let is_late = |hinted: BootTime| now.since(hinted) <= LOOK_AGAIN && now.since(self.reported) <= LOOK_AGAIN;
                if self.hinted.is_some_and(is_late) { self.reported } else { now }
            }
        }
    }

    /// It was remounted, or stands in the table for another reason than before.
    pub(super) fn changed(&mut self, node: NodeMount, by_design: bool) -> bool {
        let is_other = self.node.mount != node.mount || self.by_design != by_design;
        self.node = node;
        if std::mem::replace(&mut self.by_design, by_design) != by_design {
            self.health = if by_design { Health::Writable } else { Health::NotLooked };
        }
        if by_design {
            self.periodic = None;
            self.stage = AFTER_HINT.len();
        }
        is_other && self.ask()
    }

    /// Whether a look was asked for while one was under way, and is to be made now.
    pub(super) fn asked_meanwhile(&mut self) -> bool {
        std::mem::take(&mut self.ask_again) && self.ask()
    }

    /// Whether a look is due.
    pub(super) fn is_due(&mut self, now: BootTime) -> bool {
        if let Some(blocked) = self.blocked.as_mut().filter(|blocked| !blocked.is_remembered) {
            blocked.is_fault = blocked.fault_at <= now;
        }
        if self.is_forgotten(now) {
            return true;
        }
        let mut due = self.periodic.is_some_and(|at| at <= now);
        while self.next_after_hint().is_some_and(|at| at <= now) {
            self.stage += 1;
            due = true;
        }
        due && self.ask()
    }

    /// Whether a look was asked for so long ago that even "no answer yet" should have come: whoever makes looks has lost it, and without
    /// another one nothing would ever change again. That look is then asked for once more.
    fn is_forgotten(&mut self, now: BootTime) -> bool {
        let is_waiting = self.is_asked && self.blocked.is_none_or(|blocked| blocked.is_remembered);
        if !is_waiting {
            self.unanswered = None;
            return false;
        }
        let since = *self.unanswered.get_or_insert(now);
        let is_forgotten = now.since(since) >= FORGOTTEN;
        if is_forgotten {
            self.unanswered = Some(now);
        }
        is_forgotten
    }

    pub(super) fn wake_at(&self) -> Option<BootTime> {
        let forgotten = self.unanswered.map(|since| since + FORGOTTEN);
        let fault = self.blocked.filter(|blocked| !blocked.is_remembered && !blocked.is_fault).map(|blocked| blocked.fault_at);
        [self.periodic, self.next_after_hint(), fault, forgotten].into_iter().flatten().min()
    }

    fn next_after_hint(&self) -> Option<BootTime> {
        AFTER_HINT.get(self.stage).zip(self.hinted).map(|(after, hinted)| hinted + *after)
    }
}

/// The errno of a refusal, for people.
pub(super) const fn errno(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::ReadOnly => "EROFS (read-only file system)",
        Refusal::Io => "EIO (input/output error)",
        Refusal::Unclean => "EUCLEAN (structure needs cleaning)",
        Refusal::Shutdown => "ESHUTDOWN (shut down)",
    }
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Writable,
    Refused(Refusal),
    Gone,
    Failed(i32),
}

impl Answer {
    /// Of an outcome, unless that is that there is no answer.
    pub(super) const fn of(outcome: Probe) -> Option<Self> {
        match outcome {
            Probe::Writable => Some(Self::Writable),
            Probe::Refused(refusal) => Some(Self::Refused(refusal)),
            Probe::Gone => Some(Self::Gone),
            Probe::Failed(errno) => Some(Self::Failed(errno)),
            Probe::Blocked => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::DeviceNumber,
        mount::{Mount, SuperState},
    };

    fn watched() -> Watched {
        let mount = Mount {
            id: 1,
            parent: 0,
            device: DeviceNumber { major: 8, minor: 1 },
            root: "/".into(),
            mount_point: "/".into(),
            read_only: false,
            fs_type: "ext4".into(),
            source: "/dev/sda1".into(),
            super_state: SuperState::ReadWrite,
        };
        Watched::new(NodeMount { mount, paths: vec!["/".into()] }, false, None)
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::after_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn a_look_that_was_lost_is_asked_for_again() {
        let mut watched = watched();
        assert!(watched.ask());
        assert!(!watched.is_due(at(1)));
        assert_eq!(watched.wake_at(), Some(at(61)));
        assert!(!watched.is_due(at(60)));
        assert!(watched.is_due(at(61)), "nothing was heard of it for a minute");
        assert!(!watched.is_due(at(62)));
        watched.answered(Answer::Writable, Duration::from_secs(60), at(63));
        assert!(!watched.is_due(at(122)));
        assert!(watched.is_due(at(123)), "the periodic look");
    }
}
