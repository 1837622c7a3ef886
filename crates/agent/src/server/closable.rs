//! A stream that this side can close while the other side keeps it open.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Ends when the stream must be closed, with the error that its users get.
type Closing = Pin<Box<dyn Future<Output = io::ErrorKind> + Send>>;

/// A stream whose pending and further operations fail once it is closed.
pub(super) struct Closable<S> {
    stream: S,
    closing: Closing,
    closed: Option<io::ErrorKind>,
}

impl<S: Unpin> Closable<S> {
    /// `stream`, until `closing` ends; after that its error.
    pub fn until(stream: S, closing: impl Future<Output = io::ErrorKind> + Send + 'static) -> Closable<S> {
        Closable { stream, closing: Box::pin(closing), closed: None }
    }

    /// The stream, unless it is closed.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut S>> {
        if self.closed.is_none()
            && let Poll::Ready(why) = self.closing.as_mut().poll(cx)
        {
            self.closed = Some(why);
        }
        match self.closed {
            Some(why) => Err(why.into()),
            None => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Closable<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Closable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.open(cx)?.poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open(cx)?.poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
