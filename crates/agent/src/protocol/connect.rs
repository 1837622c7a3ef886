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

use super::{
    error::root_cause,
    holder::Holder,
    peer::{Peer, PeerError, check_agent},
    security::Identity,
};

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
    #[error(transparent)]
    NotThePeer(#[from] PeerError),
}

/// Whose certificate is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// That of the peer.
    Peer,
    /// That of any agent with the peer's host in its certificate: its name is not known yet.
    AnyAgent,
}

/// Connects to a peer's agent, with TLS if there is an identity. Whenever the channel connects again, the certificate of the
/// other side is checked again.
///
/// # Errors
/// If the peer does not answer in time, or either side rejects the other's certificate.
pub async fn connect(peer: &Peer, identity: Option<&Identity>, expected: Expected) -> Result<Channel, ConnectError> {
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
        let (identity, peer) = (identity.clone(), peer.clone());
        // The connector of tonic looks at no revocation list, and at no role.
        let connector = tower::service_fn(move |uri| {
            let (identity, peer) = (identity.clone(), peer.clone());
            async move { secured(uri, &peer, &identity, expected).await.map(TokioIo::new) }
        });
        endpoint.connect_with_connector(connector).await
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(match refused_peer(&error) {
            Some(why) => ConnectError::NotThePeer(why),
            None => ConnectError::Failed(root_cause(&error)),
        }),
        Err(_) => Err(ConnectError::Timeout(CONNECT_TIMEOUT)),
    }
}

/// The certificate that a peer's agent shows.
///
/// # Errors
/// As [`connect`].
pub(crate) async fn server_certificate(
    peer: &Peer,
    identity: &Identity,
) -> Result<CertificateDer<'static>, ConnectError> {
    let uri = format!("http://{}", peer.address).parse().map_err(|_| ConnectError::Address(peer.address.clone()))?;
    let connecting = secured(uri, peer, identity, Expected::Peer);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let stream = stream.map_err(|_| ConnectError::Timeout(CONNECT_TIMEOUT))?;
    let stream = stream.map_err(|error| ConnectError::Failed(root_cause(&error)))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let none = || ConnectError::Failed("it shows no certificate".to_string());
    certificate.map(|certificate| certificate.clone().into_owned()).ok_or_else(none)
}

/// A connection over TLS to the agent of `peer` at `uri`. Nothing is sent on it before its certificate is checked.
async fn secured(uri: Uri, peer: &Peer, identity: &Identity, expected: Expected) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(peer.host().to_string()).map_err(io::Error::other)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let socket = connector.call(uri).await.map_err(io::Error::other)?.into_inner();
    let stream = identity.connector().connect(name, socket).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let holder = certificate.and_then(Holder::of).ok_or(PeerError::NoCertificate).map_err(io::Error::other)?;
    let checked = match expected {
        Expected::Peer => peer.check(&holder),
        Expected::AnyAgent => check_agent(&holder),
    };
    checked.map_err(io::Error::other)?;
    Ok(stream)
}

/// Why the certificate of the other side was refused, if that is why a connection failed.
fn refused_peer(error: &(dyn std::error::Error + 'static)) -> Option<PeerError> {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let mut inner = chain.filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<PeerError>());
    inner.next().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TlsFiles, authority::Authority, protocol::role::Role};
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
    use std::{fs, path::Path};
    use tokio::{io::AsyncReadExt, net::TcpListener};

    /// The identity of `name`, whose certificate an authority in `folder` issues for loopback.
    fn identity(folder: &Path, name: &str, role: Option<Role>) -> Identity {
        drop(Authority::open(folder, "lab").unwrap());
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let authority = KeyPair::from_pem(&text("ca.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&text("ca.pem"), authority).unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(role) = role {
            params.distinguished_name.push(DnType::OrganizationName, role.organization());
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let at = |end: &str| folder.join(format!("{name}.{end}"));
        fs::write(at("pem"), certificate.pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        let files = TlsFiles { ca: folder.join("ca.pem"), cert: at("pem"), key: at("key"), crl: None };
        Identity::read(&files).unwrap()
    }

    /// Connects `client` to the server `box` where `server` answers: how that went, and the bytes that the server got.
    async fn connected(
        client: &Identity,
        server: Identity,
        tls_name: Option<&str>,
        expected: Expected,
    ) -> (Result<(), ConnectError>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = Peer { server: "box".into(), address, tls_name: tls_name.map(str::to_string) };
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut stream = server.acceptor().accept(socket).await.unwrap();
            let mut bytes = Vec::new();
            // A client that goes may not close the session.
            let _ = stream.read_to_end(&mut bytes).await;
            bytes
        });
        let outcome = connect(&peer, Some(client), expected).await.map(drop);
        (outcome, serving.await.unwrap())
    }

    #[tokio::test]
    async fn nothing_is_sent_to_what_is_not_the_peer() {
        let folder = tempfile::tempdir().unwrap();
        let client = identity(folder.path(), "ann", Some(Role::Operator));
        for (name, role, expected, message) in [
            ("box", None, Expected::Peer, "the certificate of `box` has no role, expected that of an agent"),
            ("bob", Some(Role::Operator), Expected::Peer, "has the role of an operator, expected that of an agent"),
            ("camera", Some(Role::Agent), Expected::Peer, "that of `camera`, expected that of `box`"),
            ("box", None, Expected::AnyAgent, "has no role"),
            ("bob", Some(Role::Operator), Expected::AnyAgent, "has the role of an operator"),
        ] {
            let server = identity(folder.path(), name, role);
            let (outcome, received) = connected(&client, server, None, expected).await;
            let error = outcome.expect_err(message);
            assert!(matches!(error, ConnectError::NotThePeer(_)), "{error:?}");
            assert!(error.to_string().contains(message), "{error}");
            assert!(received.is_empty(), "{message}: {received:?}");
        }
    }

    #[tokio::test]
    async fn an_agent_is_known_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let client = identity(folder.path(), "ann", Some(Role::Operator));
        for (name, tls_name, expected) in [
            ("box", None, Expected::Peer),
            ("box", Some("127.0.0.1"), Expected::Peer),
            ("127.0.0.1", Some("127.0.0.1"), Expected::Peer),
            ("camera", None, Expected::AnyAgent),
        ] {
            let server = identity(folder.path(), name, Some(Role::Agent));
            let (outcome, received) = connected(&client, server, tls_name, expected).await;
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
            assert!(received.starts_with(b"PRI * HTTP/2.0"), "{name}");
        }
    }
}
