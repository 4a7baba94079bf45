//! How often a feed publishes. No clock inside.
//!
//! Every round wakes every client of a feed, so with thousands of clients the number of rounds is what costs. A lone change
//! goes out at once. Under load the next round starts when the last one has been served and [`SHARE`] times as long has
//! passed again: fan-out then takes at most a fixed share of the time, rounds grow with the load, and nobody waits longer
//! than the limit.

use std::time::Duration;

use tokio::time::Instant;

/// From one round's start to the next one's passes at least this many times what serving the clients took: the rest of the
/// machine is left to the pipelines, the kernel's side of the sockets, and the agents' own clean-up.
///
/// One run each with 502 agents and 200 changes a second (docs/performance.md): with 3 nearly every change was a message of its
/// own; with 6 the CPU time was 57 % of that, and the 99th percentile twice as long. 4 keeps both in bounds.
const SHARE: u32 = 4;

/// Decides when the next round may start.
#[derive(Debug)]
pub(super) struct Pace {
    max: Duration,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    started: Instant,
    served: Instant,
}

impl Pace {
    /// No round is put off by more than `max`.
    pub(super) fn new(max: Duration) -> Self {
        Self { max, round: None }
    }

    /// A round's bytes are there to be taken.
    pub(super) fn on_published(&mut self, now: Instant) {
        self.round = Some(Round { started: now, served: now });
    }

    /// A client that had been waiting for the round has taken its bytes.
    pub(super) fn on_served(&mut self, now: Instant) {
        if let Some(round) = &mut self.round {
            round.served = round.served.max(now);
        }
    }

    /// When the next round may start. In the past after silence.
    pub(super) fn next_round(&self, now: Instant) -> Instant {
        self.round.map_or(now, |round| {
            let took = round.served.saturating_duration_since(round.started);
            round.started + took.saturating_mul(SHARE).min(self.max)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_round_waits_for_a_multiple_of_what_the_last_took() {
        let start = Instant::now();
        let mut pace = Pace::new(ms(30));
        assert_eq!(pace.next_round(start), start, "the first change goes at once");
        pace.on_published(start);
        assert_eq!(pace.next_round(start), start, "nobody to serve, nothing to wait for");
        pace.on_served(start + ms(2));
        assert_eq!(pace.next_round(start + ms(2)), start + ms(8));
        pace.on_served(start + ms(1));
        assert_eq!(pace.next_round(start + ms(2)), start + ms(8), "the last one served counts");
        pace.on_served(start + ms(500));
        assert_eq!(pace.next_round(start + ms(500)), start + ms(30), "never put off by more than the limit");
        pace.on_published(start + ms(600));
        assert_eq!(pace.next_round(start + ms(600)), start + ms(600), "each round is measured afresh");
    }
}
