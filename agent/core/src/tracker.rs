//! Settles a monitor's verdicts into one condition: when it is raised and cleared, when it turns `Unknown`, and since when it holds.

use std::time::Duration;

use crate::{
    condition::{Condition, ConditionType, Status, within_limit},
    time::BootTime,
};

/// How long a verdict must be good before a raised condition is cleared. A mend has several steps (unmount, check, mount) and a broken device may
/// answer now and then; anything that acts on the condition does so after a minute or more.
const CLEAR_AFTER: Duration = Duration::from_secs(2);

/// What a monitor holds to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The fault is there.
    Bad {
        /// CamelCase.
        reason: &'static str,
        /// For a person.
        message: String,
        /// Since when it is there, as far as known.
        from: BootTime,
    },
    /// Looked, and it is not there.
    Good {
        /// CamelCase.
        reason: &'static str,
        /// For a person.
        message: String,
    },
    /// The first look is still to come.
    Pending,
    /// A look has no answer: what was held is kept.
    Kept,
    /// Cannot look.
    Blind {
        /// Why not.
        why: String,
    },
}

/// One condition on its way.
#[derive(Debug)]
pub(crate) struct Tracker {
    kind: ConditionType,
    unknown_after: Duration,
    verdict: Verdict,
    /// Since when the verdict has been of its kind.
    verdict_since: BootTime,
    /// What is held now; nothing before the first look.
    settled: Option<Condition>,
}

impl Tracker {
    pub(crate) fn new(kind: ConditionType, unknown_after: Duration, now: BootTime, remembered: Option<Condition>) -> Self {
        Self { kind, unknown_after, verdict: Verdict::Pending, verdict_since: now, settled: remembered }
    }

    pub(crate) fn settled(&self) -> Option<&Condition> {
        self.settled.as_ref()
    }

    /// Takes a verdict. Returns whether the condition changed.
    pub(crate) fn judge(&mut self, verdict: Verdict, now: BootTime) -> bool {
        if std::mem::discriminant(&verdict) != std::mem::discriminant(&self.verdict) {
            self.verdict_since = now;
        }
        self.verdict = verdict;
        self.settle(now)
    }

    /// Lets time pass. Returns whether the condition changed.
    pub(crate) fn settle(&mut self, now: BootTime) -> bool {
        let held = now.since(self.verdict_since);
        match &self.verdict {
            Verdict::Bad { reason, message, from } => {
                let (reason, message, from) = (*reason, message.clone(), *from);
                self.become_(Status::True, reason, message, from, now)
            }
            Verdict::Good { reason, message } => {
                if self.status() == Some(Status::True) && held < CLEAR_AFTER {
                    return false;
                }
                let (reason, message) = (*reason, message.clone());
                self.become_(Status::False, reason, message, now, now)
            }
            Verdict::Pending if self.settled.is_some() && self.status() != Some(Status::Unknown) && held >= self.unknown_after => {
                self.become_(Status::Unknown, "NotLookedAtYet", "the first look has had no answer yet".into(), now, now)
            }
            Verdict::Blind { why } if held >= self.unknown_after || self.status() == Some(Status::Unknown) => {
                let message = format!("cannot look: {why}");
                self.become_(Status::Unknown, "CannotLook", message, now, now)
            }
            Verdict::Pending | Verdict::Kept | Verdict::Blind { .. } => false,
        }
    }

    /// Gives up waiting for the first look: what has not been looked at is `Unknown` from now on. Returns whether the condition changed.
    pub(crate) fn stop_waiting(&mut self, now: BootTime) -> bool {
        if self.settled.is_some() {
            return false;
        }
        match &self.verdict {
            Verdict::Blind { why } => {
                let message = format!("cannot look: {why}");
                self.become_(Status::Unknown, "CannotLook", message, now, now)
            }
            Verdict::Pending | Verdict::Kept | Verdict::Good { .. } | Verdict::Bad { .. } => {
                self.become_(Status::Unknown, "NotLookedAtYet", "the first look has had no answer yet".into(), now, now)
            }
        }
    }

    /// When [`Tracker::settle`] would change something, if no other verdict comes.
    pub(crate) fn wake_at(&self) -> Option<BootTime> {
        let due = match self.verdict {
            Verdict::Good { .. } if self.status() == Some(Status::True) => self.verdict_since + CLEAR_AFTER,
            Verdict::Pending if self.settled.is_some() => self.verdict_since + self.unknown_after,
            Verdict::Blind { .. } => self.verdict_since + self.unknown_after,
            Verdict::Bad { .. } | Verdict::Good { .. } | Verdict::Pending | Verdict::Kept => return None,
        };
        let is_over = self.status() == Some(Status::Unknown) && !matches!(self.verdict, Verdict::Good { .. });
        (!is_over).then_some(due)
    }

    pub(crate) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether the first look has come to something.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.settled.is_some() && self.verdict != Verdict::Pending
    }

    fn status(&self) -> Option<Status> {
        self.settled.as_ref().map(|c| c.status)
    }

    fn become_(&mut self, status: Status, reason: &str, message: String, from: BootTime, now: BootTime) -> bool {
        let message = within_limit(message);
        // A fault is as old as the kernel's report of it, unless something else was held since.
        let since = match &self.settled {
            Some(c) if c.status == status => c.since,
            Some(c) if from <= c.since => now,
            Some(_) | None => from,
        };
        let next = Condition { kind: self.kind, status, reason: reason.to_owned(), message, since };
        if self.settled.as_ref() == Some(&next) {
            return false;
        }
        self.settled = Some(next);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(300);

    fn at(seconds: u64) -> BootTime {
        BootTime::after_boot(Duration::from_secs(seconds))
    }

    fn good() -> Verdict {
        Verdict::Good { reason: "Fine", message: "fine".into() }
    }

    fn bad(message: &str, from: BootTime) -> Verdict {
        Verdict::Bad { reason: "Broken", message: message.into(), from }
    }

    fn blind() -> Verdict {
        Verdict::Blind { why: "dark".into() }
    }

    fn tracker() -> Tracker {
        Tracker::new(ConditionType::KernelDeadlock, GRACE, at(0), None)
    }

    fn seen(t: &Tracker) -> Option<(Status, u64)> {
        t.settled().map(|c| (c.status, c.since.since_boot().as_secs()))
    }

    #[test]
    fn a_fault_is_raised_at_once_and_cleared_when_it_has_stayed_away() {
        let mut t = tracker();
        t.judge(good(), at(1));
        t.judge(bad("x", at(5)), at(5));
        assert_eq!(seen(&t), Some((Status::True, 5)));
        t.judge(good(), at(9));
        assert_eq!(seen(&t), Some((Status::True, 5)));
        assert_eq!(t.wake_at(), Some(at(11)));
        t.settle(at(11));
        assert_eq!(seen(&t), Some((Status::False, 11)));
    }

    #[test]
    fn another_message_does_not_move_the_transition_time() {
        let mut t = tracker();
        t.judge(bad("x", at(5)), at(5));
        assert!(t.judge(bad("y", at(50)), at(50)));
        assert_eq!(seen(&t), Some((Status::True, 5)));
        assert!(!t.judge(bad("y", at(60)), at(60)), "nothing changed");
    }

    #[test]
    fn not_looking_turns_unknown_only_after_the_grace() {
        let mut t = tracker();
        t.judge(good(), at(1));
        t.judge(blind(), at(10));
        t.settle(at(309));
        assert_eq!(seen(&t), Some((Status::False, 1)));
        assert_eq!(t.wake_at(), Some(at(310)));
        t.settle(at(310));
        assert_eq!(seen(&t), Some((Status::Unknown, 310)));
        assert_eq!(t.wake_at(), None);
    }

    #[test]
    fn what_was_never_looked_at_is_not_held_to_be_anything() {
        let mut t = tracker();
        t.settle(at(10_000));
        assert_eq!(seen(&t), None);
        t.stop_waiting(at(10_000));
        assert_eq!(seen(&t), Some((Status::Unknown, 10_000)));
    }

    #[test]
    fn a_remembered_condition_keeps_its_time_when_it_still_holds() {
        let mut first = tracker();
        first.judge(bad("x", at(5)), at(5));
        let mut t = Tracker::new(ConditionType::KernelDeadlock, GRACE, at(100), first.settled().cloned());
        t.judge(bad("x", at(101)), at(101));
        assert_eq!(seen(&t), Some((Status::True, 5)));
    }

    #[test]
    fn a_message_is_cut_at_a_character() {
        let mut t = tracker();
        t.judge(bad(&"é".repeat(2000), at(1)), at(1));
        let message = &t.settled().unwrap().message;
        assert!(message.len() <= 1024 && message.ends_with("é..."));
    }

    proptest! {
        #[test]
        fn a_condition_never_flaps_faster_than_it_settles(steps in prop::collection::vec((0..4u8, 0..5000u64), 1..200)) {
            let mut t = tracker();
            let (mut now, mut raised_at, mut good_since) = (0, None, None);
            for (verdict, wait) in steps {
                now += wait;
                let now = BootTime::after_boot(Duration::from_millis(now));
                let before = t.settled().map(|c| c.status);
                match verdict {
                    0 => { good_since = good_since.or(Some(now)); t.judge(good(), now); }
                    1 => { good_since = None; t.judge(bad("x", now), now); }
                    2 => { good_since = None; t.judge(blind(), now); }
                    _ => { t.settle(now); }
                }
                let after = t.settled().map(|c| c.status);
                if (before, after) == (Some(Status::True), Some(Status::False)) {
                    prop_assert!(good_since.is_some_and(|s| now.since(s) >= CLEAR_AFTER));
                    prop_assert!(raised_at.is_some_and(|r| now.since(r) >= CLEAR_AFTER));
                }
                if after == Some(Status::True) && before != after { raised_at = Some(now); }
            }
        }
    }
}
