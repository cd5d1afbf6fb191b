//! Which pod a UID belongs to, from what the kubelet leaves on disk: no rights on pods at the API server are needed.

use std::path::Path;

use agent_core::task::Pod;
use rustix::fs::{Dir, Mode, OFlags};
use serde::Deserialize;

use super::Host;

/// A control plane has four; whoever puts hundreds there has no use for what we would find.
const MOST_MANIFESTS: usize = 256;

/// The kubelet's directory of container logs, one `NAMESPACE_NAME_UID` a pod (`pkg/kubelet/kuberuntime/helpers.go`).
const POD_LOGS: &str = "/var/log/pods";

#[derive(Deserialize)]
struct Manifest {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl Host {
    /// The UID of each pod that has a log directory, with its `namespace/name`.
    #[must_use]
    pub fn pods(&self) -> Vec<(String, String)> {
        let mut pods: Vec<_> = self.list(Path::new(POD_LOGS)).iter().filter_map(|entry| named(entry)).collect();
        pods.sort_unstable();
        pods
    }

    /// What is known of the pod with this UID.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Pod {
        let known = self.list(Path::new(POD_LOGS)).iter().filter_map(|entry| named(entry)).find(|(of, _)| of == uid);
        let name = known.map(|(_, name)| name);
        let bare = name.as_deref().and_then(|name| Some(name.split_once('/')?.1));
        let is_static = bare.is_some_and(|name| is_static_uid(uid) && self.has_manifest(name));
        Pod { uid: uid.into(), is_static, name }
    }

    /// The kubelet calls a static pod by its manifest's name and the node's: `etcd-node1`.
    fn has_manifest(&self, pod: &str) -> bool {
        let files = self.list(&self.manifest_directory).into_iter().filter(|file| !file.starts_with('.')).take(MOST_MANIFESTS);
        files.filter_map(|file| self.manifest_name(&file)).any(|name| pod.strip_prefix(&name).is_some_and(|rest| rest.starts_with('-')))
    }

    fn manifest_name(&self, file: &str) -> Option<String> {
        let bytes = self.read(&self.manifest_directory.join(file)).ok()?;
        let manifest: Manifest = serde_saphyr::from_str(std::str::from_utf8(&bytes).ok()?).ok()?;
        Some(manifest.metadata.name).filter(|name| !name.is_empty())
    }

    fn list(&self, directory: &Path) -> Vec<String> {
        let open = || self.open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).ok();
        let entries = open().and_then(|fd| Dir::new(fd).ok()).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(String::from));
        names.filter(|name| name != "." && name != "..").collect()
    }
}

/// UID and `namespace/name`; neither a namespace nor a name can hold an underscore.
fn named(entry: &str) -> Option<(String, String)> {
    let (namespace, rest) = entry.split_once('_')?;
    let (name, uid) = rest.split_once('_')?;
    Some((uid.to_owned(), format!("{namespace}/{name}")))
}

/// A static pod's UID is a hash of its manifest (`pkg/kubelet/config/common.go`): 32 hexadecimal digits and no dashes. Nobody but the
/// kubelet gives such a UID: the API server's have dashes.
fn is_static_uid(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::FakeHost;

    const HASH: &str = "0123456789abcdef0123456789abcdef";
    const UID: &str = "7a9e2f60-0000-4000-8000-123456789abc";

    fn host() -> FakeHost {
        FakeHost::new()
            .with(&format!("var/log/pods/kube-system_etcd-node1_{HASH}/etcd/0.log"), "")
            .with(&format!("var/log/pods/shop_etcd-node1_{UID}/etcd/0.log"), "")
            .with("etc/kubernetes/manifests/etcd.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\n  labels: {a: b}\nspec: {}\n")
            .with("etc/kubernetes/manifests/broken.yaml", "[")
    }

    #[test]
    fn a_pod_of_the_manifest_directory_is_static() {
        let pod = host().host().pod(HASH);
        assert_eq!(pod, Pod { uid: HASH.into(), name: Some("kube-system/etcd-node1".into()), is_static: true });
    }

    #[test]
    fn a_pod_that_only_has_the_name_is_not_static() {
        let pod = host().host().pod(UID);
        assert_eq!(pod, Pod { uid: UID.into(), name: Some("shop/etcd-node1".into()), is_static: false });
    }

    #[test]
    fn a_pod_without_a_manifest_is_not_static() {
        let other = HASH.replace('0', "f");
        let fake = host()
            .with(&format!("var/log/pods/kube-system_etcdx-node1_{other}/x"), "")
            .with("etc/kubernetes/manifests/.hidden", "metadata: {name: etcdx}");
        assert!(!fake.host().pod(&other).is_static);
    }

    #[test]
    fn an_unknown_uid_has_no_name() {
        assert_eq!(host().host().pod("gone"), Pod { uid: "gone".into(), name: None, is_static: false });
        assert_eq!(FakeHost::new().host().pod(HASH), Pod { uid: HASH.into(), name: None, is_static: false });
    }
}
