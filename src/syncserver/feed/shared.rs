//! A feed: one syncer in one dialect, wire format and filter, encoded once for all its clients.
//!
//! Written by [`follow`](super::follow), held by clients through a [`Lease`]. A feed exists while it has clients, and a
//! little longer. It never waits for any of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::config::Pumps;
use super::super::wire::Wire;
use super::catch_up::CatchUp;
use super::history::History;
use super::large::CatchUps;
use super::newest::Newest;
use super::pieces::Recipe;
use super::pump::Pump;
use super::ring::{Limits, Mark, Ring};
use super::room::Room;
use super::snapshot::Snapshot;
use crate::calico::release::Release;
use crate::metrics::SyncerMetrics;
use crate::model::{SyncerName, Update};
use crate::outlet::difference::difference;
use crate::outlet::filter::Filter;
use crate::outlet::pace::Pace;
use crate::snapcache::{Breadcrumb, Reader, Trail};
use crate::syncproto::format::WireFormat;
use crate::tasks::TaskRegistry;

/// A producer of a snapshot that makes no progress for this long is out of order. Where thousands of agents come at the
/// same time, it waits among them.
const PRODUCER_STUCK: Duration = Duration::from_secs(20);

/// The parameters of a feed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FeedKey {
    pub(crate) syncer: SyncerName,
    /// The dialect of this release of Calico.
    pub(crate) dialect: Release,
    pub(crate) wire: Wire,
    pub(crate) filter: Filter,
}

impl fmt::Display for FeedKey {
    /// The names of its tasks begin with this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filtered = if self.filter.admits_all() { "" } else { "-filtered" };
        let dialect = if self.dialect == Release::Master { String::new() } else { format!("{}-", self.dialect) };
        write!(f, "{}-{dialect}{}{filtered}", self.syncer, self.wire.name())
    }
}

/// Settings of feeds.
#[derive(Clone, Debug)]
pub(crate) struct FeedConfig {
    pub(crate) max_message_size: usize,
    pub(crate) min_batching_age: Duration,
    pub(crate) limits: Limits,
    pub(crate) snapshot_max_age: Duration,
    pub(crate) pace_max: Duration,
    pub(crate) pace_per_client: Duration,
    pub(crate) pumps: Option<Pumps>,
    /// The encoder of a wire: [`Wire::format`], unless a test wants another one.
    pub(crate) format: fn(Wire) -> Arc<dyn WireFormat>,
}

/// One (syncer, dialect, wire format, filter).
#[derive(Debug)]
pub(crate) struct Feed {
    key: FeedKey,
    config: FeedConfig,
    format: Arc<dyn WireFormat>,
    reader: Reader,
    tasks: TaskRegistry,
    /// Memory for encoded snapshots, if that is limited.
    room: Option<Arc<Room>>,
    history: Arc<History>,
    pump: Arc<Pump>,
    encoded: Mutex<SharedEncodings>,
    clients: AtomicUsize,
    /// Clients of all feeds of the syncer.
    clients_of_all: Arc<AtomicUsize>,
    /// Updates that its slowest client lacked at the last housekeeping.
    lacked: AtomicU64,
    ended: AtomicBool,
    made_at: Instant,
    /// When the last housekeeping found everything in order: milliseconds since `made_at`.
    in_order_at: AtomicU64,
}

/// The encodings that clients share besides the history.
#[derive(Debug)]
struct SharedEncodings {
    snapshots: Newest,
    catch_ups: CatchUps,
}

/// The number of clients of all feeds of one syncer, and its metrics.
#[derive(Clone, Debug)]
pub(crate) struct OfSyncer {
    pub(crate) metrics: SyncerMetrics,
    pub(crate) clients: Arc<AtomicUsize>,
}

impl Feed {
    /// A feed without clients, and the trail from which it begins to follow its cache.
    pub(crate) fn new(
        key: FeedKey,
        config: FeedConfig,
        syncer: &OfSyncer,
        content: &Reader,
        pump: Pump,
        tasks: TaskRegistry,
        room: Option<Arc<Room>>,
    ) -> (Arc<Self>, Trail) {
        let trail = content.follow();
        let history = History::new(
            Ring::new(trail.position(), config.limits),
            Pace::new(config.pace_max, config.pace_per_client),
            syncer.metrics.clone(),
            content.demand().consumer(),
            syncer.clients.clone(),
        );
        let feed = Self {
            format: (config.format)(key.wire),
            key,
            config,
            reader: content.clone(),
            tasks,
            room,
            history: Arc::new(history),
            pump: Arc::new(pump),
            encoded: Mutex::new(SharedEncodings { snapshots: Newest::default(), catch_ups: CatchUps::default() }),
            clients: AtomicUsize::new(0),
            clients_of_all: syncer.clients.clone(),
            lacked: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            made_at: Instant::now(),
            in_order_at: AtomicU64::new(0),
        };
        (Arc::new(feed), trail)
    }

    /// One more client.
    pub(crate) fn lease(self: &Arc<Self>) -> Lease {
        self.clients.fetch_add(1, Ordering::AcqRel);
        self.clients_of_all.fetch_add(1, Ordering::AcqRel);
        Lease(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, SharedEncodings> {
        // Half a change would give clients wrong data: every task that takes the lock after a panic fails as well, the
        // feed's own task at the next housekeeping at the latest.
        self.encoded.lock().expect("an earlier panic interrupted a change of the shared encodings")
    }

    pub(crate) fn key(&self) -> &FeedKey {
        &self.key
    }

    pub(crate) fn config(&self) -> &FeedConfig {
        &self.config
    }

    pub(crate) fn format(&self) -> &Arc<dyn WireFormat> {
        &self.format
    }

    pub(crate) fn metrics(&self) -> &SyncerMetrics {
        self.history.metrics()
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Its published segments.
    pub(crate) fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// The pumps, with the clients at rest.
    pub(crate) fn pump(&self) -> &Arc<Pump> {
        &self.pump
    }

    /// Limits the history to an equal part of the memory that this number of feeds shares.
    pub(crate) fn share_history(&self, feeds: usize) {
        let Limits { bytes, updates } = self.config.limits;
        self.history.limit(Limits { bytes: bytes / feeds.max(1), updates: updates / feeds.max(1) });
    }

    #[cfg(test)]
    pub(crate) fn tasks(&self) -> &TaskRegistry {
        &self.tasks
    }

    /// The newest mark.
    pub(crate) fn head(&self) -> Arc<Mark> {
        self.history.head()
    }

    /// Updates that its slowest client lacked at the last housekeeping.
    pub(crate) fn lacked(&self) -> u64 {
        self.lacked.load(Ordering::Relaxed)
    }

    /// The time for which the feed, one of its pumps or the producer of its newest snapshot has made no progress. About
    /// a second when all is well.
    pub(crate) fn stuck_for(&self, now: Instant) -> Duration {
        let in_order_at = self.made_at + Duration::from_millis(self.in_order_at.load(Ordering::Relaxed));
        now.saturating_duration_since(in_order_at)
    }

    /// Housekeeping has checked the clients: the slowest lacks this number of updates, and pumps make progress or not.
    pub(crate) fn kept_house(&self, now: Instant, most_lacked: u64, pumps_get_on: bool) {
        self.lacked.store(most_lacked, Ordering::Relaxed);
        let mut encoded = self.lock();
        if pumps_get_on && encoded.snapshots.stuck_for(now) < PRODUCER_STUCK {
            let since = u64::try_from(now.saturating_duration_since(self.made_at).as_millis()).unwrap_or(u64::MAX);
            self.in_order_at.store(since, Ordering::Relaxed);
        }
        encoded.snapshots.forget_unwanted(now);
        let unwanted = encoded.catch_ups.forget_unwanted(now);
        // Not under the lock: freeing a large one may take a while.
        drop(encoded);
        drop(unwanted);
    }

    /// Whether it has no clients.
    pub(crate) fn is_idle(&self) -> bool {
        self.clients.load(Ordering::Acquire) == 0
    }

    /// Whether the cache is gone: there will be no more changes.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The cache is gone, or the feed is no longer needed.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.history.end();
    }

    /// The snapshot for a new client: the [shared](Newest::reuse) one, or a new one.
    pub(crate) fn snapshot(&self, now: Instant) -> Arc<Snapshot> {
        let mut encoded = self.lock();
        let head = self.head();
        if let Some(shared) = encoded.snapshots.reuse(&head, now, self.config.snapshot_max_age) {
            self.metrics().snapshots_reused.inc();
            return shared;
        }
        let wire = self.key.wire;
        let (most, full) = (wire.snapshot_entries(self.config.max_message_size), wire.snapshot_piece_bytes());
        let recipe = Recipe::new(self.format.clone(), self.key.filter.clone(), most, full);
        let snapshot = Snapshot::new(head, recipe, now);
        let (last, given_up) = encoded.snapshots.replace(snapshot.clone(), now);
        let base = last.as_ref().and_then(|last| last.as_base());
        // Not under the lock: giving up the older ones may take a while.
        drop(encoded);
        if let Some(last) = &last {
            for older in &given_up {
                older.give_up(last);
            }
        }
        drop((last, given_up));
        self.metrics().snapshots_generated.inc();
        // On the runtime of the connections: the cost of new clients must not delay those that are served already.
        let taken = self.room.as_ref().map(Room::taker);
        let produce = Snapshot::produce(Arc::downgrade(&snapshot), base, taken, self.metrics().clone());
        self.tasks.spawn_passing(&Handle::current(), format!("{}-snapshot", self.key), produce);
        snapshot
    }

    /// The catch-up for clients at a mark that the ring has forgotten, or from which a large publication leads on. Other clients
    /// at the same mark share theirs if the ring leads on from its end and that has at least the sequence number
    /// `at_least`. Otherwise it leads to the newest mark.
    pub(crate) fn catch_up(&self, mark: &Mark, head: Arc<Mark>, at_least: u64) -> Arc<CatchUp> {
        if let Some(shared) = self.lock().catch_ups.find(mark, at_least, &self.history) {
            return shared;
        }
        let updates = difference(&mark.map, &head.map, &self.key.filter);
        let catch_up = self.limited(CatchUp::difference(mark, head, updates));
        let last = self.lock().catch_ups.share(&catch_up);
        if let Some(last) = last {
            last.give_up();
        }
        catch_up
    }

    /// Publishes updates that are too large for a segment of the ring. The oldest of them was published at `first_at`;
    /// `last` is the crumb after them.
    pub(crate) fn publish_large(&self, updates: Vec<Arc<Update>>, first_at: Instant, last: &Breadcrumb) {
        let before = self.head();
        // The lock is held until it can be found: clients at the mark before it come here once the ring has moved on.
        let mut encoded = self.lock();
        let target = self.history.skip(updates.len(), first_at, last);
        let publication = self.limited(CatchUp::publication(&before, target, updates));
        let last = encoded.catch_ups.publish(publication, Instant::now());
        drop(encoded);
        if let Some(last) = last {
            last.give_up();
        }
    }

    /// Keeps no encoded messages of a catch-up where memory for them would have to be limited as well.
    fn limited(&self, catch_up: Arc<CatchUp>) -> Arc<CatchUp> {
        if self.room.is_some() {
            catch_up.give_up();
        }
        catch_up
    }
}

/// A client's hold on a feed: the feed lives at least as long.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Feed>);

impl std::ops::Deref for Lease {
    type Target = Arc<Feed>;

    fn deref(&self) -> &Arc<Feed> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.clients_of_all.fetch_sub(1, Ordering::AcqRel);
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}
