//! The single writer of a cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use super::breadcrumb::{Aside, Breadcrumb, Map, Trail};
use super::chain::{Link, append};
use crate::demand::Demand;
use crate::metrics::SyncerMetrics;
use crate::model::{AsOf, SyncStatus, SyncerEvent, Update};

/// Gives out trails to follow a cache.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) newest: watch::Receiver<Arc<Breadcrumb>>,
    pub(super) as_of: watch::Receiver<Option<AsOf>>,
    pub(super) demand: Demand,
}

impl Reader {
    /// When the followers of the cache can use a change.
    #[must_use]
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// The newest crumb.
    #[must_use]
    pub fn newest(&self) -> Arc<Breadcrumb> {
        self.newest.borrow().clone()
    }

    /// A trail that starts at the newest crumb.
    #[must_use]
    pub fn follow(&self) -> Trail {
        Trail::new(self.newest.clone())
    }

    /// The last moment for which the datastore vouched; newer than that of the newest crumb if nothing has changed
    /// since.
    #[must_use]
    pub fn as_of(&self) -> Option<AsOf> {
        self.as_of.borrow().clone()
    }
}

/// The writer of a cache. There is one; it owns the map.
#[derive(Debug)]
pub struct SnapCache {
    max_batch_size: usize,
    newest: watch::Sender<Arc<Breadcrumb>>,
    as_of: watch::Sender<Option<AsOf>>,
    created: Instant,
    metrics: SyncerMetrics,
    /// The kind in a key.
    kind_of: Option<fn(&str) -> &str>,
}

impl SnapCache {
    /// An empty cache and its reader. A crumb carries at most `max_batch_size` updates (at least 1).
    #[must_use]
    pub fn new(max_batch_size: usize, metrics: SyncerMetrics) -> (Self, Reader) {
        let (newest, newest_reader) = watch::channel(Breadcrumb::empty());
        let (as_of, as_of_reader) = watch::channel(None);
        let reader = Reader { newest: newest_reader, as_of: as_of_reader, demand: Demand::default() };
        let (max_batch_size, created) = (max_batch_size.max(1), Instant::now());
        (Self { max_batch_size, newest, as_of, created, metrics, kind_of: None }, reader)
    }

    /// Tells for each kind which crumb changed it last. `kind_of` gives the kind in a key; there must be a bounded number of kinds.
    #[must_use]
    pub fn with_kinds(self, kind_of: fn(&str) -> &str) -> Self {
        Self { kind_of: Some(kind_of), ..self }
    }

    /// The status of the newest crumb.
    #[must_use]
    pub fn status(&self) -> SyncStatus {
        self.newest.borrow().status
    }

    /// Most updates in one crumb.
    #[must_use]
    pub fn max_batch_size(&self) -> usize {
        self.max_batch_size
    }

    /// Shows in the metrics how long ago the datastore last vouched that nothing is missing. Before it ever has, the
    /// age of the cache counts; a cache that is in sync without ever having been vouched for lacks nothing, because the
    /// datastore knows none of its kinds.
    pub fn observe_age(&self, now: SystemTime) {
        let age = match &*self.as_of.borrow() {
            Some(as_of) => now.duration_since(as_of.at).unwrap_or_default(),
            None if self.status() == SyncStatus::InSync => Duration::ZERO,
            None => self.created.elapsed(),
        };
        self.metrics.datastore_age_secs.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    }

    /// Applies a batch from upstream, in order, and publishes as many crumbs as it takes.
    ///
    /// Of several statuses only the last counts, and it goes out with the last of the updates.
    pub fn apply(&mut self, events: Vec<SyncerEvent>) {
        let mut updates = Vec::new();
        let mut status = None;
        let mut as_of = None;
        for event in events {
            match event {
                SyncerEvent::Updates(batch) => updates.extend(batch),
                SyncerEvent::Status(new) => status = Some(new),
                SyncerEvent::Progress(new) => as_of = Some(new),
            }
        }
        let mut updates = updates.into_iter();
        loop {
            let batch: Vec<Arc<Update>> = updates.by_ref().take(self.max_batch_size).map(Arc::new).collect();
            let last = updates.len() == 0;
            if !last {
                self.publish(batch, None, None);
                continue;
            }
            self.publish_whole(batch, status, as_of);
            return;
        }
    }

    /// Publishes all these updates in one crumb, however many they are, with the status and the moment up to which they are complete.
    pub fn publish_whole(&mut self, updates: Vec<Arc<Update>>, status: Option<SyncStatus>, as_of: Option<AsOf>) {
        self.publish(updates, status, as_of.as_ref());
        // After the crumb: a reader of the moment finds everything up to it in place.
        if as_of.is_some() {
            self.as_of.send_replace(as_of);
        }
    }

    fn publish(&mut self, batch: Vec<Arc<Update>>, status: Option<SyncStatus>, as_of: Option<&AsOf>) {
        let current = self.newest.borrow().clone();
        let status = status.unwrap_or(current.status);
        let mut map = current.map.clone();
        let mut deltas = Vec::with_capacity(batch.len());
        let mut beside = Aside { map: current.aside.map.clone(), deltas: Vec::new() };
        for update in batch {
            if update.key.is_aside() {
                change(&mut beside.map, &mut beside.deltas, update);
                continue;
            }
            self.metrics.updates_total.inc();
            if !change(&mut map, &mut deltas, update) {
                self.metrics.updates_skipped.inc();
            }
        }
        self.metrics.breadcrumb_size.observe(deltas.len() as f64);
        if deltas.is_empty() && beside.deltas.is_empty() && status == current.status {
            return;
        }
        self.metrics.in_sync.set(i64::from(status == SyncStatus::InSync));
        self.metrics.cache_size.set(i64::try_from(map.len()).unwrap_or(i64::MAX));
        let sequence = current.sequence + 1;
        let mut kinds = current.kinds.clone();
        if let Some(kind_of) = self.kind_of {
            let changed: BTreeSet<&str> = deltas.iter().map(|update| kind_of(&update.key)).collect();
            if !changed.is_empty() {
                Arc::make_mut(&mut kinds).extend(changed.into_iter().map(|kind| (kind.into(), sequence)));
            }
        }
        let as_of = as_of.cloned().or_else(|| self.as_of.borrow().clone());
        let (at, link) = (Instant::now(), Link::new());
        let crumb = Arc::new(Breadcrumb { sequence, map, deltas, aside: beside, kinds, status, at, as_of, link });
        append(&self.newest, crumb);
        self.metrics.breadcrumb_seq_number.set(i64::try_from(sequence).unwrap_or(i64::MAX));
    }
}

/// Applies an update to a map and notes it as a change, unless it changes nothing. A deletion is noted even if the key
/// was not there.
fn change(map: &mut Map, deltas: &mut Vec<Arc<Update>>, update: Arc<Update>) -> bool {
    if update.value.is_none() {
        map.remove(&update.key);
    } else if map.get(&update.key).is_some_and(|old| old.value == update.value && old.ttl == update.ttl) {
        return false;
    }
    if update.value.is_some() {
        map.insert(update.key.clone(), update.clone());
    }
    deltas.push(update);
    true
}
