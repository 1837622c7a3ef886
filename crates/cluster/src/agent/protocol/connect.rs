//! Channels to agents: timeouts, keep-alive, HTTP/2 windows, TLS.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::{error::root_cause, peer::Peer, security::Identity};

/// Longest time to connect, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection without traffic for the interval is pinged, and closed if no reply arrives within the timeout: a machine
/// that lost power does not close its connections.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 window: bytes in flight. Enough for 10 Gbit/s over 10 ms.
pub const WINDOW_SIZE: u32 = 16 << 20;

/// HTTP/2 frames hold a chunk, instead of 16 KiB.
pub const FRAME_SIZE: u32 = 1 << 20;

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("`{0}` is not an address: expected host:port")]
    Address(String),
    #[error("{0}")]
    Failed(String),
    #[error("no connection within {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Connects to a peer's agent, with TLS if there is an identity.
///
/// # Errors
/// If the peer does not answer in time, or either side rejects the other's certificate.
pub async fn connect(peer: &Peer, identity: Option<&Identity>) -> Result<Channel, ConnectError> {
    let bad_address = |_| ConnectError::Address(peer.address.clone());
    let scheme = if identity.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", peer.address))
        .map_err(bad_address)?
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_SIZE)
        .initial_connection_window_size(WINDOW_SIZE)
        .max_frame_size(FRAME_SIZE);
    if let Some(identity) = identity {
        endpoint =
            endpoint.tls_config(identity.client(peer.host())).map_err(|e| ConnectError::Failed(root_cause(&e)))?;
    }
    match tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(ConnectError::Failed(root_cause(&error))),
        Err(_) => Err(ConnectError::Timeout(CONNECT_TIMEOUT)),
    }
}
