//! Whose a process is, from its cgroup path: a unit of the host, a container of a pod, or neither.

use std::time::Duration;

use agent_core::task::{Owner, Pod};

use crate::{host::Host, look::Apart};

/// The kubelet's directories may lie on the very filesystem that hangs.
const PATIENCE: Duration = Duration::from_millis(200);

/// Whose it is by `/proc/PID/cgroup`.
pub(super) fn of_cgroups(cgroup: &[u8], pod: impl FnOnce(&str) -> Pod) -> Owner {
    let cgroup = String::from_utf8_lossy(cgroup);
    let path = path_of(&cgroup);
    match owner_in(path) {
        Some(Place::Pod(uid)) => Owner::Pod(pod(&uid)),
        Some(Place::Unit(unit)) => Owner::Unit(unit.into()),
        None => Owner::Other(path.into()),
    }
}

/// What the host knows of a pod, or if it does not answer, its UID alone.
pub(super) fn pod(host: &Host, aside: &Apart, uid: &str) -> Pod {
    let (host, asked) = (host.clone(), uid.to_owned());
    aside.run_blocking(PATIENCE, move || host.pod(&asked)).unwrap_or_else(|_| Pod { uid: uid.into(), name: None, is_static: false })
}

/// The path that says most: cgroup 2's, else that of systemd's own hierarchy, else any that is not the root.
fn path_of(cgroup: &str) -> &str {
    let paths = |hierarchy: fn(&str) -> bool| {
        cgroup.lines().filter_map(move |line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (hierarchy(controllers) && !path.trim_start_matches(['/', '.']).is_empty()).then_some(path)
        })
    };
    paths(str::is_empty).chain(paths(|controllers| controllers == "name=systemd")).chain(paths(|_| true)).next().unwrap_or("/")
}

enum Place<'a> {
    Pod(String),
    Unit(&'a str),
}

/// The first component that names a pod or a unit, from the root down. What is below belongs to it and may call itself anything: a user's
/// own manager or a container could make a `kubelet.service` of its own. Seen from a cgroup namespace a path may begin with `/..`.
fn owner_in(path: &str) -> Option<Place<'_>> {
    path.split('/').find_map(|component| {
        if let Some(uid) = pod_uid(component) {
            return Some(Place::Pod(uid));
        }
        let is_unit = [".service", ".scope", ".mount", ".swap", ".socket"].iter().any(|kind| component.ends_with(kind));
        let is_container = ["cri-containerd-", "crio-", "docker-", "libpod-"].iter().any(|runtime| component.starts_with(runtime));
        (is_unit && !is_container).then_some(Place::Unit(component))
    })
}

/// `podUID` (cgroupfs driver) or `kubepods-burstable-podUID.slice` (systemd driver, `_` for `-`) of the kubelet
/// (`pkg/kubelet/cm/pod_container_manager_linux.go`).
fn pod_uid(component: &str) -> Option<String> {
    let uid = match component.strip_suffix(".slice") {
        Some(slice) if slice.contains("kubepods") => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        Some(_) => return None,
        None => component.strip_prefix("pod")?.to_owned(),
    };
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = uid.bytes().filter(|b| *b == b'-').count();
    (digits == 32 && digits + dashes == uid.len() && (dashes == 0 || dashes == 4)).then_some(uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "7a9e2f60-0000-4000-8000-123456789abc";
    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn owner(cgroup: &str) -> Owner {
        of_cgroups(cgroup.as_bytes(), |uid| Pod { uid: uid.into(), name: None, is_static: false })
    }

    fn pod(uid: &str) -> Owner {
        Owner::Pod(Pod { uid: uid.into(), name: None, is_static: false })
    }

    fn unit(name: &str) -> Owner {
        Owner::Unit(name.into())
    }

    #[test]
    fn a_unit_is_named_by_its_cgroup() {
        assert_eq!(owner("0::/system.slice/kubelet.service\n"), unit("kubelet.service"));
        assert_eq!(owner("0::/system.slice/system-getty.slice/getty@tty1.service\n"), unit("getty@tty1.service"));
        assert_eq!(owner("0::/user.slice/user-0.slice/session-3.scope\n"), unit("session-3.scope"));
        assert_eq!(owner("0::/../../../../system.slice/containerd.service\n"), unit("containerd.service"));
    }

    #[test]
    fn on_cgroup_1_systemds_own_hierarchy_says_it() {
        let v1 = "12:cpu,cpuacct:/\n3:memory:/other\n1:name=systemd:/system.slice/kubelet.service\n0::/\n";
        assert_eq!(owner(v1), unit("kubelet.service"));
        assert_eq!(owner("4:memory:/process_api/x\n1:name=systemd:/\n0::/\n"), Owner::Other("/process_api/x".into()));
    }

    #[test]
    fn a_pod_is_named_by_its_cgroup_whatever_the_driver() {
        let under = UID.replace('-', "_");
        assert_eq!(owner(&format!("0::/kubepods/burstable/pod{UID}/0a1b\n")), pod(UID));
        let systemd = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-0a1b.scope");
        assert_eq!(owner(&format!("0::{systemd}\n")), pod(UID));
        assert_eq!(owner(&format!("1:name=systemd:{systemd}\n0::/\n")), pod(UID));
        assert_eq!(owner(&format!("0::/../../kubepods-besteffort-pod{under}.slice/cri-containerd-0a1b.scope\n")), pod(UID));
        assert_eq!(owner(&format!("0::/kubepods.slice/kubepods-pod{HASH}.slice/cri-containerd-0a1b.scope\n")), pod(HASH));
        assert_eq!(owner(&format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{under}.slice/x\n")), pod(UID));
    }

    #[test]
    fn what_calls_itself_a_unit_inside_another_is_not_the_hosts() {
        assert_eq!(owner("0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service\n"), unit("user@1000.service"));
        assert_eq!(owner(&format!("0::/user.slice/user@1000.service/kubepods-pod{HASH}.slice\n")), unit("user@1000.service"));
        assert_eq!(owner(&format!("0::/kubepods/pod{UID}/c/system.slice/kubelet.service\n")), pod(UID));
    }

    #[test]
    fn a_container_of_no_known_pod_is_something_else() {
        assert_eq!(owner("0::/../cri-containerd-0a1b.scope\n"), Owner::Other("/../cri-containerd-0a1b.scope".into()));
        assert_eq!(owner("0::/kubepods/podx/c\n"), Owner::Other("/kubepods/podx/c".into()));
        assert_eq!(owner("0::/\n"), Owner::Other("/".into()));
        assert_eq!(owner("0::/../..\n"), Owner::Other("/".into()));
        assert_eq!(owner(""), Owner::Other("/".into()));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_owner(bytes: Vec<u8>) {
            let _ = of_cgroups(&bytes, |uid| Pod { uid: uid.into(), name: None, is_static: false });
        }
    }
}
