//! Hostile connections beside the agents: connections that send nothing, and a storm of agents that come and go.
//!
//! One thread opens all of them at the given rate, reads the snapshots of the storm, and counts the outcomes. It ends when the
//! [`Company`] is dismissed.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use tokio::time::Instant;

use crate::load::connection::{Connection, Phase};
use crate::load::manner::Manner;
use crate::load::socket;
use crate::tls::Tls;

/// Pause between two looks for connections that are due.
const TICK: Duration = Duration::from_millis(10);
/// Most agents of a storm at once. A server that does not keep up gets fewer new ones.
const STORM_AT_ONCE: usize = 1_000;
const BUFFER: usize = 256 * 1024;
/// Number of the first hostile connection, which decides its source address. Apart from the agents' numbers.
const FIRST_NUMBER: usize = 500_000;

/// Settings of the hostile connections.
#[derive(Clone)]
pub(crate) struct Invitation {
    pub(crate) server: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// Connections that send nothing, opened evenly within `over`.
    pub(crate) half_open: usize,
    pub(crate) over: Duration,
    /// Agents per second that connect, take a snapshot of `snapshot` bytes, and leave.
    pub(crate) storm: u32,
    pub(crate) snapshot: u64,
    pub(crate) greeting: Vec<u8>,
}

/// Outcome of the hostile connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Half-open connections: begun, established, and ended by the server.
    pub(crate) half_open: usize,
    pub(crate) half_open_established: usize,
    pub(crate) half_open_cut: usize,
    /// Agents of the storm: come, served with a whole snapshot, and cut.
    pub(crate) storm: usize,
    pub(crate) storm_served: usize,
    pub(crate) storm_cut: usize,
}

/// The running hostile connections.
pub(crate) struct Company {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<Outcome>>>,
}

impl Company {
    /// Starts the hostile connections, if any are asked for.
    pub(crate) fn start(invitation: Invitation) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        if invitation.half_open == 0 && invitation.storm == 0 {
            return Ok(Self { stop, thread: None });
        }
        let stopped = stop.clone();
        let guests = Guests::new(invitation)?;
        let thread = std::thread::Builder::new().name("hostile".to_owned()).spawn(move || guests.run(&stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends all of them and returns the outcome. `None` if there were none.
    pub(crate) fn dismiss(&mut self) -> anyhow::Result<Option<Outcome>> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(None) };
        thread.join().map_err(|_| anyhow!("the hostile company's thread panicked"))?.map(Some)
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        let _ = self.dismiss();
    }
}

struct Guest {
    connection: Connection,
    /// Whether it is an agent of the storm; otherwise it sends nothing.
    storm: bool,
    received: u64,
}

struct Guests {
    poll: Poll,
    invitation: Invitation,
    guests: HashMap<usize, Guest>,
    storming: usize,
    next: usize,
    buffer: Vec<u8>,
    outcome: Outcome,
}

impl Guests {
    fn new(invitation: Invitation) -> anyhow::Result<Self> {
        Ok(Self {
            poll: Poll::new().context("create poll")?,
            invitation,
            guests: HashMap::new(),
            storming: 0,
            next: FIRST_NUMBER,
            buffer: vec![0; BUFFER],
            outcome: Outcome::default(),
        })
    }

    fn run(mut self, stop: &AtomicBool) -> anyhow::Result<Outcome> {
        let mut events = Events::with_capacity(1024);
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let elapsed = began.elapsed().as_secs_f64();
            let share = (elapsed / self.invitation.over.as_secs_f64()).min(1.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count")]
            let (half_open, storm) = (
                (self.invitation.half_open as f64 * share) as usize,
                (f64::from(self.invitation.storm) * elapsed) as usize,
            );
            while self.outcome.half_open < half_open {
                self.outcome.half_open += 1;
                self.invite(false)?;
            }
            while self.outcome.storm < storm && self.storming < STORM_AT_ONCE {
                self.outcome.storm += 1;
                self.storming += 1;
                self.invite(true)?;
            }
            match self.poll.poll(&mut events, Some(TICK)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("poll the hostile company"),
            }
            for event in &events {
                self.on_event(event);
            }
        }
        Ok(self.outcome)
    }

    fn invite(&mut self, storm: bool) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let mut stream = socket::connect(self.invitation.server, number, false).context("open a hostile connection")?;
        self.poll.registry().register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
        // A half-open connection does not even begin with TLS.
        let tls = self.invitation.tls.as_ref().filter(|_| storm);
        let connection = Connection::new(stream, tls, Manner::Honest)?;
        self.guests.insert(number, Guest { connection, storm, received: 0 });
        Ok(())
    }

    fn on_event(&mut self, event: &Event) {
        let number = event.token().0;
        let Some(guest) = self.guests.get_mut(&number) else { return };
        let connection = &mut guest.connection;
        if matches!(connection.phase, Phase::Connecting | Phase::Handshaking) {
            match connection.establish() {
                Ok(bytes) => guest.received += bytes as u64,
                Err(_) => return self.leave(number, true),
            }
            if connection.phase == Phase::Ready {
                if !guest.storm {
                    self.outcome.half_open_established += 1;
                } else if connection.greet(&self.invitation.greeting).is_err() {
                    return self.leave(number, true);
                }
            }
            if !event.is_read_closed() {
                return;
            }
        }
        let ended = event.is_read_closed() || event.is_error();
        let read = connection.read(&mut self.buffer, usize::MAX, ended);
        guest.received += read.bytes as u64;
        if guest.storm && guest.received >= self.invitation.snapshot {
            self.leave(number, false);
        } else if read.closed {
            self.leave(number, true);
        }
    }

    fn leave(&mut self, number: usize, cut: bool) {
        let Some(guest) = self.guests.remove(&number) else { return };
        match (guest.storm, cut) {
            (false, _) => self.outcome.half_open_cut += 1,
            (true, true) => self.outcome.storm_cut += 1,
            (true, false) => self.outcome.storm_served += 1,
        }
        if guest.storm {
            self.storming -= 1;
        }
    }
}
