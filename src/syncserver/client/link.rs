//! The socket of a connection and its output queue. Used by the handshake and the stream that follows.
//!
//! Everything here is a poll: progress is kept in the [`Link`], so a caller may stop polling at any time, and another
//! one may go on. While nothing is under way, a link holds no buffer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::super::reason::CloseReason;
use super::transport::{Stream, Transport, written};
use crate::tls::{Purpose, stream_error};

/// Bytes read at a time. Clients say little: a pong has about 60 bytes, a hello about 400.
const READ_BYTES: usize = 2048;

/// Most pieces per vectored write; the kernel takes up to 1024, and a client that lags gets few large ones.
const MAX_SLICES: usize = 64;

/// Time for the goodbye of a connection that ends. A client that does not read must not hold up a shutdown.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Capacity that an output queue may keep when it is empty.
const KEPT_SLICES: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Link<S> {
    io: Transport<S>,
    out: VecDeque<Bytes>,
    /// Whether TLS may still hold bytes.
    unflushed: bool,
}

impl<S: Stream> Link<S> {
    pub(crate) fn new(io: Transport<S>) -> Self {
        Self { io, out: VecDeque::new(), unflushed: false }
    }

    /// The output queue: bytes that are appended to it are written in order.
    pub(crate) fn out(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.out
    }

    /// Whether everything that was queued has been handed to the kernel.
    pub(crate) fn is_drained(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    /// Reads once into a buffer that exists only while there is something to read.
    pub(crate) fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Poll<Result<T, CloseReason>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut space);
        match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf)) {
            Ok(()) if buf.filled().is_empty() => Poll::Ready(Err(CloseReason::ClientClosed)),
            Ok(()) => Poll::Ready(Ok(read(buf.filled()))),
            Err(error) => Poll::Ready(Err(lost(&error))),
        }
    }

    /// Writes as much as possible at once. Ready when some bytes have left for good, or all have been handed on.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64, CloseReason>> {
        let before = written(&self.io);
        while !self.out.is_empty() {
            let polled = if self.out.len() == 1 {
                Pin::new(&mut self.io).poll_write(cx, &self.out[0])
            } else {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let mut used = 0;
                for (slice, bytes) in slices.iter_mut().zip(&self.out) {
                    *slice = IoSlice::new(bytes);
                    used += 1;
                }
                Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..used])
            };
            match polled {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(lost(&io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => {
                    self.advance(written);
                    self.unflushed = matches!(self.io, Either::Right(_));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
                Poll::Pending => break,
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = !self.out.is_empty(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
                Poll::Pending => {}
            }
        }
        let written = written(&self.io) - before;
        if written > 0 || self.is_drained() { Poll::Ready(Ok(written)) } else { Poll::Pending }
    }

    /// Writes pieces to a link that is drained, as much as possible at once, and queues the rest. Mostly there is none,
    /// and then only the socket is touched. Ready as [`Self::poll_write`].
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &VecDeque<Bytes>,
    ) -> Poll<Result<u64, CloseReason>> {
        debug_assert!(self.is_drained(), "earlier bytes go first");
        if let ([piece], Either::Left(_)) = (pieces.as_slices().0, &self.io)
            && pieces.len() == 1
            && let Poll::Ready(Ok(written)) = Pin::new(&mut self.io).poll_write(cx, piece)
            && written > 0
        {
            if written < piece.len() {
                self.out.push_back(piece.slice(written..));
            }
            return Poll::Ready(Ok(written as u64));
        }
        self.out.extend(pieces.iter().cloned());
        self.poll_write(cx)
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.out.front_mut() {
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.out.pop_front();
        }
        if self.out.capacity() > KEPT_SLICES {
            self.out = VecDeque::new();
        }
    }
}

fn lost(error: &io::Error) -> CloseReason {
    match error.kind() {
        // The client's end looks like this when something was still under way.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            CloseReason::ClientClosed
        }
        _ => CloseReason::ConnectionLost(stream_error(error, Purpose::Client)),
    }
}

/// Says goodbye if there is time, and closes in an orderly way.
pub(crate) async fn close<S: Stream>(link: &mut Link<S>, reason: &CloseReason, goodbye: Option<Bytes>) {
    if reason.peer_is_gone() {
        return;
    }
    // A message that has been begun must be finished before another one.
    link.out.truncate(1);
    link.out.extend(goodbye);
    let last_words = async {
        while !link.is_drained() {
            if poll_fn(|cx| link.poll_write(cx)).await.is_err() {
                return;
            }
        }
        let _closed = link.io.shutdown().await;
    };
    let _timed_out = timeout(LAST_WORDS, last_words).await;
}
