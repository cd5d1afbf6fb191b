//! The rights that `deploy/` gives are sufficient (every other test here uses them) and not more.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests_cluster::{
    caller::Caller,
    cluster::Cluster,
    deployed::{self, patch_status},
    exporting::standing,
};

/// Everything that the API can be asked to do, as `verb resource namespace`, with the request that does it.
struct Call {
    name: String,
    method: &'static str,
    path: String,
}

/// Namespaces that are tried; the agent's Events go to the first.
const NAMESPACES: [&str; 3] = ["default", "nodeward", "kube-system"];

fn calls_of(group_version: &Value, prefix: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let group = group_version["groupVersion"].as_str().unwrap_or_default();
    for resource in group_version["resources"].as_array().into_iter().flatten() {
        let full = resource["name"].as_str().unwrap_or_default();
        let (plural, sub) = full.split_once('/').map_or((full, None), |(plural, sub)| (plural, Some(sub)));
        let spaces: Vec<Option<&str>> =
            if resource["namespaced"] == true { NAMESPACES.into_iter().map(Some).collect() } else { vec![None] };
        for space in spaces {
            let all = format!("{prefix}{}/{plural}", space.map(|s| format!("/namespaces/{s}")).unwrap_or_default());
            let one = format!("{all}/probe{}", sub.map(|s| format!("/{s}")).unwrap_or_default());
            for verb in resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let (method, path) = match verb {
                    "get" => ("GET", one.clone()),
                    "list" => ("GET", all.clone()),
                    "watch" => ("GET", format!("{all}?watch=1&timeoutSeconds=1")),
                    "create" if sub.is_some() => ("POST", one.clone()),
                    "create" => ("POST", all.clone()),
                    "update" => ("PUT", one.clone()),
                    "patch" => ("PATCH", one.clone()),
                    "delete" => ("DELETE", one.clone()),
                    "deletecollection" => ("DELETE", format!("{all}?labelSelector=nobody%3Dhas")),
                    _ => continue,
                };
                calls.push(Call { name: format!("{verb} {group}/{full} in {}", space.unwrap_or("all")), method, path });
            }
        }
    }
    calls
}

/// What discovery says that there is.
fn everything(caller: &Caller) -> Result<Vec<Call>> {
    let get = |path: &str| -> Result<Value> { caller.call("GET", path, None)?.map_err(|r| anyhow::anyhow!("GET {path}: {r:?}")) };
    let mut calls = calls_of(&get("/api/v1")?, "/api/v1");
    for group in get("/apis")?["groups"].as_array().context("groups")? {
        for version in group["versions"].as_array().context("versions")? {
            let prefix = format!("/apis/{}", version["groupVersion"].as_str().context("a group and version")?);
            calls.extend(calls_of(&get(&prefix)?, &prefix));
        }
    }
    Ok(calls)
}

/// Names of the calls that are not refused for want of rights.
fn allowed(caller: &Caller, calls: &[Call]) -> Result<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    for call in calls {
        let body = (call.method != "GET" && call.method != "DELETE").then(|| json!({}));
        let refusal = caller.call(call.method, &call.path, body.as_ref())?.err();
        if !refusal.is_some_and(|r| r.is_for_want_of_rights()) {
            allowed.insert(call.name.clone());
        }
    }
    Ok(allowed)
}

#[test]
fn an_agent_may_do_what_it_needs_and_every_other_call_is_forbidden() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let agent = Caller::with_token(&cluster, &deployed::token(&cluster, Some(("agent-a", "a"))).unwrap()).unwrap();
    cluster.kubectl(&["create", "serviceaccount", "nobody", "--namespace", "default"]).unwrap();
    let nobody = cluster.kubectl(&["create", "token", "nobody", "--namespace", "default"]).unwrap();
    let nobody = Caller::with_token(&cluster, nobody.trim()).unwrap();

    let calls = everything(&agent).unwrap();
    assert!(calls.len() > 500, "discovery shows only {} calls", calls.len());
    let own = allowed(&agent, &calls).unwrap();
    // What Kubernetes lets every service account do: ask about itself.
    let of_everybody = allowed(&nobody, &calls).unwrap();
    assert!(of_everybody.iter().all(|call| call.contains("/self") || call.contains("clustertrustbundles")), "{of_everybody:?}");
    let given: Vec<_> = own.difference(&of_everybody).map(String::as_str).collect();
    assert_eq!(
        given,
        [
            "create v1/events in default",
            "get v1/nodes in all",
            "list v1/nodes in all",
            "patch v1/events in default",
            "patch v1/nodes/status in all",
            "watch v1/nodes in all",
        ]
    );

    // Rights that no call shows, such as to impersonate.
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": "default" } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let verbs = |caller: &Caller| -> BTreeSet<String> {
        let rules = caller.call("POST", path, Some(&review)).unwrap().unwrap();
        let rules = rules["status"]["resourceRules"].as_array().unwrap().clone();
        rules.iter().map(|rule| format!("{} {} {}", rule["verbs"], rule["apiGroups"], rule["resources"])).collect()
    };
    let given: Vec<_> = verbs(&agent).difference(&verbs(&nobody)).cloned().collect();
    assert_eq!(
        given,
        [r#"["create","patch"] [""] ["events"]"#, r#"["get","list","watch"] [""] ["nodes"]"#, r#"["patch"] [""] ["nodes/status"]"#,]
    );
}

/// A patch of `a`'s status must be refused, and change nothing of it.
fn must_be_refused(cluster: &Cluster, caller: &Caller, what: &str, patch: &Value) -> Result<()> {
    let before = cluster.get(&["node", "a"])?;
    let answer = caller.patch("/api/v1/nodes/a/status", patch)?;
    let refusal = answer.err().with_context(|| format!("{what} was accepted"))?;
    ensure!(refusal.message.contains("the agent may"), "{what}: refused for another reason: {refusal:?}");
    ensure!(cluster.get(&["node", "a"])? == before, "{what}: refused, and done all the same");
    Ok(())
}

fn own_condition() -> Value {
    json!({ "metadata": { "annotations": { "nodeward.dev/boot-id": "x" } },
            "status": { "conditions": [{ "type": "KernelDeadlock", "status": "True", "reason": "Test" }] } })
}

#[test]
fn on_its_own_node_an_agent_can_write_nothing_but_its_conditions_and_its_annotation() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    let agent = Caller::with_token(&cluster, &deployed::token(&cluster, Some(("agent-a", "a"))).unwrap()).unwrap();
    let status = |fields: Value| json!({ "status": fields });
    let metadata = |fields: Value| json!({ "metadata": fields });
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1" });
    let cases = [
        ("the kubelet's condition", status(json!({ "conditions": [{ "type": "Ready", "status": "False" }] }))),
        ("the kubelet's heartbeat", status(json!({ "conditions": [{ "type": "Ready", "lastHeartbeatTime": "2026-02-01T00:00:00Z" }] }))),
        ("a condition removed", status(json!({ "conditions": [{ "type": "DiskPressure", "$patch": "delete" }] }))),
        ("a condition of nobody", status(json!({ "conditions": [{ "type": "Invented", "status": "True" }] }))),
        (
            "all conditions replaced",
            status(json!({ "conditions": [{ "$patch": "replace" }, { "type": "KernelDeadlock", "status": "True" }] })),
        ),
        (
            "a foreign condition beside its own",
            status(json!({ "conditions": [
            { "type": "KernelDeadlock", "status": "True" }, { "type": "Ready", "status": "Unknown" },
        ] })),
        ),
        ("capacity", status(json!({ "capacity": { "cpu": "99" } }))),
        ("new capacity", status(json!({ "capacity": { "example.com/gpu": "1" } }))),
        ("capacity removed", status(json!({ "capacity": { "cpu": null } }))),
        ("allocatable", status(json!({ "allocatable": { "memory": "1Gi" } }))),
        ("addresses", status(json!({ "addresses": [{ "type": "InternalIP", "address": "192.0.2.66" }] }))),
        ("a new address", status(json!({ "addresses": [{ "type": "ExternalIP", "address": "192.0.2.66" }] }))),
        ("the kubelet's port", status(json!({ "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } } }))),
        ("nodeInfo", status(json!({ "nodeInfo": { "kubeletVersion": "v0" } }))),
        ("images", status(json!({ "images": [{ "names": ["evil"], "sizeBytes": 1 }] }))),
        ("images removed", status(json!({ "images": null }))),
        ("volumes in use", status(json!({ "volumesInUse": ["kubernetes.io/csi/x"] }))),
        ("volumes attached", status(json!({ "volumesAttached": [{ "name": "x", "devicePath": "/dev/x" }] }))),
        ("phase", status(json!({ "phase": "Terminated" }))),
        ("runtime handlers", status(json!({ "runtimeHandlers": [{ "name": "x" }] }))),
        ("features", status(json!({ "features": { "supplementalGroupsPolicy": true } }))),
        ("a label", metadata(json!({ "labels": { "zone": "b" } }))),
        ("a new label", metadata(json!({ "labels": { "node-role.kubernetes.io/control-plane": "" } }))),
        ("a label removed", metadata(json!({ "labels": { "zone": null } }))),
        ("an annotation", metadata(json!({ "annotations": { "example.com/kept": "no" } }))),
        ("a new annotation", metadata(json!({ "annotations": { "nodeward.dev/other": "x" } }))),
        ("an annotation removed", metadata(json!({ "annotations": { "example.com/kept": null } }))),
        ("a finalizer", metadata(json!({ "finalizers": ["example.com/mine"] }))),
        ("a finalizer removed", metadata(json!({ "$deleteFromPrimitiveList/finalizers": ["example.com/kept"] }))),
        ("an owner", metadata(json!({ "ownerReferences": [owner] }))),
    ];
    for (what, patch) in &cases {
        must_be_refused(&cluster, &agent, what, patch).unwrap();
    }

    // These the API server itself drops from a patch of the status, before a policy sees them.
    let dropped = [
        json!({ "spec": { "unschedulable": true } }),
        json!({ "spec": { "taints": null } }),
        status(json!({ "config": { "error": "x" } })),
    ];
    let parts = |node: Value| [node["metadata"]["labels"].clone(), node["spec"].clone(), node["status"].clone()];
    let before = parts(cluster.get(&["node", "a"]).unwrap());
    for patch in &dropped {
        let _either_way = agent.patch("/api/v1/nodes/a/status", patch).unwrap();
        assert_eq!(parts(cluster.get(&["node", "a"]).unwrap()), before, "{patch}");
        assert!(agent.patch("/api/v1/nodes/a", patch).unwrap().unwrap_err().is_for_want_of_rights());
    }

    agent.patch("/api/v1/nodes/a/status", &own_condition()).unwrap().unwrap();
    assert_eq!(standing(&cluster.get(&["node", "a"]).unwrap(), "KernelDeadlock")["status"], "True");
    agent.patch("/api/v1/nodes/a/status", &nodeward_agent::export::patch::removal()).unwrap().unwrap();
    let node = cluster.get(&["node", "a"]).unwrap();
    assert_eq!(standing(&node, "KernelDeadlock"), Value::Null);
    assert_eq!(node["metadata"]["annotations"], json!({ "example.com/kept": "yes" }));
}

#[test]
fn with_another_nodes_token_or_none_bound_to_a_node_nothing_can_be_written() {
    let cluster = deployed::start().unwrap();
    deployed::make_node(&cluster, "a").unwrap();
    deployed::make_node(&cluster, "b").unwrap();
    let event = |name: &str, kind: &str, about: &str, component: &str| {
        json!({ "metadata": { "name": name, "namespace": "default" }, "source": { "component": component },
                "involvedObject": { "apiVersion": "v1", "kind": kind, "name": about }, "reason": "Test", "message": "x", "type": "Warning" })
    };
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let others = [Some(("agent-b", "b")), None];
    for pod in others {
        let caller = Caller::with_token(&cluster, &deployed::token(&cluster, pod).unwrap()).unwrap();
        must_be_refused(&cluster, &caller, "another node's condition", &own_condition()).unwrap();
        must_be_refused(&cluster, &caller, "another node's conditions removed", &nodeward_agent::export::patch::removal()).unwrap();
        let refusal = caller.call("POST", EVENTS, Some(&event("x", "Node", "a", "nodeward-agent"))).unwrap().unwrap_err();
        assert!(refusal.message.contains("the agent may write only Events about the Node"), "{refusal:?}");
    }

    let agent = Caller::with_token(&cluster, &deployed::token(&cluster, Some(("agent-a", "a"))).unwrap()).unwrap();
    agent.call("POST", EVENTS, Some(&event("ours", "Node", "a", "nodeward-agent"))).unwrap().unwrap();
    for wrong in [event("x", "Node", "b", "nodeward-agent"), event("x", "Pod", "a", "nodeward-agent"), event("x", "Node", "a", "kubelet")] {
        let refusal = agent.call("POST", EVENTS, Some(&wrong)).unwrap().unwrap_err();
        assert!(refusal.message.contains("the agent may write only"), "{wrong}: {refusal:?}");
    }
    // Neither can an Event of another be changed, nor one of its own be made into one about another Node.
    cluster.apply(&with_kind(event("theirs", "Node", "a", "kubelet")).to_string()).unwrap();
    for (name, patch) in [("theirs", json!({ "message": "changed" })), ("ours", json!({ "source": { "component": "kubelet" } }))] {
        let refusal = agent.patch(&format!("{EVENTS}/{name}"), &patch).unwrap().unwrap_err();
        assert!(refusal.message.contains("the agent may write only its own Events"), "{name}: {refusal:?}");
    }
    agent.patch(&format!("{EVENTS}/ours"), &json!({ "count": 2 })).unwrap().unwrap();

    // The policies are about agents alone.
    patch_status(&cluster, "b", "kubelet", &json!({ "status": { "capacity": { "cpu": "5" } } })).unwrap();
}

fn with_kind(mut event: Value) -> Value {
    event["apiVersion"] = "v1".into();
    event["kind"] = "Event".into();
    event
}
