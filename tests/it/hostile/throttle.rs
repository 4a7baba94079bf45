//! Connections that read too little: at a low rate, or nothing after the first few bytes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bulrush::syncclient::connector::Connector;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until};

/// The kernel's receive buffer: small, so that unread bytes soon stay with the server.
const RECEIVE_BUFFER: u32 = 16 << 10;
/// Most bytes of a read.
const STEP: usize = 2 << 10;

/// Pace of a client's reading.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// At most this many bytes per second.
    Slow(f64),
    /// This many bytes, enough for the server's hello, and then nothing.
    StuckAfter(usize),
}

/// Connects by TCP to clients' addresses, and reads at a pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle(pub(super) Pace);

impl Connector for Throttle {
    type Stream = Throttled;

    async fn connect(&self, address: &str) -> io::Result<Throttled> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        let stream = socket.connect(address).await?;
        Ok(Throttled { stream, pace: self.0, pause: Box::pin(sleep_until(Instant::now())) })
    }
}

/// A stream that is read at a pace.
#[derive(Debug)]
pub(super) struct Throttled {
    stream: TcpStream,
    pace: Pace,
    pause: Pin<Box<Sleep>>,
}

impl AsyncRead for Throttled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; STEP];
        let most = match self.pace {
            Pace::Slow(_) => {
                ready!(self.pause.as_mut().poll(cx));
                STEP
            }
            // Nothing wakes it: it never reads again.
            Pace::StuckAfter(0) => return Poll::Pending,
            Pace::StuckAfter(left) => left.min(STEP),
        };
        let mut part = ReadBuf::new(&mut space[..most.min(buf.remaining())]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.put_slice(part.filled());
        match &mut self.pace {
            Pace::Slow(rate) => {
                let pause = Duration::from_secs_f64(read as f64 / *rate);
                self.pause.as_mut().reset(Instant::now() + pause);
            }
            Pace::StuckAfter(left) => *left -= read,
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Throttled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
