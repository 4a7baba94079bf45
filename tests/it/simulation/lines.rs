//! Streams of the simulated network, with the faults of real ones: partial writes, and connection resets.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bulrush::syncclient::connector::Connector;
use bulrush::syncserver::Listener;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use turmoil::net::{TcpListener, TcpStream};

use super::ledger::Name;

/// Port of the servers.
pub(super) const PORT: u16 = 5473;

/// The servers of a run; some runs have only the first.
pub(super) const SERVERS: [Name; 2] = ["server", "server-2"];

/// Largest write that is taken at once: above usual packets on a network, below the server's usual writes.
pub(super) const MAX_WRITE: usize = 4000;

/// The same in runs with large values, so that a megabyte does not take longer than the time-outs.
pub(super) const MAX_LARGE_WRITE: usize = 64_000;

/// A defect of the server, for tests of the simulation: its tasks panic while they handle a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// The connection's own task panics when it reads.
    Connection,
    /// A feed or its pump panics when it writes to a resting agent.
    Pump,
}

/// A stream that takes writes in random parts and can be reset.
pub(super) struct Line {
    stream: TcpStream,
    rng: SmallRng,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    max_write: usize,
    defect: Option<Defect>,
}

impl Line {
    pub(super) fn new(stream: TcpStream, seed: u64, cut: CancellationToken) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { stream, rng, cut: Box::pin(cut.cancelled_owned()), max_write: MAX_WRITE, defect: None }
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
        // Pumps do not wait for sockets, so their waker does nothing.
        let by_pump = cx.waker().will_wake(Waker::noop());
        assert!(!(by_pump && self.defect == Some(Defect::Pump)), "a defect of pumps");
        self.poll_cut(cx)?;
        let max = self.max_write;
        let part = self.rng.random_range(1..=max).min(buf.len());
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

/// A server's end.
pub(super) struct Inlet {
    listener: TcpListener,
    seed: u64,
    max_write: usize,
    defect: Option<Defect>,
}

impl Inlet {
    pub(super) async fn bind(seed: u64, max_write: usize, defect: Option<Defect>) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(("0.0.0.0", PORT)).await?, seed, max_write, defect })
    }
}

impl Listener for Inlet {
    type Stream = Line;

    async fn accept(&mut self) -> io::Result<(Line, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        self.seed += 1;
        let line = Line::new(stream, self.seed, CancellationToken::new());
        Ok((Line { max_write: self.max_write, defect: self.defect, ..line }, peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// An attempt to connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    pub(super) server: Name,
    pub(super) at: Duration,
}

/// The agents' end: connects to servers, and lets the script cut its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Plug {
    /// Resets the present connection.
    cut: Arc<Mutex<CancellationToken>>,
    /// All attempts, in order.
    dials: Arc<Mutex<Vec<Dial>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plug {
    /// The same plug for an agent that starts anew: without attempts.
    pub(super) fn afresh(&self) -> Self {
        Self { cut: self.cut.clone(), dials: Arc::default() }
    }

    /// Resets the present connection.
    pub(super) fn cut(&self) {
        locked(&self.cut).cancel();
    }

    /// An attempt by its number: the library reports the outcomes in order, but the next attempt may begin before a report.
    pub(super) fn dial_number(&self, index: usize) -> Option<Dial> {
        locked(&self.dials).get(index).copied()
    }

    /// Connects to one of [`SERVERS`].
    pub(super) async fn dial(&self, server: Name) -> io::Result<(Line, Dial)> {
        let cut = CancellationToken::new();
        *locked(&self.cut) = cut.clone();
        let dial = Dial { server, at: turmoil::sim_elapsed().unwrap_or_default() };
        let number = {
            let mut dials = locked(&self.dials);
            dials.push(dial);
            dials.len() as u64
        };
        Ok((Line::new(TcpStream::connect((server, PORT)).await?, number, cut), dial))
    }
}

impl Connector for Plug {
    type Stream = Line;

    async fn connect(&self, address: &str) -> io::Result<Line> {
        // A name, or an address from a goodbye.
        let name = match address.parse::<SocketAddr>() {
            Ok(address) => turmoil::reverse_lookup(address.ip()),
            Err(_) => address.split_once(':').map(|(name, _)| name.to_owned()),
        };
        let server = SERVERS.into_iter().find(|server| name.as_deref() == Some(server));
        let server = server.unwrap_or_else(|| panic!("an agent is sent to {address}, where no server is"));
        self.dial(server).await.map(|(line, _)| line)
    }
}
