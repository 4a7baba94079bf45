//! What flows against the data: when those who are fed can next make use of something.
//!
//! ```text
//!  datastore ─► kind watch ─► … ─► snapshot cache ─► feeds ─► agents
//!                   ▲                                  │ next turn
//!                   └────────────── Demand ◄───────────┘
//! ```
//!
//! A feed with many agents serves them in turns (`syncserver/pace.rs`). What comes in between waits for the next one all the
//! same, wherever it waits. Waiting at the beginning costs least: a kind watch gathers several changes, and every stage after
//! it is woken once for all of them instead of once for each.
//!
//! Invariants: whoever is fed by a pipeline and says nothing, or has nothing to wait for, is never waited for; a moment in
//! the past means that anything is of use at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// When anybody whom a pipeline feeds can next make use of something. Cheap to clone; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Mutex<Vec<Voice>>>);

#[derive(Debug)]
struct Voice {
    id: u64,
    next: Option<Instant>,
}

/// One of those who are fed. Falls silent when it is dropped.
#[derive(Debug)]
pub struct Consumer {
    demand: Demand,
    id: u64,
}

impl Demand {
    fn lock(&self) -> MutexGuard<'_, Vec<Voice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who is fed. Has no wish at first.
    #[must_use]
    pub fn consumer(&self) -> Consumer {
        let mut voices = self.lock();
        let id = voices.last().map_or(0, |last| last.id + 1);
        voices.push(Voice { id, next: None });
        drop(voices);
        Consumer { demand: self.clone(), id }
    }

    /// The first moment at which somebody can make use of something. `None`: nobody says when.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.lock().iter().filter_map(|voice| voice.next).min()
    }
}

impl Consumer {
    /// Says when something can next be made use of; `None`: nobody is served here now.
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
    async fn the_most_impatient_of_those_who_speak_counts() {
        let start = Instant::now();
        let after = |ms| Some(start + Duration::from_millis(ms));
        let demand = Demand::default();
        assert_eq!(demand.next(), None);
        let one = demand.consumer();
        let two = demand.clone().consumer();
        assert_eq!(demand.next(), None, "nobody has spoken");
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
        assert_eq!(demand.next(), after(5), "each is somebody else");
        drop((two, three));
        assert_eq!(demand.next(), None);
    }
}
