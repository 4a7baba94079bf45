//! The socket of a connection and what is queued for it. Shared by the handshake and the streaming that follows.
//!
//! Everything here is a poll: progress is kept in the [`Link`], so a caller may stop polling at any time, and somebody else
//! may go on. While nothing is under way, a link holds no buffer.

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

use super::reason::CloseReason;
use super::transport::{Stream, Transport};
use crate::tls::{Purpose, stream_error};

/// Bytes read at a time. Clients say little: a pong has about 60 bytes, a hello about 400.
const READ_BYTES: usize = 2048;

/// Most pieces per vectored write; the kernel takes up to 1024, and a client that lags gets few large ones.
const MAX_SLICES: usize = 64;

/// How long a connection that ends may take for its last words. A client that does not read must not hold up a shutdown.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Capacity that an output queue may keep when it is empty.
const KEPT_SLICES: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Link<S> {
    io: Transport<S>,
    out: VecDeque<Bytes>,
    /// Whether the layer below may still hold bytes.
    unflushed: bool,
}

impl<S: Stream> Link<S> {
    pub(super) fn new(io: Transport<S>) -> Self {
        Self { io, out: VecDeque::new(), unflushed: false }
    }

    /// The queue: what is appended to it is written in order.
    pub(super) fn out(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.out
    }

    /// Whether everything that was queued has been handed to the kernel.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    /// Reads once into a buffer that exists only while there is something to read.
    pub(super) fn poll_read<T>(
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

    /// Writes as much as possible at once. Ready when any byte has left for good, or all have been handed on.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64, CloseReason>> {
        let before = self.io.written();
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
                    self.unflushed = matches!(self.io, Transport::Tls(_));
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
        let written = self.io.written() - before;
        if written > 0 || self.is_drained() { Poll::Ready(Ok(written)) } else { Poll::Pending }
    }

    /// Writes pieces to a link that is drained, as much as possible at once; what is left is queued. Mostly nothing is, and
    /// then nothing but the socket is touched. Ready as [`Self::poll_write`].
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &VecDeque<Bytes>,
    ) -> Poll<Result<u64, CloseReason>> {
        debug_assert!(self.is_drained(), "what was queued before goes first");
        if let ([piece], Transport::Plain(_)) = (pieces.as_slices().0, &self.io)
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
        // How a client's end looks when there was still something under way.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            CloseReason::ClientClosed
        }
        _ => CloseReason::ConnectionLost(stream_error(error, Purpose::Client)),
    }
}

/// Says goodbye if there is time, and closes in an orderly way.
pub(super) async fn close<S: Stream>(link: &mut Link<S>, reason: &CloseReason, goodbye: Option<Bytes>) {
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
        let _closed_anyway = link.io.shutdown().await;
    };
    let _gave_up = timeout(LAST_WORDS, last_words).await;
}
