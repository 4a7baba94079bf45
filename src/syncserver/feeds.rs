//! All feeds of a server: made when the first client asks, shared by those who want the same, gone some time after the last.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::Pumps;
use super::feed::{Feed, FeedConfig, FeedKey, Lease};
use super::pump::Pump;
use super::room::Room;
use crate::dialect::tables::Tables;
use crate::metrics::SyncerMetrics;
use crate::model::SyncerType;
use crate::model::release::{Release, Version};
use crate::snapcache::Reader;
use crate::tasks::TaskRegistry;

/// Where the version of the cluster's own Calico is in Felix's cache.
const CALICO_VERSION: &str = "/calico/v1/config/CalicoVersion";

/// Feeds with a filter that may exist at the same time. Each follows its cache and encodes for itself, so a client that
/// made up ever new filters could make the server work without bound. They share what one feed without a filter may keep of
/// its history, and as much again for encoded snapshots: beyond that, a snapshot is encoded for each client alone.
const MAX_FILTERED_FEEDS: usize = 64;

/// A source of feeds: what a pipeline offers to the server, in all dialects.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) tables: Arc<Tables>,
    pub(super) metrics: SyncerMetrics,
    /// Clients of all its feeds.
    pub(super) clients: Arc<AtomicUsize>,
}

/// Why there is no feed for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFeed {
    /// The syncer does not run here.
    NoSuchSyncer,
    /// Too many different filters are in use.
    TooManyFilters,
}

/// All feeds of a server, made when the first client asks.
#[derive(Debug)]
pub(super) struct Feeds {
    config: FeedConfig,
    caches: BTreeMap<SyncerType, Reader>,
    sources: BTreeMap<SyncerType, Source>,
    by_key: Mutex<BTreeMap<FeedKey, Arc<Feed>>>,
    tasks: TaskRegistry,
    /// Where feeds and pumps run: with the pipelines, not with the connections.
    runtime: Handle,
    /// Where connections run.
    connections: OnceLock<Handle>,
    stop: CancellationToken,
    /// For the snapshots of all feeds with a filter.
    room: Arc<Room>,
}

impl Feeds {
    /// No feeds yet. They will run on the runtime that this is called on. A panic of theirs, of their pumps or of the producers
    /// of their snapshots is a failure of `tasks`.
    ///
    /// # Panics
    /// Outside of a runtime, and when a cache has no metrics beside it.
    pub(super) fn new(
        config: FeedConfig,
        caches: BTreeMap<SyncerType, Reader>,
        metrics: &BTreeMap<SyncerType, SyncerMetrics>,
        tasks: TaskRegistry,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let runtime = Handle::current();
        let source = |(&syncer, cache): (&SyncerType, &Reader)| {
            let metrics = metrics.get(&syncer).expect("every syncer has metrics").clone();
            let tables = Tables::new(syncer, cache.clone(), tasks.clone(), runtime.clone(), stop.clone());
            (syncer, Source { tables, metrics, clients: Arc::default() })
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
        // One feed is put in or taken out under this lock, so a panic cannot leave half of anything.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of the cluster's own Calico, if there is a syncer that knows.
    pub(super) fn cluster_line(&self) -> Option<Release> {
        let crumb = self.caches.get(&SyncerType::Felix)?.newest();
        let version = crumb.map.get(CALICO_VERSION)?.value.as_ref()?;
        match Version::of(std::str::from_utf8(&version.bytes).ok()?) {
            Version::Release(line) => Some(line),
            Version::TooOld | Version::Unknown => None,
        }
    }

    /// The feed for a client.
    pub(super) async fn lease(self: &Arc<Self>, key: FeedKey) -> Result<Lease, NoFeed> {
        let source = self.sources.get(&key.syncer).ok_or(NoFeed::NoSuchSyncer)?;
        // Kept until the feed has it: a table that nobody follows vanishes.
        let content = source.tables.content(key.line).await;
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(&key) {
            return Ok(feed.lease());
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
            Feed::new(key.clone(), self.config.clone(), source, &content, pump, self.tasks.clone(), room);
        let lease = feed.lease();
        feeds.insert(key, feed.clone());
        share_history(&feeds);
        drop(feeds);
        let name = feed.key().to_string();
        for shard in 0..feed.pump().shards() {
            let pump = Pump::run(feed.clone(), shard);
            self.tasks.spawn_passing(&self.runtime, format!("{name}-pump-{shard}"), pump);
        }
        let run = feed.run(trail, Arc::downgrade(self), self.stop.clone());
        self.tasks.spawn_passing(&self.runtime, format!("{name}-feed"), run);
        Ok(lease)
    }

    /// Connections run on the runtime that this is called on.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(super) fn connections_run_here(&self) {
        let _only_once = self.connections.set(Handle::current());
    }

    /// Where all that serves clients runs.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        [&self.runtime].into_iter().chain(self.connections.get())
    }

    /// The feed that has been stuck for longest, if that is `long` or more, and for how long.
    pub(super) fn stuck(&self, now: Instant, long: Duration) -> Option<(String, Duration)> {
        let feeds = self.lock();
        let stuck = feeds.values().map(|feed| (feed.stuck_for(now), feed)).filter(|(stuck_for, _)| *stuck_for >= long);
        let longest = stuck.max_by_key(|(stuck_for, _)| *stuck_for);
        longest.map(|(stuck_for, feed)| (feed.key().to_string(), stuck_for))
    }

    /// Removes a feed unless it has clients. Returns whether it was removed.
    pub(super) fn remove_unused(&self, feed: &Arc<Feed>) -> bool {
        let mut feeds = self.lock();
        // Leases are given out under the same lock.
        let unused = feed.is_idle();
        if unused {
            feeds.remove(feed.key());
            share_history(&feeds);
        }
        unused
    }

    /// Shows what the slowest client of a syncer lacks, whatever it speaks.
    pub(super) fn note_lacked(&self, syncer: SyncerType) {
        let feeds = self.lock();
        let most = feeds.values().filter(|feed| feed.key().syncer == syncer).map(|feed| feed.lacked()).max();
        if let Some(source) = self.sources.get(&syncer) {
            source.metrics.oldest_client_updates.set(i64::try_from(most.unwrap_or(0)).unwrap_or(i64::MAX));
        }
    }

    /// Removes a feed that has ended.
    pub(super) fn forget(&self, feed: &Arc<Feed>) {
        let mut feeds = self.lock();
        if feeds.get(feed.key()).is_some_and(|current| Arc::ptr_eq(current, feed)) {
            feeds.remove(feed.key());
            share_history(&feeds);
        }
    }
}

/// Has all feeds with a filter keep the same part of the history.
fn share_history(feeds: &BTreeMap<FeedKey, Arc<Feed>>) {
    let filtered = || feeds.values().filter(|feed| !feed.key().filter.admits_all());
    let count = filtered().count();
    filtered().for_each(|feed| feed.share_history(count));
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::super::tests::harness::{eventually, feeds, paced_feeds, update};
    use super::super::wire::Wire;
    use super::*;
    use crate::model::SyncerEvent;

    #[tokio::test(start_paused = true)]
    async fn all_feeds_with_a_filter_keep_no_more_history_than_one_without() {
        const HISTORY: usize = 1 << 20;
        let (mut cache, feeds) = feeds(HISTORY);
        let key = |prefix: &str| FeedKey {
            syncer: SyncerType::Felix,
            line: Release::Master,
            wire: Wire::GobPlain,
            filter: Filter::new(vec![prefix.to_owned()]),
        };
        // All of them admit what is put below.
        let prefix = |n: usize| format!("/{}", "0".repeat(n));
        let mut leases = Vec::new();
        for n in 0..MAX_FILTERED_FEEDS {
            leases.push(feeds.lease(key(&prefix(n))).await.expect("there is room"));
        }
        assert_eq!(feeds.lease(key("/one-more")).await.err(), Some(NoFeed::TooManyFilters));
        let name = "0".repeat(MAX_FILTERED_FEEDS);
        for n in 0..100 {
            let value = vec![b'x'; 1000];
            cache.apply(vec![SyncerEvent::Updates(vec![update(&format!("/{name}{n}"), Some(&value))])]);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let held = || -> Vec<usize> { feeds.lock().values().map(|feed| feed.history_bytes()).collect() };
        eventually("all have some", || held().iter().all(|held| *held > HISTORY / MAX_FILTERED_FEEDS / 2)).await;
        let all: usize = held().iter().sum();
        assert!(all <= HISTORY, "{all} bytes");
    }

    /// Each change makes a round of every feed, so as many clients cost the same whatever they speak.
    #[tokio::test(start_paused = true)]
    async fn rounds_are_as_far_apart_as_the_clients_of_all_feeds_of_a_syncer_demand() {
        const PER_CLIENT: std::time::Duration = std::time::Duration::from_millis(20);
        let (mut cache, feeds) = paced_feeds(PER_CLIENT);
        let key = |wire| FeedKey { syncer: SyncerType::Felix, line: Release::Master, wire, filter: Filter::default() };
        let mut leases = Vec::new();
        for wire in [Wire::GobPlain, Wire::GobPlain, Wire::GobSnappy, Wire::GobSnappy, Wire::GobSnappy] {
            leases.push(feeds.lease(key(wire)).await.expect("there is room"));
        }
        let demand = leases[0].reader().demand().clone();
        let start = Instant::now();
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"1"))])]);
        tokio::time::sleep(PER_CLIENT / 2).await;
        assert_eq!(demand.next(), Some(start + 5 * PER_CLIENT));
        leases.truncate(1);
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"2"))])]);
        tokio::time::sleep(PER_CLIENT).await;
        assert_eq!(demand.next(), Some(start + 2 * PER_CLIENT), "those that left count no longer");
    }
}
