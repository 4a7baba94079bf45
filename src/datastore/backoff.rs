//! How long to wait before trying again: exponential, with jitter, bounded, reproducible.
//!
//! Used by all that retry (kind watches, datastores, clients); decides only how long they sleep. No clock and no global
//! randomness: the same seed gives the same delays.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Growing pauses between attempts.
///
/// The n-th pause lies between half of and the whole of `first * 2^n`, and never exceeds `longest`. The jitter keeps many
/// watches that lost the same datastore from coming back in the same instant.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    attempt: u32,
    rng: SmallRng,
}

impl Backoff {
    /// Pauses from `first` up to `longest`; `seed` decides the jitter.
    #[must_use]
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first: first.min(longest), longest, attempt: 0, rng: SmallRng::seed_from_u64(seed) }
    }

    /// The pause before the next attempt; every call makes the following one longer, up to the bound.
    #[must_use]
    pub fn next_delay(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.attempt);
        let whole = self.first.saturating_mul(factor).min(self.longest);
        if whole < self.longest {
            self.attempt += 1;
        }
        self.rng.random_range(whole / 2..=whole)
    }

    /// An attempt went well: the next pause is short again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), 7);
        for whole in [100, 200, 400, 800, 1000, 1000, 1000] {
            let pause = backoff.next_delay().as_millis();
            assert!((whole / 2..=whole).contains(&pause), "{pause} ms where at most {whole} ms is due");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(100));
    }

    proptest! {
        #[test]
        fn never_exceeds_the_bound_and_replays(first in 0_u64..100_000, longest in 0_u64..1_000_000, seed: u64) {
            let new = || Backoff::new(Duration::from_millis(first), Duration::from_millis(longest), seed);
            let (mut one, mut other) = (new(), new());
            for _ in 0..80 {
                let pause = one.next_delay();
                prop_assert!(pause <= Duration::from_millis(longest));
                prop_assert_eq!(pause, other.next_delay());
            }
        }
    }
}
