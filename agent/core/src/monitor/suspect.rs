//! One task that the kernel reported as hung: what the looks at it have shown, and when the next one is due.

use std::time::Duration;

use crate::{
    memory::{HungTask, Sleeper},
    observation::{Signal, Source},
    task::Task,
    time::BootTime,
    world::News,
};

/// How often a hung task is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A report older than this may be of a sleep that has ended since: one look does not tell.
const STALE: Duration = Duration::from_secs(10);

/// How long a task must have stayed asleep between two looks after a stale report: longer than a slow disk takes, and short enough for the
/// first announcement of a boot.
const CONFIRM: Duration = Duration::from_secs(15);

/// A reported task.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) comm: String,
    /// The kernel's words.
    pub(super) detail: String,
    /// When the kernel first said so.
    pub(super) reported: BootTime,
    /// What is still to be told of it.
    pub(super) news: News,
    /// The log record that the telling waits for.
    pub(super) sequence: Option<u64>,
    /// Who reported it so far, untold.
    pub(super) by: Vec<Source>,
    /// An earlier run has told of it, and did not find it hung when it ended.
    pub(super) is_hearsay: bool,
    /// The node cannot live without it, as far as is known.
    pub(super) is_critical: bool,
    /// The kernel has reported it again since the last look.
    pub(super) is_repeated: bool,
    /// When to look next; nothing while a look is under way.
    pub(super) look_at: Option<BootTime>,
    /// Why the last look could not tell.
    pub(super) unreadable: Option<String>,
    pub(super) seen: Seen,
}

/// What has been seen of a suspect.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing yet.
    Not,
    /// It hung in an earlier run of the agent.
    Before(Sleeper),
    /// It slept; it may only just have fallen asleep.
    Asleep(Box<Task>),
    /// It hangs.
    Hung(Box<Task>),
}

/// What a look came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing new.
    Same,
    /// It is known to hang from now on.
    Hung,
    /// It does not hang.
    Over,
}

impl Suspect {
    pub(super) fn reported(at: BootTime, signal: &Signal, comm: String, news: News) -> Self {
        Self {
            comm,
            detail: signal.detail.clone(),
            reported: at,
            news,
            sequence: signal.sequence,
            by: vec![signal.source],
            is_hearsay: false,
            is_repeated: false,
            is_critical: true,
            look_at: None,
            unreadable: None,
            seen: Seen::Not,
        }
    }

    pub(super) fn remembered(task: &HungTask) -> Self {
        let seen = task.seen.map_or(Seen::Not, Seen::Before);
        Self {
            comm: task.comm.clone(),
            detail: String::new(),
            reported: task.since,
            news: News::Known,
            sequence: None,
            by: Vec::new(),
            is_hearsay: false,
            is_repeated: false,
            is_critical: task.is_critical,
            // It is looked at in the first turn.
            look_at: Some(BootTime::ZERO),
            unreadable: None,
            seen,
        }
    }

    /// The kernel reports it once more. The other source's report of the same hang is no repetition.
    pub(super) fn repeated(&mut self, at: BootTime) {
        self.is_repeated |= at.since(self.reported) > STALE;
    }

    /// The kernel reports anew what was hearsay: it is looked at as soon as that look may be made.
    pub(super) fn becomes(&mut self, news: Self) {
        let look_at = self.look_at.map(|_| BootTime::ZERO);
        *self = Self { look_at, ..news };
    }

    /// The task, if the last look found it hung.
    pub(super) fn hung(&self) -> Option<&Task> {
        match &self.seen {
            Seen::Hung(task) => self.unreadable.is_none().then_some(task),
            Seen::Not | Seen::Before(_) | Seen::Asleep(_) => None,
        }
    }

    /// Whether it is still to be found out.
    pub(super) fn is_open(&self) -> bool {
        self.unreadable.is_none() && self.hung().is_none()
    }

    /// A look could not tell.
    pub(super) fn could_not_be_read(&mut self, why: String, now: BootTime) {
        self.unreadable = Some(why);
        self.look_at = Some(now + LOOK_AGAIN);
    }

    /// A look found a task of this pid.
    pub(super) fn found(&mut self, task: Task, now: BootTime) -> Turn {
        self.unreadable = None;
        self.look_at = Some(now + LOOK_AGAIN);
        let is_repeated = std::mem::take(&mut self.is_repeated);
        if task.state != 'D' {
            return Turn::Over;
        }
        let is_same = |before: Sleeper| sleeper(&task) == before;
        match &self.seen {
            Seen::Hung(before) if is_same(sleeper(before)) => {
                // It may have been moved to another cgroup. What it waits for is the same, and may be told less well than before.
                let waits_for = before.waits_for.clone();
                self.seen = Seen::Hung(Box::new(Task { waits_for, ..task }));
                Turn::Same
            }
            Seen::Asleep(before) if is_same(sleeper(before)) => self.hangs(task),
            Seen::Before(before) if is_same(*before) => self.hangs(task),
            // It ran in between, and hangs again.
            Seen::Hung(_) | Seen::Asleep(_) | Seen::Before(_) if is_repeated => {
                self.seen = Seen::Hung(Box::new(task));
                Turn::Same
            }
            Seen::Hung(_) | Seen::Asleep(_) | Seen::Before(_) => Turn::Over,
            Seen::Not if now.since(self.reported) <= STALE => self.hangs(task),
            // The pid has been given to another task since. (Kernel workers show more of their name in `/proc` than in the report.)
            Seen::Not if !task.comm.starts_with(&self.comm) && !self.comm.starts_with(&task.comm) => Turn::Over,
            Seen::Not => {
                self.seen = Seen::Asleep(Box::new(task));
                self.look_at = Some(now + CONFIRM);
                Turn::Same
            }
        }
    }

    fn hangs(&mut self, task: Task) -> Turn {
        self.seen = Seen::Hung(Box::new(task));
        Turn::Hung
    }

    /// What to remember of it.
    pub(super) fn to_remember(&self, pid: u32) -> Option<HungTask> {
        let seen = match &self.seen {
            Seen::Hung(task) => Some(sleeper(task)),
            Seen::Before(before) => Some(*before),
            Seen::Not | Seen::Asleep(_) => None,
        };
        let is_told = seen.is_some() || self.unreadable.is_some();
        is_told.then(|| HungTask { pid, seen, is_critical: self.is_critical, comm: self.comm.clone(), since: self.reported })
    }
}

const fn sleeper(task: &Task) -> Sleeper {
    Sleeper { start_ticks: task.start_ticks, switches: task.switches }
}
