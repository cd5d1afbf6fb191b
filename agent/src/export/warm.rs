//! Keeps a connection to the API server open while nothing is written, so that a fault does not wait for a handshake.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::{sync::watch, time};

use super::{Shared, cluster::REQUEST_TIMEOUT};
use crate::jitter;

/// How often something small is asked for. Both ends close a connection that was idle for 90 s (kube-apiserver's `IdleTimeout`, hyper-util's pool);
/// opening one costs two round trips and several milliseconds of cryptography. A kubelet renews its lease six times as often.
const PERIOD: Duration = Duration::from_secs(60);

/// Asks until told to stop.
pub(super) async fn run(shared: Arc<Shared>, client: watch::Receiver<Client>, mut stop: watch::Receiver<bool>) {
    loop {
        // Stopping first.
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = time::sleep(jitter::around(PERIOD)) => {}
        }
        let client = client.borrow().clone();
        let answer = time::timeout(REQUEST_TIMEOUT, client.apiserver_version()).await;
        // A refusal has come over the connection as well.
        let is_answered = matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))));
        shared.metrics.api_up.set(i64::from(is_answered));
    }
}
