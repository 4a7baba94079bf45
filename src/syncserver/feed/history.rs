//! The history of a feed: the ring of segments, and when the next round may start.
//!
//! Written by the feed's own task through [`rounds`](super::rounds), read by [pumps](super::pump) and by clients'
//! tasks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ring::{Copied, Limits, Mark, Ring};
use crate::demand::Consumer;
use crate::metrics::SyncerMetrics;
use crate::outlet::pace::Pace;
use crate::snapcache::Breadcrumb;

/// Shortest time between two publications while a round is on its way. Each costs a message; with thousands of agents a round
/// takes some 8 ms.
pub(crate) const LATE_GAP: Duration = Duration::from_millis(2);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct History {
    state: Mutex<RingAndPace>,
    metrics: SyncerMetrics,
    demand: Consumer,
    /// Clients of all feeds of the syncer: a change costs a round of each of these feeds.
    clients_of_all: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct RingAndPace {
    ring: Ring,
    pace: Pace,
}

impl History {
    /// A history that begins with `ring`.
    pub(crate) fn new(
        ring: Ring,
        pace: Pace,
        metrics: SyncerMetrics,
        demand: Consumer,
        clients_of_all: Arc<AtomicUsize>,
    ) -> Self {
        Self { state: Mutex::new(RingAndPace { ring, pace }), metrics, demand, clients_of_all }
    }

    fn lock(&self) -> MutexGuard<'_, RingAndPace> {
        // Half a change would give clients wrong data: every task that takes the lock after a panic fails as well, the
        // feed's own task at the next housekeeping at the latest.
        self.state.lock().expect("an earlier panic interrupted a change of the feed's history")
    }

    pub(crate) fn metrics(&self) -> &SyncerMetrics {
        &self.metrics
    }

    /// The newest mark.
    pub(crate) fn head(&self) -> Arc<Mark> {
        self.lock().ring.head().clone()
    }

    /// Number of the oldest segment that the ring has.
    pub(crate) fn first(&self) -> u64 {
        self.lock().ring.first()
    }

    /// Bytes that the ring holds.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().ring.bytes()
    }

    /// Whether the ring has all segments after a mark.
    pub(crate) fn leads_on_from(&self, mark: &Mark) -> bool {
        self.lock().ring.leads_on_from(mark)
    }

    /// Appends the segments after a mark to `out`; see [`Ring::copy_after`]. Also returns the newest mark.
    pub(crate) fn copy_after(&self, from: &Mark, max_bytes: usize, out: &mut VecDeque<Bytes>) -> (Copied, Arc<Mark>) {
        let state = self.lock();
        (state.ring.copy_after(from, max_bytes, out), state.ring.head().clone())
    }

    /// Appends a segment. Returns its length.
    pub(crate) fn push(&self, bytes: Bytes, updates: usize, first_at: Instant, last: &Breadcrumb) -> usize {
        let len = bytes.len();
        self.change(|ring| ring.push(bytes, updates, first_at, last));
        len
    }

    /// Moves on past a publication that is too large for a segment. Returns the mark after it.
    pub(crate) fn skip(&self, updates: usize, first_at: Instant, last: &Breadcrumb) -> Arc<Mark> {
        self.change(|ring| {
            ring.skip(updates, first_at, last);
            ring.head().clone()
        })
    }

    /// Limits the ring to this from now on.
    pub(crate) fn limit(&self, limits: Limits) {
        self.change(|ring| ring.limit(limits));
    }

    /// Forgets segments that are too old.
    pub(crate) fn forget_before(&self, now: Instant) {
        self.change(|ring| ring.forget_before(now));
    }

    /// Changes the ring, and counts the bytes that it holds.
    fn change<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        let mut state = self.lock();
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = signed(state.ring.bytes());
        let result = change(&mut state.ring);
        self.metrics.feed_bytes.add(signed(state.ring.bytes()) - before);
        result
    }

    /// The feed has ended: its bytes no longer count.
    pub(crate) fn end(&self) {
        self.metrics.feed_bytes.sub(i64::try_from(self.bytes()).unwrap_or(0));
    }

    /// A round with this number of updates begins.
    pub(crate) fn on_round(&self, updates: usize) {
        self.lock().pace.on_round(updates);
    }

    /// A segment was published for the pumps to take to the clients.
    pub(crate) fn on_published(&self) {
        self.lock().pace.on_published(Instant::now());
    }

    /// A pump has served all its clients; `busy`: another one has not.
    pub(crate) fn on_pass(&self, now: Instant, busy: bool) {
        self.lock().pace.on_served(now);
        self.say_when(now, busy);
    }

    /// Tells the sources when changes are next of use: with the next round, or earlier while a round is on its way
    /// (`busy`).
    pub(crate) fn say_when(&self, now: Instant, busy: bool) {
        let next = self.next_round(now);
        self.demand.wants(Some(if busy { next.min(now + LATE_GAP) } else { next }));
    }

    /// Tells the sources that no time is better than another: there are no clients.
    pub(crate) fn wants_nothing(&self) {
        self.demand.wants(None);
    }

    /// When the next round may start.
    pub(crate) fn next_round(&self, now: Instant) -> Instant {
        self.lock().pace.next_round(now, self.clients_of_all.load(Ordering::Acquire))
    }
}
