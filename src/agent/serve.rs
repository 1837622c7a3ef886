//! An agent on a socket.

use std::{sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tonic::transport::{Server, server::TcpIncoming};

use super::{
    chunks::LARGEST_MESSAGE,
    connect::{FRAME, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, WINDOW},
    host::Host,
    security::Identity,
    service::Service,
    wire::agent_server::AgentServer,
};

/// How long work may take to notice a shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// Serves `host` on `listener` until its shutdown is ordered; then work is cancelled, its clients are told, and
/// connections are closed. With an identity only clients whose certificate its authority signed get in.
///
/// # Errors
/// If TLS cannot be set up or the socket fails.
pub async fn serve(
    listener: TcpListener,
    host: Arc<Host>,
    identity: Option<&Identity>,
) -> Result<(), tonic::transport::Error> {
    let shutdown = host.shutdown().clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<AgentServer<Service>>().await;
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME);
    if let Some(identity) = identity {
        server = server.tls_config(identity.server())?;
    }
    let agent = AgentServer::new(Service::new(host)).max_decoding_message_size(LARGEST_MESSAGE);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let ordered = shutdown.ordered();
    let not_serving = async move {
        ordered.await;
        health.set_not_serving::<AgentServer<Service>>().await;
    };
    let serving =
        server.add_service(health_service).add_service(agent).serve_with_incoming_shutdown(incoming, not_serving);
    let patience = async {
        shutdown.ordered().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        outcome = serving => outcome,
        // Some client keeps its connection open (a health watch); it has been told.
        () = patience => Ok(()),
    }
}
