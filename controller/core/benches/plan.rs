//! How long a plan for 15,000 nodes in 200 pools takes: the whole fleet at once, as after a restart. Must stay below 100 ms.

use std::{hint::black_box, time::Duration};

use controller_core::{
    plan,
    policy::{Class, Policy, Status},
    process::Process,
    provider::ProviderKind,
    time::Time,
    view::*,
};
use criterion::{Criterion, criterion_group, criterion_main};

const NOW: Time = Time::from_millis(1_796_083_200_000);
const POOLS: usize = 200;
const MEMBERS: usize = 75;
/// Pools of one cluster.
const PER_CLUSTER: usize = 10;
/// Conditions of a node: the kubelet's, the agent's and some others'.
const CONDITIONS: [&str; 14] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "Ready",
    "NetworkUnavailable",
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "VerityCorruption",
    "ServiceNotRecovering",
    "StorageFault",
    "NetworkFault",
    "MemoryHardwareFault",
    "CpuHardwareFault",
    "KubeletUnhealthy",
];

fn policy() -> Policy {
    let trigger = |kind: &str, status, seconds| controller_core::policy::Trigger {
        kind: kind.into(),
        status,
        hold_seconds: controller_core::time::Seconds(seconds),
        action: Default::default(),
    };
    let mut policy: Policy =
        serde_json::from_value(serde_json::json!({"selector": {}, "class": "Cloud", "triggers": []})).expect("a policy");
    assert_eq!(policy.class, Class::Cloud);
    policy.provider.kind = ProviderKind::HetznerCloud;
    policy.triggers = vec![trigger("Ready", Status::Unknown, 600), trigger("Ready", Status::False, 300)];
    policy.triggers.extend(CONDITIONS[5..].iter().map(|kind| trigger(kind, Status::True, 120)));
    policy
}

fn node(name: &str, bad: bool) -> Node {
    let past = NOW - Duration::from_secs(86_400);
    let conditions = CONDITIONS.iter().map(|kind| NodeCondition {
        kind: (*kind).into(),
        status: if (*kind == "Ready") != (bad && *kind == "KernelDeadlock") { Status::True } else { Status::False },
        reason: "Reason".into(),
        transition: Some(if bad { NOW - Duration::from_secs(600) } else { past }),
        heartbeat: Some(NOW - Duration::from_secs(60)),
    });
    let labels = (0..12).map(|n| (format!("label-{n}.example.com/key"), "value".to_owned())).collect();
    Node {
        name: name.into(),
        uid: format!("uid-{name}"),
        created_at: past,
        provider_id: Some(format!("hcloud://{name}")),
        boot_id: Some(format!("boot-{name}")),
        agent_boot_id: Some(format!("boot-{name}")),
        conditions: conditions.collect(),
        lease: Some(NodeLease { renew_time: NOW, arrived_at: Some(NOW) }),
        annotations: Texts::new(),
        labels,
    }
}

fn view() -> View {
    let past = NOW - Duration::from_secs(86_400);
    let mut process = Process { id: "p".into(), leading_since: Some(past), ..Process::default() };
    process.clock.measured(NOW, NOW);
    let pools = (0..POOLS).map(|p| {
        let members = (0..MEMBERS).map(|m| {
            let name = format!("machine-{p}-{m}");
            Member {
                machine: Machine {
                    name: name.clone(),
                    uid: format!("u-{name}"),
                    resource_version: "1".into(),
                    created_at: past,
                    provider_id: Some(format!("hcloud://{name}")),
                    node_name: Some(name.clone()),
                    drain_timeout: Some(Duration::from_secs(180)),
                    ..Machine::default()
                },
                // One machine of each pool is bad.
                node: NodeLook::Present(Box::new(node(&name, m == 0))),
                remediation: None,
                host: None,
                instance: InstanceLook::Unclear,
                health_check: false,
                policies: 1,
            }
        });
        PoolView {
            read: Read::Direct { at: NOW },
            name: format!("md-{p}"),
            persisted: None,
            policy: PolicyView { name: "policy".into(), annotations: Texts::new(), spec: policy() },
            owner: Owner {
                kind: OwnerKind::MachineDeployment,
                name: format!("md-{p}"),
                paused: false,
                rolling_out: false,
                annotations: Texts::new(),
                labels: Texts::new(),
                etcd: EtcdView::default(),
            },
            cluster: Cluster {
                namespace: "default".into(),
                name: format!("cluster-{}", p / PER_CLUSTER),
                paused: false,
                deleting: false,
                infrastructure_ready_at: Some(past),
                control_plane_initialized_at: Some(past),
                workload: Workload::Reachable,
            },
            members: members.collect(),
            orphans: Vec::new(),
        }
    });
    View { process, pools: pools.collect() }
}

fn bench(criterion: &mut Criterion) {
    let view = view();
    let plans = plan(&view, NOW);
    assert_eq!(plans.iter().map(|p| p.holds.len()).sum::<usize>(), POOLS, "one machine of each pool is bad");
    criterion.bench_function("plan, 15,000 nodes in 200 pools", |b| b.iter(|| plan(black_box(&view), black_box(NOW))));
}

criterion_group!(benches, bench);
criterion_main!(benches);
