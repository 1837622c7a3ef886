//! Opening a channel to an agent: deadlines, keep-alive, windows, TLS.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::{error::cause, security::Identity, setup::Peer};

/// How long a connection may take to come about, TLS included.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// A connection that is silent for the first is asked for a sign of life and given up after the second: a machine
/// that lost power sends no farewell.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 windows: how much may be on its way unacknowledged. Enough for 10 Gbit/s over 10 ms.
pub const WINDOW: u32 = 16 << 20;

/// HTTP/2 frames of a chunk's size, so that a tensor is not cut into 16 KiB pieces.
pub const FRAME: u32 = 1 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("`{0}` is not an address: expected host:port")]
    Address(String),
    #[error("{0}")]
    Failed(String),
    #[error("no connection within {} s", .0.as_secs())]
    Late(Duration),
}

/// Connects to the agent of a peer, over TLS if there is an identity.
///
/// # Errors
/// If nobody answers in time, or either side does not accept the other's certificate.
pub async fn connect(peer: &Peer, identity: Option<&Identity>) -> Result<Channel, ConnectError> {
    let bad_address = |_| ConnectError::Address(peer.address.clone());
    let scheme = if identity.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", peer.address))
        .map_err(bad_address)?
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME);
    if let Some(identity) = identity {
        let host = peer.address.rsplit_once(':').map_or(peer.address.as_str(), |(host, _)| host);
        let name = peer.tls_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        endpoint = endpoint.tls_config(identity.client(name)).map_err(|e| ConnectError::Failed(cause(&e)))?;
    }
    match tokio::time::timeout(CONNECT_DEADLINE, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(ConnectError::Failed(cause(&error))),
        Err(_) => Err(ConnectError::Late(CONNECT_DEADLINE)),
    }
}
