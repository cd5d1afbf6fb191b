//! Effects as metrics, with node-problem-detector's names and habits.

use std::collections::BTreeMap;

use agent_core::{Condition, ConditionType, Detection, Effect, Status, effect::Stall};

use crate::metrics::Metrics;

/// Keeps `problem_gauge`, `problem_counter` and the gauges of filesystems and volumes.
#[derive(Debug)]
pub(super) struct Tally {
    metrics: Metrics,
    /// The reason under which each type's gauge stands at 1.
    raised: BTreeMap<ConditionType, String>,
}

impl Tally {
    /// Everything that can be counted starts at 0, so that a rate is there from the first fault on.
    pub(super) fn new(metrics: Metrics) -> Self {
        for detection in Detection::ALL {
            metrics.problem_counter.with_label_values(&[detection.reason()]).inc_by(0);
        }
        Self { metrics, raised: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Condition(condition) => self.condition(condition),
            Effect::Count { reason, by } => self.metrics.problem_counter.with_label_values(&[reason]).inc_by(*by),
            Effect::Stall { mount_point, is: Stall::Begun } => {
                self.metrics.filesystem_stalled.with_label_values(&[mount_point.as_str()]).set(1);
            }
            Effect::Stall { mount_point, is: Stall::Over } => {
                // A mount point that is gone leaves no series behind.
                let _ = self.metrics.filesystem_stalled.remove_label_values(&[mount_point.as_str()]);
            }
            Effect::VolumeFault { pod, reason } => self.metrics.volume_faults.with_label_values(&[pod.as_str(), *reason]).inc(),
            Effect::Event(_) | Effect::Look(_) => {}
        }
    }

    /// `Unknown` counts as 0, and a type has one series at 1 at the most.
    fn condition(&mut self, condition: &Condition) {
        let kind = condition.kind.as_str();
        // They are there from the first look on. A type that is not looked at has none: 0 would be a finding.
        for reason in condition.kind.problems() {
            let _at_least_zero = self.metrics.problem_gauge.with_label_values(&[kind, *reason]);
        }
        if let Some(before) = self.raised.remove(&condition.kind) {
            self.metrics.problem_gauge.with_label_values(&[kind, before.as_str()]).set(0);
        }
        let is_raised = condition.status == Status::True;
        self.metrics.problem_gauge.with_label_values(&[kind, condition.reason.as_str()]).set(i64::from(is_raised));
        if is_raised {
            self.raised.insert(condition.kind, condition.reason.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::BootTime;

    use super::*;

    #[test]
    fn a_type_has_one_series_at_one_and_unknown_is_zero() {
        let metrics = Metrics::new().unwrap();
        let mut tally = Tally::new(metrics.clone());
        let gauge = |reason: &str| metrics.problem_gauge.with_label_values(&["KernelDeadlock", reason]).get();
        let mut become_ = |status, reason: &str| {
            let kind = ConditionType::KernelDeadlock;
            tally.note(&Effect::Condition(Condition {
                kind,
                status,
                reason: reason.into(),
                message: String::new(),
                since: BootTime::ZERO,
            }));
        };
        become_(Status::False, "Fine");
        let text = prometheus::TextEncoder::new().encode_to_string(&metrics.registry.gather()).unwrap();
        assert!(text.contains("problem_gauge{reason=\"CriticalTaskHung\",type=\"KernelDeadlock\"} 0"), "{text}");
        assert!(!text.contains("StorageFault"), "{text}");
        become_(Status::True, "A");
        assert_eq!((gauge("A"), gauge("B")), (1, 0));
        become_(Status::True, "B");
        assert_eq!((gauge("A"), gauge("B")), (0, 1));
        become_(Status::Unknown, "C");
        assert_eq!((gauge("A"), gauge("B"), gauge("C")), (0, 0, 0));
    }
}
