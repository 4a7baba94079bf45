//! Streams of the simulated network, with what real ones do: writes that are taken in part, connections that are reset.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bulrush::syncclient::connector::Connector;
use bulrush::syncserver::Listener;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use turmoil::net::{TcpListener, TcpStream};

/// Where the server listens.
pub(super) const PORT: u16 = 5473;

/// Largest write that is taken at once: above what is usual on a network, below what the server likes to write.
const MAX_WRITE: usize = 4000;

/// A defect of the server, for tests of the simulation: its tasks panic in the middle of what they do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// The connection's own task panics when it reads.
    Connection,
    /// A feed or its pump panics when it writes to an agent that rests.
    Pump,
}

/// A stream that takes writes in random parts and can be reset.
pub(super) struct Line {
    stream: TcpStream,
    rng: SmallRng,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    defect: Option<Defect>,
}

impl Line {
    pub(super) fn new(stream: TcpStream, seed: u64, cut: CancellationToken) -> Self {
        Self { stream, rng: SmallRng::seed_from_u64(seed), cut: Box::pin(cut.cancelled_owned()), defect: None }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        assert!(self.defect != Some(Defect::Connection), "a defect of connections");
        self.poll_cut(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Pumps wait for nobody, so nobody is to be woken.
        let by_pump = cx.waker().will_wake(Waker::noop());
        assert!(!(by_pump && self.defect == Some(Defect::Pump)), "a defect of pumps");
        self.poll_cut(cx)?;
        let part = self.rng.random_range(1..=MAX_WRITE).min(buf.len());
        let taken = ready!(Pin::new(&mut self.stream).poll_write(cx, &buf[..part]))?;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The server's end.
pub(super) struct Inlet {
    listener: TcpListener,
    seed: u64,
    defect: Option<Defect>,
}

impl Inlet {
    pub(super) async fn bind(seed: u64, defect: Option<Defect>) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(("0.0.0.0", PORT)).await?, seed, defect })
    }
}

impl Listener for Inlet {
    type Stream = Line;

    async fn accept(&mut self) -> io::Result<(Line, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        self.seed += 1;
        let mut line = Line::new(stream, self.seed, CancellationToken::new());
        line.defect = self.defect;
        Ok((line, peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The agents' end: connects to the server, and lets the script cut what it connected.
#[derive(Clone, Debug, Default)]
pub(super) struct Plug(Arc<Mutex<Plugged>>);

#[derive(Debug, Default)]
struct Plugged {
    cut: CancellationToken,
    asked_at: Duration,
    count: u64,
}

impl Plug {
    fn with<T>(&self, look: impl FnOnce(&mut Plugged) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resets the present connection.
    pub(super) fn cut(&self) {
        self.with(|plugged| plugged.cut.cancel());
    }

    /// When the present connection was asked for.
    pub(super) fn asked_at(&self) -> Duration {
        self.with(|plugged| plugged.asked_at)
    }

    pub(super) async fn dial(&self) -> io::Result<Line> {
        let (cut, count) = self.with(|plugged| {
            plugged.cut = CancellationToken::new();
            plugged.asked_at = turmoil::sim_elapsed().unwrap_or_default();
            plugged.count += 1;
            (plugged.cut.clone(), plugged.count)
        });
        Ok(Line::new(TcpStream::connect(("server", PORT)).await?, count, cut))
    }
}

impl Connector for Plug {
    type Stream = Line;

    async fn connect(&self, _address: &str) -> io::Result<Line> {
        self.dial().await
    }
}
