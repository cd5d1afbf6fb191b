//! What stops us because somebody wants it to: pauses, and what looks like a pause that was misspelt.

use std::time::Duration;

use crate::view::{Member, Owner, PoolView, Texts};

/// Presence of the key pauses a Machine, whatever its value.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// As the above, for remediation only.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// How long something that looks like a misspelt pause is honoured.
pub(crate) const SUSPECT_FOR: Duration = Duration::from_secs(30 * 60);
/// How many letters may be wrong.
const MOST_EDITS: usize = 2;

/// Why the machine is paused, for people; empty: it is not.
pub(crate) fn pauses(member: &Member, pool: &PoolView) -> Vec<String> {
    let mut found = Vec::new();
    for key in [PAUSED, SKIP_REMEDIATION] {
        match member.machine.annotations.get(key).map(String::as_str) {
            None => {}
            Some("" | "true") => found.push(format!("annotation {key} on the Machine")),
            Some(other) => found.push(format!("annotation {key} on the Machine: its presence pauses, its value {other:?} means nothing")),
        }
    }
    if pool.cluster.paused {
        found.push(format!("Cluster {} is paused", pool.cluster.name));
    }
    if pool.cluster.deleting {
        found.push(format!("Cluster {} is being deleted", pool.cluster.name));
    }
    if pool.owner.paused {
        found.push(format!("{} is paused", pool.owner.name));
    }
    if let Some(host) = member.host.as_ref().filter(|host| host.paused) {
        found.push(format!("host {} is paused", host.name));
    }
    found
}

/// What looks like a misspelt pause of this machine, for people.
pub(crate) fn suspect(member: &Member, owner: &Owner) -> Option<String> {
    let machine = &member.machine;
    let misspelt = |on: &str, texts: &Texts| {
        texts.keys().find_map(|key| looks_like(key).map(|meant| format!("{key} on the {on} looks like {meant} on the Machine")))
    };
    let misplaced = |on: &str, texts: &Texts| {
        let key = [PAUSED, SKIP_REMEDIATION].into_iter().find(|key| texts.contains_key(*key))?;
        Some(format!("{key} is {on}: only as an annotation of the Machine does it pause"))
    };
    let node = member.present_node();
    let host = member.host.as_ref();
    misspelt("Machine", &machine.annotations)
        .or_else(|| misplaced("a label of the Machine", &machine.labels))
        .or_else(|| misspelt("Machine (as a label)", &machine.labels))
        .or_else(|| node.and_then(|n| misplaced("on the Node", &n.annotations).or_else(|| misplaced("a label of the Node", &n.labels))))
        .or_else(|| node.and_then(|n| misspelt("Node", &n.annotations).or_else(|| misspelt("Node (as a label)", &n.labels))))
        .or_else(|| misspelt("owner", &owner.annotations).or_else(|| misspelt("owner (as a label)", &owner.labels)))
        .or_else(|| host.and_then(|h| misspelt("host", &h.annotations).or_else(|| misspelt("host (as a label)", &h.labels))))
}

/// The pausing key that this one was meant to be; none if it is one, or nothing like one.
fn looks_like(key: &str) -> Option<&'static str> {
    [PAUSED, SKIP_REMEDIATION].into_iter().filter(|known| *known != key).find(|known| {
        let (prefix, name) = key.split_once('/').unwrap_or(("", key));
        let meant = known.rsplit('/').next().unwrap_or(known);
        // The whole key nearly right, or the right word behind another of Kubernetes' prefixes, or behind none.
        within(key, known) || (name == meant && (prefix.is_empty() || prefix.ends_with("k8s.io")))
    })
}

/// Whether at most [`MOST_EDITS`] letters are to be inserted, removed or changed to make one of the other.
fn within(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > MOST_EDITS {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b) {
            let best = (corner + usize::from(x != y)).min(left + 1).min(*cell + 1);
            corner = *cell;
            *cell = best;
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().is_some_and(|edits| *edits <= MOST_EDITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_up_to_two_wrong_letters_is_a_misspelt_pause() {
        for key in [
            "cluster.x-k8s.io/pause",
            "cluster.x-k8s.io/Paused",
            "cluster.x-k8.io/paused",
            "cluster-x-k8s.io/pausd",
            "clustr.x-k8s.io/pauesd",
        ] {
            assert_eq!(looks_like(key).is_some(), !matches!(key, "clustr.x-k8s.io/pauesd"), "{key}");
        }
        assert_eq!(looks_like("cluster.x-k8s.io/skip-remediaton"), Some(SKIP_REMEDIATION));
    }

    #[test]
    fn the_right_word_behind_a_wrong_prefix_is_a_misspelt_pause() {
        for key in ["cluster.k8s.io/paused", "x-k8s.io/paused", "paused", "machine.cluster.x-k8s.io/skip-remediation"] {
            assert!(looks_like(key).is_some(), "{key}");
        }
    }

    #[test]
    fn other_keys_are_left_alone() {
        for key in
            [PAUSED, SKIP_REMEDIATION, "cluster.x-k8s.io/cluster-name", "cluster.x-k8s.io/remediate-machine", "example.com/paused", ""]
        {
            assert_eq!(looks_like(key), None, "{key}");
        }
    }
}
