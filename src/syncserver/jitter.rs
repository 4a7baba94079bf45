//! Small random delays from a seed, so that many timers do not fire together and a run can be repeated.

use std::time::Duration;

/// A stream of numbers that look random (splitmix64). Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `least` plus up to a tenth of `span`.
    pub(crate) fn stretch(&mut self, least: Duration, span: Duration) -> Duration {
        let tenth = u64::try_from(span.as_nanos() / 10).unwrap_or(u64::MAX);
        if tenth == 0 { least } else { least + Duration::from_nanos(self.next() % tenth) }
    }

    /// A number below `bound`; 0 when there is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        if bound == 0 { 0 } else { usize::try_from(self.next() % bound).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_adds_less_than_a_tenth() {
        let mut jitter = Jitter::new(7);
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            let stretched = jitter.stretch(second, second);
            assert!(stretched >= second && stretched < second + Duration::from_millis(100), "{stretched:?}");
        }
        assert_eq!(jitter.stretch(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..5).map(|_| jitter.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(3), numbers(3));
        assert_ne!(numbers(3), numbers(4));
        assert_eq!(Jitter::new(1).below(0), 0);
    }
}
