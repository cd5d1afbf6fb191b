//! The state machine of one machine: from what is persisted and how it was assessed to its next phase, and what it wants done.

use std::time::Duration;

use crate::{
    assess::{Assessed, GONE_AFTER},
    effect::{Effect, Intention, Notice, NoticeKind, Precondition},
    family::FLAP_SPAN,
    gate::DAY,
    hold::{Hold, Reason},
    pause,
    permit::{self, Scene},
    policy::{Integration, Status},
    power::{self, Turn},
    process::Evidence,
    provider::ProviderKind,
    state::{Attempt, Cause, Decision, Extension, FamilyState, Need, Outcome, Phase, RemediationStatus, set_condition},
    time::Time,
    view::{InstanceLook, Machine},
};

/// A Ready node whose conditions were not written since its boot gets so much longer, once.
const STALE_EXTRA: Duration = Duration::from_secs(60);
/// Credentials that are refused for so long need a person.
const AUTH_FOR: Duration = Duration::from_secs(30 * 60);
/// An owner that did nothing for so long is shown.
const OWNER_SILENT: Duration = Duration::from_secs(600);
/// Annotation on a `NodeRemediation` by which a person starts it again.
pub const RETRY: &str = "nodeward.dev/retry";
/// How our message on a Machine begins: what another wrote is left alone.
pub const MESSAGE: &str = "nodeward: ";
/// What a provider said of an instance is asked again when it is older.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// What one machine's step came to.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What is to be persisted.
    pub status: RemediationStatus,
    /// What is told once it is.
    pub notices: Vec<Notice>,
    /// What it wants.
    pub intention: Intention,
    /// Why that is not done.
    pub holds: Vec<Hold>,
    /// Harmless effects, done at once.
    pub effects: Vec<Effect>,
    /// Something destructive that everything is ready for, but for a direct look.
    pub ready: Option<Ready>,
    /// Nothing of it is needed any more.
    pub drop: bool,
    /// When to look again.
    pub due: Option<Time>,
}

/// What a machine is ready for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// To look directly, for a decision that is not made on watches.
    Look,
    /// To write an intent (and before it a claim).
    Intend(Intention),
    /// To be called.
    Call(Box<Effect>),
    /// To ask its owner, or delete it.
    Remove,
}

/// One machine's step.
pub(crate) fn advance(scene: Scene<'_>, a: &Assessed<'_>, persisted: &RemediationStatus, mut status: RemediationStatus) -> Step {
    lint(scene, a, &mut status);
    let mut s = Step {
        status,
        notices: Vec::new(),
        intention: Intention::Wait,
        holds: Vec::new(),
        effects: Vec::new(),
        ready: None,
        drop: false,
        due: a.due,
    };
    if a.member.machine.deleting_since.is_some() {
        leaving(scene, a, &mut s);
    } else {
        // A phase may be passed through; none is entered twice in one step.
        for _ in 0..6 {
            let before = s.status.phase;
            turn(scene, a, &mut s);
            if s.status.phase == before || s.ready.is_some() {
                break;
            }
        }
        request(scene, a, &mut s);
    }
    finish(scene, a, persisted, &mut s);
    s
}

fn turn(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    (s.intention, s.holds) = (Intention::Wait, Vec::new());
    match s.status.phase {
        Phase::Suspect | Phase::Healthy => suspect(scene, a, s),
        Phase::Gated => gated(scene, a, s),
        Phase::RebootPending => pending(scene, a, s),
        Phase::RebootWait => waiting(scene, a, s),
        Phase::Stabilizing => stabilizing(scene, a, s),
        Phase::Succeeded => succeeded(scene, a, s),
        Phase::DeletePending | Phase::Deleting => removing(scene, a, s),
        Phase::NeedsHuman => person(scene, a, s),
        // A Machine that exists is not gone: an object of the same name was here before.
        Phase::Gone => s.status = RemediationStatus { machine_uid: s.status.machine_uid.clone(), ..RemediationStatus::default() },
    }
}

impl Step {
    fn to(&mut self, now: Time, phase: Phase, why: impl Into<String>) {
        self.status.phase = phase;
        self.status.last_decision = Some(Decision { at: now, why: why.into() });
    }

    fn at(&mut self, due: Time) {
        self.due = Some(self.due.map_or(due, |d| d.min(due)));
    }
}

fn suspect(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let now = scene.now;
    s.holds.extend(a.paused.iter().map(|why| Hold::new(Reason::Paused, why.clone())));
    if let Some(cause) = a.cause.filter(|_| a.paused.is_empty()) {
        if s.status.episode_since.is_none() {
            s.status.episode_since = Some(now);
            s.status.episodes.retain(|at| now.since(*at) < DAY);
            s.status.episodes.push(now);
            s.status.attempts.clear();
            s.status.refunded = false;
        }
        s.status.cause = Some(cause);
        s.to(now, Phase::Gated, format!("confirmed: {}", because(cause, a)));
        return;
    }
    s.holds.extend(a.holds.iter().cloned());
    if let Some(alert) = &a.alert {
        s.intention = Intention::Alert;
        s.holds.push(Hold::new(Reason::AlertOnly, alert.clone()));
    }
    if a.suspect || a.alert.is_some() {
        if s.status.phase == Phase::Healthy {
            s.to(now, Phase::Suspect, "bad again");
        }
        return;
    }
    if s.status.phase == Phase::Suspect && s.status.families.iter().any(|f| f.state == FamilyState::Bad) {
        // Bad, but only in a way of which a person will be told.
        return;
    }
    if s.status.phase == Phase::Suspect && s.status.episode_since.is_some() {
        // It had been acted on, and its window began anew; now it is good.
        s.to(now, Phase::Stabilizing, "good again");
        return;
    }
    if s.status.phase == Phase::Suspect {
        let silent = s.status.families.iter().any(|f| f.state == FamilyState::Silent);
        s.to(now, Phase::Healthy, if silent { "says nothing that counts any more" } else { "good again, before its window was over" });
    }
    let flapped = s.status.families.iter().flat_map(|f| f.transitions.last()).max().copied();
    let kept = flapped.map(|at| at + FLAP_SPAN).max(s.status.episodes.last().map(|at| *at + DAY));
    match kept {
        Some(until) if now <= until => s.at(until),
        _ => s.drop = a.paused.is_empty(),
    }
}

pub(crate) fn because(cause: Cause, a: &Assessed<'_>) -> String {
    match cause {
        Cause::Condition => {
            let bad = a.status.iter().flat_map(|s| &s.families).filter(|f| f.triggered_at.is_some());
            bad.map(|f| format!("{}={} ({})", f.name, f.status.as_str(), f.reason)).collect::<Vec<_>>().join(", ")
        }
        Cause::StartupTimeout => "not Ready within the startup grace".to_owned(),
        Cause::NodeDeleted => "the Node object was deleted".to_owned(),
        Cause::InstanceGone => "the provider does not know the instance any more".to_owned(),
        Cause::Annotation => "annotation cluster.x-k8s.io/remediate-machine".to_owned(),
        Cause::HealthCheck => "a MachineHealthCheck".to_owned(),
    }
}

fn gated(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let now = scene.now;
    s.status.delete_intent = None;
    let blind = mutant!(NoLastLook) && s.status.attempts.iter().any(|t| t.outcome.spends());
    if a.good && a.cause.is_none() && !blind {
        s.to(now, Phase::Stabilizing, "good again");
        return;
    }
    let Some(cause) = a.cause.or(s.status.cause.filter(|_| blind)) else {
        // Its window began anew, or nothing says anything: what was used stays used.
        if !a.stale {
            s.to(now, Phase::Suspect, "no longer confirmed: its window runs anew");
        }
        s.holds.extend(a.holds.iter().cloned());
        s.holds.extend(a.paused.iter().map(|why| Hold::new(Reason::Paused, why.clone())));
        if a.stale && s.holds.is_empty() {
            s.holds.push(Hold::new(Reason::StaleEvidence, "what was confirmed is not written any more"));
        }
        return;
    };
    s.status.cause = Some(cause);
    let pointless = permit::pointless(scene, a, &s.status);
    s.intention = if pointless.is_some() { Intention::Replace } else { Intention::Reboot };
    if let Some(need) = permit::need(scene, a, &s.status, s.intention) {
        s.status.needs_human = Some(need);
        s.to(now, Phase::NeedsHuman, format!("{need:?}"));
        return;
    }
    if s.status.auth_broken_since.is_some_and(|since| now.since(since) > AUTH_FOR) && s.intention == Intention::Reboot {
        s.status.needs_human = Some(Need::ProviderAuth);
        s.to(now, Phase::NeedsHuman, "the provider refused our credentials for half an hour");
        return;
    }
    s.holds = permit::holds(scene, a, &s.status, s.intention);
    if s.intention == Intention::Reboot {
        instance(scene, a, s);
    }
    if let Some(at) = s.status.retry_at.filter(|at| *at > now) {
        s.at(at);
    }
    if s.holds.is_empty() {
        s.ready = Some(Ready::Intend(s.intention));
    }
}

/// Asks the provider whether there is anything to reboot; only a clear "no" holds.
fn instance(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    if scene.pool.policy.spec.provider.kind == ProviderKind::None {
        return;
    }
    let (asked, missing) = match a.member.instance {
        InstanceLook::Unclear => (None, false),
        InstanceLook::Present { at, .. } => (Some(at), false),
        InstanceLook::NotFound { at, others_seen } => (Some(at), others_seen),
    };
    if missing {
        s.holds.push(Hold::new(Reason::ProviderRefused, "it says that it does not know the instance; asked again"));
    }
    let again = if missing { GONE_AFTER } else { ASK_AGAIN };
    let blocked = s.holds.iter().any(|h| h.reason != Reason::ProviderRefused);
    if !blocked && asked.is_none_or(|at| scene.now.since(at) >= again) {
        s.effects.push(Effect::AskInstance { machine: a.member.machine.name.clone() });
    }
    if missing {
        s.at(scene.now + GONE_AFTER);
    }
}

fn pending(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    s.intention = Intention::Reboot;
    if permit::pending(&s.status).is_none() {
        s.to(scene.now, Phase::Gated, "no open intent");
        return;
    }
    match power::follow(scene, a, &mut s.status) {
        Turn::Wait(until) => s.at(until),
        Turn::Look => s.ready = Some(Ready::Look),
        Turn::Send(call) => s.ready = Some(Ready::Call(Box::new(Effect::Power(call)))),
        Turn::Ask(open) => s.effects.push(ask(a, &open)),
        Turn::Resolved { why, made } => {
            if made {
                tell(a, s, NoticeKind::Rebooted, why.clone());
            }
            s.status.last_decision = Some(Decision { at: scene.now, why });
        }
    }
}

fn ask(a: &Assessed<'_>, attempt: &Attempt) -> Effect {
    let (intent_id, intent_at) = (attempt.intent_id.clone(), attempt.intent_at);
    Effect::AskEvidence { machine: a.member.machine.name.clone(), intent_id, intent_at }
}

fn waiting(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let (now, policy) = (scene.now, &scene.pool.policy.spec);
    let until = s.status.wait_until.unwrap_or(now);
    if a.proven {
        s.to(now, Phase::Stabilizing, "the node booted and is good");
        return;
    }
    if let Some(last) = s.status.attempts.last_mut()
        && last.outcome == Outcome::Issued
    {
        match scene.process.evidence.get(&last.intent_id) {
            Some(Evidence::Made { failed: true, .. }) if !s.status.refunded && last.boot_seen_at.is_none() => {
                last.outcome = Outcome::Failed;
                s.status.refunded = true;
                s.to(now, Phase::Gated, "the provider says that the reboot failed: given back once");
                return;
            }
            None if last.action_id.is_some() => {
                let effect = ask(a, last);
                s.effects.push(effect);
            }
            _ => {}
        }
    }
    if now < until {
        s.at(until);
        return;
    }
    if mutant!(NoLastLook) {
        s.to(now, Phase::Gated, "still bad");
        return;
    }
    // One fresh look, at the end of the wait or after any outage since: a healthy node wins.
    if scene.gate.frozen || scene.read_at.is_none_or(|at| at < until) {
        if !scene.gate.frozen {
            s.ready = Some(Ready::Look);
        }
        return;
    }
    if a.still_bad && policy.provider.kind == ProviderKind::Redfish && now < until + ASK_AGAIN {
        let asked = matches!(a.member.instance, InstanceLook::Present { at, .. } | InstanceLook::NotFound { at, .. } if at >= until);
        if !asked {
            s.effects.push(Effect::AskInstance { machine: a.member.machine.name.clone() });
            s.at(until + ASK_AGAIN);
            return;
        }
    }
    let booting = matches!(a.member.instance, InstanceLook::Present { booting: Some(true), at } if now.since(at) < ASK_AGAIN);
    if a.good {
        s.to(now, Phase::Stabilizing, "the node is good");
    } else if a.still_bad {
        if booting && !s.status.extended_for.contains(&Extension::Booting) {
            s.status.extended_for.push(Extension::Booting);
            s.status.wait_until = Some(now + policy.reboot.wait_seconds.duration());
            return;
        }
        s.to(now, Phase::Gated, "still bad after the reboot");
    } else if a.stale {
        if !s.status.extended_for.contains(&Extension::StaleEvidence) {
            s.status.extended_for.push(Extension::StaleEvidence);
            s.status.wait_until = Some(now + STALE_EXTRA);
            return;
        }
        s.status.needs_human = Some(Need::StaleEvidence);
        s.to(now, Phase::NeedsHuman, "its conditions were not written since the boot");
    } else {
        s.to(now, Phase::Gated, "bad in another way after the reboot");
    }
}

fn stabilizing(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let (now, policy) = (scene.now, &scene.pool.policy.spec);
    if relapsed(a) {
        s.status.stable_since = None;
        s.to(now, Phase::Gated, "bad again for its window");
        return;
    }
    if !a.good {
        s.status.stable_since = None;
        return;
    }
    let since = *s.status.stable_since.get_or_insert(now);
    let done = since + policy.stability_seconds.duration();
    if now < done {
        s.at(done);
        return;
    }
    s.status.succeeded_at = Some(now);
    s.status.wait_until = None;
    s.to(now, Phase::Succeeded, "good for the stability time");
}

/// Something is confirmed that is more than the mark by which the episode began.
fn relapsed(a: &Assessed<'_>) -> bool {
    a.cause.is_some_and(|cause| !matches!(cause, Cause::Annotation | Cause::HealthCheck))
}

fn succeeded(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let now = scene.now;
    if a.member.machine.annotations.contains_key(crate::assess::REMEDIATE)
        && a.paused.is_empty()
        && s.status.cause == Some(Cause::Annotation)
    {
        s.effects.push(Effect::RemoveRemediateAnnotation { machine: a.member.machine.name.clone(), precondition: of(&a.member.machine) });
    }
    if relapsed(a) {
        s.to(now, Phase::Gated, "bad again within the cool-down");
        return;
    }
    let until = s.status.succeeded_at.unwrap_or(now) + scene.pool.policy.spec.cooldown_seconds.duration();
    let delegated = scene.pool.policy.spec.integration == Integration::Delegated;
    if now < until {
        s.at(until);
        return;
    }
    (s.status.episode_since, s.status.succeeded_at, s.status.stable_since, s.status.cause) = (None, None, None, None);
    s.status.attempts.clear();
    s.to(now, Phase::Healthy, if delegated { "the cool-down is over; the health check still asks" } else { "the cool-down is over" });
}

fn removing(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let now = scene.now;
    s.intention = Intention::Replace;
    let Some(intent) = s.status.delete_intent.clone() else {
        s.to(now, Phase::Gated, "no intent to remove it");
        return;
    };
    let mut blind = mutant!(RequestNotWithdrawn);
    if mutant!(NoLastLook) {
        blind = true;
    }
    if a.cause.is_none() && !a.still_bad && !blind {
        s.to(now, Phase::Gated, "recovered before it was removed");
        return;
    }
    let asked = asked(scene, &a.member.machine);
    if s.status.phase == Phase::Deleting {
        let paused = !a.paused.is_empty() && !mutant!(PauseSeenOnce);
        let withdraw = scene.gate.withdraw && !mutant!(GateOnlyOnce);
        if (paused || withdraw) && !mutant!(RequestNotWithdrawn) {
            s.to(now, Phase::Gated, if paused { "paused before it was removed" } else { "the gate closed before it was removed" });
            return;
        }
        if !asked {
            s.to(now, Phase::DeletePending, "the request to the owner is gone");
            return;
        }
        s.holds.extend(owner_says(scene, a, intent.asked_at));
        return;
    }
    if asked {
        if let Some(intent) = &mut s.status.delete_intent {
            intent.asked_at = Some(now);
        }
        tell(a, s, NoticeKind::ReplacementRequested, intent.reason);
        s.to(now, Phase::Deleting, "the owner was asked to replace it");
        return;
    }
    let unlooked = mutant!(NoLookAfterIntent);
    if !unlooked && scene.read_at.is_none_or(|at| at < intent.at) {
        s.ready = Some(Ready::Look);
        return;
    }
    s.holds = permit::holds(scene, a, &s.status, Intention::Replace);
    if scene.gate.claim_of(&s.status.machine_uid).is_none() || !s.holds.is_empty() {
        let why = s.holds.first().map_or_else(|| "its slot is gone".to_owned(), ToString::to_string);
        s.to(now, Phase::Gated, format!("not removed after the last look: {why}"));
        return;
    }
    s.ready = Some(Ready::Remove);
}

/// Whether the Machine carries our request.
fn asked(scene: Scene<'_>, machine: &Machine) -> bool {
    let requested = machine.owner_remediated.as_ref().is_some_and(|v| v.status == Status::False);
    match scene.pool.policy.spec.integration {
        Integration::Delegated => requested,
        Integration::StandAlone => requested && machine.health_check_succeeded.as_ref().is_some_and(|v| v.status == Status::False),
    }
}

fn owner_says(scene: Scene<'_>, a: &Assessed<'_>, asked_at: Option<Time>) -> Option<Hold> {
    let says = a.member.machine.owner_remediated.as_ref()?;
    let answered = matches!(says.reason.as_str(), "RemediationDeferred" | "CannotBeRemediated" | "InternalError");
    let silent = asked_at.is_some_and(|at| scene.now.since(at) > OWNER_SILENT);
    (answered || silent).then(|| Hold::new(Reason::OwnerDeferred, format!("{}: {}", says.reason, says.message)))
}

/// A Machine that is being deleted, by us or by anybody: nothing more is done to it.
fn leaving(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    if permit::pending(&s.status).is_some() {
        pending(scene, a, s);
        s.ready = s.ready.take().filter(|ready| *ready == Ready::Look);
        if permit::pending(&s.status).is_some() {
            return;
        }
    }
    let acted_on = scene.gate.claim_of(&s.status.machine_uid).is_some() || s.status.episode_since.is_some();
    if !acted_on {
        s.drop = true;
        return;
    }
    if s.status.phase != Phase::Deleting {
        if let Some(intent) = s.status.delete_intent.as_mut().filter(|intent| intent.asked_at.is_none()) {
            intent.asked_at = Some(scene.now);
            let why = intent.reason.clone();
            tell(a, s, NoticeKind::ReplacementRequested, why);
        }
        s.to(scene.now, Phase::Deleting, "the Machine is being deleted");
    }
    (s.intention, s.holds) = (Intention::Replace, Vec::new());
}

fn person(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    let asked = a.member.remediation.as_ref().and_then(|r| r.annotations.get(RETRY));
    if a.good {
        s.status.needs_human = None;
        s.to(scene.now, Phase::Stabilizing, "good again");
    } else if asked.is_some() && asked != s.status.retried.as_ref() {
        s.status.retried = asked.cloned();
        (s.status.needs_human, s.status.auth_broken_since, s.status.refused, s.status.retry_at) = (None, None, None, None);
        s.status.extended_for.clear();
        s.to(scene.now, Phase::Gated, "a person asked to try again");
    }
    s.holds = a.holds.clone();
}

/// Takes back a request that is not wanted any more, and honours a misspelt pause.
fn request(scene: Scene<'_>, a: &Assessed<'_>, s: &mut Step) {
    if mutant!(RequestNotWithdrawn) || matches!(s.status.phase, Phase::DeletePending | Phase::Deleting) {
        return;
    }
    let machine = &a.member.machine;
    let ours = match scene.pool.policy.spec.integration {
        Integration::StandAlone => machine.health_check_succeeded.as_ref().is_some_and(|v| v.message.starts_with(MESSAGE)),
        Integration::Delegated => machine.owner_remediated.as_ref().is_some_and(|v| v.message.starts_with(MESSAGE)),
    };
    if ours {
        s.effects.push(Effect::WithdrawRequest { machine: machine.name.clone(), precondition: of(machine) });
    }
}

fn lint(scene: Scene<'_>, a: &Assessed<'_>, status: &mut RemediationStatus) {
    let found = pause::suspect(a.member, &scene.pool.owner);
    let now = scene.now;
    if found.is_none() {
        status.pause_suspect_since = None;
    } else {
        status.pause_suspect_since.get_or_insert(now);
    }
    let mut say = |kind: &str, why: Option<&str>| {
        let had = status.conditions.iter().any(|c| c.kind == kind);
        match why {
            Some(why) => set_condition(&mut status.conditions, kind, Status::True, "AsAnnotated", why, now),
            None if had => set_condition(&mut status.conditions, kind, Status::False, "NotAnnotated", "", now),
            None => {}
        }
    };
    say("PauseSuspect", found.as_deref());
    let paused = a.paused.join("; ");
    say("RemediationPaused", (!a.paused.is_empty()).then_some(paused.as_str()));
}

/// What changed is told, once.
fn finish(scene: Scene<'_>, a: &Assessed<'_>, persisted: &RemediationStatus, s: &mut Step) {
    if a.holds.iter().any(|h| h.reason == Reason::ForeignNode && h.message.starts_with("the Node has")) && a.counted {
        s.status.needs_human = Some(Need::ForeignNode);
        if s.status.phase != Phase::NeedsHuman && permit::pending(&s.status).is_none() {
            s.to(scene.now, Phase::NeedsHuman, "the Node is not the Machine's");
            s.ready = None;
        }
    }
    s.holds.sort();
    s.holds.dedup();
    if !mutant!(HoldsSilent) {
        s.status.blocked_by.clone_from(&s.holds);
    }
    let existed = a.member.remediation.is_some();
    if !existed && s.status.last_decision.is_none() {
        let bad = s.status.families.iter().filter(|f| f.state == FamilyState::Bad);
        let mut why = bad.map(|f| format!("{}={} ({})", f.name, f.status.as_str(), f.reason)).collect::<Vec<_>>().join(", ");
        if why.is_empty() && s.status.node_missing_since.is_some() {
            why = "its Node object is missing".to_owned();
        }
        s.status.last_decision = Some(Decision { at: scene.now, why });
    }
    let moved = s.status.phase != persisted.phase || !existed;
    if moved {
        let why = s.status.last_decision.as_ref().map(|d| d.why.clone()).unwrap_or_default();
        let phase = s.status.phase;
        tell(a, s, NoticeKind::PhaseChanged(phase), why);
    }
    let reasons = |holds: &[Hold]| holds.iter().map(|h| h.reason).collect::<std::collections::BTreeSet<_>>();
    let (old, new) = (reasons(&persisted.blocked_by), reasons(&s.status.blocked_by));
    if old != new {
        let text = s.status.blocked_by.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let fresh = new.difference(&old).next().or_else(|| new.iter().next()).copied();
        match fresh {
            Some(reason) => tell(a, s, NoticeKind::Held(reason), text),
            // A change of phase says it already.
            None if moved => {}
            None => tell(a, s, NoticeKind::Released, text),
        }
    }
}

fn tell(a: &Assessed<'_>, s: &mut Step, what: NoticeKind, message: String) {
    s.notices.push(Notice { machine: Some(a.member.machine.name.clone()), what, message });
}

pub(crate) fn of(machine: &Machine) -> Precondition {
    Precondition { uid: machine.uid.clone(), resource_version: machine.resource_version.clone() }
}
