//! A stream that is read until its peer has closed it, too, or a time limit ends.
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

/// A stream whose shutdown completes when the peer has closed its side, too. What the peer sends meanwhile is discarded.
pub(super) struct Lingering<S> {
    stream: S,
    /// How long the peer may take.
    limit: Duration,
    /// The end of this time, once this side is closed.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    /// `stream`, whose peer may take `limit` to close its side.
    pub fn new(stream: S, limit: Duration) -> Lingering<S> {
        Lingering { stream, limit, end: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Lingering { stream, limit, end } = &mut *self;
        let mut stream = Pin::new(stream);
        if end.is_none() {
            ready!(stream.as_mut().poll_shutdown(cx))?;
        }
        let end = end.get_or_insert_with(|| Box::pin(sleep(*limit)));
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        net::{TcpListener, TcpStream},
        time::sleep,
    };

    use super::Lingering;

    #[tokio::test]
    async fn a_peer_that_still_sends_reads_the_last_message() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = Lingering::new(listener.accept().await.unwrap().0, Duration::from_secs(60));
        peer.write_all(&[0; 100]).await.unwrap();
        let serving = tokio::spawn(async move {
            server.write_all(b"why").await.unwrap();
            server.shutdown().await
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
        Lingering::new(server, limit).shutdown().await.unwrap();
        assert!(begin.elapsed() >= limit);
    }
}
