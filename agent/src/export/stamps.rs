//! Wall-clock times of transitions: made once, kept for as long as the status holds. The core knows time since boot only, and the wall clock may
//! be set meanwhile.

use std::collections::BTreeMap;

use agent_core::{Condition, ConditionType, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// When each condition took on the status that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps(BTreeMap<ConditionType, Stamp>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    status: Status,
    at: Timestamp,
    /// The API server has it: from then on it is never changed.
    written: bool,
}

impl Stamps {
    /// The transition time of a condition: the one already given out while the status is the same, else one made from the core's.
    pub fn of(&mut self, condition: &Condition, clock: Clock) -> Timestamp {
        match self.0.get(&condition.kind) {
            Some(stamp) if stamp.status == condition.status => stamp.at,
            _ => {
                let at = to_seconds(clock.wall_at(condition.since));
                self.0.insert(condition.kind, Stamp { status: condition.status, at, written: false });
                at
            }
        }
    }

    /// Whether the API server has the transition times of all these conditions as they are.
    #[must_use]
    pub fn are_written(&self, conditions: &[Condition]) -> bool {
        let is_written = |c: &Condition| self.0.get(&c.kind).is_some_and(|stamp| stamp.status == c.status && stamp.written);
        conditions.iter().all(is_written)
    }

    /// Notes that the API server has taken a condition.
    pub fn note_written(&mut self, condition: &Condition) {
        if let Some(stamp) = self.0.get_mut(&condition.kind).filter(|stamp| stamp.status == condition.status) {
            stamp.written = true;
        }
    }

    /// Takes over what stands on the Node from an earlier run of this boot that left no other memory.
    pub fn adopt(&mut self, kind: ConditionType, status: Status, at: Timestamp) {
        let adopted = Stamp { status, at, written: true };
        match self.0.get(&kind) {
            None => drop(self.0.insert(kind, adopted)),
            Some(own) if own.status == status && !own.written => drop(self.0.insert(kind, adopted)),
            Some(_) => {}
        }
    }
}

/// Kubernetes keeps these times to the second.
fn to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_core::BootTime;

    use super::*;

    fn condition(status: Status, since: BootTime) -> Condition {
        Condition { kind: ConditionType::KernelDeadlock, status, reason: "R".into(), message: "m".into(), since }
    }

    #[test]
    fn a_time_once_given_out_is_kept_while_the_status_holds() {
        let mut stamps = Stamps::default();
        let now = Clock.now();
        let first = stamps.of(&condition(Status::True, now), Clock);
        // As after a step of the wall clock: the core's time would now be another wall time.
        let moved = now + Duration::from_secs(3600);
        assert_eq!(stamps.of(&condition(Status::True, moved), Clock), first);
        assert!(stamps.of(&condition(Status::False, moved), Clock) > first);
    }

    #[test]
    fn what_the_node_has_wins_over_what_was_never_written() {
        let mut stamps = Stamps::default();
        let deadlock = condition(Status::True, Clock.now());
        let own = stamps.of(&deadlock, Clock);
        stamps.adopt(deadlock.kind, Status::False, Timestamp::UNIX_EPOCH);
        assert_eq!(stamps.of(&deadlock, Clock), own, "another status: another transition");
        stamps.adopt(deadlock.kind, Status::True, Timestamp::UNIX_EPOCH);
        assert_eq!(stamps.of(&deadlock, Clock), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn what_has_been_written_stays() {
        let mut stamps = Stamps::default();
        let deadlock = condition(Status::True, Clock.now());
        let own = stamps.of(&deadlock, Clock);
        assert!(!stamps.are_written(std::slice::from_ref(&deadlock)));
        stamps.note_written(&deadlock);
        assert!(stamps.are_written(std::slice::from_ref(&deadlock)));
        stamps.adopt(deadlock.kind, Status::True, Timestamp::UNIX_EPOCH);
        assert_eq!(stamps.of(&deadlock, Clock), own);
    }
}
