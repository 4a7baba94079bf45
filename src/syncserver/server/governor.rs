//! When healthy connections have to go, and how fast. No I/O, no clock.
//!
//! There are two reasons: more connections than this server should have, and a drain. In both cases connections go one
//! at a time, so that clients do not all come back elsewhere at once.

use std::time::Duration;

use super::super::jitter::Jitter;

/// Share of the shutdown time in which all connections are gone; the rest is for the last ones to close.
const DRAIN_SHARE: f64 = 0.95;

/// The pace at which connections are dropped.
#[derive(Debug)]
pub(crate) struct Governor {
    drop_interval: Duration,
    jitter: Jitter,
}

impl Governor {
    pub(crate) fn new(drop_interval: Duration, seed: u64) -> Self {
        Self { drop_interval, jitter: Jitter::new(seed) }
    }

    /// The time until the next look at the number of connections.
    pub(crate) fn next_look(&mut self) -> Duration {
        self.jitter.stretch(self.drop_interval, self.drop_interval)
    }

    /// Whether one connection has to go.
    pub(crate) fn must_drop(connections: usize, max_connections: usize) -> bool {
        connections > max_connections
    }
}

/// A graceful drain of the connections that exist when it begins.
#[derive(Debug)]
pub(crate) struct Drain {
    interval: Duration,
    jitter: Jitter,
}

impl Drain {
    /// Spreads the end of `connections` over 95 % of `within`, at most `interval_max` apart. `None`: there are none.
    pub(crate) fn new(connections: usize, within: Duration, interval_max: Duration, seed: u64) -> Option<Self> {
        if connections == 0 {
            return None;
        }
        let interval = within.mul_f64(DRAIN_SHARE / connections as f64).min(interval_max);
        Some(Self { interval, jitter: Jitter::new(seed) })
    }

    /// The time until the next connection goes: the interval on average.
    pub(crate) fn next_drop(&mut self) -> Duration {
        self.jitter.stretch(self.interval.mul_f64(0.95), self.interval)
    }

    /// The index of the next of `connections` to go.
    pub(crate) fn choose(&mut self, connections: usize) -> usize {
        self.jitter.below(connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_spread_as_typha_spreads_it() {
        let interval = |n, within: f64| {
            Drain::new(n, Duration::from_secs_f64(within), Duration::from_secs(1), 1).map(|drain| drain.interval)
        };
        let about = |seconds: f64, found: Option<Duration>| {
            let found = found.expect("there are connections").as_secs_f64();
            assert!((found - seconds).abs() < 1e-6, "{found} instead of {seconds}");
        };
        assert_eq!(interval(0, 300.0), None);
        about(1.0, interval(5, 300.0));
        about(0.475, interval(5, 2.5));
        about(1.0, interval(285, 300.0));
        about(0.285, interval(1000, 300.0));
    }

    #[test]
    fn a_drain_ends_in_time() {
        let mut drain = Drain::new(1000, Duration::from_secs(300), Duration::from_secs(1), 9).expect("some");
        let total: Duration = (0..1000).map(|_| drain.next_drop()).sum();
        assert!(total > Duration::from_secs(280) && total < Duration::from_secs(290), "{total:?}");
    }

    #[test]
    fn only_the_excess_goes() {
        assert!(Governor::must_drop(61, 60));
        assert!(!Governor::must_drop(60, 60));
    }
}
