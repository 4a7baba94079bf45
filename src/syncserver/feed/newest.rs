//! The snapshot that new clients share. No clock: the feed passes the time in.
//!
//! Invariants: no client gets a snapshot with another status than the present one; of the snapshots that are still
//! read, all but the last two are given up when a newer one is made, so there are never more than two whole ones.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::ring::Mark;
use super::snapshot::Snapshot;

/// Time for which an unused snapshot is kept. Not longer, though the next one could take over pieces of it: an
/// occasional client can wait the moment that encoding takes, and the memory would be held all the time.
const SNAPSHOT_IDLE: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    shared: Option<SharedSnapshot>,
    /// The snapshot before it, if it is still read.
    previous: Weak<Snapshot>,
    /// Older snapshots that may still be read. Each has a reader, so there are no more of them than clients.
    given_up: Vec<Weak<Snapshot>>,
}

#[derive(Debug)]
struct SharedSnapshot {
    snapshot: Arc<Snapshot>,
    asked_at: Instant,
}

impl Newest {
    /// The snapshot for one more client, unless it has been outdated for too long, or the status has changed since.
    /// With an older status, the client would be told a past in-sync before the later changes, and a client that held
    /// their keys before would take these for gone.
    pub(crate) fn reuse(&mut self, head: &Mark, now: Instant, max_age: Duration) -> Option<Arc<Snapshot>> {
        let shared = self.shared.as_mut()?;
        let good = shared.snapshot.mark().has_status_of(head) && fresh(&shared.snapshot, now, max_age);
        good.then(|| {
            shared.asked_at = now;
            shared.snapshot.clone()
        })
    }

    /// Shares this snapshot from now on. Returns the last one, and the older ones, which are to be [given
    /// up](Snapshot::give_up): looking through them and freeing them may take a while.
    pub(crate) fn replace(
        &mut self,
        snapshot: Arc<Snapshot>,
        now: Instant,
    ) -> (Option<Arc<Snapshot>>, Vec<Arc<Snapshot>>) {
        let shared = self.shared.replace(SharedSnapshot { snapshot, asked_at: now }).map(|last| last.snapshot);
        let previous = self.previous.upgrade();
        let last = match shared {
            Some(last) => {
                self.given_up.extend(previous.as_ref().map(Arc::downgrade));
                Some(last)
            }
            None => previous,
        };
        self.previous = last.as_ref().map_or_else(Weak::new, Arc::downgrade);
        self.given_up.retain(|older| older.strong_count() > 0);
        (last, self.given_up.iter().filter_map(Weak::upgrade).collect())
    }

    /// The time for which the producer of the newest snapshot has made no progress.
    pub(crate) fn stuck_for(&self, now: Instant) -> Duration {
        self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.snapshot.stuck_for(now))
    }

    /// Forgets an unused snapshot.
    pub(crate) fn forget_unwanted(&mut self, now: Instant) {
        let unwanted = |shared: &mut SharedSnapshot| now.saturating_duration_since(shared.asked_at) >= SNAPSHOT_IDLE;
        if let Some(last) = self.shared.take_if(unwanted) {
            self.given_up.push(std::mem::replace(&mut self.previous, Arc::downgrade(&last.snapshot)));
        }
    }
}

/// Whether a new client may still be given this snapshot.
fn fresh(snapshot: &Snapshot, now: Instant, max_age: Duration) -> bool {
    // It begins to age with the first change after it.
    snapshot
        .mark()
        .outdated_at()
        .is_none_or(|outdated| now.saturating_duration_since(outdated.max(snapshot.made_at())) <= max_age)
}

#[cfg(test)]
mod tests {
    use super::super::pieces::Recipe;
    use super::*;
    use crate::outlet::filter::Filter;
    use crate::syncserver::tests::harness::lone_feed;
    use crate::syncserver::wire::Wire;

    #[tokio::test]
    async fn all_snapshots_but_the_last_two_are_given_up_whether_they_were_replaced_or_forgotten() {
        let (_cache, lease) = lone_feed();
        let wire = Wire::GobPlain;
        let recipe = Recipe::new(wire.format(), Filter::default(), 1000, wire.snapshot_piece_bytes());
        let mut sharing = Newest::default();
        let (mut now, mut held) = (Instant::now(), Vec::new());
        for forgotten in [true, false, true, true, false, false] {
            let next = Snapshot::new(lease.head(), recipe.clone(), now);
            let (last, given_up) = sharing.replace(next.clone(), now);
            assert_eq!(last.is_some(), !held.is_empty());
            let expected: Vec<&Arc<Snapshot>> = held.iter().rev().skip(1).collect();
            assert_eq!(given_up.len(), expected.len());
            assert!(expected.iter().all(|older| given_up.iter().any(|found| Arc::ptr_eq(found, older))));
            held.push(next);
            if forgotten {
                now += SNAPSHOT_IDLE;
                sharing.forget_unwanted(now);
            }
        }
    }
}
