//! The limit of requests: a token bucket, as Kubernetes' own clients have it. Starting a watch is one request;
//! what it delivers costs nothing.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Requests per second on average, and how many may come at once.
#[derive(Debug)]
pub(super) struct RateLimit {
    interval: Duration,
    burst: u32,
    /// The moment from which on the bucket fills; `burst` intervals later it is full.
    empty_since: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// A full bucket. A rate that is not positive means no limit.
    pub(super) fn new(per_second: f32, burst: u32) -> Self {
        let interval = if per_second > 0.0 {
            Duration::try_from_secs_f32(1.0 / per_second).unwrap_or(Duration::MAX)
        } else {
            Duration::ZERO
        };
        Self { interval, burst: burst.max(1), empty_since: Mutex::new(None) }
    }

    /// Waits for its turn.
    pub(super) async fn turn(&self) {
        let at = self.reserve(Instant::now());
        sleep_until(at).await;
    }

    /// A request that had its turn never reached the server: another one may go in its place.
    pub(super) fn give_back(&self) {
        let mut empty_since = self.empty_since.lock().unwrap_or_else(PoisonError::into_inner);
        *empty_since = empty_since.and_then(|since| since.checked_sub(self.interval));
    }

    /// When the next request may be sent; takes that place.
    fn reserve(&self, now: Instant) -> Instant {
        let full = self.interval.saturating_mul(self.burst);
        let mut empty_since = self.empty_since.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = now.checked_sub(full).unwrap_or(now);
        let start = empty_since.map_or(oldest, |since| since.max(oldest));
        let taken = start + self.interval;
        *empty_since = Some(taken);
        taken.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let limit = RateLimit::new(5.0, 3);
        let now = Instant::now();
        let waits: Vec<u128> = (0..5).map(|_| (limit.reserve(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400]);
        let later = now + Duration::from_secs(60);
        let waits: Vec<u128> = (0..4).map(|_| (limit.reserve(later) - later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200], "it fills up to the burst and no further");
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_reached_the_server_costs_nothing() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let limit = RateLimit::new(5.0, 3);
        let now = Instant::now();
        for _ in 0..100 {
            assert_eq!(limit.reserve(now), now);
            limit.give_back();
        }
        let waits: Vec<u128> = (0..4).map(|_| (limit.reserve(now) - now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let limit = RateLimit::new(0.0, 1);
        let now = Instant::now();
        assert!((0..100).all(|_| limit.reserve(now) == now));
    }
}
