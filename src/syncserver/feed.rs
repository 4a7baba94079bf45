//! Follows a cache once for all clients that speak one wire format, and encodes each change once.
//!
//! ```text
//!  cache ─crumbs─► Feed::run ─► ring of segments ─► pump: to all clients that rest at a mark
//!                      │              ├─ clients that do not: take what lies between their mark and the head, in their own time
//!                      │              └─ forgotten: difference of two maps, encoded for those that stood at the same mark
//!                      └─ snapshot, shared by clients that arrive together
//! ```
//!
//! Changes go out in rounds (see [`super::pace`]). What comes while the pumps take a round to thousands of clients is
//! published at once, for those whose turn is still to come; the others get it with the next round.
//!
//! A feed exists while it has clients (and a little longer). It never waits for any of them.
//!
//! Invariants:
//! - the same segment bytes go to every client;
//! - a snapshot shows the feed's head, never the cache's: what follows it is in the ring, without gap or overlap;
//! - a status is encoded after the changes it belongs to, in the same segment.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::rounds::{LATE_GAP, Late, Turn};
use super::catch_up::CatchUp;
use super::config::Pumps;
use super::difference::difference;
use super::feeds::{Feeds, Source};
use super::filter::Filter;
use super::inspection::Probe;
use super::pace::Pace;
use super::pieces::Recipe;
use super::pinned::Pinned;
use super::pump::Pump;
use super::ring::{Limits, Mark, Ring, Taken};
use super::room::Room;
use super::sharing::Sharing;
use super::snapshot::Snapshot;
use super::wire::Wire;
use crate::demand::Consumer;
use crate::metrics::SyncerMetrics;
use crate::model::SyncerType;
use crate::model::release::Release;
use crate::snapcache::{Reader, Trail};
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::tasks::TaskRegistry;

mod rounds;

/// How often a feed forgets what is old, and looks whether it is still needed.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A feed whose pump does not come back from its clients for this long is not in order. A pass takes some 100 ms at most.
const PUMP_STUCK: Duration = Duration::from_secs(5);

/// The same for the producer of a snapshot. Longer: where thousands of agents come at the same time, it waits its turn among them.
const PRODUCER_STUCK: Duration = Duration::from_secs(20);

/// How many housekeepings a feed without clients survives: clients that reconnect find it as it was.
const IDLE_ROUNDS: u32 = 30;

/// What a feed is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FeedKey {
    pub(super) syncer: SyncerType,
    /// In whose dialect.
    pub(super) line: Release,
    pub(super) wire: Wire,
    pub(super) filter: Filter,
}

impl fmt::Display for FeedKey {
    /// The name of its tasks begins with this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filtered = if self.filter.admits_all() { "" } else { "-filtered" };
        let dialect = if self.line == Release::Master { String::new() } else { format!("{}-", self.line) };
        write!(f, "{}-{dialect}{}{filtered}", self.syncer, self.wire.name())
    }
}

/// Settings of feeds.
#[derive(Clone, Debug)]
pub(super) struct FeedConfig {
    pub(super) max_message_size: usize,
    pub(super) min_batching_age: Duration,
    pub(super) limits: Limits,
    pub(super) snapshot_max_age: Duration,
    pub(super) pace_max: Duration,
    pub(super) pace_per_client: Duration,
    pub(super) pumps: Option<Pumps>,
    /// The encoder of a wire: [`Wire::format`], unless a test wants another one.
    pub(super) format: fn(Wire) -> Arc<dyn WireFormat>,
}

/// One (syncer, wire format, filter).
#[derive(Debug)]
pub(super) struct Feed {
    key: FeedKey,
    config: FeedConfig,
    format: Arc<dyn WireFormat>,
    metrics: SyncerMetrics,
    reader: Reader,
    tasks: TaskRegistry,
    /// For encoded snapshots, if that is limited.
    room: Option<Arc<Room>>,
    clients: AtomicUsize,
    /// Those of all feeds of the syncer: a change costs a round of each of these feeds.
    clients_of_all: Arc<AtomicUsize>,
    /// Updates that its slowest client lacked at the last housekeeping.
    lacked: AtomicU64,
    ended: AtomicBool,
    made_at: Instant,
    /// When the last housekeeping found everything in order: milliseconds since `made_at`.
    in_order_at: AtomicU64,
    state: Mutex<State>,
    pump: Pump,
    demand: Consumer,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    pace: Pace,
    sharing: Sharing,
    /// The newest one, if somebody reads it.
    catch_up: Weak<CatchUp>,
}

impl Feed {
    /// A feed without clients, and where it begins to follow its cache.
    pub(super) fn new(
        key: FeedKey,
        config: FeedConfig,
        source: &Source,
        content: &Reader,
        pump: Pump,
        tasks: TaskRegistry,
        room: Option<Arc<Room>>,
    ) -> (Arc<Self>, Trail) {
        let trail = content.follow();
        let state = State {
            ring: Ring::new(trail.position(), config.limits),
            pace: Pace::new(config.pace_max, config.pace_per_client),
            sharing: Sharing::default(),
            catch_up: Weak::new(),
        };
        let feed = Self {
            format: (config.format)(key.wire),
            key,
            config,
            metrics: source.metrics.clone(),
            reader: content.clone(),
            tasks,
            room,
            clients: AtomicUsize::new(0),
            clients_of_all: source.clients.clone(),
            lacked: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            made_at: Instant::now(),
            in_order_at: AtomicU64::new(0),
            state: Mutex::new(state),
            pump,
            demand: content.demand().consumer(),
        };
        (Arc::new(feed), trail)
    }

    /// One more client.
    pub(super) fn lease(self: &Arc<Self>) -> Lease {
        self.clients.fetch_add(1, Ordering::AcqRel);
        self.clients_of_all.fetch_add(1, Ordering::AcqRel);
        Lease(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Half of a change would give clients wrong data: every task that comes to it fails as well, the feed's own task at the next
        // housekeeping at the latest.
        self.state.lock().expect("a panic in the middle of a change of the feed's history")
    }

    pub(super) fn key(&self) -> &FeedKey {
        &self.key
    }

    pub(super) fn format(&self) -> &Arc<dyn WireFormat> {
        &self.format
    }

    pub(super) fn metrics(&self) -> &SyncerMetrics {
        &self.metrics
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Keeps this part of the history that a feed may keep, because several feeds share it.
    pub(super) fn share_history(&self, feeds: usize) {
        let Limits { bytes, updates } = self.config.limits;
        let limits = Limits { bytes: bytes / feeds.max(1), updates: updates / feeds.max(1) };
        let mut state = self.lock();
        let held = state.ring.bytes();
        state.ring.limit(limits);
        self.count_bytes(held, state.ring.bytes());
    }

    /// Bytes of history that it keeps.
    #[cfg(test)]
    pub(super) fn history_bytes(&self) -> usize {
        self.lock().ring.bytes()
    }

    #[cfg(test)]
    pub(super) fn tasks(&self) -> &TaskRegistry {
        &self.tasks
    }

    /// The newest place.
    pub(super) fn head(&self) -> Arc<Mark> {
        self.lock().ring.head().clone()
    }

    /// Updates that its slowest client lacks, as of the last housekeeping.
    pub(super) fn lacked(&self) -> u64 {
        self.lacked.load(Ordering::Relaxed)
    }

    /// For how long the feed, one of its pumps or the producer of its newest snapshot has not got on. About a second when all is
    /// well.
    pub(super) fn stuck_for(&self, now: Instant) -> Duration {
        let in_order_at = self.made_at + Duration::from_millis(self.in_order_at.load(Ordering::Relaxed));
        now.saturating_duration_since(in_order_at)
    }

    /// Whether nobody uses it.
    pub(super) fn is_idle(&self) -> bool {
        self.clients.load(Ordering::Acquire) == 0
    }

    /// Whether the cache is gone: there will be no more changes.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Appends what follows a place to `out`; see [`Ring::take`]. Returns the newest place as well.
    pub(super) fn take(&self, from: &Mark, max_bytes: usize, out: &mut VecDeque<Bytes>) -> (Taken, Arc<Mark>) {
        let state = self.lock();
        (state.ring.take(from, max_bytes, out), state.ring.head().clone())
    }

    /// The clients that may be served by a pump.
    pub(super) fn pump(&self) -> &Pump {
        &self.pump
    }

    /// A pump has been to all its clients.
    pub(super) fn on_pass(&self, now: Instant) {
        self.lock().pace.on_served(now);
        self.say_when(now);
    }

    /// Says when changes are of use next: with the next round, or already before while one is on its way.
    fn say_when(&self, now: Instant) {
        let next = self.next_round(now);
        self.demand.wants(Some(if self.pump.is_busy() { next.min(now + LATE_GAP) } else { next }));
    }

    /// When the next round may start.
    fn next_round(&self, now: Instant) -> Instant {
        self.lock().pace.next_round(now, self.clients_of_all.load(Ordering::Acquire))
    }

    /// A snapshot for a new client: the one that is [shared](Sharing::reuse), or a new one.
    pub(super) fn snapshot(&self, now: Instant) -> Arc<Snapshot> {
        let mut state = self.lock();
        let head = state.ring.head().clone();
        if let Some(shared) = state.sharing.reuse(&head, now, self.config.snapshot_max_age) {
            self.metrics.snapshots_reused.inc();
            return shared;
        }
        let wire = self.key.wire;
        let (most, full) = (wire.snapshot_entries(self.config.max_message_size), wire.snapshot_piece_bytes());
        let recipe = Recipe::new(self.format.clone(), self.key.filter.clone(), most, full);
        let snapshot = Snapshot::new(head, recipe, now);
        let (last, given_up) = state.sharing.replace(snapshot.clone(), now);
        let base = last.as_ref().and_then(|last| last.as_base());
        // Nobody should have to wait for what is done with the older ones.
        drop(state);
        if let Some(last) = &last {
            for older in &given_up {
                older.give_up(last);
            }
        }
        drop((last, given_up));
        self.metrics.snapshots_generated.inc();
        // With the connections: what newcomers cost is not to be felt by those who are served already.
        let taken = self.room.as_ref().map(Room::taker);
        let produce = Snapshot::produce(Arc::downgrade(&snapshot), base, taken, self.metrics.clone());
        self.tasks.spawn_passing(&Handle::current(), format!("{}-snapshot", self.key), produce);
        snapshot
    }

    /// What a client lacks at a mark that the ring has forgotten, up to the newest place or to one with `at_least` this sequence
    /// number from which the ring leads on: what others at the same mark are sent, if there are any.
    pub(super) fn catch_up(&self, mark: &Mark, head: Arc<Mark>, at_least: u64) -> Arc<CatchUp> {
        {
            let state = self.lock();
            let shared = state.catch_up.upgrade();
            let fits = |shared: &Arc<CatchUp>| {
                let target = shared.target();
                shared.after() == mark.sequence && target.sequence >= at_least && state.ring.leads_on_from(target)
            };
            if let Some(shared) = shared.filter(fits) {
                return shared;
            }
        }
        let updates = difference(&mark.map, &head.map, &self.key.filter);
        let catch_up = CatchUp::new(mark.sequence, head, updates);
        if self.room.is_some() {
            // An encoding for several would have to have a limit, too.
            catch_up.give_up();
        }
        let last = std::mem::replace(&mut self.lock().catch_up, Arc::downgrade(&catch_up));
        if let Some(last) = last.upgrade() {
            last.give_up();
        }
        catch_up
    }

    /// Follows the cache until it ends, the feed is no longer needed, or the token is cancelled.
    pub(super) async fn run(self: Arc<Self>, mut trail: Trail, feeds: Weak<Feeds>, stop: CancellationToken) {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle_rounds = 0;
        let mut late = Late::default();
        let mut probe = Probe::default();
        let mut waited_for = None;
        loop {
            // Once for each wait, whatever is done in between.
            let here = trail.position();
            if waited_for.replace(here.sequence) != Some(here.sequence) {
                let ready = here.next().is_some();
                let counter = if ready { &self.metrics.breadcrumb_non_block } else { &self.metrics.breadcrumb_block };
                counter.inc();
            }
            tokio::select! {
                () = stop.cancelled() => break,
                _ = housekeeping.tick() => {
                    self.keep_house(&trail, &mut probe, Instant::now()).await;
                    if let Some(feeds) = feeds.upgrade() {
                        probe.send(feeds.runtimes());
                        feeds.note_lacked(self.key.syncer);
                    }
                    idle_rounds = if self.is_idle() { idle_rounds + 1 } else { 0 };
                    if idle_rounds > 0 {
                        self.demand.wants(None);
                    }
                    if idle_rounds > IDLE_ROUNDS && feeds.upgrade().is_none_or(|feeds| feeds.remove_unused(&self)) {
                        break;
                    }
                }
                () = late.due() => late = self.publish_round(None, &mut trail, &late).await,
                crumb = trail.next() => {
                    let Some(first) = crumb else { break };
                    let turn = tokio::select! {
                        () = stop.cancelled() => break,
                        turn = self.next_turn(&late) => turn,
                    };
                    match turn {
                        Turn::Round => late = self.publish_round(Some(first), &mut trail, &late).await,
                        Turn::Late => self.publish_late(first, &mut trail, &mut late),
                    }
                }
            }
        }
        self.ended.store(true, Ordering::Release);
        self.metrics.feed_bytes.sub(i64::try_from(self.lock().ring.bytes()).unwrap_or(0));
        if let Some(feeds) = feeds.upgrade() {
            feeds.forget(&self);
            feeds.note_lacked(self.key.syncer);
        }
        self.pump.end();
    }

    async fn keep_house(&self, trail: &Trail, probe: &mut Probe, now: Instant) {
        let here = trail.position();
        let before = self.head();
        if here.sequence > before.sequence {
            // Nothing of what happened passed the filter. Let the clients' marks move on all the same: an old mark pins
            // everything that has changed since.
            let range = SeqRange { after: before.sequence, upto: here.sequence };
            let bytes = if self.key.wire.is_numbered() { self.format.updates(range, &[]) } else { Bytes::new() };
            self.push(bytes, 0, here.at, here);
            self.announce().await;
        }
        let mut pinned = Pinned::new(self.lock().ring.first());
        let found = self.pump.inspect(&self.head(), self.lacked(), probe.is_late(), now, &mut pinned);
        self.pump.let_go(&pinned.excess());
        self.lacked.store(found.most_lacked, Ordering::Relaxed);
        if found.woken > 0 {
            self.metrics.lost_wakeups.inc_by(found.woken);
            tracing::warn!(
                feed = %self.key,
                clients = found.woken,
                "clients lagged though nothing kept them from being served, and were woken: please report this bug of Bulrush"
            );
        }
        let mut state = self.lock();
        let held = state.ring.bytes();
        state.ring.forget_before(now);
        self.count_bytes(held, state.ring.bytes());
        if found.stuck_for < PUMP_STUCK && state.sharing.stuck_for(now) < PRODUCER_STUCK {
            let since = u64::try_from(now.saturating_duration_since(self.made_at).as_millis()).unwrap_or(u64::MAX);
            self.in_order_at.store(since, Ordering::Relaxed);
        }
        state.sharing.forget_unwanted(now);
    }
}

/// A client's hold on a feed: the feed lives on while there is one.
#[derive(Debug)]
pub(super) struct Lease(Arc<Feed>);

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

#[cfg(test)]
mod tests {
    use super::super::tests::harness::{lone_feed_with_pace, update};
    use super::*;
    use crate::model::SyncerEvent;

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_once_however_long_it_is() {
        let (mut cache, lease) = lone_feed_with_pace(Duration::ZERO);
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        let waits = || lease.metrics().breadcrumb_block.get();
        assert_eq!(waits(), 1);
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"1"))])]);
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        assert_eq!(waits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_is_in_order_until_a_pump_does_not_come_back() {
        let (_cache, lease) = lone_feed_with_pace(Duration::ZERO);
        let stuck_for = |lease: &Lease| lease.stuck_for(Instant::now());
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        assert!(stuck_for(&lease) <= HOUSEKEEPING, "{:?}", stuck_for(&lease));
        lease.pump().get_stuck();
        tokio::time::sleep(PUMP_STUCK + 20 * HOUSEKEEPING).await;
        assert!(stuck_for(&lease) >= 19 * HOUSEKEEPING, "{:?}", stuck_for(&lease));
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_says_when_it_can_make_use_of_more_while_it_has_clients() {
        const PACE: Duration = Duration::from_millis(20);
        let (mut cache, lease) = lone_feed_with_pace(PACE);
        let mut change = |value: &[u8]| cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
        let demand = lease.reader().demand().clone();
        assert_eq!(demand.next(), None, "nothing has been served: anything is of use");
        let start = Instant::now();
        change(b"1");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(demand.next(), Some(start + PACE));
        change(b"2");
        tokio::time::sleep(PACE).await;
        assert_eq!(demand.next(), Some(start + 2 * PACE));
        drop(lease);
        tokio::time::sleep(2 * HOUSEKEEPING).await;
        assert_eq!(demand.next(), None, "nobody is served");
    }
}
