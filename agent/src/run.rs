//! `nodeward-agent run`: the daemon, as a checklist.

use std::{sync::Arc, time::Duration};

use agent_core::{BootTime, Condition, Memory, Source, SourceState};
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nodeward_common::http;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time,
};

use crate::{
    clock::Clock,
    config::Settings,
    export::{
        Exporters, Stamps,
        cluster::Cluster,
        patch,
        stdout::{Format, Printer},
    },
    host::Host,
    metrics::Metrics,
    pipeline::{LONGEST_TURN, Pipeline},
    state::{Remembered, Store},
    tune::HungTaskInterval,
};

/// How long a first start waits for the API server to say what an earlier agent of this boot wrote. Nothing is lost if it does not answer: the
/// writer looks again before its first patch.
const ADOPTION: Duration = Duration::from_secs(3);

/// How old the loop's last turn may be before `/healthz` fails.
const STUCK_AFTER: Duration = LONGEST_TURN.saturating_mul(3);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// If what no agent can do without is missing: the boot id, signal handling, metrics. A missing source, state directory or API server is not
/// among that.
pub async fn run(settings: Settings, cluster: Option<Cluster>, format: Format) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let settings = Arc::new(settings);
    let host = Arc::new(Host::new(&settings.host));
    let boot_id = host.boot_id().context("cannot read the boot id")?;
    let metrics = Metrics::new().context("cannot make metrics")?;
    let _interval = tuned(&settings, &host);

    let store = Store::open(&host, &settings.host.state_directory)
        .inspect_err(|e| log::error!("nothing will be remembered across restarts: {}: {e}", settings.host.state_directory.display()))
        .ok();
    let remembered = store.as_ref().and_then(|store| store.load(&boot_id));
    let (memory, stamps) = match (remembered, &cluster) {
        (Some(remembered), _) => (remembered.memory, remembered.stamps),
        (None, Some(cluster)) => adopted(cluster, &boot_id).await,
        (None, None) => (Memory::default(), Stamps::default()),
    };

    let mut exporters = Exporters::start(cluster, boot_id.clone(), stamps, &metrics, Printer::stdout(format));
    let (seen, health) = watch::channel(Health { turn: Clock.now(), blind: Some("the sources have not started yet".into()) });
    let server = tokio::spawn(http::serve(settings.http.address, served(&metrics, health)));
    let mut pipeline = Pipeline::start(&settings, &host, &metrics, memory);

    loop {
        // Signals first: the kubelet does not wait for a storm to end.
        let turn = tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            turn = pipeline.turn() => turn,
        };
        if !turn.effects.is_empty() {
            // Remembered before it is told: after a crash nothing is told twice, and nothing told is forgotten.
            exporters.note(&turn.effects);
            remember(store.as_ref(), &boot_id, &pipeline, &exporters);
            turn.effects.into_iter().for_each(|effect| exporters.carry_out(effect));
            exporters.turn_over();
        }
        seen.send_replace(Health { turn: Clock.now(), blind: blindness(&pipeline) });
    }

    log::info!("told to stop");
    server.abort();
    let left = (store, boot_id);
    remember(left.0.as_ref(), &left.1, &pipeline, &exporters);
    let written = exporters.stop().await;
    if let Some(store) = &left.0 {
        // Which transition times the API server has taken is known only now.
        let remembered = Remembered::new(left.1, pipeline.core().memory().clone(), written);
        let _ = store.save(&remembered).inspect_err(|e| log::error!("cannot remember: {e}"));
    }
    pipeline.stop().await;
    Ok(())
}

/// What the probes of the kubelet ask for.
#[derive(Clone, Debug)]
struct Health {
    turn: BootTime,
    /// Why the agent cannot see the kernel, if it cannot.
    blind: Option<String>,
}

fn served(metrics: &Metrics, health: watch::Receiver<Health>) -> http::Served {
    let ready = health.clone();
    http::Served {
        registry: metrics.registry.clone(),
        live: Box::new(move || {
            let age = Clock.now().since(health.borrow().turn);
            if age < STUCK_AFTER { Ok(()) } else { Err(format!("the loop has not turned for {} s", age.as_secs())) }
        }),
        ready: Box::new(move || ready.borrow().blind.clone().map_or(Ok(()), Err)),
    }
}

/// Why the agent cannot see the kernel: it has neither the log nor the eBPF ring, or not the mount table.
fn blindness(pipeline: &Pipeline) -> Option<String> {
    let why = |source: Source| match pipeline.sources().get(&source) {
        Some(SourceState::Up { .. }) => None,
        Some(SourceState::Down { why } | SourceState::Absent { why }) => Some(format!("{}: {why}", source.as_str())),
        None => Some(format!("{}: not started yet", source.as_str())),
    };
    why(Source::Mounts).or_else(|| Some(format!("{}; {}", why(Source::KernelLog)?, why(Source::Ebpf)?)))
}

fn remember(store: Option<&Store>, boot_id: &str, pipeline: &Pipeline, exporters: &Exporters) {
    let Some(store) = store else { return };
    let remembered = Remembered::new(boot_id.to_owned(), pipeline.core().memory().clone(), exporters.stamps());
    if let Err(e) = store.save(&remembered) {
        log::error!("cannot remember: {e}");
    }
}

/// Takes over what an earlier agent of this boot wrote to the Node, where it left no state: a fault that still holds keeps its time.
async fn adopted(cluster: &Cluster, boot_id: &str) -> (Memory, Stamps) {
    let node = async {
        let api: Api<Node> = Api::all(cluster.access.client().await?);
        anyhow::Ok(api.get(&cluster.node).await?)
    };
    let node = match time::timeout(ADOPTION, node).await {
        Ok(Ok(node)) => node,
        Ok(Err(e)) => {
            log::warn!("nothing taken over from Node {}: {e:#}", cluster.node);
            return Default::default();
        }
        Err(_) => {
            log::warn!("nothing taken over from Node {}: no answer within {ADOPTION:?}", cluster.node);
            return Default::default();
        }
    };
    let (standing, is_of_this_boot) = patch::standing(&node, boot_id);
    if !is_of_this_boot {
        return Default::default();
    }
    let mut stamps = Stamps::default();
    let mut memory = Memory::default();
    for s in standing {
        stamps.adopt(s.kind, s.status, s.since);
        memory.conditions.push(Condition {
            kind: s.kind,
            status: s.status,
            reason: s.reason,
            message: s.message,
            since: in_this_boot(s.since),
        });
    }
    (memory, stamps)
}

/// A wall-clock time as time since boot.
fn in_this_boot(at: Timestamp) -> BootTime {
    let ago = Duration::try_from(Clock.wall().duration_since(at)).unwrap_or_default();
    BootTime::after_boot(Clock.now().since_boot().saturating_sub(ago))
}

fn tuned(settings: &Settings, host: &Host) -> Option<HungTaskInterval> {
    let interval = settings.kernel_deadlock.tune_hung_task_interval.map(|i| i.0);
    HungTaskInterval::apply(host.proc(), &host.path(&settings.host.state_directory), interval)
        .inspect_err(|e| {
            if interval.is_some() {
                log::error!("kernel.hung_task_check_interval_secs cannot be set: {e}");
            }
        })
        .ok()
        .flatten()
}
