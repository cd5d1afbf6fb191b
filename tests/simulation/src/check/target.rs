//! Invariants of what is acted on: 4, 5, 6, 10, 19, 24, 25, 34.

use controller_core::{
    state::Cause,
    view::{InstanceLook, NodeLook},
};

use super::{
    Finding, Memory,
    reading::{is_booting, is_paused, member, never_ready, remembered, truth},
};
use crate::{
    seconds,
    world::{Blow, Destruction, Happened, World},
};

pub(super) fn no_pause_is_passed_over(_: &Memory, world: &World, d: &Destruction) -> Finding {
    if member(d).is_some_and(|m| is_paused(m, &d.view)) {
        return Err(format!("{} was paused at the last look", d.name));
    }
    let since = truth(world, d).and_then(|m| m.paused_since);
    match since {
        Some(at) if world.now.since(at) >= seconds(15) => {
            Err(format!("{} has been paused for {} s", d.name, world.now.since(at).as_secs()))
        }
        _ => Ok(()),
    }
}

pub(super) fn only_the_machine_that_was_meant(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some(m) = member(d) else { return Err(format!("{} ({}) was not in the last look", d.name, d.uid)) };
    if m.machine.deleting_since.is_some() {
        return Err(format!("{} is being deleted", d.name));
    }
    let about = m.remediation.as_ref().map(|r| r.status.machine_uid.as_str());
    if about != Some(d.uid.as_str()) {
        return Err(format!("the remediation of {} is about {about:?}, not {}", d.name, d.uid));
    }
    if let Blow::Power(intent) = &d.blow {
        let owner = world.state.remediations.get(&d.name).map(|r| r.status.machine_uid.clone());
        if owner.is_some_and(|uid| uid != d.uid) || !intent.starts_with(&d.uid) {
            return Err(format!("{intent} is another Machine's than {}", d.uid));
        }
    }
    Ok(())
}

pub(super) fn only_the_node_of_the_machine(_: &Memory, _: &World, d: &Destruction) -> Finding {
    let Some(m) = member(d) else { return Ok(()) };
    match &m.node {
        NodeLook::Present(node) if node.provider_id != m.machine.provider_id => Err(format!("the Node of {} is another machine's", d.name)),
        _ => Ok(()),
    }
}

pub(super) fn no_reboot_without_a_node(_: &Memory, world: &World, d: &Destruction) -> Finding {
    if !matches!(d.blow, Blow::Power(_)) {
        return Ok(());
    }
    let Some(m) = member(d) else { return Ok(()) };
    if !matches!(m.node, NodeLook::Present(_)) {
        return Err(format!("{} has no Node", d.name));
    }
    // In doubt a node was Ready once; only one whose Ready never changed after it was made is known not to have been.
    let newborn = matches!(&m.node, NodeLook::Present(node) if never_ready(node));
    let unready = newborn && truth(world, d).is_some_and(|t| !t.body.ever_ready);
    if unready && remembered(m).is_some_and(|s| s.cause != Some(Cause::Annotation)) {
        return Err(format!("{} was never Ready", d.name));
    }
    Ok(())
}

pub(super) fn errors_are_no_absence(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let Some(m) = member(d) else { return Ok(()) };
    if remembered(m).and_then(|s| s.cause) != Some(Cause::InstanceGone) {
        return Ok(());
    }
    let exists = truth(world, d).is_some_and(|t| t.body.exists);
    let lies: Vec<_> = world.infrastructure.lied.iter().filter(|(uid, _)| *uid == d.uid).map(|(_, at)| *at).collect();
    let twice = lies.iter().any(|a| lies.iter().any(|b| b.since(*a) >= seconds(10)));
    if exists && !twice {
        return Err(format!("{} is taken to be gone; it was said so {} times", d.name, lies.len()));
    }
    match m.instance {
        InstanceLook::NotFound { others_seen: true, .. } => Ok(()),
        _ => Err(format!("{} is taken to be gone without a clear answer", d.name)),
    }
}

pub(super) fn a_booting_machine_is_left_alone(_: &Memory, world: &World, d: &Destruction) -> Finding {
    let grace = d.view.policy.spec.grace();
    let annotated = member(d).is_some_and(|m| m.machine.annotations.contains_key("cluster.x-k8s.io/remediate-machine"));
    let deleted = member(d).and_then(remembered).is_some_and(|s| s.cause == Some(Cause::NodeDeleted));
    let newborn = member(d).is_some_and(|m| !matches!(&m.node, NodeLook::Present(node) if !never_ready(node)));
    match truth(world, d) {
        Some(m) if newborn && is_booting(m, grace, world.now) && !annotated && !deleted => Err(format!("{} is still booting", d.name)),
        _ => Ok(()),
    }
}

/// The effects have no way to write a Node or a Pod; on Machines two condition types are written, never on a paused one.
pub(super) fn a_paused_machine_is_not_written(_: &Memory, _: &World, d: &Destruction) -> Finding {
    let written = matches!(d.blow, Blow::Request | Blow::Delete);
    if written && member(d).is_some_and(|m| is_paused(m, &d.view)) {
        return Err(format!("{} is paused, and was written", d.name));
    }
    Ok(())
}

pub(super) fn only_our_annotation_is_removed(_: &Memory, _: &World, happened: &Happened) -> Finding {
    match happened {
        Happened::AnnotationRemoved { uid, paused: true } => Err(format!("an annotation was removed from {uid}, which is paused")),
        _ => Ok(()),
    }
}

pub(super) fn a_deleted_machine_gets_no_call(_: &Memory, world: &World, d: &Destruction) -> Finding {
    if !matches!(d.blow, Blow::Power(_)) {
        return Ok(());
    }
    match truth(world, d).map(|m| m.machine.deleting_since) {
        Some(Some(at)) if world.now.since(at) >= seconds(15) => Err(format!("{} has been deleted before", d.name)),
        None => Err(format!("{} does not exist any more", d.name)),
        Some(_) => Ok(()),
    }
}
