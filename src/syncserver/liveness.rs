//! The clocks of one connection after its hello: acknowledgement, pings, pongs, write progress. No I/O; the time is passed in.
//!
//! ```text
//!  AwaitingAck ──on_ack──► Sending the snapshot ──on_snapshot_sent──► Following
//!                          (pings go out, pongs are not owed)         (pongs are owed)
//! ```
//!
//! A client that is busy with a large snapshot may not answer for long, and all the same be well: while the snapshot is on its
//! way it only has to take bytes, and not too slowly on [average](super::average). From then on it owes an answer within the pong
//! timeout.

use std::time::Duration;

use tokio::time::Instant;

use super::average::Average;
use super::jitter::Jitter;
use super::reason::CloseReason;

/// The time-outs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) ping_interval: Duration,
    pub(super) pong: Duration,
    pub(super) write: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitingAck { until: Instant },
    Sending,
    Following { last_pong: Instant },
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Liveness {
    timeouts: Timeouts,
    jitter: Jitter,
    phase: Phase,
    next_ping: Option<Instant>,
    /// When the oldest ping without an answer was sent.
    pinged_at: Option<Instant>,
    /// Since when the client has taken nothing although there is something for it. `None`: there is nothing.
    stalled_since: Option<Instant>,
    /// How fast the client takes a snapshot or a catch-up, while one is on its way.
    bulk: Option<Box<Average>>,
}

impl Liveness {
    /// The hello has been answered with a decoder restart (`needs_ack`), or with the stream itself.
    pub(super) fn new(timeouts: Timeouts, needs_ack: bool, seed: u64, now: Instant) -> Self {
        let mut liveness = Self {
            timeouts,
            jitter: Jitter::new(seed),
            phase: Phase::AwaitingAck { until: now + timeouts.pong },
            next_ping: None,
            pinged_at: None,
            stalled_since: None,
            bulk: None,
        };
        if !needs_ack {
            liveness.begin_streaming(now);
        }
        liveness
    }

    fn begin_streaming(&mut self, now: Instant) {
        self.phase = Phase::Sending;
        self.next_ping = Some(now + self.jitter.stretch(self.timeouts.ping_interval, self.timeouts.ping_interval));
    }

    /// Whether nothing may be sent before an acknowledgement.
    pub(super) fn awaits_ack(&self) -> bool {
        matches!(self.phase, Phase::AwaitingAck { .. })
    }

    /// An acknowledgement came. Returns whether it is the one that was awaited; others mean nothing.
    pub(super) fn on_ack(&mut self, now: Instant) -> bool {
        let awaited = self.awaits_ack();
        if awaited {
            self.begin_streaming(now);
        }
        awaited
    }

    /// The last byte of the snapshot has been handed to the kernel.
    pub(super) fn on_snapshot_sent(&mut self, now: Instant) {
        if self.phase == Phase::Sending {
            self.phase = Phase::Following { last_pong: now };
        }
    }

    /// A pong came. Returns how long it took, unless nothing had been asked.
    pub(super) fn on_pong(&mut self, now: Instant) -> Result<Option<Duration>, CloseReason> {
        match &mut self.phase {
            Phase::AwaitingAck { .. } => {
                return Err(CloseReason::UnexpectedMessage("MsgPong where MsgACK was awaited".to_owned()));
            }
            Phase::Sending => {}
            Phase::Following { last_pong } => *last_pong = now,
        }
        Ok(self.pinged_at.take().map(|sent| now.saturating_duration_since(sent)))
    }

    /// Whether a snapshot or a catch-up is on its way.
    pub(super) fn note_bulk(&mut self, is_on_its_way: bool) {
        if !is_on_its_way {
            self.bulk = None;
        } else if self.bulk.is_none() {
            self.bulk = Some(Box::default());
        }
    }

    /// There is something to write now, where there was nothing before.
    pub(super) fn on_pending(&mut self, now: Instant) {
        self.stalled_since.get_or_insert(now);
        if let Some(bulk) = &mut self.bulk {
            bulk.on_pending(now);
        }
    }

    /// The client took bytes; `all` says whether nothing is left to write.
    pub(super) fn on_progress(&mut self, bytes: u64, all: bool, now: Instant) {
        self.stalled_since = if all { None } else { Some(now) };
        if let Some(bulk) = &mut self.bulk {
            bulk.on_taken(bytes, all, now);
        }
    }

    /// When the client is too slow for the bytes on their way, unless it takes something before.
    fn too_slow_at(&self) -> Option<Instant> {
        self.bulk.as_ref().and_then(|bulk| bulk.too_slow_at(self.timeouts.write))
    }

    /// Whether a ping is due. The caller sends it as soon as it can and says so by [`Self::on_pinged`].
    pub(super) fn ping_due(&self, now: Instant) -> bool {
        self.next_ping.is_some_and(|due| due <= now)
    }

    /// A ping is on its way.
    pub(super) fn on_pinged(&mut self, now: Instant) {
        self.pinged_at.get_or_insert(now);
        self.next_ping = Some(now + self.jitter.stretch(self.timeouts.ping_interval, self.timeouts.ping_interval));
    }

    /// Time passed: has the client run out of any?
    pub(super) fn check(&self, now: Instant) -> Result<(), CloseReason> {
        if self.stalled_since.is_some_and(|since| now >= since + self.timeouts.write) {
            return Err(CloseReason::WriteTimeout);
        }
        if self.too_slow_at().is_some_and(|at| now >= at) {
            return Err(CloseReason::TooSlow);
        }
        match self.phase {
            Phase::AwaitingAck { until } if now >= until => Err(CloseReason::AckTimeout),
            Phase::Following { last_pong } if now >= last_pong + self.timeouts.pong => Err(CloseReason::PongTimeout),
            _ => Ok(()),
        }
    }

    /// When to look again: the next ping, or the first time-out that can strike.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        let phase = match self.phase {
            Phase::AwaitingAck { until } => Some(until),
            Phase::Sending => None,
            Phase::Following { last_pong } => Some(last_pong + self.timeouts.pong),
        };
        let write = self.stalled_since.map(|since| since + self.timeouts.write);
        // A ping that is due waits for room in the output, which is not a matter of time.
        let ping = self.next_ping.filter(|&due| due > now);
        let fallback = now + self.timeouts.ping_interval;
        [phase, write, self.too_slow_at(), ping].into_iter().flatten().min().unwrap_or(fallback).min(fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    const TIMEOUTS: Timeouts = Timeouts { ping_interval: secs(10), pong: secs(60), write: secs(120) };

    /// What happens, at which second, and what a check says then.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Ack,
        SnapshotSent,
        Pong,
        Pending,
        Progress {
            all: bool,
        },
        Bulk,
        /// This number of KiB was taken, and there are more.
        Took(u64),
        Pinged,
    }

    fn apply(liveness: &mut Liveness, event: Event, now: Instant) -> Result<(), CloseReason> {
        match event {
            Event::Ack => assert!(liveness.on_ack(now)),
            Event::SnapshotSent => liveness.on_snapshot_sent(now),
            Event::Pong => return liveness.on_pong(now).map(|_| ()),
            Event::Pending => liveness.on_pending(now),
            Event::Progress { all } => liveness.on_progress(1, all, now),
            Event::Bulk => {
                liveness.note_bulk(true);
                liveness.on_pending(now);
            }
            Event::Took(kib) => liveness.on_progress(kib << 10, false, now),
            Event::Pinged => liveness.on_pinged(now),
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn every_clock_strikes_when_it_should_and_not_before() {
        use Event::*;
        // Events with their second; then the second before which all is well, and what strikes then.
        type Case<'a> = (bool, &'a [(u64, Event)], u64, CloseReason);
        let cases: &[Case<'_>] = &[
            (true, &[], 60, CloseReason::AckTimeout),
            (true, &[(59, Ack), (59, SnapshotSent)], 119, CloseReason::PongTimeout),
            (false, &[(0, SnapshotSent)], 60, CloseReason::PongTimeout),
            (false, &[(0, SnapshotSent), (50, Pong)], 110, CloseReason::PongTimeout),
            (false, &[(500, SnapshotSent)], 560, CloseReason::PongTimeout),
            (false, &[(0, Pending)], 120, CloseReason::WriteTimeout),
            (false, &[(0, Pending), (100, Progress { all: false })], 220, CloseReason::WriteTimeout),
            (false, &[(0, Pending), (5, Pending)], 120, CloseReason::WriteTimeout),
            (false, &[(0, Pending), (5, Progress { all: true }), (900, SnapshotSent)], 960, CloseReason::PongTimeout),
            (false, &[(0, SnapshotSent), (30, Pending), (55, Pong), (110, Pong)], 150, CloseReason::WriteTimeout),
            // A snapshot that is taken at a drip, with a pause that is allowed, and fast enough with a drip at its end.
            (false, &[(0, Bulk), (100, Took(1)), (200, Took(1))], 240, CloseReason::TooSlow),
            (false, &[(0, Bulk), (119, Took(600)), (238, Took(600)), (290, Took(1))], 300, CloseReason::TooSlow),
            (
                false,
                &[(0, Bulk), (10, Took(1600)), (100, Took(1)), (200, Took(1)), (300, Took(1))],
                400,
                CloseReason::TooSlow,
            ),
            // We kept the client waiting.
            (
                false,
                &[(0, Bulk), (10, Progress { all: true }), (500, Pending), (600, Took(1)), (700, Took(1))],
                730,
                CloseReason::TooSlow,
            ),
        ];
        for (needs_ack, events, strikes, reason) in cases {
            let start = Instant::now();
            let mut liveness = Liveness::new(TIMEOUTS, *needs_ack, 1, start);
            for &(at, event) in *events {
                let now = start + secs(at);
                assert_eq!(liveness.check(now), Ok(()), "{events:?} at {at}");
                apply(&mut liveness, event, now).expect("allowed");
            }
            let last = events.last().map_or(0, |(at, _)| *at);
            for at in last..*strikes {
                assert_eq!(liveness.check(start + secs(at)), Ok(()), "{events:?} at {at}");
            }
            let before = start + secs(strikes - 1);
            assert!(liveness.deadline(before) <= start + secs(*strikes), "{events:?}: looked at too late");
            assert_eq!(liveness.check(start + secs(*strikes)), Err(reason.clone()), "{events:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pings_begin_with_the_stream_and_their_answers_are_timed() {
        let start = Instant::now();
        let mut liveness = Liveness::new(TIMEOUTS, true, 1, start);
        assert!(!liveness.ping_due(start + secs(30)), "not before the acknowledgement");
        assert!(liveness.on_pong(start).is_err(), "a pong is no acknowledgement");
        assert!(liveness.on_ack(start + secs(30)));
        assert!(!liveness.on_ack(start + secs(30)), "only one is awaited");
        assert!(!liveness.ping_due(start + secs(39)));
        assert!(liveness.ping_due(start + secs(41)), "also while the snapshot is on its way");
        apply(&mut liveness, Event::Pinged, start + secs(41)).expect("allowed");
        assert!(!liveness.ping_due(start + secs(50)));
        assert_eq!(liveness.on_pong(start + secs(44)), Ok(Some(secs(3))));
        assert_eq!(liveness.on_pong(start + secs(45)), Ok(None), "nothing had been asked");
    }
}
