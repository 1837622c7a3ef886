//! Channels to agents: timeouts, keep-alive, HTTP/2 windows, TLS.

use std::{io, time::Duration};

use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::{
    client::TlsStream,
    rustls::pki_types::{CertificateDer, ServerName},
};
use tonic::{
    codegen::{Service, http::Uri},
    transport::{Channel, Endpoint},
};

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
    let endpoint = Endpoint::from_shared(format!("http://{}", peer.address))
        .map_err(bad_address)?
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_SIZE)
        .initial_connection_window_size(WINDOW_SIZE)
        .max_frame_size(FRAME_SIZE);
    let connecting = async {
        let Some(identity) = identity else { return endpoint.connect().await };
        let (identity, name) = (identity.clone(), peer.host().to_string());
        // The connector of tonic looks at no revocation list.
        let connector = tower::service_fn(move |uri| {
            let (identity, name) = (identity.clone(), name.clone());
            async move { secured(uri, name, &identity).await.map(TokioIo::new) }
        });
        endpoint.connect_with_connector(connector).await
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(ConnectError::Failed(root_cause(&error))),
        Err(_) => Err(ConnectError::Timeout(CONNECT_TIMEOUT)),
    }
}

/// The certificate that a peer's agent shows.
///
/// # Errors
/// As [`connect`].
pub async fn server_certificate(peer: &Peer, identity: &Identity) -> Result<CertificateDer<'static>, ConnectError> {
    let uri = format!("http://{}", peer.address).parse().map_err(|_| ConnectError::Address(peer.address.clone()))?;
    let connecting = secured(uri, peer.host().to_string(), identity);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let stream = stream.map_err(|_| ConnectError::Timeout(CONNECT_TIMEOUT))?;
    let stream = stream.map_err(|error| ConnectError::Failed(root_cause(&error)))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let none = || ConnectError::Failed("it shows no certificate".to_string());
    certificate.map(|certificate| certificate.clone().into_owned()).ok_or_else(none)
}

/// A connection over TLS to the server that `uri` names, whose certificate is issued for `name`.
async fn secured(uri: Uri, name: String, identity: &Identity) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let socket = connector.call(uri).await.map_err(io::Error::other)?.into_inner();
    identity.connector().connect(name, socket).await
}
