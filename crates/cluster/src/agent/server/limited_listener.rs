//! A listener of few connections, which are closed in time: they take no descriptors that the agent's clients need.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::accept::RETRY;

/// Closes the oldest connection for a new one once there are as many as it may have.
pub(super) struct LimitedListener {
    listener: TcpListener,
    limit: usize,
    lifetime: Duration,
    /// The open ones, the oldest first.
    open: VecDeque<(Weak<()>, CancellationToken)>,
}

/// A connection, until its time is over or its place is needed.
pub(super) struct LimitedStream {
    stream: TcpStream,
    lifetime: Pin<Box<Sleep>>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _open: Arc<()>,
}

impl LimitedListener {
    /// Of at most `limit` connections, each open for `lifetime` at most.
    pub fn new(listener: TcpListener, limit: usize, lifetime: Duration) -> LimitedListener {
        LimitedListener { listener, limit, lifetime, open: VecDeque::new() }
    }

    fn limited(&mut self, stream: TcpStream) -> LimitedStream {
        self.open.retain(|(open, _)| open.strong_count() > 0);
        while self.open.len() >= self.limit.max(1) {
            self.open.pop_front().inspect(|(_, close)| close.cancel());
        }
        let (open, close) = (Arc::new(()), CancellationToken::new());
        self.open.push_back((Arc::downgrade(&open), close.clone()));
        let lifetime = Box::pin(sleep(self.lifetime));
        LimitedStream { stream, lifetime, closed: Box::pin(close.cancelled_owned()), _open: open }
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.limited(stream), address),
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl LimitedStream {
    /// What `poll` says, unless it says nothing and the connection is to be closed.
    fn or_closed<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match poll(Pin::new(&mut self.stream), cx) {
            Poll::Pending if self.closed.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            Poll::Pending => self.lifetime.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            ready => ready,
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.or_closed(cx, |stream, cx| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.or_closed(cx, |stream, cx| stream.poll_write(cx, data))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.or_closed(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.or_closed(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    const LONG: Duration = Duration::from_secs(3600);

    async fn listener(limit: usize, lifetime: Duration) -> (LimitedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (LimitedListener::new(listener, limit, lifetime), address)
    }

    #[tokio::test]
    async fn the_oldest_connection_is_closed_for_a_new_one() {
        let (mut limited, address) = listener(2, LONG).await;
        let mut clients = Vec::new();
        let mut served = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(address).await.unwrap());
            served.push(limited.accept().await.0);
        }
        for old in &mut served[..2] {
            assert_eq!(old.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        }
        let (old, new) = served.split_at_mut(2);
        assert!(old[0].write_all(&vec![0; 64 << 20]).await.is_err(), "a client that reads nothing does not keep it");
        for (open, client) in new.iter_mut().zip(&mut clients[2..]) {
            client.write_all(b"x").await.unwrap();
            assert_eq!(open.read_u8().await.unwrap(), b'x');
        }
        // Those that have ended need no place.
        served.clear();
        clients.push(TcpStream::connect(address).await.unwrap());
        limited.accept().await;
        assert_eq!(limited.open.len(), 1);
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_lifetime() {
        let (mut limited, address) = listener(2, Duration::from_millis(50)).await;
        let _client = TcpStream::connect(address).await.unwrap();
        let (mut served, _) = limited.accept().await;
        let read = timeout(Duration::from_secs(60), served.read_u8()).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
