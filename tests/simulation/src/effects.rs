//! Carries one effect of the core out against the simulated servers, with its precondition; whether it was done.

use std::rc::Rc;

use controller_core::{
    effect::{Effect, PowerCall, Precondition, Request},
    policy::Status,
    process::{Answer, Call},
    state::{PowerMode, RemediationStatus},
    view::{Persisted, PoolView, Texts},
};

use crate::{
    seconds,
    state::verdict,
    world::{Blow, Destruction, Event, Happened, World},
};

/// For people.
#[must_use]
pub const fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::LookDirectly => "LookDirectly",
        Effect::WritePool { .. } => "WritePool",
        Effect::WriteRemediation { .. } => "WriteRemediation",
        Effect::DropRemediation { .. } => "DropRemediation",
        Effect::AskInstance { .. } => "AskInstance",
        Effect::AskEvidence { .. } => "AskEvidence",
        Effect::Power(_) => "Power",
        Effect::RequestReplacement(_) => "RequestReplacement",
        Effect::WithdrawRequest { .. } => "WithdrawRequest",
        Effect::DeleteMachine { .. } => "DeleteMachine",
        Effect::RetireHost { .. } => "RetireHost",
        Effect::RemoveRemediateAnnotation { .. } => "RemoveRemediateAnnotation",
    }
}

/// Who carries it out, and on what look it rests.
type By = (usize, u32);

/// Carries it out. False: it was not, and everything is to be looked at again.
pub fn carry_out(world: &mut World, by: By, pool: usize, view: &Rc<PoolView>, effect: Effect) -> bool {
    match effect {
        Effect::LookDirectly => true,
        Effect::AskInstance { machine } => ask_instance(world, by.0, &machine),
        Effect::AskEvidence { machine, intent_id, intent_at } => {
            let now = world.now;
            let settings = world.state.pools.get(pool).map(|p| p.policy.spec.provider.clone()).unwrap_or_default();
            let uid = world.state.named(&machine).map(|m| m.machine.uid.clone()).unwrap_or_default();
            let Some(c) = world.controllers.get_mut(by.0) else { return false };
            let (intent_at, believed) = (intent_at, c.believes(now));
            let evidence = world.infrastructure.evidence(&settings, &uid, &intent_id, intent_at, believed);
            c.process.evidence.insert(intent_id.clone(), evidence.clone());
            world.say(|_| format!("evidence of {intent_id}: {evidence:?}"));
            true
        }
        Effect::Power(call) => power(world, by, pool, view, call),
        _ if !world.management_answers() => false,
        Effect::WritePool { resource_version, status, .. } => write_pool(world, pool, view, resource_version.as_deref(), *status),
        Effect::WriteRemediation { machine, precondition, status, finalizer, notices } => {
            let before = world.state.remediations.get(&machine).map(|r| Box::new(r.status.clone()));
            if !write_remediation(world, &machine, precondition.as_ref(), &status, finalizer) {
                return false;
            }
            world.say(|_| {
                let holds: Vec<String> = status.blocked_by.iter().map(ToString::to_string).collect();
                let why = status.last_decision.as_ref().map_or("", |d| d.why.as_str());
                format!("c{} {machine}: {} ({why}) {}", by.0, status.phase, holds.join("; "))
            });
            let (after, view) = (status, Rc::clone(view));
            if let Some(m) = world.state.machines.iter_mut().find(|m| m.machine.name == machine) {
                m.pause_noticed |= after.paused_since.is_some() && m.paused_since.is_some();
            }
            world.journal.push(Happened::RemediationWritten { name: machine, before, after, notices, view });
            true
        }
        Effect::DropRemediation { machine, precondition } => drop_remediation(world, &machine, &precondition),
        Effect::RequestReplacement(request) => ask_owner(world, by, pool, view, &request),
        Effect::WithdrawRequest { machine, precondition } => {
            let done = on_machine(world, &machine, &precondition, |m| {
                (m.health_check_succeeded, m.owner_remediated) = (None, None);
            });
            if done {
                world.say(|_| format!("c{} withdraws its request for {machine}", by.0));
            }
            done
        }
        Effect::DeleteMachine { machine, precondition } => {
            let uid = precondition.uid.clone();
            if world.state.named(&machine).is_none_or(|m| of(&m.machine) != precondition) {
                return false;
            }
            destroyed(world, by, pool, view, (Blow::Delete, uid.clone(), machine));
            world.delete_machine(&uid);
            true
        }
        Effect::RetireHost { host, precondition } => retire(world, by, pool, view, &host, &precondition),
        Effect::RemoveRemediateAnnotation { machine, precondition } => {
            let paused = view.members.iter().any(|m| m.machine.name == machine && is_paused(m, view));
            world.journal.push(Happened::AnnotationRemoved { uid: precondition.uid.clone(), paused });
            on_machine(world, &machine, &precondition, |m| {
                m.annotations.remove(controller_core::REMEDIATE);
            })
        }
    }
}

fn is_paused(m: &controller_core::view::Member, view: &PoolView) -> bool {
    let keys = [controller_core::PAUSED, controller_core::SKIP_REMEDIATION];
    keys.iter().any(|k| m.machine.annotations.contains_key(*k)) || view.cluster.paused || view.owner.paused
}

fn of(machine: &controller_core::view::Machine) -> Precondition {
    Precondition { uid: machine.uid.clone(), resource_version: machine.resource_version.clone() }
}

fn on_machine(
    world: &mut World,
    name: &str,
    precondition: &Precondition,
    change: impl FnOnce(&mut controller_core::view::Machine),
) -> bool {
    let Some(m) = world.state.named(name).filter(|m| of(&m.machine) == *precondition) else { return false };
    let (uid, pool) = (m.machine.uid.clone(), m.pool);
    world.state.write(&uid, change);
    world.wake(pool);
    true
}

fn destroyed(world: &mut World, by: By, pool: usize, view: &Rc<PoolView>, (blow, uid, name): (Blow, String, String)) {
    let believed = world.controllers.get(by.0).map_or(world.now, |c| c.believes(world.now));
    world.say(|_| format!("!! c{} {blow:?} {name} ({uid})", by.0));
    let view = Rc::clone(view);
    world.journal.push(Happened::Destroyed(Box::new(Destruction { blow, by, pool, uid, name, view, believed })));
}

fn ask_instance(world: &mut World, who: usize, name: &str) -> bool {
    let now = world.now;
    let Some(m) = world.state.named(name) else { return false };
    let kind = world.state.pools.get(m.pool).map(|p| p.policy.spec.provider.kind).unwrap_or_default();
    let (uid, exists, booting) = (m.machine.uid.clone(), m.body.exists, m.body.booting_until.is_some());
    let Some(c) = world.controllers.get_mut(who) else { return false };
    let believed = c.believes(now);
    let look = world.infrastructure.look(&uid, exists, kind, booting, believed);
    c.instances.insert(uid, look);
    world.say(|_| format!("provider says of {name}: {look:?}"));
    true
}

fn power(world: &mut World, by: By, pool: usize, view: &Rc<PoolView>, call: PowerCall) -> bool {
    let now = world.now;
    let Some(c) = world.controllers.get_mut(by.0) else { return false };
    if c.believes(now) >= call.deadline {
        c.process.calls.insert(call.intent_id, Call::Answered(Answer::NotSent));
        return false;
    }
    c.process.calls.insert(call.intent_id.clone(), Call::Sent);
    destroyed(world, by, pool, view, (Blow::Power(call.intent_id.clone()), call.machine_uid.clone(), call.machine.clone()));
    let exists = world.state.machine(&call.machine_uid).is_some_and(|m| m.body.exists);
    let treatment = world.infrastructure.call(exists, now);
    world.say(|_| format!("provider answers {}: {:?}", call.intent_id, treatment.answer));
    if treatment.fails {
        world.infrastructure.failed.push(call.intent_id.clone());
    }
    if let Some(at) = treatment.executes_at {
        let suffix = if call.mode == PowerMode::Soft { "/soft" } else { "" };
        let executed = crate::infrastructure::Executed {
            machine_uid: call.machine_uid.clone(),
            intent_id: format!("{}{suffix}", call.intent_id),
            at,
            by,
        };
        let travel = world.latency(10, 300);
        world.at(at + travel, Event::Execute(executed));
    }
    let delay = if treatment.answer == Answer::Unknown { seconds(5) } else { world.latency(400, 2_000) };
    world.after(delay, Event::Answer(by.0, by.1, pool, call.intent_id, treatment.answer));
    true
}

fn write_pool(
    world: &mut World,
    pool: usize,
    view: &Rc<PoolView>,
    version: Option<&str>,
    status: controller_core::state::PoolStatus,
) -> bool {
    let fresh = world.state.next_version();
    let uid = world.state.next_uid();
    let Some(p) = world.state.pools.get_mut(pool) else { return false };
    if p.persisted.as_ref().map(|p| p.resource_version.as_str()) != version {
        return false;
    }
    let before = Box::new(p.persisted.as_ref().map(|p| p.status.clone()).unwrap_or_default());
    let after = Box::new(status.clone());
    match &mut p.persisted {
        Some(persisted) => (persisted.status, persisted.resource_version) = (status, fresh),
        None => {
            let annotations = Texts::new();
            p.persisted = Some(Persisted { uid, resource_version: fresh, annotations, deleting: false, finalizer: false, status });
        }
    }
    if before.message != after.message {
        world.say(|_| format!("pool {pool}: {} of {} unhealthy: {}", after.unhealthy, after.machines, after.message));
    }
    world.journal.push(Happened::PoolWritten { pool, before, after, view: Rc::clone(view) });
    true
}

fn write_remediation(
    world: &mut World,
    name: &str,
    precondition: Option<&Precondition>,
    status: &RemediationStatus,
    finalizer: bool,
) -> bool {
    let (fresh, uid) = (world.state.next_version(), world.state.next_uid());
    match (world.state.remediations.get_mut(name), precondition) {
        (None, None) => {
            let status = status.clone();
            let made = Persisted { uid, resource_version: fresh, annotations: Texts::new(), deleting: false, finalizer, status };
            world.state.remediations.insert(name.to_owned(), made);
        }
        (Some(old), Some(p)) if old.uid == p.uid && old.resource_version == p.resource_version => {
            (old.status, old.resource_version, old.finalizer) = (status.clone(), fresh, finalizer);
            if old.deleting && !finalizer {
                world.state.remediations.remove(name);
            }
        }
        (None, Some(_)) | (Some(_), None | Some(_)) => return false,
    }
    true
}

fn drop_remediation(world: &mut World, name: &str, precondition: &Precondition) -> bool {
    let fresh = world.state.next_version();
    let Some(old) = world.state.remediations.get_mut(name) else { return false };
    if old.uid != precondition.uid || old.resource_version != precondition.resource_version {
        return false;
    }
    if old.finalizer {
        (old.deleting, old.resource_version) = (true, fresh);
    } else {
        world.state.remediations.remove(name);
    }
    world.say(|_| format!("{name}: nothing is needed any more"));
    true
}

fn ask_owner(world: &mut World, by: By, pool: usize, view: &Rc<PoolView>, request: &Request) -> bool {
    let reason = request.health_check_reason;
    let message = request.message.clone();
    let done = on_machine(world, &request.machine, &request.precondition, |m| {
        if let Some(reason) = reason {
            m.health_check_succeeded = Some(verdict(Status::False, reason, &message));
        }
        m.owner_remediated = Some(verdict(Status::False, "WaitingForRemediation", &message));
    });
    if done {
        destroyed(world, by, pool, view, (Blow::Request, request.precondition.uid.clone(), request.machine.clone()));
        let delay = world.latency(200, 1_000);
        world.after(delay, Event::Owner(pool));
    }
    done
}

fn retire(world: &mut World, by: By, pool: usize, view: &Rc<PoolView>, name: &str, precondition: &Precondition) -> bool {
    let fresh = world.state.next_version();
    let Some(p) = world.state.pools.get_mut(pool) else { return false };
    let found = p
        .hosts
        .iter_mut()
        .find(|(h, _)| h.name == name && h.uid == precondition.uid && h.resource_version == precondition.resource_version);
    let Some((host, on)) = found else { return false };
    (host.maintenance, host.resource_version) = (true, fresh);
    let uid = on.clone().unwrap_or_default();
    let name = world.state.machine(&uid).map(|m| m.machine.name.clone()).unwrap_or_default();
    destroyed(world, by, pool, view, (Blow::Retire, uid.clone(), name));
    // The infrastructure provider answers maintenance by asking for a remediation of the Machine.
    world.state.write(&uid, |m| {
        m.annotations.insert(controller_core::REMEDIATE.to_owned(), String::new());
    });
    world.wake(pool);
    true
}
