//! Which invariants hold after each event: every one of the reference has a checker of its own here, or says where it is checked.
//!
//! Checkers know the truth of the world and what a controller had read; they share no code with the core. Tolerances: 60 s of true time for
//! windows, 15 s for what travels.

mod calls;
mod evidence;
mod explain;
mod gate;
mod liveness;
mod reading;
mod target;

use std::{collections::BTreeMap, fmt, rc::Rc, time::Duration};

use controller_core::{time::Time, view::PoolView};

use crate::{
    infrastructure::Executed,
    world::{Destruction, Happened, World},
};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the reference.
    pub invariant: u8,
    /// When, after the beginning.
    pub at: Duration,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} at {}s: {}", self.invariant, self.at.as_secs(), self.what)
    }
}

/// What a checker finds.
pub type Finding = Result<(), String>;

/// Checked on every destructive effect.
type OfDestruction = fn(&Memory, &World, &Destruction) -> Finding;
/// Checked on everything else that happened.
type OfEvent = fn(&Memory, &World, &Happened) -> Finding;
/// Checked on the state of the world.
type OfState = fn(&Memory, &World) -> Finding;

const DESTRUCTIONS: [(u8, OfDestruction); 26] = [
    (1, calls::an_intent_precedes_every_call),
    (4, target::no_pause_is_passed_over),
    (5, target::only_the_machine_that_was_meant),
    (6, target::only_the_node_of_the_machine),
    (7, evidence::a_whole_window_is_behind_it),
    (8, evidence::the_present_boot_wrote_it),
    (9, evidence::an_absent_condition_is_no_reason),
    (10, target::no_reboot_without_a_node),
    (11, gate::the_limit_holds_by_a_fresh_look),
    (13, gate::brake_and_latch_hold),
    (14, gate::budgets_hold),
    (15, gate::a_control_plane_loses_one_at_a_time),
    (16, gate::the_only_member_stays),
    (17, gate::frozen_is_frozen),
    (18, evidence::a_living_lease_is_no_death),
    (19, target::errors_are_no_absence),
    (20, calls::refusals_do_not_escalate),
    (21, gate::the_clock_is_known),
    (22, evidence::a_recovered_node_stays),
    (24, target::a_booting_machine_is_left_alone),
    (25, target::a_paused_machine_is_not_written),
    (26, evidence::silent_metal_starts_nothing),
    (27, gate::shadow_does_nothing),
    (34, target::a_deleted_machine_gets_no_call),
    (39, evidence::the_agent_still_speaks),
    (40, gate::a_wide_fault_stops_everything),
];

const EVENTS: [(u8, OfEvent); 13] = [
    (2, calls::once_per_intent_and_so_many_per_machine),
    (3, calls::two_leaders_never_both_send),
    (12, gate::no_more_claims_than_slots),
    (13, gate::the_brake_is_set),
    (13, gate::the_latch_is_set),
    (24, gate::booting_machines_do_not_count),
    (25, target::only_our_annotation_is_removed),
    (32, gate::nothing_is_released_early),
    (36, explain::each_change_is_told_once),
    (36, explain::what_is_said_is_true),
    (37, explain::history_has_every_action),
    (38, explain::the_core_is_pure),
    (23, calls::crashes_do_not_add_calls),
];

const STATES: [(u8, OfState); 6] = [
    (28, liveness::what_is_bad_is_confirmed),
    (29, liveness::every_claim_ends),
    (30, liveness::every_intent_is_resolved),
    (31, liveness::alternating_statuses_are_caught),
    (33, liveness::what_recovered_is_released),
    (36, explain::what_is_not_acted_on_says_why),
];

const ENDS: [(u8, OfState); 4] = [
    (28, liveness::what_is_bad_ends_somewhere),
    (32, liveness::quiet_releases_the_brake),
    (35, liveness::no_pool_waits_for_another),
    (37, explain::every_call_was_told),
];

/// What checkers remember.
#[derive(Default)]
pub struct Memory {
    /// Power calls that were carried out.
    pub executed: Vec<(usize, Executed)>,
    /// Power calls that left a controller: UID of the Machine, intent, when.
    pub sent: Vec<(String, String, Time)>,
    /// Removals that were asked for: pool, UID of the Machine, UID of its host, when.
    pub removals: Vec<(usize, String, Option<String>, Time)>,
    /// When too many were counted, by pool, as was persisted.
    pub excess: BTreeMap<usize, Time>,
    /// Pools in which too many were confirmed and nobody has acknowledged it, since when.
    pub latched: BTreeMap<usize, Time>,
    /// When a person last acknowledged.
    pub acknowledged: BTreeMap<usize, Time>,
    /// When Machines went.
    pub gone: BTreeMap<String, Time>,
    /// Remediations that are ready and say nothing, since when.
    pub speechless: BTreeMap<String, Time>,
    /// Power calls that were told of, by Machine name.
    pub told: BTreeMap<String, usize>,
    /// Machines whose remediation each pool was last seen to work on, since when nothing else was.
    pub events: u64,
}

/// All checkers.
#[derive(Default)]
pub struct Checks {
    /// What they remember.
    pub memory: Memory,
}

impl Checks {
    /// After one event.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn after(&mut self, world: &mut World) -> Result<(), Violation> {
        self.memory.events += 1;
        let happened = std::mem::take(&mut world.journal);
        for what in &happened {
            if let Happened::Destroyed(d) = what {
                for (number, check) in DESTRUCTIONS {
                    check(&self.memory, world, d).map_err(|e| violation(world, number, e))?;
                }
            }
            for (number, check) in EVENTS {
                check(&self.memory, world, what).map_err(|e| violation(world, number, e))?;
            }
            self.memory.remember(world, what);
        }
        // States change slowly against their bounds.
        if self.memory.events.is_multiple_of(8) {
            for (number, check) in STATES {
                check(&self.memory, world).map_err(|e| violation(world, number, e))?;
            }
        }
        Ok(())
    }

    /// When the run is over, after a long calm.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn at_end(&self, world: &World) -> Result<(), Violation> {
        for (number, check) in ENDS {
            check(&self.memory, world).map_err(|e| violation(world, number, e))?;
        }
        Ok(())
    }
}

fn violation(world: &World, invariant: u8, what: String) -> Violation {
    Violation { invariant, at: world.now.since(world.began), what }
}

impl Memory {
    fn remember(&mut self, world: &World, happened: &Happened) {
        let now = world.now;
        match happened {
            Happened::Destroyed(d) => match &d.blow {
                crate::world::Blow::Power(intent) => self.sent.push((d.uid.clone(), intent.clone(), now)),
                _ => {
                    let host = d.view.members.iter().find(|m| m.machine.uid == d.uid).and_then(|m| m.host.as_ref()).map(|h| h.uid.clone());
                    self.removals.push((d.pool, d.uid.clone(), host, now));
                }
            },
            Happened::Executed(e) => {
                let pool = world.state.machine(&e.machine_uid).map_or(usize::MAX, |m| m.pool);
                self.executed.push((pool, e.clone()));
            }
            Happened::PoolWritten { pool, after, view, .. } => self.pool_written(world, *pool, after, view),
            Happened::RemediationWritten { name, after, notices, .. } => {
                use controller_core::{effect::NoticeKind, state::Phase};
                let silent = after.phase == Phase::Gated && after.blocked_by.is_empty();
                if silent {
                    self.speechless.entry(name.clone()).or_insert(now);
                } else {
                    self.speechless.remove(name);
                }
                let calls = notices.iter().filter(|n| n.what == NoticeKind::Rebooted).count();
                *self.told.entry(name.clone()).or_default() += calls;
            }
            Happened::Gone { uid } => {
                self.gone.insert(uid.clone(), now);
            }
            Happened::Acknowledged(pool) => {
                self.acknowledged.insert(*pool, now);
            }
            Happened::Looked { .. } | Happened::AnnotationRemoved { .. } | Happened::Impure(_) => {}
        }
    }

    fn pool_written(&mut self, world: &World, pool: usize, after: &controller_core::state::PoolStatus, view: &Rc<PoolView>) {
        if after.frozen_since.is_some() {
            return;
        }
        let most = reading::most(view);
        if reading::counted(view, world) > most {
            self.excess.insert(pool, world.now);
        }
        if reading::confirmed(view) > most {
            self.latched.entry(pool).or_insert(world.now);
        } else if after.latches.is_empty() {
            self.latched.remove(&pool);
        }
    }
}
