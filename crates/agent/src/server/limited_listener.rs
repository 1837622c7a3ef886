//! A listener of few connections, which are closed in time: they take no descriptors that the agent's clients need.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{accept::RETRY, closable::Closable};

/// Closes the oldest connection for a new one once there are as many as it may have.
pub(super) struct LimitedListener {
    listener: TcpListener,
    limit: usize,
    lifetime: Duration,
    /// The open ones, the oldest first.
    open: VecDeque<(Weak<()>, CancellationToken)>,
}

/// A connection, until its time is over or its place is needed.
type LimitedStream = Closable<TcpStream>;

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
        let lifetime = sleep(self.lifetime);
        Closable::until(stream, async move {
            // Dropped with the stream.
            let _open = open;
            tokio::select! {
                () = close.cancelled() => io::ErrorKind::ConnectionAborted,
                () = lifetime => io::ErrorKind::TimedOut,
            }
        })
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
