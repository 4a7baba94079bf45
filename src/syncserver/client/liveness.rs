//! The clocks of one connection after its hello: acknowledgement, pings, pongs, write progress. No I/O; the time is passed in.
//!
//! The client's [phase](super::phase) decides which of them run.

use std::time::Duration;

use tokio::time::Instant;

use super::super::jitter::Jitter;
use super::super::reason::CloseReason;
use super::average::Average;
use super::phase::{Answer, Obligations};

/// The time-outs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) ping_interval: Duration,
    pub(crate) pong: Duration,
    pub(crate) write: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Liveness {
    timeouts: Timeouts,
    jitter: Jitter,
    obligations: Obligations,
    /// When the client last gave the answer that it owes, or began to owe it.
    answered_at: Instant,
    /// `None` until the client has acknowledged the decoder restart.
    next_ping: Option<Instant>,
    /// When the oldest ping without an answer was sent.
    pinged_at: Option<Instant>,
    /// When the client stopped taking bytes although there are some for it. `None`: there are none.
    stalled_since: Option<Instant>,
    /// The speed at which the client takes a snapshot or a catch-up, while one is on its way.
    bulk: Option<Box<Average>>,
}

impl Liveness {
    /// The hello has been answered; the client has these obligations first.
    pub(crate) fn new(timeouts: Timeouts, obligations: Obligations, seed: u64, now: Instant) -> Self {
        let mut liveness = Self {
            timeouts,
            jitter: Jitter::new(seed),
            obligations,
            answered_at: now,
            next_ping: None,
            pinged_at: None,
            stalled_since: None,
            bulk: None,
        };
        liveness.oblige(obligations, now);
        liveness
    }

    /// The client has these obligations from now on.
    pub(crate) fn oblige(&mut self, obligations: Obligations, now: Instant) {
        if self.obligations.answer != obligations.answer {
            self.answered_at = now;
        }
        if self.next_ping.is_none() && obligations.answer != Some(Answer::Ack) {
            self.schedule_ping(now);
        }
        if !obligations.lowest_rate {
            self.bulk = None;
        } else if self.bulk.is_none() {
            self.bulk = Some(Box::default());
        }
        self.obligations = obligations;
    }

    fn schedule_ping(&mut self, now: Instant) {
        self.next_ping = Some(now + self.jitter.stretch(self.timeouts.ping_interval, self.timeouts.ping_interval));
    }

    /// A pong came. Returns its latency, unless no ping was open.
    pub(crate) fn on_pong(&mut self, now: Instant) -> Result<Option<Duration>, CloseReason> {
        match self.obligations.answer {
            Some(Answer::Ack) => {
                return Err(CloseReason::UnexpectedMessage("MsgPong where MsgACK was awaited".to_owned()));
            }
            Some(Answer::Pong) => self.answered_at = now,
            None => {}
        }
        Ok(self.pinged_at.take().map(|sent| now.saturating_duration_since(sent)))
    }

    /// There is something to write now, where there was nothing before.
    pub(crate) fn on_pending(&mut self, now: Instant) {
        self.stalled_since.get_or_insert(now);
        if let Some(bulk) = &mut self.bulk {
            bulk.on_pending(now);
        }
    }

    /// The client took bytes; `all` says whether nothing is left to write.
    pub(crate) fn on_progress(&mut self, bytes: u64, all: bool, now: Instant) {
        self.stalled_since = if all { None } else { Some(now) };
        if let Some(bulk) = &mut self.bulk {
            bulk.on_taken(bytes, all, now);
        }
    }

    /// The moment from which the client is too slow for the bytes on their way, unless it takes some before.
    fn too_slow_at(&self) -> Option<Instant> {
        self.bulk.as_ref().and_then(|bulk| bulk.too_slow_at(self.timeouts.write))
    }

    /// Whether a ping is due. The caller sends it as soon as it can, and then calls [`Self::on_pinged`].
    pub(crate) fn ping_due(&self, now: Instant) -> bool {
        self.next_ping.is_some_and(|due| due <= now)
    }

    /// A ping is on its way.
    pub(crate) fn on_pinged(&mut self, now: Instant) {
        self.pinged_at.get_or_insert(now);
        self.schedule_ping(now);
    }

    /// Checks whether the client has exceeded any time-out.
    pub(crate) fn check(&self, now: Instant) -> Result<(), CloseReason> {
        if self.stalled_since.is_some_and(|since| now >= since + self.timeouts.write) {
            return Err(CloseReason::WriteTimeout);
        }
        if self.too_slow_at().is_some_and(|at| now >= at) {
            return Err(CloseReason::TooSlow);
        }
        match self.obligations.answer {
            Some(Answer::Ack) if now >= self.answer_due() => Err(CloseReason::AckTimeout),
            Some(Answer::Pong) if now >= self.answer_due() => Err(CloseReason::PongTimeout),
            _ => Ok(()),
        }
    }

    fn answer_due(&self) -> Instant {
        self.answered_at + self.timeouts.pong
    }

    /// When to check again: at the next ping, or the first possible time-out.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let answer = self.obligations.answer.map(|_| self.answer_due());
        let write = self.stalled_since.map(|since| since + self.timeouts.write);
        // A ping that is due waits for room in the output, not for time.
        let ping = self.next_ping.filter(|&due| due > now);
        let fallback = now + self.timeouts.ping_interval;
        [answer, write, self.too_slow_at(), ping].into_iter().flatten().min().unwrap_or(fallback).min(fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    const TIMEOUTS: Timeouts = Timeouts { ping_interval: secs(10), pong: secs(60), write: secs(120) };

    const ACK: Obligations = Obligations { answer: Some(Answer::Ack), lowest_rate: false };
    const NONE: Obligations = Obligations { answer: None, lowest_rate: false };
    const PONGS: Obligations = Obligations { answer: Some(Answer::Pong), lowest_rate: false };
    const RATE: Obligations = Obligations { answer: None, lowest_rate: true };

    /// An event that concerns a clock.
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
            Event::Ack => liveness.oblige(NONE, now),
            Event::SnapshotSent => liveness.oblige(PONGS, now),
            Event::Pong => return liveness.on_pong(now).map(|_| ()),
            Event::Pending => liveness.on_pending(now),
            Event::Progress { all } => liveness.on_progress(1, all, now),
            Event::Bulk => {
                liveness.oblige(RATE, now);
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
        // Events with their second; then the second at which a time-out strikes (and not before), and its reason.
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
            // A snapshot that is taken at a drip; one with an allowed pause; one taken fast enough, with a drip at its
            // end.
            (false, &[(0, Bulk), (100, Took(1)), (200, Took(1))], 240, CloseReason::TooSlow),
            (false, &[(0, Bulk), (119, Took(600)), (238, Took(600)), (290, Took(1))], 300, CloseReason::TooSlow),
            (
                false,
                &[(0, Bulk), (10, Took(1600)), (100, Took(1)), (200, Took(1)), (300, Took(1))],
                400,
                CloseReason::TooSlow,
            ),
            // The server kept the client waiting.
            (
                false,
                &[(0, Bulk), (10, Progress { all: true }), (500, Pending), (600, Took(1)), (700, Took(1))],
                730,
                CloseReason::TooSlow,
            ),
        ];
        for (needs_ack, events, strikes, reason) in cases {
            let start = Instant::now();
            let mut liveness = Liveness::new(TIMEOUTS, if *needs_ack { ACK } else { NONE }, 1, start);
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
        let mut liveness = Liveness::new(TIMEOUTS, ACK, 1, start);
        assert!(!liveness.ping_due(start + secs(30)), "not before the acknowledgement");
        assert!(liveness.on_pong(start).is_err(), "a pong is no acknowledgement");
        liveness.oblige(NONE, start + secs(30));
        assert!(!liveness.ping_due(start + secs(39)));
        assert!(liveness.ping_due(start + secs(41)), "also while the snapshot is on its way");
        apply(&mut liveness, Event::Pinged, start + secs(41)).expect("allowed");
        assert!(!liveness.ping_due(start + secs(50)));
        assert_eq!(liveness.on_pong(start + secs(44)), Ok(Some(secs(3))));
        assert_eq!(liveness.on_pong(start + secs(45)), Ok(None), "nothing had been asked");
    }
}
