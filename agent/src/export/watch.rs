//! Watches our own Node, and no other: whether it is there, who it is, and what others did to our conditions.

use std::{pin::pin, sync::Arc};

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::sync::watch;

use super::{Shared, node::Seen};

/// Watches until told to stop; starts anew with each new client.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut client: watch::Receiver<Client>,
    seen: watch::Sender<Option<Seen>>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let api: Api<Node> = Api::all(client.borrow_and_update().clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", shared.node));
        // The watcher starts again by itself after any error, with growing pauses.
        let mut events = pin!(watcher(api, config).default_backoff());
        let watching = async {
            let mut is_failing = false;
            loop {
                match events.try_next().await {
                    Ok(Some(watcher::Event::Apply(node) | watcher::Event::InitApply(node))) => {
                        let now = Seen::of(&node, &shared.boot_id);
                        shared.identify(&now.uid);
                        is_failing = false;
                        seen.send_replace(Some(now));
                    }
                    Ok(Some(watcher::Event::Delete(_))) => {
                        log::warn!("Node {} was deleted", shared.node);
                        seen.send_replace(None);
                    }
                    Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
                    Ok(None) => return,
                    // Said once: the writer speaks of an API server that is away.
                    Err(e) if !std::mem::replace(&mut is_failing, true) => log::warn!("Node {} cannot be watched: {e}", shared.node),
                    Err(e) => log::debug!("Node {} cannot be watched: {e}", shared.node),
                }
            }
        };
        // Stopping first.
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            changed = client.changed() => if changed.is_err() { return },
            () = watching => {}
        }
    }
}
