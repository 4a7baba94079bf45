//! All feeds of a server: made when the first client asks, shared by clients with equal wishes, removed some time after
//! the last one has left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::config::Pumps;
use super::pump::Pump;
use super::room::Room;
use super::shared::{Feed, FeedConfig, FeedKey, Lease, OfSyncer};
use crate::calico::dialect::tables::Tables;
use crate::calico::release::{Release, Version};
use crate::calico::syncers::FELIX;
use crate::metrics::SyncerMetrics;
use crate::model::SyncerName;
use crate::snapcache::{Reader, Trail};
use crate::tasks::TaskRegistry;

/// Key of the version of the cluster's own Calico in Felix's cache.
const CALICO_VERSION: &str = "/calico/v1/config/CalicoVersion";

/// Feeds with a filter that may exist at the same time. Each follows its cache and encodes for itself, so a client with
/// ever new filters could make the server work without bound. They share the memory that one feed without a filter has
/// for its history, and as much again for encoded snapshots: beyond that, a snapshot is encoded for each client alone.
pub(crate) const MAX_FILTERED_FEEDS: usize = 64;

/// A source of feeds: a pipeline's output in all dialects.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) tables: Arc<Tables>,
    pub(crate) of_syncer: OfSyncer,
}

/// The reason why there is no feed for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFeed {
    /// The syncer does not run here.
    NoSuchSyncer,
    /// Too many different filters are in use.
    TooManyFilters,
}

/// All feeds of a server, made when the first client asks.
#[derive(Debug)]
pub(crate) struct Feeds {
    config: FeedConfig,
    caches: BTreeMap<SyncerName, Reader>,
    sources: BTreeMap<SyncerName, Source>,
    by_key: Mutex<BTreeMap<FeedKey, Arc<Feed>>>,
    tasks: TaskRegistry,
    /// The runtime of feeds and pumps: that of the pipelines, not that of the connections.
    runtime: Handle,
    /// The runtime of connections.
    connections: OnceLock<Handle>,
    stop: CancellationToken,
    /// Memory for the snapshots of all feeds with a filter.
    room: Arc<Room>,
}

impl Feeds {
    /// No feeds yet. They will run on the runtime on which this is called. A panic in their tasks, in their pumps or in
    /// the producers of their snapshots is a failure of `tasks`.
    ///
    /// # Panics
    /// Outside of a runtime, and when a cache has no metrics beside it.
    pub(crate) fn new(
        config: FeedConfig,
        caches: BTreeMap<SyncerName, Reader>,
        metrics: &BTreeMap<SyncerName, SyncerMetrics>,
        tasks: TaskRegistry,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let runtime = Handle::current();
        let source = |(&syncer, cache): (&SyncerName, &Reader)| {
            let metrics = metrics.get(&syncer).expect("every syncer has metrics").clone();
            let tables = Tables::new(syncer, cache.clone(), tasks.clone(), runtime.clone(), stop.clone());
            (syncer, Source { tables, of_syncer: OfSyncer { metrics, clients: Arc::default() } })
        };
        let sources = caches.iter().map(source).collect();
        let room = Room::new(config.limits.bytes);
        Arc::new(Self {
            config,
            caches,
            sources,
            by_key: Mutex::default(),
            tasks,
            runtime,
            connections: OnceLock::new(),
            stop,
            room,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FeedKey, Arc<Feed>>> {
        // One feed is added or removed under this lock, so a panic cannot leave half a change.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The syncer with this name that runs here.
    pub(crate) fn syncer(&self, name: &str) -> Option<SyncerName> {
        self.sources.keys().copied().find(|syncer| syncer.as_str() == name)
    }

    /// The names of all syncers that run here, in words.
    pub(crate) fn syncers(&self) -> String {
        let names: Vec<&str> = self.sources.keys().map(|syncer| syncer.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// The release line of the cluster's own Calico, if a syncer knows it.
    pub(crate) fn cluster_line(&self) -> Option<Release> {
        let crumb = self.caches.get(&FELIX)?.newest();
        let version = crumb.map.get(CALICO_VERSION)?.value.as_ref()?;
        match Version::of(std::str::from_utf8(&version.bytes).ok()?) {
            Version::Release(line) => Some(line),
            Version::TooOld | Version::Unknown => None,
        }
    }

    /// Bytes of history that each feed keeps.
    #[cfg(test)]
    pub(crate) fn histories(&self) -> Vec<usize> {
        self.lock().values().map(|feed| feed.history().bytes()).collect()
    }

    /// The feed for a client. A new one comes with the trail from which the caller has to follow its cache.
    pub(crate) async fn lease(&self, key: FeedKey) -> Result<(Lease, Option<Trail>), NoFeed> {
        let source = self.sources.get(&key.syncer).ok_or(NoFeed::NoSuchSyncer)?;
        // Kept until the feed holds it: a table without followers vanishes.
        let content = source.tables.content(key.dialect).await;
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(&key) {
            return Ok((feed.lease(), None));
        }
        let filtered = feeds.keys().filter(|key| !key.filter.admits_all()).count();
        if !key.filter.admits_all() && filtered >= MAX_FILTERED_FEEDS {
            return Err(NoFeed::TooManyFilters);
        }
        let pump = match self.config.pumps {
            None => Pump::new(self.runtime.metrics().num_workers()),
            Some(Pumps { count, row }) => Pump::new(count).with_rows_of(row),
        };
        let room = (!key.filter.admits_all()).then(|| self.room.clone());
        let (feed, trail) =
            Feed::new(key.clone(), self.config.clone(), &source.of_syncer, &content, pump, self.tasks.clone(), room);
        let lease = feed.lease();
        feeds.insert(key, feed);
        share_history(&feeds);
        Ok((lease, Some(trail)))
    }

    /// Spawns a task of a feed, whose panic is a failure of the server.
    pub(crate) fn spawn(&self, name: String, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_passing(&self.runtime, name, task);
    }

    /// Is cancelled to end the tasks of feeds.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Connections run on the runtime on which this is called.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn connections_run_here(&self) {
        let _already_set = self.connections.set(Handle::current());
    }

    /// The runtimes of everything that serves clients.
    pub(crate) fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        [&self.runtime].into_iter().chain(self.connections.get())
    }

    /// The feed that has been stuck for longest, if that is `long` or more, and for how long.
    pub(crate) fn stuck(&self, now: Instant, long: Duration) -> Option<(String, Duration)> {
        let feeds = self.lock();
        let stuck = feeds.values().map(|feed| (feed.stuck_for(now), feed)).filter(|(stuck_for, _)| *stuck_for >= long);
        let longest = stuck.max_by_key(|(stuck_for, _)| *stuck_for);
        longest.map(|(stuck_for, feed)| (feed.key().to_string(), stuck_for))
    }

    /// Removes a feed unless it has clients. Returns whether it was removed.
    pub(crate) fn remove_unused(&self, feed: &Arc<Feed>) -> bool {
        let mut feeds = self.lock();
        // Leases are given out under the same lock.
        let unused = feed.is_idle();
        if unused {
            feeds.remove(feed.key());
            share_history(&feeds);
        }
        unused
    }

    /// Shows in the metrics how many updates the slowest client of a syncer lacks, over all its feeds.
    pub(crate) fn note_lacked(&self, syncer: SyncerName) {
        let feeds = self.lock();
        let most = feeds.values().filter(|feed| feed.key().syncer == syncer).map(|feed| feed.lacked()).max();
        if let Some(source) = self.sources.get(&syncer) {
            source.of_syncer.metrics.oldest_client_updates.set(i64::try_from(most.unwrap_or(0)).unwrap_or(i64::MAX));
        }
    }

    /// Removes a feed that has ended.
    pub(crate) fn forget(&self, feed: &Arc<Feed>) {
        let mut feeds = self.lock();
        if feeds.get(feed.key()).is_some_and(|current| Arc::ptr_eq(current, feed)) {
            feeds.remove(feed.key());
            share_history(&feeds);
        }
    }
}

/// Gives all feeds with a filter equal parts of the memory for history.
fn share_history(feeds: &BTreeMap<FeedKey, Arc<Feed>>) {
    let filtered = || feeds.values().filter(|feed| !feed.key().filter.admits_all());
    let count = filtered().count();
    filtered().for_each(|feed| feed.share_history(count));
}
