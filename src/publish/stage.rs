//! The task that publishes: gathers checked changes, and publishes them as the [strategy](super::strategy) says.
//!
//! Fed by validation, feeds the cache, which it owns. Changes that wait are one per key, so they take no more memory than the content does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::candidates::Candidates;
use super::strategy::Strategy;
use crate::decoupler::{self, MAX_BATCH};
use crate::model::{AsOf, Key, SyncStatus, SyncerEvent, SyncerName, Update, UpdateType};
use crate::snapcache::{CacheHealth, HEARTBEAT, SnapCache};

/// Changes that are not published yet.
#[derive(Debug)]
pub struct Publisher {
    cache: SnapCache,
    candidates: Candidates,
    strategy: Strategy,
    pending: BTreeMap<Key, Arc<Update>>,
    /// The status after the changes that wait.
    status: SyncStatus,
    as_of: Option<AsOf>,
    syncer: SyncerName,
    /// The number of conflicts that the log told last.
    told_conflicts: usize,
}

impl Publisher {
    /// Publishes for this syncer in this cache.
    #[must_use]
    pub fn new(syncer: SyncerName, cache: SnapCache, candidates: Candidates, strategy: Strategy) -> Self {
        let status = cache.status();
        Self { cache, candidates, strategy, pending: BTreeMap::new(), status, as_of: None, syncer, told_conflicts: 0 }
    }

    /// Takes an event that came at `now`.
    pub fn take(&mut self, event: SyncerEvent, now: Instant) {
        match event {
            SyncerEvent::Updates(updates) => {
                for update in updates {
                    if let Some(change) = self.candidates.take(update) {
                        self.gather(change);
                        self.strategy.changed(now);
                    }
                }
            }
            SyncerEvent::Status(status) => {
                self.status = status;
                if status == SyncStatus::InSync {
                    // All data of that moment go first, so they are published with it.
                    self.strategy.in_sync();
                    self.publish();
                } else if self.strategy.speaks() || self.pending.is_empty() {
                    self.cache.publish_whole(Vec::new(), Some(status), None);
                }
            }
            SyncerEvent::Progress(as_of) => {
                self.as_of = Some(as_of);
                if self.pending.is_empty() {
                    self.publish();
                }
            }
        }
    }

    /// When to publish; `None`: there is nothing to publish.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.strategy.due()
    }

    /// Publishes all that waits, as one crumb.
    pub fn publish(&mut self) {
        let updates = std::mem::take(&mut self.pending).into_values().collect();
        self.cache.publish_whole(updates, Some(self.status), self.as_of.take());
        self.strategy.published();
        self.tell_conflicts();
    }

    /// Logs the number of conflicts once for each publication that changed it, with one of them as an example.
    fn tell_conflicts(&mut self) {
        let conflicts = self.candidates.conflicts();
        let (count, before) = (conflicts.len(), std::mem::replace(&mut self.told_conflicts, conflicts.len()));
        let syncer = self.syncer;
        if count < before {
            info!(%syncer, count, "fewer objects are in several datastores now");
        } else if count > before
            && let [example] = &conflicts.snapshot(1)[..]
        {
            let hidden: Vec<&str> = example.hidden.iter().map(|origin| &*origin.place).collect();
            warn!(
                %syncer, count, key = %example.key, shown = %example.shown.place, ?hidden,
                "objects are in several datastores; the first one's counts, and bulrush status names all"
            );
        }
    }

    /// Adds a change to those that wait. A key that comes and goes meanwhile is no change; one that goes and comes back is changed.
    fn gather(&mut self, change: Arc<Update>) {
        let waiting = self.pending.get(&change.key).map(|waiting| waiting.update_type);
        let update_type = match (waiting, change.update_type) {
            (Some(UpdateType::New), UpdateType::Deleted) => {
                self.pending.remove(&change.key);
                return;
            }
            (Some(UpdateType::New), _) => UpdateType::New,
            (Some(UpdateType::Deleted), UpdateType::New) => UpdateType::Updated,
            (_, update_type) => update_type,
        };
        self.pending.insert(change.key.clone(), change.with_type(update_type));
    }
}

/// Runs until it is cancelled, or until the previous stage is gone and all of its events are published.
///
/// `report` is called at the start, whenever the status changes, and every [`HEARTBEAT`] from this very task: if the task hangs, the
/// reports stop. It must not block.
pub async fn run(
    mut publisher: Publisher,
    mut from: decoupler::Receiver,
    mut report: impl FnMut(CacheHealth) + Send,
    cancel: CancellationToken,
) {
    let mut batch = Vec::new();
    let mut reported = publisher.cache.status();
    report(CacheHealth { status: reported });
    let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let due = publisher.due();
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            // Before the data: a stage that is never idle must give signs of life, too.
            _ = beat.tick() => {
                report(CacheHealth { status: reported });
                publisher.cache.observe_age(SystemTime::now());
            }
            // Before the data as well: the longest delay holds however many changes come.
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => publisher.publish(),
            count = from.recv_batch(&mut batch, MAX_BATCH) => {
                if count == 0 {
                    publisher.publish();
                    return;
                }
                let now = Instant::now();
                for event in batch.drain(..) {
                    publisher.take(event, now);
                }
            }
        }
        let status = publisher.cache.status();
        if status != reported {
            reported = status;
            report(CacheHealth { status });
        }
    }
}

#[cfg(test)]
mod tests;
