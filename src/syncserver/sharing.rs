//! Which snapshot newcomers share. No clock: the feed passes the time in.
//!
//! Invariants: a snapshot that tells another status than the present one is given to nobody; those before the last that
//! somebody still reads are given up as soon as a newer one is made, so that there is never more than two of them hold.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::ring::Mark;
use super::snapshot::Snapshot;

/// How long a snapshot that nobody asks for is kept. Not longer, though the next one could take over pieces of it: a client
/// that comes once in a while can wait the moment that encoding takes, and the memory would be held all the time.
const SNAPSHOT_IDLE: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    shared: Option<Shared>,
    /// The snapshot before, if somebody still reads it.
    previous: Weak<Snapshot>,
    /// Those before it that are still read, as far as we know. Each has a reader, so they are no more than clients.
    given_up: Vec<Weak<Snapshot>>,
}

#[derive(Debug)]
struct Shared {
    snapshot: Arc<Snapshot>,
    asked_at: Instant,
}

impl Sharing {
    /// The snapshot for one more client, unless it has been outdated for too long, or the status has changed since. On its way
    /// to the present, the client would be told of that change as if it were news: an in-sync of the past, and what came after
    /// it would seem gone to a client that held it before.
    pub(super) fn reuse(&mut self, head: &Mark, now: Instant, max_age: Duration) -> Option<Arc<Snapshot>> {
        let shared = self.shared.as_mut()?;
        let good = shared.snapshot.mark().has_status_of(head) && fresh(&shared.snapshot, now, max_age);
        good.then(|| {
            shared.asked_at = now;
            shared.snapshot.clone()
        })
    }

    /// From now on this one is shared. Returns the last one, and those before it, which are to be [given up](Snapshot::give_up):
    /// all that may take a while to be looked through and freed.
    pub(super) fn replace(
        &mut self,
        snapshot: Arc<Snapshot>,
        now: Instant,
    ) -> (Option<Arc<Snapshot>>, Vec<Arc<Snapshot>>) {
        let shared = self.shared.replace(Shared { snapshot, asked_at: now }).map(|last| last.snapshot);
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

    /// For how long the producer of the newest snapshot has not got on.
    pub(super) fn stuck_for(&self, now: Instant) -> Duration {
        self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.snapshot.stuck_for(now))
    }

    /// Forgets a snapshot that nobody asks for.
    pub(super) fn forget_unwanted(&mut self, now: Instant) {
        let unwanted = |shared: &mut Shared| now.saturating_duration_since(shared.asked_at) >= SNAPSHOT_IDLE;
        if let Some(last) = self.shared.take_if(unwanted) {
            self.given_up.push(std::mem::replace(&mut self.previous, Arc::downgrade(&last.snapshot)));
        }
    }
}

/// Whether a new client may still be given this snapshot.
fn fresh(snapshot: &Snapshot, now: Instant, max_age: Duration) -> bool {
    // It begins to age when the first change after it comes.
    snapshot
        .mark()
        .outdated_at()
        .is_none_or(|outdated| now.saturating_duration_since(outdated.max(snapshot.made_at())) <= max_age)
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::super::pieces::Recipe;
    use super::super::tests::harness::lone_feed;
    use super::super::wire::Wire;
    use super::*;

    #[tokio::test]
    async fn all_snapshots_but_the_last_two_are_given_up_whether_they_were_replaced_or_forgotten() {
        let (_cache, lease) = lone_feed();
        let wire = Wire::GobPlain;
        let recipe = Recipe::new(wire.format(), Filter::default(), 1000, wire.snapshot_piece_bytes());
        let mut sharing = Sharing::default();
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
