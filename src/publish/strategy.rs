//! When to publish: after quiet, or after the longest delay. No clock of its own.
//!
//! ```text
//!  silent ── first in sync ──► idle ── change ──► gathering ── quiet, or the longest delay is over ──► published: idle
//! ```
//!
//! The way of Istio's Galley, whose figures were 1 s and 1 s at first, then 0.5 s and 2 s.

use tokio::time::Instant;

use crate::syncer::spec::Publishing;

/// See the module.
#[derive(Debug)]
pub struct Strategy {
    publishing: Publishing,
    /// It was in sync once.
    speaks: bool,
    /// First and last change since the last publication.
    burst: Option<(Instant, Instant)>,
}

impl Strategy {
    /// Nothing is published before [`Self::in_sync`].
    #[must_use]
    pub fn new(publishing: Publishing) -> Self {
        Self { publishing, speaks: false, burst: None }
    }

    /// The content is in sync for the first time.
    pub fn in_sync(&mut self) {
        self.speaks = true;
    }

    /// Whether anything has been published.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.speaks
    }

    /// Something changed.
    pub fn changed(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// Everything has been published.
    pub fn published(&mut self) {
        self.burst = None;
    }

    /// When to publish; `None`: there is nothing to publish, or nothing may be.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let Publishing { quiet, max_delay } = self.publishing;
        let (first, last) = self.burst.filter(|_| self.speaks)?;
        Some((last + quiet).min(first + max_delay))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn publications_come_after_quiet_or_the_longest_delay() {
        // Quiet, longest delay, the times of changes, and the times of publications.
        let steady: Vec<u64> = (0..50).map(|n| n * 100).collect();
        for (quiet, max_delay, changes, expected) in [
            (500, 2000, vec![0], vec![500]),
            (500, 2000, vec![0, 400, 800], vec![1300]),
            (500, 2000, vec![0, 600], vec![500, 1100]),
            (500, 2000, steady.clone(), vec![2000, 4100, 5400]),
            (1000, 1000, steady, vec![1000, 2100, 3200, 4300, 5400]),
            (0, 0, vec![0, 10, 20], vec![0, 10, 20]),
        ] {
            let start = Instant::now();
            let mut strategy = Strategy::new(Publishing { quiet: millis(quiet), max_delay: millis(max_delay) });
            strategy.in_sync();
            let mut published = Vec::new();
            let mut changes = changes.into_iter().map(millis).peekable();
            loop {
                let due = strategy.due().map(|due| due - start);
                match (changes.peek(), due) {
                    (Some(change), due) if due.is_none_or(|due| *change <= due && (*change < due || quiet > 0)) => {
                        strategy.changed(start + *change);
                        changes.next();
                    }
                    (_, Some(due)) => {
                        published.push(u64::try_from(due.as_millis()).unwrap());
                        strategy.published();
                    }
                    (_, None) => break,
                }
            }
            assert_eq!(published, expected, "quiet {quiet}, delay {max_delay}");
        }
    }

    #[test]
    fn nothing_is_said_before_the_first_in_sync() {
        let mut strategy = Strategy::new(Publishing { quiet: millis(1), max_delay: millis(1) });
        strategy.changed(Instant::now());
        assert_eq!((strategy.due(), strategy.speaks()), (None, false));
        strategy.in_sync();
        assert!(strategy.due().is_some() && strategy.speaks());
    }
}
