//! A cluster with `deploy/` applied, Nodes without machines, and the tokens that an agent's pod on one of them would have.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::{Value, json};

use crate::{caller::Caller, cluster::Cluster, wait};

/// How long a new admission policy may take to be in force: the API server looks for them about once a second.
const IN_FORCE: Duration = Duration::from_secs(30);

/// The manifests that users apply.
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// Where the agent's pods and its service account are.
const NAMESPACE: &str = "nodeward";

/// The agent's service account.
const ACCOUNT: &str = "nodeward-agent";

/// Starts a cluster with `deploy/` applied and its policies in force.
///
/// # Errors
/// If the API server does not take them.
pub fn start() -> Result<Cluster> {
    let cluster = Cluster::start()?;
    cluster.kubectl(&["apply", "--server-side", "--kustomize", MANIFESTS])?;
    make_node(&cluster, "unused")?;
    let nobody = Caller::with_token(&cluster, &token(&cluster, None)?)?;
    let node = json!({ "status": { "conditions": [{ "type": "KernelDeadlock", "status": "False" }] } });
    let event = json!({
        "metadata": { "name": "unused" }, "source": { "component": ACCOUNT },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": "unused" },
    });
    // Both are within the rights, so that only a policy can refuse them.
    let calls = [("PATCH", "/api/v1/nodes/unused/status", node), ("POST", "/api/v1/namespaces/default/events", event)];
    for (method, path, body) in calls {
        wait::until("the policy to be in force", IN_FORCE, || {
            let refusal = nobody.call(method, path, Some(&body))?.err().with_context(|| format!("{method} {path} was accepted"))?;
            ensure!(!refusal.is_for_want_of_rights() && refusal.message.contains("ValidatingAdmissionPolicy"), "{}", refusal.message);
            Ok::<_, anyhow::Error>(())
        })?;
        let _ = cluster.kubectl(&["delete", "event", "unused", "--ignore-not-found"])?;
    }
    Ok(cluster)
}

/// Makes a Node with everything on it that a kubelet and others would have written.
///
/// # Errors
/// If the API server does not take it.
pub fn make_node(cluster: &Cluster, name: &str) -> Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "zone": "a" },
            "annotations": { "example.com/kept": "yes" },
            "finalizers": ["example.com/kept"],
        },
        "spec": { "podCIDR": "10.1.0.0/24", "taints": [{ "key": "example.com/kept", "value": "yes", "effect": "NoSchedule" }] },
    });
    cluster.apply(&node.to_string())?;
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": format!("{kind} of another"),
            "lastTransitionTime": time, "lastHeartbeatTime": time,
        })
    };
    let info = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let status = json!({ "status": {
        "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" },
        "allocatable": { "cpu": "3", "memory": "7Gi", "pods": "110" },
        "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": info.map(|key| (key.to_owned(), json!("kept"))).into_iter().collect::<serde_json::Map<_, _>>(),
        "images": [{ "names": ["example.com/kept:1"], "sizeBytes": 1 }],
        "conditions": [
            condition("Ready", "True", "KubeletReady"), condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("FrequentKubeletRestart", "False", "NoFrequentKubeletRestart"),
        ],
    } });
    patch_status(cluster, name, "kubelet", &status)
}

/// Writes a Node's status as one who may do everything, under the name of this field manager.
///
/// # Errors
/// If the API server does not take it.
pub fn patch_status(cluster: &Cluster, node: &str, manager: &str, patch: &Value) -> Result<()> {
    let patch = patch.to_string();
    let args = ["patch", "node", node, "--subresource", "status", "--type", "strategic", "--field-manager", manager, "--patch", &patch];
    cluster.kubectl(&args).map(drop)
}

/// Removes a Node, whatever holds it.
///
/// # Errors
/// If it is not there.
pub fn delete_node(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(&["patch", "node", name, "--type", "merge", "--patch", r#"{"metadata":{"finalizers":null}}"#])?;
    cluster.kubectl(&["delete", "node", name]).map(drop)
}

/// A token of the agent's service account: bound to a new pod of this name on this node, or to nothing.
///
/// # Errors
/// If the API server does not give one.
pub fn token(cluster: &Cluster, pod_on_node: Option<(&str, &str)>) -> Result<String> {
    let mut args = vec!["create", "token", ACCOUNT, "--namespace", NAMESPACE, "--duration", "1h"];
    if let Some((pod, node)) = pod_on_node {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "namespace": NAMESPACE },
            "spec": {
                "nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{ "name": "agent", "image": "none" }],
                "tolerations": [{ "operator": "Exists" }],
            },
        });
        cluster.apply(&object.to_string())?;
        args.extend(["--bound-object-kind", "Pod", "--bound-object-name", pod]);
    }
    Ok(cluster.kubectl(&args)?.trim().to_owned())
}

/// Ends a pod that a token is bound to, and with it the token.
///
/// # Errors
/// If it is not there.
pub fn delete_pod(cluster: &Cluster, pod: &str) -> Result<()> {
    cluster.kubectl(&["delete", "pod", pod, "--namespace", NAMESPACE, "--force", "--grace-period", "0"]).map(drop)
}

/// The same token, as it is after its end: signed with the cluster's own key, so that its age alone is wrong.
///
/// # Errors
/// If the token or the key cannot be read.
pub fn expired(cluster: &Cluster, token: &str) -> Result<String> {
    let mut parts = token.split('.');
    let (header, claims) = parts.next().zip(parts.next()).context("a token has three parts")?;
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    let issued = claims["iat"].as_i64().context("a token says when it was issued")?;
    for (claim, hours_ago) in [("iat", 2), ("nbf", 2), ("exp", 1)] {
        claims[claim] = (issued - hours_ago * 3600).into();
    }
    sign(&cluster.dir().join("sa.key"), header, &claims)
}

/// A token with these claims, signed with this key (ECDSA on P-256, RFC 7518 section 3.4).
fn sign(key: &Path, header: &str, claims: &Value) -> Result<String> {
    let random = SystemRandom::new();
    let key = rcgen::KeyPair::from_pem(&std::fs::read_to_string(key)?)?.serialize_der();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random).map_err(|e| anyhow::anyhow!("key: {e}"))?;
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = key.sign(&random, signed.as_bytes()).map_err(|e| anyhow::anyhow!("signature: {e}"))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
