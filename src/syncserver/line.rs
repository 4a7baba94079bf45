//! One client that streams: what its own task and its feed's pump share, and how they take turns.
//!
//! ```text
//!  task:  start ─► snapshot ─► following ─┬─ nothing to send ─► at rest ◄─ written whole ─┐
//!           ▲                             │                        └──── pump: a round ───┤
//!           └──── reads, timers ──────────┴──────────◄── nudge ◄─ written in part, lost ──┘
//! ```
//!
//! Whoever rests (has all there was, and nothing queued) is served by the [pump](super::pump) along with everybody else who
//! rests: no task is woken, and nothing is looked up for it alone. All else (reads, pings, time-outs, snapshots, catch-ups,
//! a socket that is full) is the task's.
//!
//! Invariants:
//! - a change is put into the ring *before* the pump comes by, and the task looks into the ring *before* it rests, both under
//!   the line's lock: so either the pump finds the client at rest, or the task finds the change. If the pump finds the line
//!   locked, it does not wait; it nudges the task, which then looks again;
//! - what the pump could not write is queued, and the task goes on with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker, ready};
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;

use super::inbound::{ClientEvent, Inbound};
use super::link::Link;
use super::liveness::Liveness;
use super::pump::{Ahead, Pass, Passenger};
use super::reason::CloseReason;
use super::ring::Mark;
use super::sender::Sender;
use super::status::ClientState;
use super::tracker::{Call, Client};
use super::transport::Stream;
use super::wire::Wire;
use crate::metrics::SyncerMetrics;

/// What a poll of the line has brought.
pub(super) enum Done {
    /// Bytes came, and are with their reader.
    Read,
    /// There may be something to send.
    Woken,
    /// So many bytes left.
    Wrote(u64),
    /// The connection is over, or to be ended.
    Ended(CloseReason),
}

/// What the task waits for, beside its client.
pub(super) struct Wait {
    /// When to look at the clocks.
    pub(super) deadline: Instant,
    /// The snapshot that is on its way, when the next piece of it is not there yet.
    pub(super) progress: Option<watch::Receiver<u64>>,
}

/// What there is of one streaming client.
#[derive(Debug)]
pub(super) struct Streaming<S> {
    pub(super) link: Link<S>,
    pub(super) sender: Sender,
    liveness: Liveness,
    client: Arc<Client>,
    started: bool,
    snapshot_done: bool,
    snapshot_at: Instant,
    filled_at: Instant,
    noted: Option<(u64, ClientState)>,
    /// Why the pump could not write.
    failed: Option<CloseReason>,
}

impl<S: Stream> Streaming<S> {
    /// A client whose hello has been answered; the answer is queued.
    pub(super) fn new(link: Link<S>, sender: Sender, mut liveness: Liveness, client: Arc<Client>, now: Instant) -> Self {
        client.set_state(ClientState::AwaitingAck);
        liveness.on_pending(now);
        Self {
            link,
            sender,
            liveness,
            client,
            started: false,
            snapshot_done: false,
            snapshot_at: now,
            filled_at: now,
            noted: None,
            failed: None,
        }
    }

    fn metrics(&self) -> &SyncerMetrics {
        self.sender.feed().metrics()
    }

    /// Queues what there is for the client, if all that was queued before has left.
    pub(super) fn turn(&mut self, now: Instant) -> Result<Wait, CloseReason> {
        if let Some(reason) = self.failed.take() {
            return Err(reason);
        }
        while self.link.is_drained() {
            if !self.started && !self.liveness.awaits_ack() {
                self.start(now);
            }
            if self.started {
                self.fill(now)?;
            }
            if !self.link.is_drained() {
                self.liveness.on_pending(now);
                self.filled_at = now;
            } else if !self.started || self.sender.is_dry() {
                break;
            }
            // Otherwise a phase ended without a byte: the next one may have some.
        }
        let progress = if self.started && self.link.is_drained() { self.sender.progress() } else { None };
        Ok(Wait { deadline: self.liveness.deadline(now), progress })
    }

    fn start(&mut self, now: Instant) {
        self.started = true;
        self.snapshot_at = now;
        if self.sender.feed().key().wire == Wire::GobSnappy {
            let prefix = self.sender.feed().format().prefix();
            self.link.out().push_back(prefix);
        }
        self.sender.start(now, self.link.out());
        self.client.set_state(ClientState::Snapshot);
    }

    fn fill(&mut self, now: Instant) -> Result<(), CloseReason> {
        if !self.snapshot_done && !self.sender.in_snapshot() {
            self.snapshot_done = true;
            self.liveness.on_snapshot_sent(now);
            self.sender.on_snapshot_sent(now);
            self.metrics().client_snapshot_send_secs.observe((now - self.snapshot_at).as_secs_f64());
        }
        if self.liveness.ping_due(now) {
            let as_of = self.sender.feed().reader().as_of();
            let ping = self.sender.feed().format().ping(SystemTime::now(), as_of.as_ref());
            self.link.out().push_back(ping);
            self.liveness.on_pinged(now);
        }
        self.sender.fill(now, self.link.out())?;
        self.note_position();
        Ok(())
    }

    /// Shows others where the client stands, if that is not what was noted last.
    fn note_position(&mut self) {
        let state = if self.sender.in_snapshot() || !self.snapshot_done {
            ClientState::Snapshot
        } else if self.sender.in_catch_up() {
            ClientState::CatchUp
        } else {
            ClientState::Following
        };
        let position = Some((self.sender.mark().sequence, state));
        if self.noted != position {
            self.noted = position;
            self.client.set_mark(self.sender.mark());
            self.client.set_state(state);
        }
    }

    /// Reads, writes, and looks for a call, whichever is possible first.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, inbound: &mut Inbound) -> Poll<Done> {
        match self.client.poll_call(cx) {
            Poll::Ready(Call::End(reason)) => return Poll::Ready(Done::Ended(reason)),
            Poll::Ready(Call::Look) => {
                self.sender.look_again();
                return Poll::Ready(Done::Woken);
            }
            Poll::Pending => {}
        }
        // Written first: a client that talks without end must not keep its own data from it.
        if !self.link.is_drained() {
            match self.link.poll_write(cx) {
                Poll::Ready(Ok(bytes)) => return Poll::Ready(Done::Wrote(bytes)),
                Poll::Ready(Err(reason)) => return Poll::Ready(Done::Ended(reason)),
                Poll::Pending => {}
            }
        }
        match ready!(self.link.poll_read(cx, |bytes| inbound.push(bytes))) {
            Ok(()) => Poll::Ready(Done::Read),
            Err(reason) => Poll::Ready(Done::Ended(reason)),
        }
    }

    /// Bytes left for the client.
    pub(super) fn on_wrote(&mut self, bytes: u64, now: Instant) {
        let all = self.link.is_drained();
        self.client.add_bytes_sent(bytes);
        self.liveness.on_progress(all, now);
        self.metrics().bytes_sent.inc_by(bytes);
        if all {
            self.metrics().client_write_latency_secs.observe_at(now, (now - self.filled_at).as_secs_f64());
        }
    }

    /// Time passed: is the client still in time?
    pub(super) fn check(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.liveness.check(now)?;
        self.sender.check(now)
    }

    /// The client said something.
    pub(super) fn on_event(&mut self, event: ClientEvent, now: Instant) -> Result<(), CloseReason> {
        let client = &self.client;
        match event {
            ClientEvent::Ack => {
                // One that was not awaited is the acknowledgement of a restart that only Calico's server would do.
                let _awaited = self.liveness.on_ack(now);
            }
            ClientEvent::Pong => {
                if let Some(latency) = self.liveness.on_pong(now)? {
                    self.metrics().ping_latency.observe(latency.as_secs_f64());
                }
            }
            ClientEvent::Applied(ack) => {
                client.set_applied(ack.applied, ack.errors.len());
                if let Some(first) = ack.errors.first() {
                    tracing::warn!(
                        conn = client.id,
                        peer = %client.peer,
                        keys = ack.errors.len(),
                        first = %first.key,
                        reason = first.reason,
                        "agent could not apply some keys"
                    );
                }
            }
            ClientEvent::Goodbye(reason) => {
                tracing::debug!(conn = client.id, peer = %client.peer, reason, "client says goodbye");
                return Err(CloseReason::ClientClosed);
            }
        }
        Ok(())
    }

    /// Gives the client its share of a pass if it is at rest. Returns whether its task has to look after it now.
    fn ride(&mut self, pass: &mut Pass<'_>) -> bool {
        if !self.link.is_drained() {
            // The task will have to write all the same; then it is to look for more.
            self.sender.look_again();
            return false;
        }
        if !self.sender.is_following() {
            // Its task is on its way to the ring.
            return false;
        }
        let Some(mark) = self.sender.resting_at() else {
            self.sender.look_again();
            return true;
        };
        let began = pass.now;
        let stretch = match pass.after(mark) {
            Ahead::Nothing => return false,
            Ahead::Forgotten => {
                self.sender.look_again();
                return true;
            }
            Ahead::Stretch(stretch) => stretch,
        };
        self.link.out().extend(stretch.pieces.iter().cloned());
        self.sender.on_served(&stretch.end);
        self.client.set_mark(&stretch.end);
        self.noted = Some((stretch.end.sequence, ClientState::Following));
        let lag = stretch.lag.as_secs_f64();
        // Should the socket be full, the task polls again and is the one that is woken.
        let polled = self.link.poll_write(&mut Context::from_waker(Waker::noop()));
        let now = pass.on_written();
        let metrics = self.sender.feed().metrics();
        metrics.client_latency_secs.observe_at(now, lag);
        if let Poll::Ready(Ok(bytes)) = polled {
            pass.bytes += bytes;
            self.client.add_bytes_sent(bytes);
        }
        if self.link.is_drained() {
            metrics.client_write_latency_secs.observe_at(now, (now - began).as_secs_f64());
            return false;
        }
        if let Poll::Ready(Err(reason)) = polled {
            self.failed = Some(reason);
        }
        self.filled_at = began;
        self.liveness.on_pending(now);
        self.sender.look_again();
        true
    }
}

/// A streaming client as its task and the pump hold it.
#[derive(Debug)]
pub(super) struct Line<S> {
    client: Arc<Client>,
    streaming: Mutex<Option<Streaming<S>>>,
}

impl<S: Stream> Line<S> {
    pub(super) fn new(client: Arc<Client>, streaming: Streaming<S>) -> Arc<Self> {
        Arc::new(Self { client, streaming: Mutex::new(Some(streaming)) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Streaming<S>>> {
        self.streaming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the client. For its task only.
    ///
    /// # Panics
    /// After [`Self::take`].
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Streaming<S>) -> R) -> R {
        act(self.lock().as_mut().expect("only its task takes it, at the very end"))
    }

    /// Takes the client away from the pump for good.
    pub(super) fn take(&self) -> Option<Streaming<S>> {
        self.lock().take()
    }
}

impl<S: Stream> Passenger for Line<S> {
    fn serve(&self, pass: &mut Pass<'_>) {
        let nudge = match self.streaming.try_lock() {
            Ok(mut streaming) => streaming.as_mut().is_some_and(|streaming| streaming.ride(pass)),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        };
        if nudge {
            self.client.nudge();
        }
    }

    fn nudge(&self) {
        self.client.nudge();
    }

    fn lacks(&self, head: &Mark) -> u64 {
        self.client.lacks(head)
    }
}
