//! The address of the next try, and the pause before it. No I/O, no clock; random numbers come from a seed.
//!
//! Addresses are tried in turn. A pass over all of them without success doubles the pause, up to a limit; every pause is drawn
//! at random, so that thousands of clients of a server that went away do not come back at once. A connection that held for a
//! while counts as success. Alternatives that a server named when it said goodbye are tried first, each once, without the
//! growing pauses; after a few goodbyes in a row the usual pauses come back, so that servers that send a client to each other
//! do not make it run in circles.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Pause between tries of the first pass. Later pauses are multiples of it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between tries. An agent without a server is blind, and people notice ten seconds of that; shorter pauses would
/// let a large cluster flood a server with tries.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Pause after the loss of a connection that held: spreads the clients of a server that restarts.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// A connection that held this long was a success; one that is closed at once is as bad as none.
const STABLE: Duration = Duration::from_secs(10);

/// Most addresses of a goodbye that are tried.
const MAX_ALTERNATIVES: usize = 16;

/// Number of goodbyes in a row that are followed without the usual pause. A rollout that catches a client twice is ordinary; more
/// often, servers disagree on where the client belongs.
const MAX_HOPS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub struct Rotation {
    addresses: Vec<String>,
    next: usize,
    alternatives: VecDeque<String>,
    /// Tries since the last success.
    failures: u32,
    /// Those of them that make the pauses grow: all but tries at an alternative.
    setbacks: u32,
    /// Goodbyes followed since the last connection that held.
    hops: u32,
    /// Whether the address given out last is an alternative.
    at_alternative: bool,
    rng: SmallRng,
}

impl Rotation {
    /// A rotation over `addresses`, starting with the first.
    #[must_use]
    pub fn new(addresses: Vec<String>, seed: u64) -> Self {
        Self {
            addresses,
            next: 0,
            alternatives: VecDeque::new(),
            failures: 0,
            setbacks: 0,
            hops: 0,
            at_alternative: false,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Replaces the addresses: others are known now. The next pass begins with the first of them.
    pub fn set_addresses(&mut self, addresses: Vec<String>) {
        if addresses != self.addresses {
            self.addresses = addresses;
            self.next = 0;
        }
    }

    /// The address to try now. `None`: there is none.
    pub fn pick(&mut self) -> Option<String> {
        let alternative = self.alternatives.pop_front();
        self.at_alternative = alternative.is_some();
        alternative.or_else(|| {
            let address = self.addresses.get(self.next)?.clone();
            self.next = (self.next + 1) % self.addresses.len();
            Some(address)
        })
    }

    /// A try failed. Returns the pause before the next.
    pub fn on_failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if !self.at_alternative {
            self.setbacks = self.setbacks.saturating_add(1);
        }
        if !self.alternatives.is_empty() && self.hops <= MAX_HOPS { self.spread(FIRST_PAUSE) } else { self.growing() }
    }

    /// A connection that held for `held` is lost. `alternatives` are the servers that its goodbye named. Returns the pause
    /// before the next try.
    pub fn on_lost(&mut self, held: Duration, alternatives: Vec<String>) -> Duration {
        self.alternatives = alternatives.into_iter().take(MAX_ALTERNATIVES).collect();
        let stable = held >= STABLE;
        if stable {
            (self.failures, self.setbacks, self.hops) = (0, 0, 0);
        } else {
            self.failures = self.failures.saturating_add(1);
        }
        if !self.alternatives.is_empty() {
            self.hops = self.hops.saturating_add(1);
            if self.hops <= MAX_HOPS {
                return self.spread(FIRST_PAUSE);
            }
        }
        if stable {
            return self.spread(MAX_SPREAD);
        }
        self.setbacks = self.setbacks.saturating_add(1);
        self.growing()
    }

    /// Tries since the last connection that held.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The pause that doubles with each pass.
    fn growing(&mut self) -> Duration {
        let in_a_pass = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX).max(1);
        let passes = self.setbacks.saturating_sub(1) / in_a_pass;
        let longest = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(passes.min(16)).unwrap_or(u32::MAX)).min(MAX_PAUSE);
        // At least half of it, so that the pace is bounded; the rest at random.
        longest / 2 + self.spread(longest / 2)
    }

    fn spread(&mut self, upto: Duration) -> Duration {
        upto.mul_f64(self.rng.random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(addresses: &[&str]) -> Rotation {
        Rotation::new(strings(addresses), 7)
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// Fails `times` times, and returns the addresses that were tried.
    fn fail(rotation: &mut Rotation, times: usize) -> Vec<String> {
        let next = |_| {
            let address = rotation.pick().expect("there are addresses");
            rotation.on_failed();
            address
        };
        (0..times).map(next).collect()
    }

    #[test]
    fn addresses_are_tried_in_turn() {
        let mut rotation = rotation(&["a", "b", "c"]);
        assert_eq!(fail(&mut rotation, 6), ["a", "b", "c", "a", "b", "c"]);
        rotation.on_lost(STABLE, Vec::new());
        assert_eq!(rotation.pick().as_deref(), Some("a"));
    }

    #[test]
    fn pauses_grow_by_pass_and_are_bounded() {
        let mut rotation = rotation(&["a", "b"]);
        for attempt in 0..40_u32 {
            rotation.pick();
            let pause = rotation.on_failed();
            let longest = FIRST_PAUSE.saturating_mul(1 << (attempt / 2).min(16)).min(MAX_PAUSE);
            assert!(pause >= longest / 2 && pause <= longest, "attempt {attempt}: {pause:?}, longest {longest:?}");
        }
        assert_eq!(rotation.failures(), 40);
    }

    #[test]
    fn a_connection_that_held_resets_the_pauses() {
        let mut rotation = rotation(&["a"]);
        fail(&mut rotation, 10);
        assert!(rotation.on_lost(STABLE / 2, Vec::new()) >= MAX_PAUSE / 2, "closed at once is no success");
        assert!(rotation.on_lost(STABLE, Vec::new()) <= MAX_SPREAD);
        assert_eq!(rotation.failures(), 0);
        assert!(rotation.on_failed() <= FIRST_PAUSE);
    }

    #[test]
    fn alternatives_come_first_and_once() {
        let mut rotation = rotation(&["a", "b"]);
        assert_eq!(rotation.pick().as_deref(), Some("a"));
        rotation.on_lost(STABLE, strings(&["x", "y"]));
        assert_eq!(fail(&mut rotation, 4), ["x", "y", "b", "a"]);
        let many = (0..100).map(|n| n.to_string()).collect();
        rotation.on_lost(STABLE, many);
        assert_eq!(rotation.alternatives.len(), MAX_ALTERNATIVES);
        rotation.on_lost(STABLE, Vec::new());
        assert_eq!(rotation.pick().as_deref(), Some("b"), "a loss without a word forgets what an earlier server said");
    }

    #[test]
    fn alternatives_cost_no_pause_and_do_not_make_later_ones_grow() {
        let mut rotation = rotation(&["a"]);
        rotation.pick();
        assert!(rotation.on_lost(STABLE, (0..10).map(|n| n.to_string()).collect()) <= FIRST_PAUSE);
        for left in (0..10).rev() {
            rotation.pick();
            let pause = rotation.on_failed();
            assert!(pause <= FIRST_PAUSE, "{left} left: {pause:?}");
        }
        assert_eq!(rotation.failures(), 10, "they count for clients that give up after some tries");
        assert_eq!(rotation.pick().as_deref(), Some("a"));
        assert!(rotation.on_failed() <= FIRST_PAUSE, "the first setback at an address of ours");
    }

    #[test]
    fn servers_that_send_a_client_to_each_other_do_not_make_it_run() {
        let mut rotation = rotation(&["a"]);
        rotation.pick();
        let pauses: Vec<Duration> = (0..20)
            .map(|_| {
                let pause = rotation.on_lost(Duration::from_millis(5), strings(&["x", "a"]));
                assert_eq!(rotation.pick().as_deref(), Some("x"), "alternatives still come first");
                pause
            })
            .collect();
        let (followed, paused) = pauses.split_at(MAX_HOPS as usize);
        assert!(followed.iter().all(|pause| *pause <= FIRST_PAUSE), "{followed:?}");
        assert!(paused.iter().all(|pause| *pause >= FIRST_PAUSE / 2), "{paused:?}");
        assert!(*pauses.last().expect("twenty") >= MAX_PAUSE / 2, "{pauses:?}");
        rotation.on_lost(STABLE, Vec::new());
        assert!(rotation.on_lost(Duration::ZERO, strings(&["x"])) <= FIRST_PAUSE, "one that held starts afresh");
    }

    #[test]
    fn new_addresses_are_taken_from_the_first_on() {
        let mut rotation = rotation(&[]);
        assert_eq!(rotation.pick(), None);
        assert!(rotation.on_failed() <= FIRST_PAUSE);
        rotation.set_addresses(strings(&["a", "b", "c"]));
        assert_eq!(fail(&mut rotation, 2), ["a", "b"]);
        rotation.set_addresses(strings(&["a", "b", "c"]));
        assert_eq!(fail(&mut rotation, 1), ["c"], "the same list changes nothing");
        rotation.set_addresses(strings(&["d", "e"]));
        assert_eq!(fail(&mut rotation, 3), ["d", "e", "d"]);
        rotation.set_addresses(Vec::new());
        assert_eq!(rotation.pick(), None);
    }

    #[test]
    fn the_seed_decides() {
        let pauses = |seed| {
            let mut rotation = Rotation::new(strings(&["a"]), seed);
            (0..5).map(|_| rotation.on_failed()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }
}
