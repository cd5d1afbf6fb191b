//! One fault that a tracepoint and the kernel log both report is one incident, whichever comes first.

use std::{collections::BTreeMap, time::Duration};

use crate::{memory::Incident, observation::Source, time::BootTime};

/// How far apart two reports of one incident may be: the kernel log's own clock drifts against that of the tracepoints, and its reader may lag.
const WINDOW: Duration = Duration::from_secs(10);

/// How many incidents are kept apart at a time; beyond, the oldest is forgotten and may be counted twice.
const MOST: usize = 256;

/// How often a fault may be reported without being another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// Each report of one source is a fault of its own.
    Another,
    /// Several lines or records tell of the same one.
    Same,
}

/// The incidents of late.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    open: BTreeMap<String, Incident>,
}

impl Incidents {
    pub(crate) fn remembered(incidents: &[Incident]) -> Self {
        Self { open: incidents.iter().take(MOST).map(|i| (i.key.clone(), i.clone())).collect() }
    }

    /// Takes in a report. Returns whether it is a new incident: of n records and m lines about one object, the greater number is how often it happened.
    pub(crate) fn is_new(&mut self, key: &str, source: Source, at: BootTime, repeats: Repeats) -> bool {
        match self.open.get_mut(key) {
            // Read late from the log, while newer ones are open already.
            Some(open) if open.at.since(at) > WINDOW => return true,
            Some(open) if at.since(open.at) <= WINDOW => {
                open.at = open.at.max(at);
                let before = open.traced.max(open.logged);
                *side(open, source) += 1;
                return repeats == Repeats::Another && open.traced.max(open.logged) > before;
            }
            Some(_) | None => {}
        }
        self.make_room(key);
        let mut incident = Incident { key: key.to_owned(), at, traced: 0, logged: 0 };
        *side(&mut incident, source) += 1;
        self.open.insert(key.to_owned(), incident);
        true
    }

    /// Takes a report back: it is not told yet.
    pub(crate) fn forget(&mut self, key: &str) {
        self.open.remove(key);
    }

    /// What one source has told and the other may tell yet.
    pub(crate) fn unmatched(&self, now: BootTime) -> Vec<Incident> {
        self.open.values().filter(|i| i.traced != i.logged && now.since(i.at) <= WINDOW).cloned().collect()
    }

    fn make_room(&mut self, key: &str) {
        if self.open.len() < MOST || self.open.contains_key(key) {
            return;
        }
        let oldest = self.open.values().min_by_key(|i| i.at).map(|i| i.key.clone());
        if let Some(oldest) = oldest {
            self.open.remove(&oldest);
        }
    }
}

fn side(incident: &mut Incident, source: Source) -> &mut u64 {
    match source {
        Source::Ebpf => &mut incident.traced,
        Source::KernelLog | Source::Mounts => &mut incident.logged,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::after_boot(Duration::from_millis(ms))
    }

    #[test]
    fn a_fault_long_after_is_another_one() {
        let mut incidents = Incidents::default();
        assert!(incidents.is_new("a", Source::Ebpf, at(0), Repeats::Same));
        assert!(!incidents.is_new("a", Source::KernelLog, at(20), Repeats::Same));
        assert!(!incidents.is_new("a", Source::KernelLog, at(10_000), Repeats::Same));
        assert!(incidents.is_new("a", Source::KernelLog, at(20_001), Repeats::Same));
    }

    #[test]
    fn what_only_one_source_has_told_is_remembered() {
        let mut first = Incidents::default();
        first.is_new("a", Source::Ebpf, at(0), Repeats::Another);
        first.is_new("b", Source::KernelLog, at(0), Repeats::Another);
        first.is_new("b", Source::Ebpf, at(1), Repeats::Another);
        let remembered = first.unmatched(at(5));
        assert_eq!(remembered.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a"]);
        let mut second = Incidents::remembered(&remembered);
        assert!(!second.is_new("a", Source::KernelLog, at(20), Repeats::Another));
        assert!(first.unmatched(at(20_000)).is_empty());
    }

    #[test]
    fn a_storm_of_distinct_objects_is_bounded() {
        let mut incidents = Incidents::default();
        for i in 0..10_000 {
            incidents.is_new(&i.to_string(), Source::Ebpf, at(i), Repeats::Another);
        }
        assert_eq!(incidents.open.len(), MOST);
    }

    proptest! {
        #[test]
        fn however_records_and_lines_interleave_the_greater_number_is_counted(order in prop::collection::vec(any::<bool>(), 0..60)) {
            let mut incidents = Incidents::default();
            let count = order.iter().enumerate().filter(|(i, traced)| {
                let source = if **traced { Source::Ebpf } else { Source::KernelLog };
                incidents.is_new("a", source, at(*i as u64), Repeats::Another)
            }).count();
            let traced = order.iter().filter(|t| **t).count();
            prop_assert_eq!(count, traced.max(order.len() - traced));
        }
    }
}
