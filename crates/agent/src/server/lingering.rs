//! The end of a connection: it is read until its peer has closed it, too, or a time limit ends.
//!
//! A socket that is closed with unread bytes resets the connection (RFC 1122, section 4.2.2.13). The peer's next write then
//! fails, and it may never read the last message of this side, such as why a call has failed.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The shutdown of a stream that completes when the peer has closed its side, too. What the peer sends meanwhile is discarded.
pub(super) struct Lingering {
    /// How long the peer may take.
    limit: Duration,
    /// The end of this time, once this side is closed.
    end: Option<Pin<Box<Sleep>>>,
}

impl Lingering {
    /// For a peer that may take `limit` to close its side.
    pub fn new(limit: Duration) -> Lingering {
        Lingering { limit, end: None }
    }

    /// [`AsyncWrite::poll_shutdown`] of `stream`.
    pub fn poll_shutdown<S: AsyncRead + AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            ready!(stream.as_mut().poll_shutdown(cx))?;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        let mut discarded = [0; 1024];
        while end.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            let read = ready!(stream.as_mut().poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        io,
        pin::Pin,
        time::{Duration, Instant},
    };

    use tokio::{
        io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex},
        net::{TcpListener, TcpStream},
        time::sleep,
    };

    use super::Lingering;

    async fn shut_down(mut stream: impl AsyncRead + AsyncWrite + Unpin, limit: Duration) -> io::Result<()> {
        let mut lingering = Lingering::new(limit);
        poll_fn(|cx| lingering.poll_shutdown(Pin::new(&mut stream), cx)).await
    }

    #[tokio::test]
    async fn a_peer_that_still_sends_reads_the_last_message() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        peer.write_all(&[0; 100]).await.unwrap();
        let serving = tokio::spawn(async move {
            server.write_all(b"why").await.unwrap();
            shut_down(server, Duration::from_secs(60)).await
        });
        // If the server's socket were closed now, its unread bytes would reset the connection, and a write would fail.
        for _ in 0..3 {
            sleep(Duration::from_millis(20)).await;
            peer.write_all(&[0; 100]).await.unwrap();
        }
        let mut message = String::new();
        peer.read_to_string(&mut message).await.unwrap();
        assert_eq!(message, "why");
        drop(peer);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_never_closes_is_left() {
        let limit = Duration::from_millis(100);
        let (server, mut peer) = duplex(64);
        peer.write_all(b"more").await.unwrap();
        let begin = Instant::now();
        shut_down(server, limit).await.unwrap();
        assert!(begin.elapsed() >= limit);
    }
}
