//! One client that streams: shared by its own task and its feed's pump.
//!
//! ```text
//!  task:  start ─► snapshot ─► following ─┬─ nothing to send ─► at rest ◄─ written whole ─┐
//!           ▲                             │                        └──── pump: a round ───┤
//!           └──── reads, timers ──────────┴──────────◄── nudge ◄─ written in part, lost ──┘
//! ```
//!
//! A client rests when it has all there was and nothing is queued. Clients at rest are served together by the
//! [pump](super::super::feed::pump): no task is woken, and nothing is looked up for one client alone. Everything else
//! (reads, pings, time-outs, snapshots, catch-ups, a full socket) is up to the client's task.
//!
//! Invariants:
//! - no client misses a change, whether its task or the pump is at work on it when the change comes: see
//!   [`super::guarded`];
//! - bytes that the pump could not write are queued for the task, which also sends everything that is too much for a
//!   pass.
//!
//! If a bug breaks either, housekeeping finds it (see [`super::super::feed::inspection`]).

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::SystemTime;

use tokio::time::Instant;

use super::super::calls::{Call, Order};
use super::super::feed::inspection::{Check, Finding, Suspicion, Waits};
use super::super::feed::pinned::Pinned;
use super::super::feed::pump::{Ahead, Pass, Position, PumpClient};
use super::super::feed::ring::Mark;
use super::super::reason::CloseReason;
use super::guarded::{Guarded, NotNow, Rests, Visit};
use super::inbound::{ClientEvent, Inbound};
use super::link::Link;
use super::liveness::Liveness;
use super::outgoing::Outgoing;
use super::phase::Phase;
use super::record::Client;
use super::transport::Stream;
use crate::metrics::SyncerMetrics;

/// The result of a poll of the line.
pub(crate) enum LineEvent {
    /// Bytes came, and were handed to their reader.
    Read,
    /// There may be something to send.
    Woken,
    /// This number of bytes left.
    Wrote(u64),
    /// The connection is over, or has to end.
    Ended(CloseReason),
}

/// All state of one streaming client.
#[derive(Debug)]
pub(crate) struct Streaming<S> {
    pub(crate) link: Link<S>,
    pub(crate) outgoing: Outgoing,
    liveness: Liveness,
    client: Arc<Client>,
    filled_at: Instant,
    bytes_sent: u64,
    /// The reason why the pump could not write.
    failed: Option<CloseReason>,
    /// The pump has queued bytes that did not fit into the socket, and the task has not looked since.
    left_by_pump: bool,
    suspicion: Suspicion,
}

impl<S: Stream> Streaming<S> {
    /// A client whose hello has been answered; the answer is queued.
    pub(crate) fn new(
        link: Link<S>,
        outgoing: Outgoing,
        mut liveness: Liveness,
        client: Arc<Client>,
        now: Instant,
    ) -> Self {
        // Its slot is not to be given up any more.
        client.calls().establish();
        client.set_state(outgoing.phase().shown());
        liveness.on_pending(now);
        Self {
            link,
            outgoing,
            liveness,
            client,
            filled_at: now,
            bytes_sent: 0,
            failed: None,
            left_by_pump: false,
            suspicion: Suspicion::default(),
        }
    }

    fn metrics(&self) -> &SyncerMetrics {
        self.outgoing.feed().metrics()
    }

    /// Queues the next bytes for the client, if all earlier ones have left. Returns when to check the clocks.
    pub(crate) fn refill(&mut self, now: Instant) -> Result<Instant, CloseReason> {
        self.left_by_pump = false;
        self.suspicion.clear();
        if let Some(reason) = self.failed.take() {
            return Err(reason);
        }
        while self.link.is_drained() {
            self.fill(now)?;
            if !self.link.is_drained() {
                self.liveness.on_pending(now);
                self.filled_at = now;
            } else if self.outgoing.is_dry() {
                break;
            }
            // Otherwise a phase ended without a byte: the next one may have some.
        }
        Ok(self.liveness.deadline(now))
    }

    fn fill(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.outgoing.begin(now, self.link.out());
        if self.liveness.ping_due(now) {
            let as_of = self.outgoing.feed().reader().as_of();
            let ping = self.outgoing.feed().format().ping(SystemTime::now(), as_of.as_ref());
            self.link.out().push_back(ping);
            self.liveness.on_pinged(now);
            // A client that lacks something must not get only a ping.
            self.outgoing.look_again();
        }
        self.outgoing.fill(now, self.link.out())?;
        self.note_phase(now);
        Ok(())
    }

    /// The phase may have changed: sets the clocks, and the state in status.
    fn note_phase(&mut self, now: Instant) {
        let phase = self.outgoing.phase();
        self.liveness.oblige(phase.obligations(), now);
        self.client.set_state(phase.shown());
    }

    /// The connection ends.
    fn end(mut self) -> Self {
        self.outgoing.end();
        self.client.set_state(self.outgoing.phase().shown());
        self
    }

    /// Checks for a call, writes, and reads unless `inbound` is missing, whichever is possible first.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, inbound: Option<&mut Inbound>) -> Poll<LineEvent> {
        match self.client.calls().poll_call(cx) {
            Poll::Ready(Call::End(order)) => return Poll::Ready(LineEvent::Ended(order.into())),
            Poll::Ready(Call::Look) => {
                self.outgoing.look_again();
                return Poll::Ready(LineEvent::Woken);
            }
            Poll::Pending => {}
        }
        // Written first: a client that talks without end must not keep its own data waiting.
        if !self.link.is_drained() {
            match self.link.poll_write(cx) {
                Poll::Ready(Ok(bytes)) => return Poll::Ready(LineEvent::Wrote(bytes)),
                Poll::Ready(Err(reason)) => return Poll::Ready(LineEvent::Ended(reason)),
                Poll::Pending => {}
            }
        }
        let Some(inbound) = inbound else { return Poll::Pending };
        match ready!(self.link.poll_read(cx, |bytes| inbound.push(bytes))) {
            Ok(()) => Poll::Ready(LineEvent::Read),
            Err(reason) => Poll::Ready(LineEvent::Ended(reason)),
        }
    }

    /// Bytes left for the client.
    pub(crate) fn on_wrote(&mut self, bytes: u64, now: Instant) {
        let all = self.link.is_drained();
        self.bytes_sent += bytes;
        self.liveness.on_progress(bytes, all, now);
        self.metrics().bytes_sent.inc_by(bytes);
        if all {
            self.metrics().client_write_latency_secs.observe_at(now, (now - self.filled_at).as_secs_f64());
        }
    }

    /// Time passed: checks whether the client is still in time.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.liveness.check(now)?;
        self.outgoing.check(now)
    }

    /// A message of the client came.
    pub(crate) fn on_event(&mut self, event: ClientEvent, now: Instant) -> Result<(), CloseReason> {
        let client = &self.client;
        match event {
            ClientEvent::Ack => {
                // Later ones acknowledge a restart that only Calico's own server does.
                self.outgoing.on_ack();
                self.note_phase(now);
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

    /// Gives the client its part of a pass if it is at rest.
    fn serve(&mut self, pass: &mut Pass<'_>) -> Visit {
        if !self.link.is_drained() {
            return Visit::Busy;
        }
        if !self.outgoing.phase().is_on_ring() {
            // Its task is on its way to the ring.
            return Visit::Done;
        }
        let Some(mark) = self.outgoing.resting_at() else { return Visit::Left };
        let stretch = match pass.after(mark) {
            Ahead::Nothing => return Visit::Done,
            Ahead::Forgotten => return Visit::Left,
            Ahead::Stretch(stretch) => stretch,
        };
        let more = stretch.more;
        self.outgoing.on_served(&stretch.end);
        self.suspicion.clear();
        // If the socket is full, the task polls again and is the one to be woken.
        let polled = self.link.poll_send(&mut Context::from_waker(Waker::noop()), &stretch.pieces);
        let bytes = if let Poll::Ready(Ok(bytes)) = polled { bytes } else { 0 };
        pass.on_served(bytes);
        self.bytes_sent += bytes;
        if self.link.is_drained() {
            // A client rests only when it has all there is: perhaps nothing comes for a long time.
            return if more { Visit::Left } else { Visit::Done };
        }
        if let Poll::Ready(Err(reason)) = polled {
            self.failed = Some(reason);
        }
        self.filled_at = pass.now;
        self.liveness.on_pending(pass.now);
        self.left_by_pump = true;
        Visit::Left
    }

    /// Housekeeping checks whether the client was forgotten. `nudged`: its task has been nudged.
    fn inspect(&mut self, check: &Check<'_>, nudged: bool) -> Finding {
        let in_snapshot = matches!(self.outgoing.phase(), Phase::Snapshot { .. });
        let lacks = self.outgoing.mark().filter(|_| !in_snapshot).map_or(0, |mark| mark.updates_until(check.head));
        Finding { lacks, waits: self.suspicion.look(self.waits(check.head), nudged, check.excused) }
    }

    /// Whether there is something for the client that its task or a pump should be about to send.
    fn waits(&self, head: &Mark) -> bool {
        if self.failed.is_some() || !self.link.is_drained() {
            // Its task waits for room in the socket, if it knows of the bytes.
            self.failed.is_some() || self.left_by_pump
        } else {
            self.outgoing.has_more(head)
        }
    }

    /// The client's position, once its snapshot has begun.
    fn position(&self) -> Option<Position> {
        self.outgoing.mark().map(|mark| Position { mark: mark.clone(), bytes_sent: self.bytes_sent })
    }
}

impl<S> Rests for Streaming<S> {
    fn look_again(&mut self) {
        self.outgoing.look_again();
    }
}

/// A streaming client, shared by its task and the pump.
#[derive(Debug)]
pub(crate) struct Line<S> {
    client: Arc<Client>,
    streaming: Guarded<Streaming<S>>,
}

impl<S: Stream> Line<S> {
    pub(crate) fn new(client: Arc<Client>, streaming: Streaming<S>) -> Arc<Self> {
        Arc::new(Self { client, streaming: Guarded::new(streaming) })
    }

    /// Accesses the client. For its task only.
    ///
    /// # Errors
    /// A panic happened while it was served: it is unknown what was sent, so the connection has to end.
    ///
    /// # Panics
    /// After [`Self::take`].
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Streaming<S>) -> R) -> Result<R, CloseReason> {
        let done = self
            .streaming
            .with(act)
            .map_err(|_| CloseReason::Panicked("an earlier panic while it was served".to_owned()))?;
        Ok(done.expect("only its task takes it, at the end"))
    }

    /// Takes the client away from the pump for good.
    pub(crate) fn take(&self) -> Option<Streaming<S>> {
        // Also after a panic: then it is closed without a goodbye.
        self.streaming.take().map(Streaming::end)
    }
}

impl<S: Stream> PumpClient for Line<S> {
    fn serve(&self, pass: &mut Pass<'_>) {
        self.streaming.visit(self.client.calls(), |streaming| streaming.serve(pass));
    }

    fn nudge(&self) {
        self.client.calls().nudge();
    }

    fn position(&self) -> Option<Position> {
        self.streaming.with(|streaming| streaming.position()).ok().flatten().flatten()
    }

    fn inspect(&self, check: &Check<'_>) -> Option<Finding> {
        let inspected = self.streaming.try_with(|streaming| streaming.inspect(check, self.client.calls().is_nudged()));
        let found = match inspected {
            Ok(found) => found.unwrap_or_default(),
            Err(NotNow::Busy) => return None,
            // Its task ends it.
            Err(NotNow::Poisoned) => Finding { lacks: 0, waits: Waits::Lost },
        };
        if found.waits == Waits::Lost {
            self.client.calls().nudge();
        }
        Some(found)
    }

    fn note_version(&self, pinned: &mut Pinned) {
        let _busy = self.streaming.try_with(|streaming| {
            if let Some(mark) = streaming.outgoing.mark() {
                pinned.note(mark, self.client.id);
            }
        });
    }

    fn end_oldest(&self) {
        self.client.calls().order(Order::OldestVersion);
    }
}

#[cfg(test)]
mod tests;
