//! HTTP next to the gRPC server, for what watches an agent: `/metrics`, and the probes `/livez` and `/readyz`.
//!
//! It tells and takes no commands, so that it needs no certificates.

use std::{io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use super::{host::Host, limited_listener::LimitedListener};

/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the metrics of `host` on `listener` until its shutdown is requested.
///
/// # Errors
/// If the socket fails.
pub async fn serve_metrics(listener: TcpListener, host: Arc<Host>) -> io::Result<()> {
    let (requested, limits) = (host.shutdown().requested(), host.limits());
    let listener = LimitedListener::new(listener, limits.monitors, limits.monitor_time);
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(host);
    axum::serve(listener, router).with_graceful_shutdown(requested).await
}

async fn metrics(State(host): State<Arc<Host>>) -> Response {
    // Sensors may take their time, which threads that send and receive do not have.
    let scraping = tokio::task::spawn_blocking(move || host.metrics().scrape(&host.state()));
    match scraping.await.unwrap_or(Err(std::fmt::Error)) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Ready while the agent takes new work for all devices; with a line for each device.
async fn ready(State(host): State<Arc<Host>>) -> Response {
    let is_draining = host.shutdown().is_draining();
    let line = |device: &Arc<super::device::Device>| {
        let state = match (device.lost(), is_draining, device.is_leased()) {
            (Some(why), ..) => format!("lost: {why}"),
            (None, true, _) => "stopping".to_string(),
            (None, false, false) => "ready".to_string(),
            (None, false, true) => format!("in use, {} waiting", device.queue_length()),
        };
        format!("{}: {state}\n", device.description().name)
    };
    let text: String = host.devices().iter().map(line).collect();
    let is_lost = host.devices().iter().any(|device| device.lost().is_some());
    let status = if is_draining || is_lost { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, text).into_response()
}
