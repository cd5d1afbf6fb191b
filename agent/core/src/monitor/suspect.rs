//! One task that the kernel reported as hung: what the looks at it have shown, and when the next one is due.

use std::time::Duration;

use crate::{memory::HungTask, task::Task, time::BootTime, world::News};

/// How often a hung task is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A report older than this may be of a sleep that has ended since: one look does not tell.
const STALE: Duration = Duration::from_secs(10);

/// How long a task must have stayed asleep between two looks after a stale report.
const CONFIRM: Duration = Duration::from_secs(5);

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
    Before { start_ticks: u64, switches: u64 },
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
    pub(super) fn reported(comm: String, detail: String, reported: BootTime, news: News, sequence: Option<u64>) -> Self {
        Self { comm, detail, reported, news, sequence, look_at: None, unreadable: None, seen: Seen::Not }
    }

    pub(super) fn remembered(task: &HungTask) -> Self {
        let seen = Seen::Before { start_ticks: task.start_ticks, switches: task.switches };
        Self { seen, ..Self::reported(task.comm.clone(), String::new(), task.since, News::Known, None) }
    }

    /// The task, if it is known to hang.
    pub(super) fn hung(&self) -> Option<&Task> {
        match &self.seen {
            Seen::Hung(task) => Some(task),
            Seen::Not | Seen::Before { .. } | Seen::Asleep(_) => None,
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
        if task.state != 'D' {
            return Turn::Over;
        }
        let is_same = |start_ticks, switches| task.start_ticks == start_ticks && task.switches == switches;
        match &self.seen {
            Seen::Hung(before) if is_same(before.start_ticks, before.switches) => Turn::Same,
            Seen::Asleep(before) if is_same(before.start_ticks, before.switches) => self.hangs(task),
            Seen::Before { start_ticks, switches } if is_same(*start_ticks, *switches) => self.hangs(task),
            Seen::Hung(_) | Seen::Asleep(_) | Seen::Before { .. } => Turn::Over,
            Seen::Not if now.since(self.reported) <= STALE => self.hangs(task),
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
        let (start_ticks, switches) = match &self.seen {
            Seen::Hung(task) => (task.start_ticks, task.switches),
            Seen::Before { start_ticks, switches } => (*start_ticks, *switches),
            Seen::Not | Seen::Asleep(_) => return None,
        };
        Some(HungTask { pid, start_ticks, switches, comm: self.comm.clone(), since: self.reported })
    }
}
