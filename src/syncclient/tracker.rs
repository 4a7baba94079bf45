//! The consumer's keys, so that a change of servers is a resync and not a fresh start. No I/O, no clock.
//!
//! The driver feeds in a server's messages; out come the events for the consumer. Values are not kept, only their digests.
//!
//! ```text
//!             on_connected              in-sync from the server: stale keys are deleted,
//!  Apart ──────────────────► Resyncing ──────────────────────────────────────────────────► Following
//!    ▲                          │      then in-sync is reported                                │
//!    └──────────────────────────┴──────────────────────── on_disconnected ─────────────────────┘
//! ```
//!
//! Invariants:
//! - a key is deleted only if a server said so, or if a server that is in sync did not mention it;
//! - in-sync is reported only after all data that it covers, deletions included;
//! - an update that changes nothing for the consumer is not passed on; all others have the type that is right for the
//!   consumer, not the server's: new for a key that it does not hold, updated for one that it does.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::model::{Key, SyncStatus, Update, UpdateType};

/// Most deletions in one event, as many as a server puts into one message.
const MAX_DELETIONS_PER_EVENT: usize = 1000;

/// An output of the tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Changes for the consumer, in order, never empty.
    Updates(Vec<Update>),
    /// The status after them.
    Status(SyncStatus),
}

/// The tracker's relation to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No server.
    #[default]
    Apart,
    /// A server sends its data and has not said in-sync yet.
    Resyncing,
    /// The server has been in sync.
    Following,
}

/// A key that the consumer holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    digest: Digest,
    /// The connection that mentioned it last.
    connection: u64,
}

/// 128 bits of two hashes keyed at random: equal for different values once in 3·10^38 comparisons, and not to be aimed at.
type Digest = [u64; 2];

/// See the module. By default the consumer holds nothing.
#[derive(Debug, Default)]
pub struct Tracker {
    phase: Phase,
    connection: u64,
    held: HashMap<Key, Held>,
    /// Keys held that the present connection has not mentioned.
    stale: usize,
    reported: Option<SyncStatus>,
    hashers: [RandomState; 2],
}

impl Tracker {
    /// Number of keys that the consumer holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the consumer holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Apart => Resyncing. A server will now send all its data.
    pub fn on_connected(&mut self) -> Vec<Output> {
        self.phase = Phase::Resyncing;
        self.connection += 1;
        self.stale = self.held.len();
        self.report(SyncStatus::ResyncInProgress)
    }

    /// Resyncing, Following => Apart. All keys stay.
    pub fn on_disconnected(&mut self) -> Vec<Output> {
        self.phase = Phase::Apart;
        self.report(SyncStatus::ResyncInProgress)
    }

    /// A message of updates, from a snapshot or later.
    pub fn on_updates(&mut self, updates: Vec<Update>) -> Vec<Output> {
        let passed: Vec<Update> = updates.into_iter().filter_map(|update| self.on_update(update)).collect();
        if passed.is_empty() { Vec::new() } else { vec![Output::Updates(passed)] }
    }

    /// The server's status. Resyncing => Following on in-sync.
    pub fn on_status(&mut self, status: SyncStatus) -> Vec<Output> {
        match (self.phase, status) {
            (Phase::Resyncing, SyncStatus::InSync) => {
                self.phase = Phase::Following;
                let mut outputs = self.delete_stale();
                outputs.extend(self.report(SyncStatus::InSync));
                outputs
            }
            // The consumer holds the data of an earlier server: to it, this is a resync, however far the new server is.
            (Phase::Resyncing, _) if self.connection > 1 => self.report(SyncStatus::ResyncInProgress),
            _ => self.report(status),
        }
    }

    fn on_update(&mut self, mut update: Update) -> Option<Update> {
        let Some(value) = &update.value else {
            let held = self.held.remove(&update.key)?;
            if held.connection != self.connection {
                self.stale -= 1;
            }
            // No value and "new" contradict each other once the key is held.
            if update.update_type != UpdateType::Deleted {
                update.update_type = UpdateType::Updated;
            }
            return Some(update);
        };
        let digest = self.digest(&value.bytes, update.ttl);
        let now = Held { digest, connection: self.connection };
        let Some(before) = self.held.insert(update.key.clone(), now) else {
            update.update_type = UpdateType::New;
            return Some(update);
        };
        if before.connection != self.connection {
            self.stale -= 1;
        }
        update.update_type = UpdateType::Updated;
        (before.digest != digest).then_some(update)
    }

    /// Deletes the keys that this connection has not mentioned, in their order.
    fn delete_stale(&mut self) -> Vec<Output> {
        if self.stale == 0 {
            return Vec::new();
        }
        let connection = self.connection;
        let mut stale: Vec<Key> =
            self.held.extract_if(|_, held| held.connection != connection).map(|(key, _)| key).collect();
        self.stale = 0;
        stale.sort_unstable();
        let deletion = |key: &Key| Update::deletion(key.clone());
        stale.chunks(MAX_DELETIONS_PER_EVENT).map(|keys| Output::Updates(keys.iter().map(deletion).collect())).collect()
    }

    fn report(&mut self, status: SyncStatus) -> Vec<Output> {
        if self.reported == Some(status) {
            return Vec::new();
        }
        self.reported = Some(status);
        vec![Output::Status(status)]
    }

    fn digest(&self, value: &[u8], ttl: Duration) -> Digest {
        self.hashers.each_ref().map(|hasher| hasher.hash_one((value, ttl)))
    }
}

#[cfg(test)]
mod tests;
