//! The direction of dependence between our packages, and what the pure cores must not even reach.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};

use super::Breach;
use crate::process::repository;

/// Which of our packages each may use, in code or in tests. A package that is not here may use none.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("nodeward-agent", &["agent-core", "agent-ebpf", "nodeward-common"]),
    ("nodeward-controller", &["controller-core", "nodeward-common"]),
    ("agent-core", &[]),
    ("controller-core", &[]),
    ("nodeward-common", &[]),
    ("xtask", &["agent-core", "controller-core"]),
    ("tests-kernel", &["agent-core", "nodeward-agent", "nodeward-common"]),
    ("tests-cluster", &["agent-core", "nodeward-agent", "nodeward-common", "tests-kernel"]),
    ("tests-simulation", &["controller-core"]),
];

/// Packages whose decisions are pure.
const PURE: [&str; 2] = ["agent-core", "controller-core"];

/// What would make them impure: a runtime, a cluster, a kernel, a bus, or something to say to anybody but their caller; clocks and chance.
const NEVER_IN_PURE: [&str; 12] =
    ["tokio", "kube", "aya", "zbus", "log", "tracing", "jiff", "chrono", "time", "rand", "getrandom", "rustix"];

/// Who uses whom: our packages by name, and everything they reach outside tests.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Direct dependencies on packages of this repository, tests' included.
    ours: BTreeMap<String, BTreeSet<String>>,
    /// Everything that goes into the package, directly or not.
    reached: BTreeMap<String, BTreeSet<String>>,
}

/// Asks cargo.
pub(super) fn read() -> Result<Graph> {
    let metadata = MetadataCommand::new().manifest_path(repository().join("Cargo.toml")).exec().context("cannot read cargo's metadata")?;
    let resolve = metadata.resolve.as_ref().context("cargo's metadata has no resolved dependencies")?;
    let used: BTreeMap<&PackageId, Vec<(&PackageId, bool)>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let in_code = |dep: &cargo_metadata::NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development);
            (&node.id, node.deps.iter().map(|dep| (&dep.pkg, in_code(dep))).collect())
        })
        .collect();
    let name = |id: &PackageId| metadata[id].name.to_string();
    let mut graph = Graph::default();
    for package in metadata.workspace_packages() {
        let direct = used.get(&package.id).map(Vec::as_slice).unwrap_or_default();
        // No source: it lies in this repository.
        let ours = direct.iter().filter(|(id, _)| metadata[*id].source.is_none()).map(|(id, _)| name(id)).collect();
        graph.ours.insert(package.name.to_string(), ours);
        let mut seen = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            let next = used.get(id).map(Vec::as_slice).unwrap_or_default();
            open.extend(next.iter().filter(|(_, in_code)| *in_code).map(|(id, _)| *id).filter(|id| seen.insert(*id)));
        }
        graph.reached.insert(package.name.to_string(), seen.into_iter().map(name).collect());
    }
    Ok(graph)
}

/// Every edge that should not be.
pub(super) fn check(graph: &Graph) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut breach = |place: &str, problem: String| breaches.push(Breach { place: place.into(), line: None, problem });
    for (package, used) in &graph.ours {
        let allowed = MAY_USE.iter().find(|(name, _)| name == package).map_or(&[] as &[&str], |(_, may)| *may);
        for other in used.iter().filter(|other| !allowed.contains(&other.as_str())) {
            breach(package, format!("must not depend on {other}"));
        }
    }
    for package in PURE {
        let reached = graph.reached.get(package).into_iter().flatten();
        for other in reached.filter(|other| NEVER_IN_PURE.contains(&other.as_str())) {
            breach(package, format!("is pure, yet {other} goes into it"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(list: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        list.iter().map(|(from, to)| ((*from).into(), to.iter().map(ToString::to_string).collect())).collect()
    }

    fn problems(ours: &[(&str, &[&str])], reached: &[(&str, &[&str])]) -> Vec<String> {
        check(&Graph { ours: edges(ours), reached: edges(reached) }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependence_has_one_direction() {
        let good: &[(&str, &[&str])] = &[("nodeward-agent", &["agent-core", "agent-ebpf", "nodeward-common"]), ("agent-core", &[])];
        assert_eq!(problems(good, &[]), [""; 0]);
        assert_eq!(
            problems(&[("agent-core", &["nodeward-common"]), ("nodeward-common", &["agent-core"]), ("newcomer", &["xtask"])], &[]),
            [
                "agent-core: must not depend on nodeward-common",
                "newcomer: must not depend on xtask",
                "nodeward-common: must not depend on agent-core"
            ]
        );
    }

    #[test]
    fn a_pure_core_does_not_reach_a_runtime_however_indirectly() {
        assert_eq!(problems(&[], &[("agent-core", &["serde", "regex"]), ("nodeward-agent", &["tokio", "log"])]), [""; 0]);
        assert_eq!(
            problems(&[], &[("agent-core", &["tokio", "serde", "log"])]),
            ["agent-core: is pure, yet log goes into it", "agent-core: is pure, yet tokio goes into it"]
        );
    }

    #[test]
    fn cargo_is_understood() {
        let graph = read().unwrap();
        assert!(graph.ours["nodeward-agent"].contains("agent-core"));
        assert!(graph.reached["nodeward-agent"].contains("tokio"));
        assert!(graph.reached["agent-core"].contains("regex-automata"), "what is reached through another crate is seen too");
    }
}
