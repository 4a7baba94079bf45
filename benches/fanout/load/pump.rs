//! The thread that serves a share of the counted agents: connects them in waves, greets, reads, and sends pongs.
//!
//! One epoll and one buffer for all of them. Its counts go into [`Shared`], which the scenario reads.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Context as _;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use tokio::time::Instant;

use super::connection::{Connection, Phase, Read};
use super::manner::Manner;
use super::{Plan, Shared, socket};

/// Interval of every agent's pongs: the interval at which servers of the protocol ask by default.
const PONG_EVERY: Duration = Duration::from_secs(10);
/// Interval at which pongs, slow reads and new connections are handled.
const TICK: Duration = Duration::from_millis(100);
/// Most agents that wait for the server's first answer at once. Servers limit the number of handshakes, and their time.
const OPENING: usize = 256;
/// The same with TLS: more would only wait for the processor.
const OPENING_TLS: usize = 64;
/// Retries of an agent that is cut while agents connect; a real agent would try again, too.
const RETRIES: u32 = 5;
/// Size of the shared read buffer: a few socket buffers.
const BUFFER: usize = 256 * 1024;
/// The token that wakes the thread. Connections have the tokens from 0.
pub(super) const WAKE: Token = Token(usize::MAX);

pub(super) struct Pump {
    pub(super) poll: Poll,
    pub(super) plan: Arc<Plan>,
    pub(super) shared: Arc<Shared>,
    /// The agents of this thread, by their number in the plan.
    pub(super) ids: Range<usize>,
    connections: Vec<Option<Connection>>,
    /// Agents that wait for the server's first answer, agents that were cut before it, and retries left.
    opening: usize,
    again: Vec<usize>,
    retries: u32,
    buffer: Vec<u8>,
}

impl Pump {
    pub(super) fn new(poll: Poll, plan: Arc<Plan>, shared: Arc<Shared>, ids: Range<usize>) -> Self {
        let retries = RETRIES * u32::try_from(ids.len()).unwrap_or(u32::MAX / RETRIES);
        let buffer = vec![0; BUFFER];
        Self { poll, plan, shared, ids, connections: Vec::new(), opening: 0, again: Vec::new(), retries, buffer }
    }

    /// Runs until it is stopped.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut next_tick = Instant::now();
        let mut held = true;
        let mut pong_cursor = 0.0;
        while !self.shared.stop.load(Relaxed) {
            self.open()?;
            if held && !self.shared.hold.load(Relaxed) {
                held = false;
                for i in 0..self.connections.len() {
                    self.greet(i);
                }
            }
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                self.read_slowly();
                self.say_alive(&mut pong_cursor);
            }
            match self.poll.poll(&mut events, Some(next_tick.saturating_duration_since(now))) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("poll agents"),
            }
            for event in &events {
                if event.token() != WAKE {
                    self.on_event(event);
                }
            }
        }
        Ok(())
    }

    /// Begins connections, up to the limit of those under way.
    fn open(&mut self) -> anyhow::Result<()> {
        let most = if self.plan.tls.is_some() { OPENING_TLS } else { OPENING };
        while self.opening < most {
            let i = match self.again.pop() {
                Some(i) => i,
                None if self.connections.len() < self.ids.len() => {
                    self.connections.push(None);
                    self.connections.len() - 1
                }
                None => break,
            };
            let (id, manner) = (self.ids.start + i, self.plan.manners[self.ids.start + i]);
            let mut stream = socket::connect(self.plan.server, id, manner != Manner::Honest)
                .with_context(|| format!("connect agent {id} to {}", self.plan.server))?;
            self.poll.registry().register(&mut stream, Token(i), Interest::READABLE | Interest::WRITABLE)?;
            self.connections[i] = Some(Connection::new(stream, self.plan.tls.as_ref(), manner)?);
            self.opening += 1;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Event) {
        let i = event.token().0;
        let Some(Some(connection)) = self.connections.get_mut(i) else { return };
        if matches!(connection.phase, Phase::Connecting | Phase::Handshaking) {
            match connection.establish() {
                Err(error) => return self.lose(i, &error.to_string()),
                Ok(bytes) => drop(self.shared.received[self.ids.start + i].fetch_add(bytes as u64, Relaxed)),
            }
            if connection.phase == Phase::Ready {
                if self.shared.hold.load(Relaxed) {
                    self.opened(i);
                } else {
                    self.greet(i);
                }
            }
        }
        let ended = event.is_read_closed() || event.is_error();
        let Some(Some(connection)) = self.connections.get_mut(i) else { return };
        if !matches!(connection.phase, Phase::Ready | Phase::Greeted) {
            return;
        }
        if event.is_writable() && connection.flush().is_err() {
            return self.lose(i, "it does not read");
        }
        match connection.manner {
            Manner::Honest if event.is_readable() || ended => {
                let read = connection.read(&mut self.buffer, usize::MAX, ended);
                self.count(i, read);
            }
            Manner::Stuck if ended => self.lose(i, "it was cut"),
            Manner::Honest | Manner::Slow(_) | Manner::Stuck => {}
        }
    }

    fn greet(&mut self, i: usize) {
        let Some(Some(connection)) = self.connections.get_mut(i) else { return };
        if connection.phase != Phase::Ready {
            return;
        }
        let greetings = &self.plan.greetings;
        match connection.greet(&greetings[i % greetings.len()]) {
            Err(error) => self.lose(i, &error.to_string()),
            // Of an agent that does not read, nothing more is heard.
            Ok(()) if connection.manner != Manner::Honest => self.opened(i),
            Ok(()) => {}
        }
    }

    /// The agent no longer waits for the server's first answer.
    fn opened(&mut self, i: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(i)
            && !std::mem::replace(&mut connection.opened, true)
        {
            self.opening -= 1;
            self.shared.opened.fetch_add(1, Relaxed);
        }
    }

    fn read_slowly(&mut self) {
        if !self.plan.has_slow() {
            return;
        }
        for i in 0..self.connections.len() {
            let Some(Connection { manner: Manner::Slow(rate), .. }) = &self.connections[i] else { continue };
            let limit = rate / (1000 / usize::try_from(TICK.as_millis()).expect("a tick is short"));
            if let Some(connection) = &mut self.connections[i]
                && connection.phase == Phase::Greeted
            {
                let read = connection.read(&mut self.buffer, limit, true);
                self.count(i, read);
            }
        }
    }

    /// Sends the pongs of a tick, spread over time like those of real agents.
    fn say_alive(&mut self, cursor: &mut f64) {
        let n = self.connections.len() as f64;
        let until = *cursor + n * TICK.as_secs_f64() / PONG_EVERY.as_secs_f64();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions in a list")]
        let (from, to) = (*cursor as usize, (until as usize).min(self.connections.len()));
        for i in from..to {
            if let Some(connection) = &mut self.connections[i]
                && connection.phase == Phase::Greeted
                && connection.manner != Manner::Stuck
                && let Err(error) = connection.pong(&self.plan.pong)
            {
                self.lose(i, &error.to_string());
            }
        }
        *cursor = if until >= n { 0.0 } else { until };
    }

    fn count(&mut self, i: usize, read: Read) {
        if read.bytes > 0 {
            self.opened(i);
        }
        let (shared, id) = (&self.shared, self.ids.start + i);
        let bytes = read.bytes as u64;
        let before = shared.received[id].fetch_add(bytes, Relaxed);
        if self.plan.manners[id] == Manner::Honest {
            shared.bytes.fetch_add(bytes, Relaxed);
            shared.reads.fetch_add(read.reads as u64, Relaxed);
            let needed = shared.needed;
            if before < needed && before + bytes >= needed {
                shared.whole_at_us[id].store(shared.since_greeting_us(), Relaxed);
                shared.whole.fetch_add(1, Relaxed);
            }
        }
        if read.closed {
            self.lose(i, "the server closed it");
        }
    }

    fn lose(&mut self, i: usize, why: &str) {
        let Some(connection) = self.connections[i].take() else { return };
        let (shared, id) = (&self.shared, self.ids.start + i);
        if !connection.opened {
            self.opening -= 1;
        }
        if connection.manner == Manner::Honest && shared.connecting.load(Relaxed) && self.retries > 0 {
            if connection.opened {
                shared.opened.fetch_sub(1, Relaxed);
            }
            self.retries -= 1;
            shared.received[id].store(0, Relaxed);
            shared.retried.fetch_add(1, Relaxed);
            self.again.push(i);
        } else {
            shared.lost(id, connection.manner, connection.phase, why);
        }
    }
}
