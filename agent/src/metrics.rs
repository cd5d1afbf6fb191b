//! Every metric of the agent. Names and labels are a contract: ARCHITECTURE.md and the dashboards use them.

use prometheus::{Gauge, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};

/// The agent's metrics, all registered. Cheap to clone: every collector is a handle.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where `/metrics` reads them.
    pub registry: Registry,
    /// NPD's `problem_gauge{type,reason}`: 1 while the condition is `True` for that reason.
    pub problem_gauge: IntGaugeVec,
    /// NPD's `problem_counter{reason}`.
    pub problem_counter: IntCounterVec,
    /// `nodeward_source_records_total{source}`: records read.
    pub records_read: IntCounterVec,
    /// `nodeward_source_records_lost_total{source}`: records that the kernel dropped before they could be read.
    pub records_lost: IntCounterVec,
    /// `nodeward_source_records_malformed_total{source}`: records dropped because they had not the right shape.
    pub records_malformed: IntCounterVec,
    /// `nodeward_ebpf_records_held_back_total`: reports that the programs held back because their object reports too much.
    pub records_held_back: prometheus::IntCounter,
    /// `nodeward_source_up{source}`: 1 while the source works, 0 while it is down or absent.
    pub source_up: IntGaugeVec,
    /// `nodeward_ebpf_program_attached{program}`: 1 attached, 0 absent.
    pub program_attached: IntGaugeVec,
    /// `nodeward_look_seconds{look}`: how long confirmations took.
    pub look_seconds: prometheus::HistogramVec,
    /// `nodeward_filesystem_stalled{mount_point}`: 1 while a write probe there has no answer.
    pub filesystem_stalled: IntGaugeVec,
    /// `nodeward_volume_faults_total{pod,reason}`: faults of pods' volumes; `pod` is `namespace/name`, or the UID.
    pub volume_faults: IntCounterVec,
    /// `nodeward_condition_conflicts_total{type,writer}`: our condition was overwritten by that field manager.
    pub condition_conflicts: IntCounterVec,
    /// `nodeward_api_writes_total{object,outcome}`: `object` is `node` or `event`, `outcome` is `accepted`, `refused` or `failed`.
    pub api_writes: IntCounterVec,
    /// `nodeward_events_dropped_total{why}`: Events that were not sent.
    pub events_dropped: IntCounterVec,
    /// `nodeward_detection_to_patch_seconds`: from the confirmation of a change to the accepted PATCH.
    pub detection_to_patch: Histogram,
    /// `nodeward_loop_last_turn_seconds`: time since boot of the loop's last turn.
    pub loop_last_turn: Gauge,
    /// `nodeward_api_up`: 1 while the last request to the API server was answered.
    pub api_up: IntGauge,
}

impl Metrics {
    /// All metrics, in a registry of their own.
    ///
    /// # Errors
    /// If two metrics were given the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            problem_gauge: add(
                &registry,
                IntGaugeVec::new(
                    Opts::new("problem_gauge", "Whether a specific type of problem is affecting the node or not."),
                    &["type", "reason"],
                )?,
            )?,
            problem_counter: add(
                &registry,
                IntCounterVec::new(Opts::new("problem_counter", "Number of times a specific type of problem have occurred."), &["reason"])?,
            )?,
            records_read: counters(&registry, "nodeward_source_records_total", "Records read from a source.", &["source"])?,
            records_lost: counters(
                &registry,
                "nodeward_source_records_lost_total",
                "Records that the kernel dropped before they could be read.",
                &["source"],
            )?,
            records_malformed: counters(
                &registry,
                "nodeward_source_records_malformed_total",
                "Records dropped because they had not the right shape.",
                &["source"],
            )?,
            records_held_back: add(
                &registry,
                prometheus::IntCounter::new(
                    "nodeward_ebpf_records_held_back_total",
                    "Reports that the programs held back because their object reports too much.",
                )?,
            )?,
            source_up: gauges(&registry, "nodeward_source_up", "1 while the source works.", &["source"])?,
            program_attached: gauges(&registry, "nodeward_ebpf_program_attached", "1 while the eBPF program is attached.", &["program"])?,
            look_seconds: add(
                &registry,
                prometheus::HistogramVec::new(
                    HistogramOpts::new("nodeward_look_seconds", "How long confirmations of the present state took.")
                        .buckets(vec![0.0001, 0.001, 0.01, 0.1, 1.0, 5.0]),
                    &["look"],
                )?,
            )?,
            filesystem_stalled: gauges(
                &registry,
                "nodeward_filesystem_stalled",
                "1 while a write probe on this filesystem has no answer.",
                &["mount_point"],
            )?,
            volume_faults: counters(&registry, "nodeward_volume_faults_total", "Faults of pods' volumes.", &["pod", "reason"])?,
            condition_conflicts: counters(
                &registry,
                "nodeward_condition_conflicts_total",
                "Times that another writer changed a condition of ours.",
                &["type", "writer"],
            )?,
            api_writes: counters(&registry, "nodeward_api_writes_total", "Writes to the API server.", &["object", "outcome"])?,
            events_dropped: counters(&registry, "nodeward_events_dropped_total", "Events that were not sent.", &["why"])?,
            detection_to_patch: add(
                &registry,
                Histogram::with_opts(
                    HistogramOpts::new("nodeward_detection_to_patch_seconds", "From the confirmation of a change to the accepted PATCH.")
                        .buckets(vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0, 10.0, 60.0]),
                )?,
            )?,
            loop_last_turn: add(&registry, Gauge::new("nodeward_loop_last_turn_seconds", "Time since boot of the loop's last turn.")?)?,
            api_up: add(&registry, IntGauge::new("nodeward_api_up", "1 while the last request to the API server was answered.")?)?,
            registry,
        };
        let info = gauges(&metrics.registry, "nodeward_build_info", "Always 1; the labels say what runs.", &["version"])?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(metrics)
    }
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    add(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    add(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}
