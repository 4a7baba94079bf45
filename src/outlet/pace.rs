//! How often a feed publishes. No clock inside: the feed passes the time in, and asks when its next round may start.
//!
//! ```text
//!  quiet ──change: at once──► round ──interval(clients, cost)──► round … ──no change for an interval──► quiet
//! ```
//!
//! Every round costs a system call for every client of a feed, even with a single change. So the number of rounds
//! decides the cost, and with more clients rounds have to be further apart. The clients of all feeds of a syncer count:
//! each change makes a round of every one of them, so agents of two releases, or with two compressions, cost no more
//! than the same number of equal ones. A single change goes out at once; under load rounds get larger, not more
//! frequent.
//!
//! Invariants:
//! - a change that comes when the last round is an interval or more ago is not put off at all;
//! - an interval depends on the clients, on the cost of serving them, and a little on the number of updates in a round;
//! - two rounds are never further apart than the limit because of the pace;
//! - a round that took long to be served (the machine was busy elsewhere) moves the interval by at most an eighth of
//!   that.

use std::time::Duration;

use tokio::time::Instant;

/// Clients up to which each one adds its full share to the interval.
const FEW: u32 = 500;

/// Interval that each client beyond [`FEW`] adds. Less, as latency counts more there: 2,000 clients are at 34 ms,
/// 10,000 at 130 ms.
const FAR: Duration = Duration::from_micros(12);

/// Rounds are at least this many times as far apart as it takes to serve one: where clients cost more than the constants
/// above assume (TLS, a slow processor), half of the time stays free for the pipelines and for the agents.
const SHARE: u32 = 2;

/// Weight of the newest round in the averages: one part in this number.
const SMOOTHING: u32 = 8;

/// Updates in a round beyond which the interval is stretched: where changes come so fast that each round takes many,
/// they lose little by waiting for some more, and every client is written to less often.
const MANY: u32 = 8;

/// The interval grows by one part in this number for each update beyond [`MANY`] …
const STRETCH: u32 = 16;

/// … and by at most half of itself.
const MOST_STRETCHED: u32 = STRETCH / 2;

/// Decides when the next round may start.
#[derive(Debug)]
pub(crate) struct Pace {
    max: Duration,
    /// Interval that each of the first [`FEW`] clients adds.
    per_client: Duration,
    /// Average time from a round's start to the end of the pass that took it to the clients.
    cost: Duration,
    /// Average updates of a round, times [`SMOOTHING`].
    updates: u32,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    started: Instant,
    served: Instant,
}

impl Pace {
    /// No round is put off by more than `max`; each of the first [`FEW`] clients adds `per_client` to the interval.
    pub(crate) fn new(max: Duration, per_client: Duration) -> Self {
        Self { max, per_client, cost: Duration::ZERO, updates: 0, round: None }
    }

    /// A round's bytes are published.
    pub(crate) fn on_published(&mut self, now: Instant) {
        if let Some(last) = self.round.replace(Round { started: now, served: now }) {
            let took = last.served.saturating_duration_since(last.started).min(self.max);
            self.cost = self.cost * (SMOOTHING - 1) / SMOOTHING + took / SMOOTHING;
        }
    }

    /// A round is complete; it had this number of updates.
    pub(crate) fn on_round(&mut self, updates: usize) {
        let updates = u32::try_from(updates).unwrap_or(u32::MAX).min(MANY + MOST_STRETCHED);
        self.updates = self.updates - self.updates / SMOOTHING + updates;
    }

    /// A pump has taken the round to its clients.
    pub(crate) fn on_served(&mut self, now: Instant) {
        if let Some(round) = &mut self.round {
            round.served = round.served.max(now);
        }
    }

    /// When the next round may start, with this number of clients of the syncer. In the past after silence.
    pub(crate) fn next_round(&self, now: Instant, clients: usize) -> Instant {
        self.round.map_or(now, |round| round.started + self.interval(clients))
    }

    fn interval(&self, clients: usize) -> Duration {
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        let near = self.per_client.saturating_mul(clients.min(FEW));
        let far = FAR.saturating_mul(clients.saturating_sub(FEW));
        let stretch = (self.updates / SMOOTHING).saturating_sub(MANY).min(MOST_STRETCHED);
        let interval = near.saturating_add(far);
        (interval + interval / STRETCH * stretch).max(self.cost * SHARE).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE_PER_CLIENT: Duration = Duration::from_micros(32);

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const MAX: Duration = ms(250);

    #[tokio::test(start_paused = true)]
    async fn rounds_are_further_apart_with_more_clients_up_to_the_limit() {
        let start = Instant::now();
        let mut pace = Pace::new(MAX, PACE_PER_CLIENT);
        assert_eq!(pace.next_round(start, 10_000), start, "the first change goes at once");
        pace.on_published(start);
        for (clients, interval) in [
            (0, us(0)),
            (1, us(32)),
            (22, us(704)),
            (500, us(16_000)),
            (502, us(16_024)),
            (2_000, us(34_000)),
            (10_000, us(130_000)),
            (18_000, us(226_000)),
            (30_000, MAX),
            (usize::MAX, MAX),
        ] {
            assert_eq!(pace.next_round(start, clients) - start, interval, "{clients} clients");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_with_many_updates_are_stretched_by_half_at_most() {
        let start = Instant::now();
        for (updates, interval) in
            [(0, us(16_000)), (8, us(16_000)), (10, us(18_000)), (16, us(24_000)), (100_000, us(24_000))]
        {
            let mut pace = Pace::new(MAX, PACE_PER_CLIENT);
            pace.on_published(start);
            for _ in 0..100 {
                pace.on_round(updates);
            }
            assert_eq!(pace.next_round(start, 500) - start, interval, "{updates} updates");
        }
        let mut pace = Pace::new(MAX, PACE_PER_CLIENT);
        pace.on_published(start);
        pace.on_round(100_000);
        assert_eq!(pace.next_round(start, 500) - start, us(16_000), "one large round changes nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_after_silence_goes_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(MAX, PACE_PER_CLIENT);
        pace.on_published(start);
        let later = start + us(16_000);
        assert!(pace.next_round(later, 500) <= later);
        assert!(pace.next_round(later - us(1), 500) > later - us(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_zero_means_no_pace() {
        let start = Instant::now();
        let mut pace = Pace::new(Duration::ZERO, PACE_PER_CLIENT);
        pace.on_published(start);
        pace.on_served(start + ms(5));
        pace.on_published(start + ms(5));
        assert_eq!(pace.next_round(start + ms(5), 10_000), start + ms(5));
    }

    /// Publishes rounds, each served in the given time, and returns the interval after them for two clients.
    fn interval_after(served: &[Duration]) -> Duration {
        let mut pace = Pace::new(MAX, PACE_PER_CLIENT);
        let mut now = Instant::now();
        for took in served {
            pace.on_published(now);
            pace.on_served(now + *took / 2);
            pace.on_served(now + *took);
            pace.on_served(now + *took / 3);
            now += ms(1000);
        }
        pace.on_published(now);
        pace.next_round(now, 2) - now
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_time_stays_free_where_clients_cost_more_than_assumed() {
        let interval = interval_after(&[ms(20); 60]);
        assert!(interval > ms(39) && interval <= ms(40), "{interval:?}");
        assert_eq!(interval_after(&[us(10); 60]), us(64), "cheap rounds leave it to the number of clients");
        assert!(interval_after(&[ms(400); 60]) <= MAX, "never beyond the limit");
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_round_moves_little() {
        let usual = interval_after(&[us(1000); 60]);
        let disturbed = interval_after(&[[us(1000); 60].as_slice(), &[ms(17)]].concat());
        assert_eq!(disturbed.saturating_sub(usual).as_millis(), 4, "an eighth of 16 ms, twice");
        let recovered = interval_after(&[[us(1000); 60].as_slice(), &[ms(17)], &[us(1000); 30]].concat());
        assert!(recovered < usual + us(100), "{recovered:?}");
    }
}
