//! The gRPC server of an agent.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tracing::info;

use super::{accept::connections, counted_requests::CountedRequests, host::Host, service::Service};
use crate::protocol::{
    chunks::MAX_MESSAGE_SIZE,
    connect::{FRAME_SIZE, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, WINDOW_SIZE},
    message::agent_server::AgentServer,
};

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

/// How long connections may take to close after a shutdown was requested.
const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// How often it is looked whether all has ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Serves `host` on `listener` until its shutdown is requested; then work is cancelled, clients get an error, and
/// connections are closed. If `host` has an identity, only clients with a certificate of its authority are accepted.
///
/// # Errors
/// If TLS cannot be set up or the socket fails.
pub fn serve(listener: TcpListener, host: Arc<Host>) -> BoxFuture<'static, Result<(), ServeError>> {
    // Boxed: an opaque future, and with it the whole server, would be compiled in every crate that polls it.
    Box::pin(serve_until_shutdown(listener, host))
}

async fn serve_until_shutdown(listener: TcpListener, host: Arc<Host>) -> Result<(), ServeError> {
    let shutdown = host.shutdown().clone();
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<AgentServer<Service>>().await;
    let limits = host.limits().clone();
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .initial_stream_window_size(WINDOW_SIZE)
        .initial_connection_window_size(WINDOW_SIZE)
        .max_frame_size(FRAME_SIZE)
        .max_concurrent_streams(limits.streams);
    let identity = host.identity().cloned();
    let agent = AgentServer::new(Service::new(host.clone())).max_decoding_message_size(MAX_MESSAGE_SIZE);
    let incoming = connections(listener, identity, limits, shutdown.clone());
    let (draining, requested) = (shutdown.draining(), shutdown.requested());
    let not_serving = async move {
        draining.await;
        health.set_not_serving::<AgentServer<Service>>().await;
        requested.await;
    };
    let serving = server
        .add_service(health_service)
        .add_service(CountedRequests(agent))
        .serve_with_incoming_shutdown(incoming, not_serving);
    let grace_period = async {
        shutdown.requested().await;
        tokio::time::sleep(GRACE_PERIOD).await;
    };
    tokio::spawn(drain(host.clone()));
    tokio::spawn(expire(host));
    tokio::select! {
        outcome = serving => Ok(outcome?),
        // A client keeps its connection open, such as a health watch.
        () = grace_period => Ok(()),
    }
}

/// Drops the weights that clients no longer use, until the shutdown is requested.
async fn expire(host: Arc<Host>) {
    let shutdown = host.shutdown().clone();
    let expiring = async {
        loop {
            let next = host.weights().expire(Instant::now());
            tokio::time::sleep_until(next.into()).await;
        }
    };
    tokio::select! {
        () = expiring => {}
        () = shutdown.requested() => {}
    }
}

/// Once it is requested to drain: requests the shutdown when nothing is under way any longer, or the time for that is over.
async fn drain(host: Arc<Host>) {
    let shutdown = host.shutdown();
    shutdown.draining().await;
    let ended = async {
        while host.jobs().held() > 0 {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    };
    if host.jobs().held() > 0 {
        let seconds = host.limits().drain_time.as_secs_f64();
        info!("to stop: what is under way ({}) has {seconds} s to end", host.jobs().held());
    }
    tokio::select! {
        _ = tokio::time::timeout(host.limits().drain_time, ended) => shutdown.request(),
        () = shutdown.requested() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::{
        limits::Limits,
        protocol::{
            connect::{Expected, connect},
            frame::Frame,
            message::{DescribeRequest, agent_client::AgentClient},
            peer::Peer,
        },
        server::host::HostOptions,
        shutdown::Shutdown,
    };

    const SOON: Duration = Duration::from_secs(60);

    /// A connection that speaks HTTP/2 and asks for nothing.
    fn idle(address: &str) -> std::net::TcpStream {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        socket
    }

    async fn answers(client: &mut AgentClient<tonic::transport::Channel>) -> bool {
        let reply = client.describe(Frame::from(DescribeRequest {}));
        tokio::time::timeout(SOON, reply).await.is_ok_and(|reply| reply.is_ok())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connections_that_ask_for_nothing_give_way() {
        let limits = Limits { connections: 4, connection_idle_time: Duration::from_millis(50), ..Limits::default() };
        let options = HostOptions { name: "a".into(), threads: Some(1), limits, ..HostOptions::default() };
        let host = Host::start(options, Shutdown::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(serve(listener, host.clone()));
        let peer = Peer { server: "a".into(), address: address.clone(), tls_name: None };
        let connected = async || AgentClient::new(connect(&peer, None, Expected::Peer).await.unwrap());
        let mut first = connected().await;
        assert!(answers(&mut first).await);
        let sockets: Vec<_> = (0..3).map(|_| idle(&address)).collect();
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(answers(&mut first).await, "its requests keep it");
            let mut second = connected().await;
            assert!(answers(&mut second).await, "a newcomer");
        }
        let mut ended = sockets.into_iter().next().unwrap();
        ended.set_read_timeout(Some(SOON)).unwrap();
        let end = ended.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert!(matches!(end, Ok(_) | Err(io::ErrorKind::ConnectionReset)), "the oldest is closed: {end:?}");
        host.shutdown().request();
        serving.await.unwrap().unwrap();
    }
}
