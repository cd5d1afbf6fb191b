//! The core's settings, already validated.

use std::{collections::BTreeSet, time::Duration};

use crate::condition::ConditionType;

/// What an operator can set of the decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The types that are reported.
    pub enabled: BTreeSet<ConditionType>,
    /// How long the agent may be unable to look before a condition turns `Unknown`.
    pub unknown_after: Duration,
    /// Units whose tasks the node cannot live without.
    pub critical_units: BTreeSet<String>,
    /// From how many hung processes on the node is deadlocked, whoever they are.
    pub many_hung: usize,
    /// Paths whose filesystems are the node's.
    pub node_paths: Vec<String>,
    /// How often a node filesystem is probed without a hint.
    pub probe_interval: Duration,
    /// From when on a probe without an answer is `StorageFault`.
    pub stalled_after: Duration,
    /// How many Events of one reason may go out at once, and in how long one more.
    pub event_burst: u32,
    /// In how long one more Event of a reason may go out.
    pub event_refill: Duration,
    /// How far back before the agent's start a passing problem of the kernel log is still worth an Event.
    pub lookback: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: ConditionType::ALL.into_iter().collect(),
            unknown_after: Duration::from_secs(300),
            critical_units: [
                "kubelet.service",
                "containerd.service",
                "crio.service",
                "docker.service",
                "dbus.service",
                "dbus-broker.service",
                "systemd-journald.service",
                "systemd-logind.service",
                "systemd-udevd.service",
                "systemd-networkd.service",
                "etcd.service",
                "kube-apiserver.service",
                "k3s.service",
                "k3s-agent.service",
                "rke2-server.service",
                "rke2-agent.service",
            ]
            .map(String::from)
            .into(),
            many_hung: 5,
            node_paths: ["/", "/var", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/etcd", "/var/log", "/etc/kubernetes"]
                .map(String::from)
                .into(),
            probe_interval: Duration::from_secs(60),
            stalled_after: Duration::from_secs(300),
            event_burst: 10,
            event_refill: Duration::from_secs(60),
            lookback: Duration::from_secs(300),
        }
    }
}
