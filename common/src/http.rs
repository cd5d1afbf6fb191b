//! The daemons' own HTTP server: `/metrics` for Prometheus, `/healthz` and `/readyz` for the kubelet.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};
use prometheus::{Encoder as _, Registry, TextEncoder};
use tokio::{net::TcpListener, time};

/// How often a taken port is tried again: an agent that is being replaced may still hold it.
const BIND_AGAIN: Duration = Duration::from_secs(5);

/// Says whether something is well, or why not.
pub type Probe = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What is served.
pub struct Served {
    /// Where `/metrics` reads.
    pub registry: Registry,
    /// `/healthz`: whether the daemon is alive. A failure has it restarted.
    pub live: Probe,
    /// `/readyz`: whether it can do its work. The reason for a no is the body.
    pub ready: Probe,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

/// Serves until cancelled. A port that cannot be had is tried again, and said once: the daemon's own work goes on without.
pub async fn serve(address: SocketAddr, served: Served) {
    let router = router(served);
    let mut said = false;
    loop {
        match serve_once(address, router.clone()).await {
            Ok(()) => return,
            Err(e) => {
                if !std::mem::replace(&mut said, true) {
                    log::error!("cannot serve metrics and health on {address}, trying again: {e}");
                }
                time::sleep(BIND_AGAIN).await;
            }
        }
    }
}

async fn serve_once(address: SocketAddr, router: Router) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    log::info!("metrics and health on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await
}

fn router(served: Served) -> Router {
    let Served { registry, live, ready } = served;
    let (live, ready) = (Arc::new(live), Arc::new(ready));
    Router::new()
        .route("/metrics", get(async move || metrics(&registry)))
        .route("/healthz", get(async move || answer(live())))
        .route("/readyz", get(async move || answer(ready())))
}

fn metrics(registry: &Registry) -> impl IntoResponse + use<> {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => (StatusCode::OK, [(CONTENT_TYPE, encoder.format_type().to_owned())], text),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain".to_owned())], e.to_string().into_bytes()),
    }
}

fn answer(probe: Result<(), String>) -> (StatusCode, String) {
    match probe {
        Ok(()) => (StatusCode::OK, "ok\n".into()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounter, Opts};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    fn served(live: Result<(), String>, ready: Result<(), String>) -> Served {
        let registry = Registry::new();
        let counter = IntCounter::with_opts(Opts::new("things_total", "Things.")).unwrap();
        counter.inc_by(3);
        registry.register(Box::new(counter)).unwrap();
        Served { registry, live: Box::new(move || live.clone()), ready: Box::new(move || ready.clone()) }
    }

    async fn get(served: Served, path: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router(served)).await });
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        server.abort();
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_as_prometheus_reads_them() {
        let answer = get(served(Ok(()), Ok(())), "/metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("\nthings_total 3\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_probe_that_fails_says_why() {
        let answer = get(served(Err("stuck".into()), Ok(())), "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("stuck\n"), "{answer}");
        let answer = get(served(Err("stuck".into()), Ok(())), "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_taken_port_is_tried_again() {
        time::pause();
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let server = tokio::spawn(serve(address, served(Ok(()), Ok(()))));
        time::sleep(BIND_AGAIN * 2).await;
        drop(taken);
        time::resume();
        let connected = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        time::timeout(BIND_AGAIN * 3, connected).await.unwrap();
        server.abort();
    }
}
