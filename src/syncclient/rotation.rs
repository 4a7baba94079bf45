//! Which address to try next, and when. No I/O, no clock; random numbers come from a seed.
//!
//! Addresses are tried in turn. A pass over all of them without success doubles the pause, up to a limit; every pause is drawn
//! at random, so that thousands of clients of a server that went away do not come back at once. A connection that held for a
//! while counts as success. Alternatives that a server named when it said goodbye are tried first, once.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Pause between tries of the first pass, and what later pauses are multiples of.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between tries. An agent without a server is blind; ten seconds of that are noticed, a flood of tries by a
/// large cluster is what this prevents.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Pause after the loss of a connection that held: spreads the clients of a server that restarts.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// A connection that held this long was a success; one that is closed at once is as bad as none.
const STABLE: Duration = Duration::from_secs(10);

/// Most addresses of a goodbye that are tried.
const MAX_ALTERNATIVES: usize = 16;

/// A try: where, and after which pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// `host:port`.
    pub address: String,
    /// How long to wait before it.
    pub pause: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Rotation {
    addresses: Vec<String>,
    next: usize,
    alternatives: VecDeque<String>,
    /// Tries since the last success.
    failures: u32,
    rng: SmallRng,
}

impl Rotation {
    /// A rotation over `addresses`, which must not be empty, starting with the first.
    #[must_use]
    pub fn new(addresses: Vec<String>, seed: u64) -> Self {
        debug_assert!(!addresses.is_empty(), "the builder refuses an empty list");
        Self { addresses, next: 0, alternatives: VecDeque::new(), failures: 0, rng: SmallRng::seed_from_u64(seed) }
    }

    /// The first try: at once.
    pub fn on_start(&mut self) -> Attempt {
        Attempt { address: self.pick(), pause: Duration::ZERO }
    }

    /// A try failed.
    pub fn on_failed(&mut self) -> Attempt {
        self.failures = self.failures.saturating_add(1);
        let passes = self.failures.saturating_sub(1) / u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
        let longest = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(passes.min(16)).unwrap_or(u32::MAX)).min(MAX_PAUSE);
        // At least half of it, so that the pace is bounded; the rest at random.
        let pause = longest / 2 + self.random(longest / 2);
        Attempt { address: self.pick(), pause }
    }

    /// A connection that held for `held` is lost. `alternatives` are where its server said to go.
    pub fn on_lost(&mut self, held: Duration, alternatives: Vec<String>) -> Attempt {
        self.alternatives = alternatives.into_iter().take(MAX_ALTERNATIVES).collect();
        if held < STABLE {
            return self.on_failed();
        }
        self.failures = 0;
        let pause = self.random(MAX_SPREAD);
        Attempt { address: self.pick(), pause }
    }

    /// Tries since the last connection that held.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    fn pick(&mut self) -> String {
        if let Some(alternative) = self.alternatives.pop_front() {
            return alternative;
        }
        let address = self.addresses[self.next].clone();
        self.next = (self.next + 1) % self.addresses.len();
        address
    }

    fn random(&mut self, upto: Duration) -> Duration {
        upto.mul_f64(self.rng.random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(addresses: &[&str]) -> Rotation {
        Rotation::new(addresses.iter().map(|&address| address.to_owned()).collect(), 7)
    }

    #[test]
    fn addresses_are_tried_in_turn() {
        let mut rotation = rotation(&["a", "b", "c"]);
        assert_eq!(rotation.on_start(), Attempt { address: "a".to_owned(), pause: Duration::ZERO });
        let tried: Vec<String> = (0..5).map(|_| rotation.on_failed().address).collect();
        assert_eq!(tried, ["b", "c", "a", "b", "c"]);
        assert_eq!(rotation.on_lost(STABLE, Vec::new()).address, "a");
    }

    #[test]
    fn pauses_grow_by_pass_and_are_bounded() {
        let mut rotation = rotation(&["a", "b"]);
        rotation.on_start();
        for attempt in 0..40_u32 {
            let pause = rotation.on_failed().pause;
            let longest = FIRST_PAUSE.saturating_mul(1 << (attempt / 2).min(16)).min(MAX_PAUSE);
            assert!(pause >= longest / 2 && pause <= longest, "attempt {attempt}: {pause:?}, longest {longest:?}");
        }
        assert_eq!(rotation.failures(), 40);
    }

    #[test]
    fn a_connection_that_held_resets_the_pauses() {
        let mut rotation = rotation(&["a"]);
        rotation.on_start();
        for _ in 0..10 {
            rotation.on_failed();
        }
        assert!(rotation.on_lost(STABLE / 2, Vec::new()).pause >= MAX_PAUSE / 2, "closed at once is no success");
        assert!(rotation.on_lost(STABLE, Vec::new()).pause <= MAX_SPREAD);
        assert_eq!(rotation.failures(), 0);
        assert!(rotation.on_failed().pause <= FIRST_PAUSE);
    }

    #[test]
    fn alternatives_come_first_and_once() {
        let mut rotation = rotation(&["a", "b"]);
        rotation.on_start();
        let alternatives = vec!["x".to_owned(), "y".to_owned()];
        assert_eq!(rotation.on_lost(STABLE, alternatives).address, "x");
        let tried: Vec<String> = (0..3).map(|_| rotation.on_failed().address).collect();
        assert_eq!(tried, ["y", "b", "a"]);
        let many = (0..100).map(|n| n.to_string()).collect();
        rotation.on_lost(STABLE, many);
        assert_eq!(rotation.alternatives.len(), MAX_ALTERNATIVES - 1);
    }

    #[test]
    fn the_seed_decides() {
        let pauses = |seed| {
            let mut rotation = Rotation::new(vec!["a".to_owned()], seed);
            (0..5).map(|_| rotation.on_failed().pause).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }
}
