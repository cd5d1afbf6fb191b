//! `cargo xtask test`: every tier, with what it needs, closed by the test runner's own summary.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{
    build_ebpf, cache, image, manifests, node_root,
    process::{self, cargo, run as run_program},
    servers, tidy, tool,
};

/// What a test needs to be real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Tier {
    /// Nothing: unit, scenario and property tests, lints, format, licenses, generated files
    Unit,
    /// This machine's kernel; as root
    Kernel,
    /// An API server and etcd
    Cluster,
    /// A whole Kubernetes with a node that runs our image; as root
    Whole,
}

impl Tier {
    /// Which tests these are, in the runner's filter language.
    fn filter(self) -> &'static str {
        match self {
            Self::Unit => "not package(tests-kernel) and not package(tests-cluster)",
            Self::Kernel => "package(tests-kernel)",
            Self::Cluster => "package(tests-cluster) and not binary(whole)",
            Self::Whole => "package(tests-cluster) and binary(whole)",
        }
    }
}

/// Runs these tiers, all if none is named. Arguments go to the test runner.
pub(crate) fn run(tiers: &[Tier], args: &[String]) -> Result<()> {
    let tiers: BTreeSet<Tier> =
        if tiers.is_empty() { Tier::value_variants().iter().copied().collect() } else { tiers.iter().copied().collect() };
    let needs_root = [Tier::Kernel, Tier::Whole].into_iter().find(|tier| tiers.contains(tier));
    if let Some(tier) = needs_root
        && !tool::is_root()?
    {
        bail!("the {tier:?} tier breaks filesystems and starts containers: it needs root");
    }
    if tiers.contains(&Tier::Unit) {
        unchanging()?;
    }
    let mut nextest = tool::nextest()?;
    nextest.args(["run", "--workspace", "--no-fail-fast", "--filterset"]).arg(filter(&tiers));
    if tiers.iter().any(|tier| *tier != Tier::Unit) {
        // The kernel tier loads what the sources give here. Where that is what is checked in, it is in the agent already.
        let built = tiers.contains(&Tier::Kernel).then(build_ebpf::check_prebuilt).transpose()?;
        let other = built.filter(|built| !built.is_the_same).map(|built| built.object);
        nextest.env("NODEWARD_AGENT", process::build_agent(&[], other.as_deref())?);
    }
    if tiers.contains(&Tier::Kernel) {
        tool::packages(&[("mkfs.ext4", "e2fsprogs"), ("mkfs.xfs", "xfsprogs"), ("losetup", "mount"), ("fsfreeze", "util-linux")])
            .context("the kernel tier needs programs to make and break filesystems")?;
    }
    if tiers.contains(&Tier::Cluster) || tiers.contains(&Tier::Whole) {
        nextest.env("NODEWARD_K8S_BIN", servers::directory().context("the cluster and whole tiers need Kubernetes' servers")?);
    }
    if tiers.contains(&Tier::Whole) {
        nextest.env("NODEWARD_NODE_ROOT", node_root::directory().context("the whole tier needs a root filesystem for its node")?);
        let archive = cache::directory()?.join("nodeward-agent.tar");
        image::write(&archive, image::DEFAULT_NAME, &image::build()?)?;
        nextest.env("NODEWARD_IMAGE", archive);
    }
    run_program(nextest.args(args))
}

/// What needs no running: format, rules, licenses, generated files, lints.
fn unchanging() -> Result<()> {
    run_program(cargo().args(["fmt", "--all", "--check"]))?;
    run_program(cargo().args(["fmt", "--check", "--manifest-path", "agent-ebpf/Cargo.toml"]))?;
    tidy::run()?;
    manifests::run(true)?;
    // The database of advisories is not part of this: it changes without us.
    run_program(tool::deny()?.args(["--all-features", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    build_ebpf::check_prebuilt()?;
    run_program(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]))
}

fn filter(tiers: &BTreeSet<Tier>) -> String {
    tiers.iter().map(|tier| format!("({})", tier.filter())).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_joined_and_none_is_both() {
        let both = [Tier::Whole, Tier::Kernel].into();
        assert_eq!(filter(&both), "(package(tests-kernel)) or (package(tests-cluster) and binary(whole))");
    }

    #[test]
    fn what_continuous_integration_calls_is_there() {
        for file in [".ci/run", ".config/nextest.toml", "deny.toml"] {
            assert!(process::repository().join(file).is_file(), "{file}");
        }
    }
}
