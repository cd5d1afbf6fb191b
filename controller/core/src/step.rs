//! One step of one pool: machines assessed, the gate, each machine's next phase, and at most one step towards something destructive.

use std::time::Duration;

use crate::{
    assess::{self, Assessed},
    effect::{Effect, Held, Intention, PoolPlan, PowerCall, Precondition, Request},
    episode::{self, MESSAGE, Ready, Step},
    fleet::{Fleet, Summary, Surroundings},
    gate::{self, Gate},
    permit::{self, Scene},
    policy::{Deletion, Exhaustion, Integration},
    power,
    process::Process,
    state::{Cause, Claim, DeleteIntent, Outcome, Past, PastAction, Phase, RemediationStatus, Stage},
    time::Time,
    view::{Orphan, Persisted, PoolView, View},
};

/// A direct view that is older is looked at again before anything is done.
const VIEW_FRESH: Duration = Duration::from_secs(10);
/// An orphan's open intent has arrived, or never will, so long after its deadline.
const ORPHAN_SETTLED: Duration = Duration::from_secs(20);

/// All pools, each with the others around it.
#[must_use]
pub fn plan(view: &View, now: Time) -> Vec<PoolPlan> {
    let assessed: Vec<Vec<Assessed<'_>>> = view.pools.iter().map(|pool| assess_all(pool, now)).collect();
    let summaries: Vec<Summary> = view.pools.iter().zip(&assessed).map(|(pool, members)| Summary::of(pool, members, now)).collect();
    let fleet = Fleet::of(&summaries, now);
    let around = summaries.iter().map(|summary| fleet.around(&summary.cluster));
    view.pools.iter().zip(assessed).zip(around).map(|((pool, members), around)| act(pool, &members, &around, &view.process, now)).collect()
}

/// What other pools must know of this one.
#[must_use]
pub fn summarize(pool: &PoolView, now: Time) -> Summary {
    Summary::of(pool, &assess_all(pool, now), now)
}

/// One pool. The same arguments give the same plan, always.
#[must_use]
pub fn step(pool: &PoolView, around: &Surroundings, process: &Process, now: Time) -> PoolPlan {
    act(pool, &assess_all(pool, now), around, process, now)
}

fn assess_all(pool: &PoolView, now: Time) -> Vec<Assessed<'_>> {
    pool.members.iter().map(|member| assess::assess(pool, member, now)).collect()
}

fn act(pool: &PoolView, members: &[Assessed<'_>], around: &Surroundings, process: &Process, now: Time) -> PoolPlan {
    let gate = gate::gate(pool, members, around, process, now);
    let jumped = process.clock.jumped_at.unwrap_or_default();
    let read_at = pool.read_at().filter(|at| now.since(*at) <= VIEW_FRESH && *at >= jumped);
    let read_at = if mutant!(CachedViewActs) { Some(now) } else { read_at };
    let scene = Scene { pool, process, gate: &gate, now, read_at };
    let mut turns: Vec<Turn<'_>> = Vec::new();
    let mut plan = PoolPlan { pool: pool.name.clone(), next: gate.due, ..PoolPlan::default() };
    let delegated = pool.policy.spec.integration == Integration::Delegated;
    for a in members {
        let persisted = a.member.remediation.as_ref();
        if let Some(other) = persisted.filter(|_| a.member.status().is_none()) {
            plan.effects.extend(orphan(&a.member.machine.name, other, now));
            continue;
        }
        let Some(status) = a.status.as_deref().cloned() else { continue };
        if delegated && persisted.is_none() {
            continue;
        }
        let before = persisted.map(|p| p.status.clone()).unwrap_or_default();
        let step = episode::advance(scene, a, &before, status);
        plan.next = earliest(plan.next, step.due);
        turns.push(Turn { a, before, step });
    }
    plan.holds = turns.iter().filter_map(Turn::held).collect();
    plan.gate.clone_from(&gate.status);
    let mut decision = Decision { gate: gate.clone(), last: None };
    towards(scene, &mut turns, &mut decision);
    effects(pool, &turns, decision, delegated, &mut plan);
    for Orphan { name, remediation } in &pool.orphans {
        plan.effects.extend(orphan(name, remediation, now));
    }
    // What is destructive comes last: nothing that failed before it is passed over.
    let (last, rest): (Vec<_>, Vec<_>) = plan.effects.into_iter().partition(|e| e.is_destructive() || *e == Effect::LookDirectly);
    plan.effects = rest.into_iter().chain(last).collect();
    if mutant!(CallBeforeIntent) {
        call_first(&mut plan, &turns);
    }
    plan
}

/// One machine's part of a step.
struct Turn<'a> {
    a: &'a Assessed<'a>,
    before: RemediationStatus,
    step: Step,
}

/// The one step towards something destructive.
struct Decision {
    gate: Gate,
    last: Option<Effect>,
}

impl Turn<'_> {
    fn held(&self) -> Option<Held> {
        let s = &self.step;
        let machine = self.a.member.machine.name.clone();
        let shown = !s.holds.is_empty() || !matches!(s.status.phase, Phase::Healthy | Phase::Succeeded);
        let why = s.status.last_decision.as_ref().map(|d| d.why.clone()).unwrap_or_default();
        let held = || Held { machine, phase: s.status.phase, intention: s.intention, because: s.holds.clone(), why, until: s.due };
        (shown && !s.drop).then(held)
    }
}

/// Decisions of a pool are serial: the machine that is furthest on, then the one that waits for longest, takes one step.
fn towards(scene: Scene<'_>, turns: &mut [Turn<'_>], decision: &mut Decision) {
    let rank = |turn: &Turn<'_>| {
        let claimed = scene.gate.claim_of(&turn.step.status.machine_uid).is_some();
        let order = match turn.step.ready {
            Some(Ready::Call(_)) => 0,
            Some(Ready::Remove) => 1,
            Some(Ready::Look) => 2,
            Some(Ready::Intend(_)) if claimed => 3,
            Some(Ready::Intend(_)) => 4,
            None => return None,
        };
        Some((order, turn.step.status.episode_since, turn.a.member.machine.name.clone()))
    };
    let first = turns.iter_mut().filter_map(|turn| rank(turn).map(|rank| (rank, turn))).min_by(|a, b| a.0.cmp(&b.0));
    let Some((_, turn)) = first else { return };
    let Some(ready) = turn.step.ready.clone() else { return };
    let uid = turn.step.status.machine_uid.clone();
    let claimed = |stage: Stage| {
        let persisted = scene.pool.persisted.iter().flat_map(|p| &p.status.claims).find(|c| c.machine_uid == uid && c.stage == stage);
        persisted.filter(|c| !gate::spent(c, Some(&turn.step.status)) && scene.gate.claim_of(&uid) == Some(*c)).is_some()
    };
    match ready {
        Ready::Look => decision.last = Some(Effect::LookDirectly),
        Ready::Call(call) => decision.last = Some(*call),
        Ready::Remove => decision.last = Some(removal(scene.pool, turn)),
        Ready::Intend(_) if scene.read_at.is_none() => decision.last = Some(Effect::LookDirectly),
        Ready::Intend(intention) => {
            let stage = if intention == Intention::Reboot { Stage::Reboot } else { Stage::Delete };
            if !claimed(stage) {
                claim(&mut decision.gate, turn, stage, scene.now);
            } else if stage == Stage::Reboot {
                power::intend(scene, turn.a, &mut turn.step.status);
                settle(turn, scene.now, "a reboot was decided");
            } else {
                let cause = turn.step.status.cause.map(|cause| episode::because(cause, turn.a)).unwrap_or_default();
                turn.step.status.delete_intent = Some(DeleteIntent {
                    machine_uid: uid.clone(),
                    resource_version: turn.a.member.machine.resource_version.clone(),
                    reason: format!("{cause}; {}", permit::pointless(scene, turn.a, &turn.step.status).unwrap_or("to be replaced")),
                    at: scene.now,
                    asked_at: None,
                });
                turn.step.status.phase = Phase::DeletePending;
                settle(turn, scene.now, "a removal was decided");
            }
            decision.last = Some(Effect::LookDirectly);
        }
    }
}

/// The phase changed after its machine's own step: told as that would have been.
fn settle(turn: &mut Turn<'_>, now: Time, why: &str) {
    use crate::effect::{Notice, NoticeKind};
    let phase = turn.step.status.phase;
    turn.step.status.last_decision = Some(crate::state::Decision { at: now, why: why.to_owned() });
    turn.step.notices.retain(|n| !matches!(n.what, NoticeKind::PhaseChanged(_)));
    let machine = Some(turn.a.member.machine.name.clone());
    turn.step.notices.push(Notice { machine, what: NoticeKind::PhaseChanged(phase), message: why.to_owned() });
}

/// Takes a slot, and enters the action into the history, in the same write as the gate.
fn claim(gate: &mut Gate, turn: &Turn<'_>, stage: Stage, now: Time) {
    let machine = &turn.a.member.machine;
    gate.status.claims.retain(|c| c.machine_uid != machine.uid);
    gate.status.claims.push(Claim {
        machine_uid: machine.uid.clone(),
        machine: machine.name.clone(),
        stage,
        since: now,
        replacement_uid: None,
    });
    gate.status.in_flight = u32::try_from(gate.status.claims.len()).unwrap_or(u32::MAX);
    if mutant!(NoHistory) {
        return;
    }
    let action = if stage == Stage::Reboot { PastAction::Reboot } else { PastAction::Replace };
    let host_uid = turn.a.member.host.as_ref().map(|host| host.uid.clone());
    gate.status.history.push(Past { machine_uid: machine.uid.clone(), host_uid, action, at: now });
}

/// How a machine is removed.
fn removal(pool: &PoolView, turn: &Turn<'_>) -> Effect {
    let (policy, machine) = (&pool.policy.spec, &turn.a.member.machine);
    if policy.on_exhaustion == Exhaustion::Retire
        && let Some(host) = turn.a.member.host.as_ref().filter(|host| !host.maintenance)
    {
        let precondition = Precondition { uid: host.uid.clone(), resource_version: host.resource_version.clone() };
        return Effect::RetireHost { host: host.name.clone(), precondition };
    }
    if policy.deletion == Deletion::Direct && (!pool.is_control_plane() || mutant!(ControlPlaneDeleted)) {
        return Effect::DeleteMachine { machine: machine.name.clone(), precondition: episode::of(machine) };
    }
    if pool.is_control_plane() && mutant!(ControlPlaneDeleted) {
        return Effect::DeleteMachine { machine: machine.name.clone(), precondition: episode::of(machine) };
    }
    let reason = match turn.step.status.cause {
        Some(Cause::StartupTimeout) => "NodeStartupTimeout",
        Some(Cause::NodeDeleted) => "NodeDeleted",
        Some(Cause::Annotation) => "HasRemediateAnnotation",
        Some(Cause::InstanceGone) => "UnhealthyMachine",
        Some(Cause::Condition | Cause::HealthCheck) | None => "UnhealthyNode",
    };
    let why = turn.step.status.delete_intent.as_ref().map_or("", |intent| intent.reason.as_str());
    Effect::RequestReplacement(Request {
        machine: machine.name.clone(),
        precondition: episode::of(machine),
        health_check_reason: (policy.integration == Integration::StandAlone).then_some(reason),
        message: format!("{MESSAGE}{why}"),
    })
}

fn effects(pool: &PoolView, turns: &[Turn<'_>], decision: Decision, delegated: bool, plan: &mut PoolPlan) {
    for turn in turns {
        plan.effects.extend(turn.step.effects.iter().cloned());
    }
    let Decision { gate, last } = decision;
    if pool.persisted.as_ref().is_none_or(|p| p.status != gate.status) {
        plan.effects.push(Effect::WritePool {
            resource_version: pool.persisted.as_ref().map(|p| p.resource_version.clone()),
            status: Box::new(gate.status),
            notices: gate.notices,
        });
    }
    for turn in turns {
        let machine = turn.a.member.machine.name.clone();
        let persisted = turn.a.member.remediation.as_ref();
        let precondition = persisted.map(whole);
        let finalizer = permit::pending(&turn.step.status).is_some();
        match (&precondition, turn.step.drop && !finalizer && !delegated) {
            (None, true) => {}
            (Some(precondition), true) if !persisted.is_some_and(|p| p.deleting || p.finalizer) => {
                plan.effects.push(Effect::DropRemediation { machine, precondition: precondition.clone() });
            }
            _ => {
                let same = persisted.is_some_and(|p| p.status == turn.step.status && p.finalizer == finalizer);
                if !same {
                    let status = Box::new(turn.step.status.clone());
                    let notices = turn.step.notices.clone();
                    plan.effects.push(Effect::WriteRemediation { machine, precondition, status, finalizer, notices });
                }
            }
        }
    }
    plan.effects.extend(last);
}

/// A remediation whose Machine is gone: its open intent is closed, then it goes too.
fn orphan(name: &str, remediation: &Persisted<RemediationStatus>, now: Time) -> Option<Effect> {
    let open = permit::pending(&remediation.status).map(|t| t.send_deadline + ORPHAN_SETTLED);
    if open.is_some_and(|until| now < until) {
        return None;
    }
    if open.is_none() && !remediation.finalizer {
        let precondition = whole(remediation);
        return (!remediation.deleting).then(|| Effect::DropRemediation { machine: name.to_owned(), precondition });
    }
    let mut status = remediation.status.clone();
    if let Some(last) = status.attempts.last_mut().filter(|t| t.outcome == Outcome::Pending) {
        last.outcome = Outcome::Unknown;
    }
    status.phase = Phase::Gone;
    Some(Effect::WriteRemediation {
        machine: name.to_owned(),
        precondition: Some(whole(remediation)),
        status: Box::new(status),
        finalizer: false,
        notices: Vec::new(),
    })
}

fn whole<S>(persisted: &Persisted<S>) -> Precondition {
    Precondition { uid: persisted.uid.clone(), resource_version: persisted.resource_version.clone() }
}

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// The fault of calling before writing.
fn call_first(plan: &mut PoolPlan, turns: &[Turn<'_>]) {
    for turn in turns {
        let Some(open) = permit::pending(&turn.step.status).filter(|open| permit::pending(&turn.before) != Some(*open)) else { continue };
        let call = PowerCall {
            machine: turn.a.member.machine.name.clone(),
            machine_uid: turn.step.status.machine_uid.clone(),
            provider_id: turn.a.member.machine.provider_id.clone().unwrap_or_default(),
            boot_id: open.pre_boot_id.clone(),
            intent_id: open.intent_id.clone(),
            attempt: open.n,
            mode: open.mode,
            deadline: open.send_deadline,
        };
        plan.effects.insert(0, Effect::Power(call));
    }
}
