//! Invariants of why something is acted on: 7, 8, 9, 18, 22, 26, 39.

use std::time::Duration;

use controller_core::{
    policy::{Action, Flapping, READY, Status, Trigger},
    state::Cause,
    time::Time,
    view::{Member, Node, NodeLook},
};

use super::{
    Finding, Memory,
    reading::{is_metal, member, remembered, status_of, truth},
};
use crate::{
    body::Said,
    script::DAEMONS,
    seconds,
    state::MachineState,
    world::{Blow, Destruction, World},
};

/// Tolerance in true time.
const ABOUT: Duration = seconds(60);

/// One bad status that a view shows, with what is true of it.
struct Bad<'a> {
    trigger: &'a Trigger,
    said: Said,
    /// The present boot wrote it.
    present: bool,
    /// When it was last written.
    written: Time,
}

/// Statuses that may be the reason of an action that a condition started; none if another cause did.
fn reasons<'a>(world: &World, d: &'a Destruction) -> Option<(&'a Member, MachineState, Vec<Bad<'a>>)> {
    let m = member(d)?;
    let t = truth(world, d)?.clone();
    let status = remembered(m)?;
    if status.cause != Some(Cause::Condition) {
        return None;
    }
    let NodeLook::Present(node) = &m.node else { return Some((m, t, Vec::new())) };
    let spent = status.attempts.iter().any(|a| a.outcome.spends() && a.outcome != controller_core::state::Outcome::Pending);
    let bad = d.view.policy.spec.triggers.iter().filter_map(|trigger| bad(trigger, node, &t, spent, world.now)).collect();
    Some((m, t, bad))
}

fn bad<'a>(trigger: &'a Trigger, node: &Node, t: &MachineState, spent: bool, now: Time) -> Option<Bad<'a>> {
    // In an episode that began, an alert-only status of the same family is "still bad".
    if status_of(node, &trigger.kind) != Some(trigger.status) || (trigger.action != Action::Remediate && !(spent && trigger.kind == READY))
    {
        return None;
    }
    let daemon = DAEMONS.iter().position(|kind| *kind == trigger.kind);
    let (said, present, written) = match daemon {
        Some(i) => (*t.body.daemons.get(i)?, node.agent_boot_id == node.boot_id, t.body.agent_wrote_at(now)),
        None => (t.body.ready, true, now),
    };
    Some(Bad { trigger, said, present, written })
}

fn held(world: &World, d: &Destruction, t: &MachineState, b: &Bad<'_>) -> bool {
    let now = world.now;
    if b.said.status != Some(b.trigger.status) {
        // It changed after the look: nobody could know.
        return true;
    }
    let window = b.trigger.hold_seconds.duration();
    let family = || d.view.policy.spec.triggers.iter().filter(|x| x.kind == b.trigger.kind);
    let longest = family().map(|x| x.hold_seconds.duration()).max().unwrap_or(window);
    let least = family().filter(|x| x.action == Action::Remediate).map(|x| x.hold_seconds.duration()).min().unwrap_or(window);
    let alert_only = family().any(|x| x.action == Action::Alert);
    let spent = member(d).and_then(remembered).is_some_and(|s| s.attempts.iter().any(|a| a.outcome.spends()));
    let since = |at: Option<Time>| at.map_or(Duration::ZERO, |at| now.since(at)) + ABOUT;
    let not_good = since(b.said.bad_since);
    let whole = if spent { not_good >= least } else { since(Some(b.said.since)) >= window || (!alert_only && not_good >= longest) };
    let unpaused = t.unpaused_at.is_none_or(|at| since(Some(at)) >= least);
    // A silent node's window runs anew after an outage in which a controller looked all the time.
    let unseen = world.outages.iter().any(|(from, until)| {
        until.since(*from) > seconds(50) && world.led_since.is_some_and(|led| led + seconds(60) < *from) && since(Some(*until)) < window
    });
    whole && unpaused && !(unseen && b.trigger.status == Status::Unknown && !spent)
}

pub(super) fn a_whole_window_is_behind_it(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((_, t, bad)) = reasons(world, d) else { return Ok(()) };
    if d.view.policy.spec.flapping == Flapping::Remediate || bad.iter().any(|b| held(world, d, &t, b)) {
        return Ok(());
    }
    if bad.is_empty() {
        return Err(format!("{} shows nothing bad", d.name));
    }
    let shown: Vec<String> = bad
        .iter()
        .map(|b| {
            let good = b.said.bad_since.map_or(0, |at| world.now.since(at).as_secs());
            format!(
                "{}={} for {} s, not good for {good} s",
                b.trigger.kind,
                b.trigger.status.as_str(),
                world.now.since(b.said.since).as_secs()
            )
        })
        .collect();
    Err(format!("{}: no whole window: {}", d.name, shown.join("; ")))
}

pub(super) fn the_present_boot_wrote_it(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((_, _, bad)) = reasons(world, d) else { return Ok(()) };
    if bad.is_empty() || bad.iter().any(|b| b.present) { Ok(()) } else { Err(format!("{}: an earlier boot wrote what is bad", d.name)) }
}

pub(super) fn an_absent_condition_is_no_reason(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((m, _, bad)) = reasons(world, d) else { return Ok(()) };
    let NodeLook::Present(node) = &m.node else { return Ok(()) };
    let absent = d.view.policy.spec.triggers.iter().any(|t| status_of(node, &t.kind).is_none());
    if bad.is_empty() && absent { Err(format!("{}: a condition is absent, nothing is bad", d.name)) } else { Ok(()) }
}

pub(super) fn the_agent_still_speaks(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((_, _, bad)) = reasons(world, d) else { return Ok(()) };
    let old = |b: &Bad<'_>| world.now.since(b.written) > seconds(15 * 60) + ABOUT;
    if !bad.is_empty() && bad.iter().all(old) {
        return Err(format!("{}: what is bad was not written for a quarter of an hour", d.name));
    }
    Ok(())
}

pub(super) fn a_living_lease_is_no_death(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((_, t, bad)) = reasons(world, d) else { return Ok(()) };
    let silent = |b: &Bad<'_>| b.trigger.kind == READY && b.trigger.status == Status::Unknown;
    let alive = t.body.silent_since.is_none() && world.now.since(t.body.kubelet_since) > seconds(60);
    if alive && !bad.is_empty() && bad.iter().all(silent) && t.body.skew.abs() < 30_000 {
        return Err(format!("{} is said to be silent, and renews its Lease", d.name));
    }
    Ok(())
}

pub(super) fn a_recovered_node_stays(_: &Memory, world: &World, d: &Destruction) -> Finding {
    if matches!(d.blow, Blow::Power(_)) {
        return Ok(());
    }
    let (Some(m), Some(t)) = (member(d), truth(world, d)) else { return Ok(()) };
    if remembered(m).and_then(|s| s.cause) != Some(Cause::Condition) {
        return Ok(());
    }
    let body = &t.body;
    let stable = d.view.policy.spec.stability_seconds.duration() + seconds(10);
    let fresh = body.agent_boot == Some(body.boot) && body.speaks() && body.agent_silent_since.is_none();
    let ready = body.ready.status == Some(Status::True) && world.now.since(body.ready.since) >= stable;
    let quiet = body.daemons.iter().all(|s| s.status != Some(Status::True) && world.now.since(s.since) >= stable);
    if fresh && ready && quiet { Err(format!("{} recovered long ago", d.name)) } else { Ok(()) }
}

pub(super) fn silent_metal_starts_nothing(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some((m, t, _)) = reasons(world, d) else { return Ok(()) };
    let begun = remembered(m).is_some_and(|s| s.attempts.iter().any(|a| a.intent_id.starts_with(&d.uid) && a.outcome.spends()));
    let first = match &d.blow {
        Blow::Power(_) => remembered(m).is_none_or(|s| s.attempts.iter().filter(|a| a.outcome.spends()).count() <= 1),
        _ => !begun,
    };
    if !is_metal(&d.view) || !first {
        return Ok(());
    }
    let NodeLook::Present(node) = &m.node else { return Ok(()) };
    let flaps = d.view.policy.spec.flapping == Flapping::Remediate;
    let changed = t.body.ready.status != status_of(node, READY);
    if status_of(node, READY) == Some(Status::False) && (flaps || changed) {
        return Ok(());
    }
    if status_of(node, READY) == Some(Status::False) && world.now.since(t.body.ready.since) + ABOUT >= seconds(300) {
        return Ok(());
    }
    Err(format!("{} is bare metal, and Ready was not False for 300 s", d.name))
}
