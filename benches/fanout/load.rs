//! Many agents that only count bytes, in one thread: as little load generator as the kernel allows.
//!
//! Each sends its hello and both acknowledgements up front (which servers of the protocol accept) and then reads whatever
//! comes into one shared buffer. An unsolicited pong now and then keeps servers from dropping it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// How often every agent says that it lives; well below a server's pong time-out.
const PONG_EVERY: Duration = Duration::from_secs(8);
/// The shared read buffer: a few socket buffers' worth.
const BUFFER: usize = 256 * 1024;

/// What the agents have seen so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) open: AtomicUsize,
    pub(crate) lost: AtomicUsize,
}

/// The running agents. Dropping it closes their connections.
#[derive(Debug)]
pub(crate) struct Agents {
    pub(crate) counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Agents {
    /// Connects `n` agents that each send `greeting` and later `pong`.
    pub(crate) fn start(server: SocketAddr, n: usize, greeting: Vec<u8>, pong: Vec<u8>) -> anyhow::Result<Self> {
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut poll = Poll::new().context("create poll")?;
        let mut streams = HashMap::new();
        for i in 0..n {
            let mut stream =
                std::net::TcpStream::connect(server).with_context(|| format!("connect agent {i} to {server}"))?;
            stream.write_all(&greeting).context("send hello")?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(i), Interest::READABLE)?;
            streams.insert(i, stream);
            counts.open.fetch_add(1, Ordering::Relaxed);
        }
        let thread = {
            let (counts, stop) = (counts.clone(), stop.clone());
            std::thread::Builder::new()
                .name("agents".into())
                .spawn(move || read_all(&mut poll, streams, &counts, &stop, &pong))?
        };
        Ok(Self { counts, stop, thread: Some(thread) })
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_all(
    poll: &mut Poll,
    mut streams: HashMap<usize, TcpStream>,
    counts: &Counts,
    stop: &AtomicBool,
    pong: &[u8],
) -> anyhow::Result<()> {
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; BUFFER];
    let mut next_pong = tokio::time::Instant::now() + PONG_EVERY;
    // Edge-triggered: what was readable before the registration has to be read once without an event.
    let mut ready: Vec<usize> = streams.keys().copied().collect();
    while !stop.load(Ordering::Relaxed) {
        for id in ready.drain(..) {
            let Some(stream) = streams.get_mut(&id) else { continue };
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => {
                        streams.remove(&id);
                        counts.lost.fetch_add(1, Ordering::Relaxed);
                        counts.open.fetch_sub(1, Ordering::Relaxed);
                        break;
                    }
                    Ok(n) => {
                        counts.bytes.fetch_add(n as u64, Ordering::Relaxed);
                        counts.reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        streams.remove(&id);
                        counts.lost.fetch_add(1, Ordering::Relaxed);
                        counts.open.fetch_sub(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
        }
        if tokio::time::Instant::now() >= next_pong {
            next_pong += PONG_EVERY;
            for stream in streams.values_mut() {
                // A full socket means that the server does not read; then a pong more or less changes nothing.
                let _ = stream.write(pong);
            }
        }
        match poll.poll(&mut events, Some(Duration::from_millis(200))) {
            Ok(()) => ready.extend(events.iter().map(|event| event.token().0)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("poll agents"),
        }
    }
    Ok(())
}
