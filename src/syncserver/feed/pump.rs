//! Takes each round to all clients that rest, in one loop, instead of waking a task for each of them.
//!
//! ```text
//!  feed ─round is in the ring─► Pump::call ─► Pump::run ─pass─► client, client … (written to at once if it rests)
//!                                        └ few clients ─┘  └──► else: its task is nudged, or busy anyway
//! ```
//!
//! The segments after a mark are looked up once for all clients at that mark. A pass costs little more than its system
//! calls; docs/performance.md has the cost of a task per client instead.
//!
//! Segments that come into the ring during a pass go to the clients that are still to be served, as if the pass had
//! begun with them: with thousands of clients a pass takes so long that they would otherwise get old data. The others
//! get them with the next pass.
//!
//! A pump never waits: a full socket and a locked line are left to the client's task. After silence a pass begins at
//! another client than the last one, so that no client is always last. Without silence in between, passes begin at the
//! same one, so that all clients are served at equal intervals.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;

use super::history::History;
use super::inspection::{Check, Finding, Inspection, Waits};
use super::pinned::Pinned;
use super::pump_calls::PumpCalls;
use super::ring::{Copied, Mark};

/// Clients served between two looks at the clock: at some 6 µs for each, about a third of a millisecond.
const BATCH: usize = 64;

/// Time for which a pump keeps its worker before other tasks run. Not shorter: where thousands of agents fetch their
/// snapshots, these tasks keep the worker a hundred times as long.
const KEEP: Duration = Duration::from_millis(2);

/// Most bytes that a client is given in one pass; more is left to its task, which fills sockets in its own time.
const STRETCH_BYTES: usize = 256 << 10;

/// Pieces that together are no larger than this are copied into one.
const JOINED_BYTES: usize = 64 << 10;

/// Most pumps of a feed. More would wait for each other in the kernel rather than write faster.
const MAX_SHARDS: usize = 8;

/// Connections in a row that one pump serves: with few connections, only one pump has to be woken.
const ROW: u64 = 64;

/// A client that a pump may serve.
pub(crate) trait PumpClient: Send + Sync {
    /// Serves the client if it rests, and otherwise leaves it to its task.
    fn serve(&self, pass: &mut Pass<'_>);

    /// Has the client's task look for more.
    fn nudge(&self);

    /// The client's position, from the beginning of its snapshot to the end of its connection. Waits while its task is
    /// at work on it.
    fn position(&self) -> Option<Position>;

    /// Housekeeping checks the client, and wakes its task if it was forgotten. `None`: its task is at work on it.
    fn inspect(&self, check: &Check<'_>) -> Option<Finding>;

    /// Notes the version of the map that the client holds, unless its task is at work on it.
    fn note_version(&self, pinned: &mut Pinned);

    /// Ends the connection to free its version of the map.
    fn end_oldest(&self);
}

/// The position of a client.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// Its last mark; that of its snapshot while this is on its way.
    pub(crate) mark: Arc<Mark>,
    /// Bytes that were written to it.
    pub(crate) bytes_sent: u64,
}

/// The history after a mark.
pub(crate) enum Ahead {
    /// There is none.
    Nothing,
    /// The ring has forgotten it.
    Forgotten,
    /// There is some.
    Stretch(Stretch),
}

/// A part of the feed's history.
pub(crate) struct Stretch {
    pub(crate) pieces: VecDeque<Bytes>,
    pub(crate) end: Arc<Mark>,
    /// It ends before the newest mark.
    pub(crate) more: bool,
    /// Age of its first change at the beginning of the batch in which it was looked up.
    pub(crate) lag: Duration,
}

/// One pass over all clients.
pub(crate) struct Pass<'a> {
    history: &'a History,
    /// The history after the mark with this sequence number.
    known: Option<(u64, Ahead)>,
    /// Sequence number of the newest mark when that was looked up.
    head: u64,
    /// When the present batch began.
    pub(crate) now: Instant,
    /// Bytes written in this batch.
    pub(crate) bytes: u64,
    /// Clients of this batch that were given the known history, not yet in the metrics.
    served: u32,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(history: &'a History) -> Self {
        Self { history, known: None, head: 0, now: Instant::now(), bytes: 0, served: 0 }
    }

    /// The history after a mark.
    pub(crate) fn after(&mut self, mark: &Mark) -> &Ahead {
        if self.known.as_ref().is_some_and(|(sequence, _)| *sequence != mark.sequence) {
            self.count(Instant::now());
            self.known = None;
        }
        let history = self.history;
        let (_, ahead) = self.known.get_or_insert_with(|| {
            let mut pieces = VecDeque::new();
            let (taken, head) = history.copy_after(mark, STRETCH_BYTES, &mut pieces);
            self.head = head.sequence;
            let ahead = match taken {
                Copied::Nothing => Ahead::Nothing,
                Copied::Forgotten(_) => Ahead::Forgotten,
                // With a reference count of its own: pumps on several processors would contend for the ring's, twice
                // for every client.
                Copied::UpTo(end) => Ahead::Stretch(Stretch {
                    pieces: joined(pieces),
                    more: end.sequence != head.sequence,
                    end: Arc::new((*end).clone()),
                    lag: mark.age(self.now),
                }),
            };
            (mark.sequence, ahead)
        });
        ahead
    }

    /// A batch of clients is done. The next one also gets segments that have come into the ring meanwhile.
    fn end_batch(&mut self, now: Instant) {
        self.count(now);
        if self.history.head().sequence != self.head {
            self.known = None;
        }
    }

    /// A client was given the known history; this number of bytes was written.
    pub(crate) fn on_served(&mut self, bytes: u64) {
        self.served += 1;
        self.bytes += bytes;
    }

    /// Updates the metrics. Each client of a batch counts with the mean of their time: reading the clock for each, and
    /// updating each metric, would cost a fifth of a write.
    fn count(&mut self, now: Instant) {
        let served = std::mem::take(&mut self.served);
        if served > 0
            && let Some((_, Ahead::Stretch(stretch))) = &self.known
        {
            let metrics = self.history.metrics();
            let took = (now - self.now).as_secs_f64() / f64::from(served);
            metrics.client_latency_secs.observe_many(now, stretch.lag.as_secs_f64(), served);
            metrics.client_write_latency_secs.observe_many(now, took, served);
            metrics.bytes_sent.inc_by(std::mem::take(&mut self.bytes));
        }
        self.now = now;
    }
}

/// Joins a few small pieces into one: they go to many clients, and one piece is cheaper to write.
fn joined(mut pieces: VecDeque<Bytes>) -> VecDeque<Bytes> {
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    if pieces.len() < 2 || bytes > JOINED_BYTES {
        return pieces;
    }
    [pieces.make_contiguous().concat().into()].into()
}

/// The clients of one pump.
#[derive(Default)]
struct Shard {
    clients: Mutex<BTreeMap<u64, Arc<dyn PumpClient>>>,
    /// The connection number at which passes begin.
    first: AtomicU64,
    /// Whether the next pass begins elsewhere.
    elsewhere: AtomicBool,
    /// Rounds to take to the clients.
    calls: PumpCalls,
    /// Number of the last pass that has begun, and of the last one that is done.
    begun: AtomicU64,
    done: AtomicU64,
    /// Used only by housekeeping.
    seen: Mutex<Seen>,
}

/// The state of a pump at the last housekeeping.
#[derive(Debug, Default)]
struct Seen {
    begun: u64,
    done: u64,
    /// Whether it was called and no pass was under way.
    idle: bool,
    /// When it was last idle, or finished a pass.
    since: Option<Instant>,
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn PumpClient>>> {
        // One client is added or removed under this lock, so a panic cannot leave half a change.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next clients of a range, and the position after them.
    fn next_batch(
        &self,
        from: Bound<u64>,
        upto: Bound<u64>,
        batch: &mut Vec<Arc<dyn PumpClient>>,
    ) -> Option<Bound<u64>> {
        let clients = self.lock();
        let mut last = None;
        for (id, client) in clients.range((from, upto)).take(BATCH) {
            batch.push(client.clone());
            last = Some(*id);
        }
        last.map(Bound::Excluded)
    }
}

/// The pumps of a feed.
pub(crate) struct Pump {
    shards: Box<[Shard]>,
    /// Connections in a row that each of them serves.
    row: u64,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Pump {
    /// Pumps for a runtime with this number of workers.
    pub(crate) fn new(workers: usize) -> Self {
        let shards = workers.clamp(1, MAX_SHARDS);
        Self { shards: (0..shards).map(|_| Shard::default()).collect(), row: ROW }
    }

    /// The same pumps, with this number of connections in a row for each.
    pub(crate) fn with_rows_of(mut self, connections: u64) -> Self {
        self.row = connections.max(1);
        self
    }

    /// Number of pumps.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Housekeeping checks all clients, and wakes those that were forgotten. `late`: woken tasks do not run in time, so
    /// no client is woken. Does not wait: a client that is just being served counts with the `last` number of updates
    /// that the slowest one lacked. Notes the version of the map that each client holds.
    pub(crate) fn inspect(&self, head: &Mark, last: u64, late: bool, now: Instant, pinned: &mut Pinned) -> Inspection {
        let mut inspection = Inspection::default();
        let mut row = Vec::with_capacity(BATCH);
        for shard in &self.shards {
            let on_its_way = shard.inspect(late, now, &mut inspection);
            let check = Check { head, excused: late || on_its_way };
            let mut from = Bound::Unbounded;
            while let Some(next) = shard.next_batch(from, Bound::Unbounded, &mut row) {
                from = next;
                for client in row.drain(..) {
                    let found = client.inspect(&check).unwrap_or(Finding { lacks: last, waits: Waits::No });
                    inspection.most_lacked = inspection.most_lacked.max(found.lacks);
                    inspection.count(found.waits);
                    client.note_version(pinned);
                }
            }
        }
        inspection
    }

    /// Ends the connections of these clients, if they are still there, to free their versions of the map.
    pub(crate) fn end_oldest(&self, clients: &[u64]) {
        for id in clients {
            let client = self.shard_of(*id).lock().get(id).cloned();
            if let Some(client) = client {
                client.end_oldest();
            }
        }
    }

    fn shard_of(&self, id: u64) -> &Shard {
        let shards = self.shards.len() as u64;
        &self.shards[usize::try_from(id / self.row % shards).expect("a remainder of a usize is a usize")]
    }

    /// There is more in the ring: has it taken to all clients that rest. A few clients are served at once: waking a
    /// pump would take as long. Pumps without clients sleep on; a later client looks into the ring before it rests.
    pub(crate) async fn call(&self, history: &History) {
        let mut with_clients = self.shards.iter().filter_map(|shard| {
            let clients = shard.lock().len();
            (clients > 0).then_some((shard, clients))
        });
        let Some((first, clients)) = with_clients.next() else { return };
        match with_clients.next() {
            None if clients <= BATCH => {
                let now = first.pass(history).await;
                history.on_pass(now, self.is_busy());
            }
            second => {
                first.calls.call();
                second.into_iter().chain(with_clients).for_each(|(shard, _)| shard.calls.call());
            }
        }
    }

    /// The next passes begin at other clients than the last ones.
    pub(crate) fn begin_elsewhere(&self) {
        self.shards.iter().for_each(|shard| shard.elsewhere.store(true, Ordering::Relaxed));
    }

    /// Whether a round is on its way to clients, so that segments that are published now reach some of them with it.
    pub(crate) fn is_busy(&self) -> bool {
        self.shards.iter().any(|shard| shard.calls.are_pending())
    }

    /// Pretends a pass that never ends.
    #[cfg(test)]
    pub(crate) fn get_stuck(&self) {
        self.shards[0].calls.count();
        self.shards[0].begun.fetch_add(1, Ordering::AcqRel);
    }

    /// There will be no more rounds: all pumps make one more pass and end.
    pub(crate) fn end(&self) {
        self.shards.iter().for_each(|shard| shard.calls.end());
    }

    /// Serves the clients of one pump as long as the feed lives.
    pub(crate) async fn run(self: Arc<Self>, history: Arc<History>, shard: usize) {
        let shard = &self.shards[shard];
        loop {
            let run = shard.calls.next().await;
            let now = shard.pass(&history).await;
            shard.calls.done(&run);
            history.on_pass(now, self.is_busy());
            if run.last {
                for client in shard.lock().values() {
                    client.nudge();
                }
                return;
            }
        }
    }
}

impl Shard {
    /// Housekeeping checks whether the pump makes progress, and wakes it if it seems not to know of a call. Returns
    /// whether a pass is under way that may not have reached all clients since the last check.
    fn inspect(&self, late: bool, now: Instant, inspection: &mut Inspection) -> bool {
        // Plain values, used only by housekeeping.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = self.calls.are_pending();
        let (begun, done) = (self.begun.load(Ordering::Acquire), self.done.load(Ordering::Acquire));
        if !busy || done != seen.done {
            seen.since = Some(now);
        }
        let stuck_for = seen.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        inspection.stuck_for = inspection.stuck_for.max(stuck_for);
        let idle = busy && begun == done;
        let waits = match idle && seen.idle && begun == seen.begun {
            true if late => Waits::Suspected,
            true => Waits::Lost,
            false if idle => Waits::Suspected,
            false => Waits::No,
        };
        if waits == Waits::Lost {
            self.calls.remind();
        }
        inspection.count(waits);
        let went_around = done > seen.begun;
        *seen = Seen { begun, done, idle, since: seen.since };
        busy && !went_around
    }

    /// The connection number at which a pass begins.
    fn begin(&self) -> u64 {
        let first = self.first.load(Ordering::Relaxed);
        if !self.elsewhere.swap(false, Ordering::Relaxed) {
            return first;
        }
        let clients = self.lock();
        let next = clients.range(first..).map(|(id, _)| *id).nth(BATCH).unwrap_or(0);
        self.first.store(next, Ordering::Relaxed);
        next
    }

    /// Serves all clients once. Begins where the last pass began, or one batch later if it should begin elsewhere.
    /// Returns when it was done.
    async fn pass(&self, history: &History) -> Instant {
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let first = self.begin();
        let mut pass = Pass::new(history);
        let mut batch = Vec::with_capacity(BATCH);
        let mut kept_since = pass.now;
        for (mut from, upto) in [(Bound::Included(first), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(first))]
        {
            while let Some(next) = self.next_batch(from, upto, &mut batch) {
                from = next;
                // The batch bounds the work here; with the runtime's own budget sockets would seem full.
                unconstrained(async {
                    for client in batch.drain(..) {
                        client.serve(&mut pass);
                    }
                })
                .await;
                pass.end_batch(Instant::now());
                if pass.now - kept_since >= KEEP {
                    yield_now().await;
                    pass.now = Instant::now();
                    kept_since = pass.now;
                }
            }
        }
        self.done.fetch_max(number, Ordering::AcqRel);
        pass.now
    }
}

/// Registers a client with a pump until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    pump: Arc<Pump>,
    id: u64,
}

impl Registration {
    /// Registers a client under a number that no other client of the server has.
    pub(crate) fn take(pump: Arc<Pump>, id: u64, client: Arc<dyn PumpClient>) -> Self {
        pump.shard_of(id).lock().insert(id, client);
        Self { pump, id }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let client = self.pump.shard_of(self.id).lock().remove(&self.id);
        // Dropped outside of the lock, because it may be large.
        drop(client);
    }
}

#[cfg(test)]
mod tests;
