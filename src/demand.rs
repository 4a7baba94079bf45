//! The demand for data, which flows against it: when the consumers of a pipeline can next use a change.
//!
//! ```text
//!  datastore ─► kind watch ─► … ─► snapshot cache ─► feeds ─► agents
//!                   ▲                                  │ next round
//!                   └────────────── Demand ◄───────────┘
//! ```
//!
//! A feed with many agents serves them in rounds (`outlet/pace.rs`). A change that comes in between has to wait for the
//! next one, at whatever stage. Waiting at the beginning costs least: a kind watch gathers several changes, and every
//! stage after it is woken once for all of them instead of once for each.
//!
//! Invariants: consumers that say nothing, or have nothing to wait for, delay nothing; a time in the past means that
//! any change is of use at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The next time at which a consumer of a pipeline can use a change. Cheap to clone; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Mutex<Vec<Voice>>>);

#[derive(Debug)]
struct Voice {
    id: u64,
    next: Option<Instant>,
}

/// A consumer of a pipeline. Its wish ends when it is dropped.
#[derive(Debug)]
pub struct Consumer {
    demand: Demand,
    id: u64,
}

impl Demand {
    fn lock(&self) -> MutexGuard<'_, Vec<Voice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a consumer, without a wish at first.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        let mut voices = self.lock();
        let id = voices.last().map_or(0, |last| last.id + 1);
        voices.push(Voice { id, next: None });
        drop(voices);
        Consumer { demand: self.clone(), id }
    }

    /// The earliest time at which a consumer can use a change. `None`: no consumer has a wish.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.lock().iter().filter_map(|voice| voice.next).min()
    }
}

impl Consumer {
    /// Sets when this consumer can next use a change; `None`: it serves no agents now.
    pub fn wants(&self, next: Option<Instant>) {
        if let Some(voice) = self.demand.lock().iter_mut().find(|voice| voice.id == self.id) {
            voice.next = next;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.demand.lock().retain(|voice| voice.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_wish_counts() {
        let start = Instant::now();
        let after = |ms| Some(start + Duration::from_millis(ms));
        let demand = Demand::default();
        assert_eq!(demand.next(), None);
        let one = demand.consumer();
        let two = demand.clone().consumer();
        assert_eq!(demand.next(), None, "no consumer has a wish");
        one.wants(after(20));
        assert_eq!(demand.next(), after(20));
        two.wants(after(10));
        assert_eq!(demand.next(), after(10));
        two.wants(None);
        assert_eq!(demand.next(), after(20));
        drop(one);
        let three = demand.consumer();
        two.wants(after(5));
        three.wants(after(7));
        assert_eq!(demand.next(), after(5), "each consumer counts");
        drop((two, three));
        assert_eq!(demand.next(), None);
    }
}
