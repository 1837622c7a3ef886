//! Accepting connections: only those that speak HTTP/2, with TLS where there is an identity, within a time limit.
//!
//! A socket that says nothing, a TLS handshake that stops half-way and bytes that are not HTTP/2 take a place among the
//! handshakes until their time is over, or until a newer connection needs the place. They never reach the gRPC server, nor do
//! they take the descriptors that other connections need. When all places are taken, the connection that has been idle longest
//! is closed for a new one.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;
use tracing::{info, warn};

use super::{
    client_id::ClientId,
    closable::Closable,
    connection_info::ConnectionInfo,
    job_log::Client,
    lingering::Lingering,
    open_connections::{ConnectionPlace, OpenConnections},
};
use crate::{
    limits::Limits,
    protocol::{Holder, Identity},
    shutdown::Shutdown,
};

/// What a client of HTTP/2 sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long to wait when the system has no descriptor for another connection.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// How long a client may take to close its connection after the gRPC server has.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Connections that wait for the gRPC server.
const QUEUE_LENGTH: usize = 16;

type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection that has sent the preface, which is read again. Its places are free when it is dropped.
pub(super) struct Connection {
    stream: Closable<Stream>,
    lingering: Lingering,
    /// How much of the preface was read again.
    reread: usize,
    about: ConnectionInfo,
    /// Among all connections, and among those of its client.
    _places: (OwnedSemaphorePermit, ConnectionPlace),
}

/// Why a connection was closed before it was served.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("it did not complete the handshake within {} s", .0.as_secs_f64())]
    Time(Duration),
    #[error("it does not speak HTTP/2")]
    Preface,
    #[error("all connections that its client may have are in use")]
    TooMany,
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    Socket(#[from] io::Error),
}

/// The connections of `listener` until `shutdown` is requested, at most [`Limits::connections`] at a time.
pub(super) fn connections(
    listener: TcpListener,
    identity: Option<Identity>,
    limits: Arc<Limits>,
    shutdown: Shutdown,
) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, connections) = mpsc::channel(QUEUE_LENGTH);
    tokio::spawn(async move {
        tokio::select! {
            () = accept_all(&listener, identity.as_ref(), &limits, &accepted) => {}
            () = shutdown.requested() => {}
        }
    });
    ReceiverStream::new(connections)
}

async fn accept_all(
    listener: &TcpListener,
    identity: Option<&Identity>,
    limits: &Arc<Limits>,
    accepted: &mpsc::Sender<io::Result<Connection>>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let open = OpenConnections::within(limits);
    let mut handshakes: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let socket = listener.accept().await;
        handshakes.retain(|handshake| !handshake.is_finished());
        let (socket, address) = match socket {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("no connection can be accepted: {error}");
                if !abort_oldest(&mut handshakes) {
                    open.close_idle();
                }
                sleep(RETRY).await;
                continue;
            }
        };
        let has_aborted = handshakes.len() >= limits.handshakes && abort_oldest(&mut handshakes);
        let mut place = places.clone().try_acquire_owned().ok();
        // Idle connections first: sockets that say nothing would abort every handshake that takes longer than theirs.
        if place.is_none() && (has_aborted || open.close_idle() || abort_oldest(&mut handshakes)) {
            place = timeout(RETRY, places.clone().acquire_owned()).await.ok().and_then(Result::ok);
        }
        let Some(place) = place else {
            info!("connection from {} closed: {} are open", Client::at(address), limits.connections);
            continue;
        };
        let (identity, limit, accepted, open) =
            (identity.cloned(), limits.handshake_time, accepted.clone(), open.clone());
        handshakes.push_back(tokio::spawn(async move {
            let connection = timeout(limit, begin(socket, address, identity, place, &open)).await;
            match connection.unwrap_or(Err(Refusal::Time(limit))) {
                Ok(connection) => {
                    Client::at(address).log_connection();
                    // The gRPC server has ended, if it does not take it.
                    let _ = accepted.send(Ok(connection)).await;
                }
                Err(why) => info!("connection from {} closed: {why}", Client::at(address)),
            }
        }));
    }
}

/// Aborts the oldest handshake; `false` if there is none.
fn abort_oldest(handshakes: &mut VecDeque<JoinHandle<()>>) -> bool {
    handshakes.pop_front().inspect(JoinHandle::abort).is_some()
}

/// The connection of a socket that speaks HTTP/2, once its client has a place for it.
async fn begin(
    socket: TcpStream,
    address: SocketAddr,
    identity: Option<Identity>,
    place: OwnedSemaphorePermit,
    open: &Arc<OpenConnections>,
) -> Result<Connection, Refusal> {
    let stream = handshake(socket, identity).await?;
    let holder = holder(&stream);
    let by_certificate = holder.as_ref().map(|holder| ClientId::Certificate(holder.digest()));
    let client_id = by_certificate.unwrap_or(ClientId::Address(Some(address.ip())));
    let own = open.open(client_id, address).await.ok_or(Refusal::TooMany)?;
    let about = ConnectionInfo { address, client_id, holder, open: own.connection().clone() };
    let closing = own.closing();
    let stream = Closable::until(stream, async move {
        closing.await;
        io::ErrorKind::ConnectionAborted
    });
    let lingering = Lingering::new(LINGER_TIME);
    Ok(Connection { stream, lingering, reread: 0, about, _places: (place, own) })
}

/// TLS, if there is an identity, and the preface.
async fn handshake(socket: TcpStream, identity: Option<Identity>) -> Result<Stream, Refusal> {
    socket.set_nodelay(true)?;
    let mut stream = match identity {
        None => Either::Left(socket),
        Some(identity) => Either::Right(Box::new(identity.acceptor().accept(socket).await.map_err(Refusal::Tls)?)),
    };
    let mut preface = [0; PREFACE.len()];
    // A request of HTTP/1 may be shorter than the preface.
    for length in 0..PREFACE.len() {
        stream.read_exact(&mut preface[length..=length]).await?;
        if preface[length] != PREFACE[length] {
            return Err(Refusal::Preface);
        }
    }
    Ok(stream)
}

/// The holder of the client's certificate, with TLS.
fn holder(stream: &Stream) -> Option<Holder> {
    let Either::Right(tls) = stream else { return None };
    tls.get_ref().1.peer_certificates().and_then(<[_]>::first).and_then(Holder::of)
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.about.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &PREFACE[self.reread..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.reread += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Connection { stream, lingering, .. } = &mut *self;
        lingering.poll_shutdown(Pin::new(stream), cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
