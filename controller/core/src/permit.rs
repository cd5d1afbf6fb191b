//! Whether one machine may be rebooted or replaced now, and by which of the two: pointless reboots, budgets, and every hold of its own.

use crate::{
    assess::{Assessed, lease_fresh},
    effect::Intention,
    etcd,
    gate::{DAY, Gate, HOUR},
    hold::{Hold, Reason},
    pause,
    policy::{Class, Integration, Mode, READY, RebootMode, Status},
    process::Process,
    provider::ProviderKind,
    state::{Attempt, Cause, FamilyState, Need, Outcome, PastAction, PowerMode, Refusal, RemediationStatus, Stage},
    time::Time,
    view::{OwnerKind, PoolView},
};

/// What one step of a pool is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub pool: &'a PoolView,
    pub process: &'a Process,
    pub gate: &'a Gate,
    pub now: Time,
    /// When the view was read from the API servers, if it was and recently enough to act on.
    pub read_at: Option<Time>,
}

/// Power calls that count against this machine now.
pub(crate) fn used(scene: Scene<'_>, status: &RemediationStatus) -> usize {
    if mutant!(AttemptsUnlimited) {
        return 0;
    }
    let own = status.attempts.iter().filter(|t| t.outcome.spends() || (mutant!(RefusedSpends) && t.outcome == Outcome::Refused)).count();
    // The history survives a person who deletes the NodeRemediation; a claim's own entry is no past.
    let cooldown = scene.pool.policy.spec.cooldown_seconds.duration();
    let claim = scene.gate.claim_of(&status.machine_uid);
    let history = &scene.gate.status.history;
    let past = history.iter().filter(|p| {
        let planned = claim.is_some_and(|c| c.since == p.at && c.stage == Stage::Reboot && !crate::gate::spent(c, Some(status)));
        p.machine_uid == status.machine_uid && p.action == PastAction::Reboot && scene.now.since(p.at) < cooldown && !planned
    });
    own.max(past.count())
}

/// Why a reboot would be of no use; none: it may be.
pub(crate) fn pointless(scene: Scene<'_>, a: &Assessed<'_>, status: &RemediationStatus) -> Option<&'static str> {
    let policy = &scene.pool.policy.spec;
    match a.cause.or(status.cause) {
        Some(Cause::StartupTimeout) if !mutant!(RebootWithoutNode) => return Some("it was never Ready"),
        Some(Cause::NodeDeleted) if !mutant!(RebootWithoutNode) => return Some("its Node object is gone"),
        Some(Cause::InstanceGone) => return Some("the provider does not know it"),
        Some(Cause::StartupTimeout | Cause::NodeDeleted | Cause::Condition | Cause::Annotation | Cause::HealthCheck) | None => {}
    }
    if a.member.machine.node_name.is_none() && !mutant!(RebootWithoutNode) {
        return Some("it has no Node");
    }
    if let Some(host) = &a.member.host {
        if host.maintenance {
            return Some("its host is in maintenance");
        }
        if host.fatal || !host.provisioned {
            return Some("its host is not provisioned, or broken");
        }
    }
    if policy.provider.kind == ProviderKind::None || policy.reboot.max_attempts == 0 {
        return Some("nobody reboots machines of this pool");
    }
    if used(scene, status) >= policy.reboot.max_attempts as usize {
        return Some("reboots are used up");
    }
    if policy.class == Class::Cloud && over_cap(scene, status) {
        return Some("it had too many episodes today");
    }
    None
}

/// The machine had more episodes in a day than it may.
pub(crate) fn over_cap(scene: Scene<'_>, status: &RemediationStatus) -> bool {
    let cap = scene.pool.policy.spec.budgets.episodes_per_machine_per_day as usize;
    status.episodes.iter().filter(|at| scene.now.since(**at) < DAY).count() > cap
}

/// Why only a person can go on; none: we can.
pub(crate) fn need(scene: Scene<'_>, a: &Assessed<'_>, status: &RemediationStatus, intention: Intention) -> Option<Need> {
    let policy = &scene.pool.policy.spec;
    if scene.pool.owner.kind == OwnerKind::Other {
        return Some(Need::NoOwner);
    }
    if policy.class == Class::BareMetal && over_cap(scene, status) {
        return Some(Need::EpisodeLimit);
    }
    let host = a.member.host.as_ref().filter(|_| intention == Intention::Replace)?;
    let claim = scene.gate.claim_of(&status.machine_uid);
    let reinstalls = scene.gate.status.history.iter().filter(|p| {
        p.action == PastAction::Replace
            && p.host_uid.as_ref() == Some(&host.uid)
            && claim.is_none_or(|c| c.since != p.at || c.machine_uid != p.machine_uid)
    });
    (reinstalls.count() >= policy.budgets.reinstalls_per_host_per_day as usize).then_some(Need::ReinstallLimit)
}

/// Soft or hard: soft only while the operating system shows life, and only the first time.
pub(crate) fn power_mode(scene: Scene<'_>, a: &Assessed<'_>, status: &RemediationStatus) -> PowerMode {
    let soft_refused =
        status.attempts.last().is_some_and(|t| t.outcome == Outcome::Refused && status.refused == Some(Refusal::Unsupported));
    let alive = a.member.present_node().is_some_and(|node| lease_fresh(node, scene.now));
    let mild = status
        .families
        .iter()
        .filter(|f| f.state == FamilyState::Bad)
        .all(|f| (f.name == READY && f.status == Status::False) || f.name == "ServiceNotRecovering");
    match scene.pool.policy.spec.reboot.mode {
        RebootMode::Auto if alive && mild && !soft_refused && used(scene, status) == 0 => PowerMode::Soft,
        RebootMode::Auto | RebootMode::Hard => PowerMode::Hard,
    }
}

/// Everything that forbids this intention for this machine now. The claim it may have is its own slot.
pub(crate) fn holds(scene: Scene<'_>, a: &Assessed<'_>, status: &RemediationStatus, intention: Intention) -> Vec<Hold> {
    let Scene { pool, gate, now, .. } = scene;
    let policy = &pool.policy.spec;
    let mut holds = Vec::new();
    let claim = gate.claim_of(&status.machine_uid);
    if !(mutant!(GateOnlyOnce) && claim.is_some()) {
        holds.extend(gate.holds.iter().cloned());
    }
    if !(mutant!(PauseSeenOnce) && claim.is_some()) {
        holds.extend(a.paused.iter().map(|why| Hold::new(Reason::Paused, why.clone())));
    }
    if let Some(since) = status.pause_suspect_since.filter(|since| now.since(*since) < pause::SUSPECT_FOR) {
        let why = pause::suspect(a.member, &pool.owner).unwrap_or_default();
        holds.push(Hold::new(Reason::PauseSuspect, format!("{why}; honoured until {}", since + pause::SUSPECT_FOR)));
    }
    // What is confirmed with an alert in it acts; a flapping family beside a confirmed one is no reason not to.
    let own = a.holds.iter().filter(|h| h.reason != Reason::Flapping && (h.reason != Reason::StaleEvidence || !a.still_bad));
    holds.extend(own.cloned());
    if claim.is_none() && !mutant!(NoSlots) {
        let most = if pool.is_control_plane() { 1 } else { policy.max_in_flight as usize };
        if gate.status.claims.len() >= most {
            let names: Vec<_> = gate.status.claims.iter().map(|c| c.machine.as_str()).collect();
            holds.push(Hold::new(Reason::Slot, format!("taken by {}", names.join(", "))));
        }
    }
    if let Err(why) = etcd::allows(pool, &status.machine_uid, intention) {
        holds.push(Hold::new(Reason::EtcdQuorum, why));
    }
    holds.extend(budget(scene, status, intention));
    holds.extend(refused(status, intention, now));
    if intention == Intention::Replace && a.member.machine.outdated && pool.owner.rolling_out {
        holds.push(Hold::new(Reason::Rollout, format!("the rollout of {} replaces it", pool.owner.name)));
    }
    if intention == Intention::Reboot
        && let Some(host) = a.member.host.as_ref().filter(|host| host.rebooting)
    {
        holds.push(Hold::new(Reason::ProviderRefused, format!("host {} is being rebooted by somebody else", host.name)));
    }
    if a.member.health_check && policy.integration == Integration::StandAlone {
        holds.push(Hold::new(Reason::MHCConflict, "a MachineHealthCheck selects it too"));
    }
    if a.member.policies > 1 {
        holds.push(Hold::new(Reason::PolicyConflict, "more than one RemediationPolicy selects it"));
    }
    if policy.mode == Mode::Shadow && !mutant!(ShadowActs) {
        holds.push(Hold::new(Reason::Shadow, ""));
    }
    holds.sort();
    holds.dedup();
    holds
}

fn budget(scene: Scene<'_>, status: &RemediationStatus, intention: Intention) -> Option<Hold> {
    let budgets = scene.pool.policy.spec.budgets;
    let (action, most, what) = match intention {
        Intention::Reboot => (PastAction::Reboot, budgets.reboots_per_hour, "reboots"),
        Intention::Replace => (PastAction::Replace, budgets.replacements_per_hour, "replacements"),
        Intention::Wait | Intention::Alert => return None,
    };
    let claim = scene.gate.claim_of(&status.machine_uid);
    let own = |uid: &str, at: Time| claim.is_some_and(|c| c.machine_uid == uid && c.since == at);
    let past = &scene.gate.status.history;
    let spent = past.iter().filter(|p| p.action == action && scene.now.since(p.at) < HOUR && !own(&p.machine_uid, p.at)).count();
    (spent >= most as usize).then(|| Hold::new(Reason::Budget, format!("{most} {what} of the pool in an hour")))
}

fn refused(status: &RemediationStatus, intention: Intention, now: Time) -> Option<Hold> {
    if intention != Intention::Reboot || status.retry_at.is_none_or(|at| now >= at) {
        return None;
    }
    let (reason, why) = match status.refused? {
        Refusal::RateLimited => (Reason::ProviderRateLimited, "too many requests"),
        Refusal::Auth => (Reason::ProviderAuth, "it does not accept our credentials"),
        Refusal::Later => (Reason::ProviderRefused, "busy, locked or in maintenance"),
        Refusal::NotFound => (Reason::ProviderRefused, "it says that it does not know the instance; asked again"),
        Refusal::ManualActive => (Reason::ProviderRefused, "a technician is on it"),
        Refusal::Unsupported | Refusal::Invalid => (Reason::ProviderRefused, "it does not take the request"),
    };
    Some(Hold::new(reason, why))
}

/// The intent that is still open, if there is one.
pub(crate) fn pending(status: &RemediationStatus) -> Option<&Attempt> {
    status.attempts.last().filter(|t| t.outcome == Outcome::Pending)
}
