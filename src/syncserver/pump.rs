//! Takes each round to all clients that rest, in one loop, instead of waking a task for each of them.
//!
//! ```text
//!  feed ─round is in the ring─► Pump::call ─► Pump::run ─pass─► client, client, client … (whoever rests is written to at once)
//!                                        └ few clients ─┘  └──► whoever does not: its task is nudged, or busy anyway
//! ```
//!
//! What follows a mark is looked up once for all clients that stand there. A pass costs little more than its system calls;
//! see docs/performance.md for what a task per client cost instead.
//!
//! A pump waits for nobody: a socket that is full and a line that is locked are left to the client's task. Passes begin at
//! another client each time, so that nobody is always last.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;

use super::feed::Feed;
use super::ring::{Mark, Taken};

/// Clients served between two looks at the clock: at some 6 µs for each, about a third of a millisecond.
const TURN: usize = 64;

/// How long a pump keeps its worker before other tasks get their turn. Not shorter: where thousands of agents fetch their
/// snapshots, each turn of the others lasts a hundred times as long as this.
const KEEP: Duration = Duration::from_millis(2);

/// Most bytes that a client is given in one pass; what lags by more is for its task, which fills sockets in its own time.
const STRETCH_BYTES: usize = 256 << 10;

/// Most pumps of a feed. More would wait for each other in the kernel rather than write faster.
const MAX_SHARDS: usize = 8;

/// Connections in a row that one pump serves: where there are few in all, only one pump has to be woken.
const ROW: u64 = 64;

/// A client that may be served by a pump.
pub(super) trait Passenger: Send + Sync {
    /// Serves the client if it rests, and sees to it that its task looks after it otherwise.
    fn serve(&self, pass: &mut Pass<'_>);

    /// Has the client's task look for itself.
    fn nudge(&self);

    /// Where the client stands, if its snapshot has begun and it has not left. Waits for its task if that is at work on it.
    fn position(&self) -> Option<Position>;
}

/// Where a client stands.
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// The last place that was handed to it; that of its snapshot while this is on its way.
    pub(super) mark: Arc<Mark>,
    /// Bytes that were written to it.
    pub(super) bytes_sent: u64,
    /// Whether it has its snapshot.
    pub(super) follows: bool,
}

/// What follows a mark.
pub(super) enum Ahead {
    /// Nothing.
    Nothing,
    /// The ring has forgotten it.
    Forgotten,
    /// This.
    Stretch(Stretch),
}

/// A part of the feed's history.
pub(super) struct Stretch {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) end: Arc<Mark>,
    /// How far a client at its beginning was behind.
    pub(super) lag: Duration,
}

/// One way around all clients.
pub(super) struct Pass<'a> {
    feed: &'a Feed,
    /// What follows the mark with this sequence number.
    known: Option<(u64, Ahead)>,
    /// When the present turn began.
    pub(super) now: Instant,
    /// Bytes written in this turn.
    pub(super) bytes: u64,
    /// Clients that were given what is known, not yet in the metrics.
    served: u32,
}

impl<'a> Pass<'a> {
    pub(super) fn new(feed: &'a Feed) -> Self {
        Self { feed, known: None, now: Instant::now(), bytes: 0, served: 0 }
    }

    /// What follows a mark.
    pub(super) fn after(&mut self, mark: &Mark) -> &Ahead {
        if self.known.as_ref().is_some_and(|(sequence, _)| *sequence != mark.sequence) {
            self.count(Instant::now());
            self.known = None;
        }
        let feed = self.feed;
        let (_, ahead) = self.known.get_or_insert_with(|| {
            let mut pieces = VecDeque::new();
            let (taken, head) = feed.take(mark, STRETCH_BYTES, &mut pieces);
            let ahead = match taken {
                Taken::Nothing => Ahead::Nothing,
                Taken::Forgotten(_) => Ahead::Forgotten,
                // With a count of its own: pumps that run side by side would pull the one of the ring to and fro, twice for
                // every client.
                Taken::UpTo(end) => {
                    Ahead::Stretch(Stretch { pieces, end: Arc::new((*end).clone()), lag: mark.age(&head) })
                }
            };
            (mark.sequence, ahead)
        });
        ahead
    }

    /// A client was given what is known; so many bytes of it were written.
    pub(super) fn on_served(&mut self, bytes: u64) {
        self.served += 1;
        self.bytes += bytes;
    }

    /// Brings the metrics up to date. All that were served together count with the mean of their time: looking at the clock
    /// for each of them, and at each metric, would cost as much as a fifth of a write.
    fn count(&mut self, now: Instant) {
        let served = std::mem::take(&mut self.served);
        if served > 0
            && let Some((_, Ahead::Stretch(stretch))) = &self.known
        {
            let metrics = self.feed.metrics();
            let took = (now - self.now).as_secs_f64() / f64::from(served);
            metrics.client_latency_secs.observe_many(now, stretch.lag.as_secs_f64(), served);
            metrics.client_write_latency_secs.observe_many(now, took, served);
            metrics.bytes_sent.inc_by(std::mem::take(&mut self.bytes));
        }
        self.now = now;
    }
}

/// The clients of a feed that may be served.
#[derive(Default)]
struct Shard {
    passengers: Mutex<BTreeMap<u64, Arc<dyn Passenger>>>,
    /// The number at which the next pass begins.
    first: AtomicU64,
    /// There is a round to be taken to them.
    called: Notify,
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Passenger>>> {
        self.passengers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next clients of a range, and where to go on after them.
    fn turn(&self, from: Bound<u64>, upto: Bound<u64>, turn: &mut Vec<Arc<dyn Passenger>>) -> Option<Bound<u64>> {
        let passengers = self.lock();
        let mut last = None;
        for (id, passenger) in passengers.range((from, upto)).take(TURN) {
            turn.push(passenger.clone());
            last = Some(*id);
        }
        last.map(Bound::Excluded)
    }
}

/// The pumps of a feed.
#[derive(Default)]
pub(super) struct Pump {
    shards: Box<[Shard]>,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").field("shards", &self.shards.len()).finish()
    }
}

impl Pump {
    /// Pumps for a runtime with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        let shards = workers.clamp(1, MAX_SHARDS);
        Self { shards: (0..shards).map(|_| Shard::default()).collect() }
    }

    /// How many there are.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Updates that the client that is farthest behind lacks, of those that have their snapshot.
    pub(super) fn most_lacked(&self, head: &Mark) -> u64 {
        let lacked = |position: Position| if position.follows { position.mark.updates_until(head) } else { 0 };
        let most =
            |shard: &Shard| shard.lock().values().filter_map(|client| client.position()).map(lacked).max().unwrap_or(0);
        self.shards.iter().map(most).max().unwrap_or(0)
    }

    fn shard_of(&self, id: u64) -> &Shard {
        let shards = self.shards.len() as u64;
        &self.shards[usize::try_from(id / ROW % shards).expect("a remainder of a usize is a usize")]
    }

    /// There is more in the ring: has it taken to all clients that rest. A few clients are served at once: waking somebody to
    /// do it would take as long. Pumps without clients sleep on; who comes later looks into the ring before it rests.
    pub(super) async fn call(&self, feed: &Feed) {
        let mut with_clients = self.shards.iter().filter_map(|shard| {
            let clients = shard.lock().len();
            (clients > 0).then_some((shard, clients))
        });
        let Some((first, clients)) = with_clients.next() else { return };
        match with_clients.next() {
            None if clients <= TURN => return first.pass(feed).await,
            second => {
                first.called.notify_one();
                second.into_iter().chain(with_clients).for_each(|(shard, _)| shard.called.notify_one());
            }
        }
    }

    /// There will be no more: all pumps are to go around once more and end.
    pub(super) fn end(&self) {
        for shard in &self.shards {
            shard.called.notify_one();
        }
    }

    /// Serves the clients of one shard for as long as the feed lives.
    pub(super) async fn run(feed: Arc<Feed>, shard: usize) {
        let shard = &feed.pump().shards[shard];
        loop {
            shard.called.notified().await;
            // Looked at before the pass: after it there will be nothing more.
            let ended = feed.has_ended();
            shard.pass(&feed).await;
            if ended {
                for passenger in shard.lock().values() {
                    passenger.nudge();
                }
                return;
            }
        }
    }
}

impl Shard {
    /// Goes around all clients, beginning one turn after where the last pass began.
    async fn pass(&self, feed: &Feed) {
        let first = self.first.load(Ordering::Relaxed);
        let mut pass = Pass::new(feed);
        let mut turn = Vec::with_capacity(TURN);
        let mut next_first = None;
        let mut kept_since = pass.now;
        for (mut from, upto) in [(Bound::Included(first), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(first))]
        {
            while let Some(next) = self.turn(from, upto, &mut turn) {
                from = next;
                if let Bound::Excluded(last) = next {
                    next_first.get_or_insert(last + 1);
                }
                // A turn is what bounds the work here; the runtime's own budget would have sockets seem full.
                unconstrained(async {
                    for passenger in turn.drain(..) {
                        passenger.serve(&mut pass);
                    }
                })
                .await;
                pass.count(Instant::now());
                if pass.now - kept_since >= KEEP {
                    yield_now().await;
                    pass.now = Instant::now();
                    kept_since = pass.now;
                }
            }
        }
        feed.on_pass(pass.now);
        self.first.store(next_first.unwrap_or(0), Ordering::Relaxed);
    }
}

/// A client's place among those that are served. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    feed: Arc<Feed>,
    id: u64,
}

impl Seat {
    /// A place for a client, under a number that no other client of the server has.
    pub(super) fn take(feed: Arc<Feed>, id: u64, passenger: Arc<dyn Passenger>) -> Self {
        feed.pump().shard_of(id).lock().insert(id, passenger);
        Self { feed, id }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let passenger = self.feed.pump().shard_of(self.id).lock().remove(&self.id);
        // What it holds may be large; others wait for the lock, not for that.
        drop(passenger);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::tests::harness::lone_feed;
    use super::*;

    /// Writes down when it was served.
    #[derive(Debug)]
    struct Witness {
        id: u64,
        log: Arc<Mutex<Vec<u64>>>,
        nudges: AtomicU64,
    }

    impl Passenger for Witness {
        fn serve(&self, _: &mut Pass<'_>) {
            self.log.lock().expect("not poisoned").push(self.id);
        }

        fn nudge(&self) {
            self.nudges.fetch_add(1, Ordering::SeqCst);
        }

        fn position(&self) -> Option<Position> {
            None
        }
    }

    #[tokio::test]
    async fn a_pass_goes_to_everybody_once_and_begins_elsewhere_each_time() {
        let (_cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        let log = Arc::new(Mutex::new(Vec::new()));
        let witness = |id| Arc::new(Witness { id, log: log.clone(), nudges: AtomicU64::new(0) });
        let seats: Vec<Seat> = (1..=200).map(|id| Seat::take(feed.clone(), id, witness(id))).collect();
        let mut begins = Vec::new();
        for _ in 0..5 {
            feed.pump().shards[0].pass(&feed).await;
            let mut visited = std::mem::take(&mut *log.lock().expect("not poisoned"));
            begins.extend(visited.first().copied());
            visited.sort_unstable();
            assert_eq!(visited, (1..=200).collect::<Vec<_>>());
        }
        assert_eq!(begins, [1, 65, 129, 193, 1]);
        drop(seats);
        feed.pump().shards[0].pass(&feed).await;
        assert!(log.lock().expect("not poisoned").is_empty(), "whoever has left is not served");
    }

    #[tokio::test]
    async fn a_few_clients_are_served_at_once_and_only_pumps_with_clients_are_woken() {
        let (_cache, lease) = lone_feed();
        let pump = Pump::new(2);
        let log = Arc::new(Mutex::new(Vec::new()));
        let witness = |id| Arc::new(Witness { id, log: log.clone(), nudges: AtomicU64::new(0) });
        let seat = |id| pump.shard_of(id).lock().insert(id, witness(id));
        let served = || std::mem::take(&mut *log.lock().expect("not poisoned"));
        let called = || [0, 1].map(|shard: usize| pump.shards[shard].called.notified().now_or_never().is_some());
        pump.call(&lease).await;
        assert_eq!((served(), called()), (vec![], [false, false]), "nobody is there");
        seat(3);
        seat(ROW - 1);
        pump.call(&lease).await;
        assert_eq!((served(), called()), (vec![3, ROW - 1], [false, false]));
        (2 * ROW..3 * ROW).for_each(|id| drop(seat(id)));
        pump.call(&lease).await;
        assert_eq!((served(), called()), (vec![], [true, false]), "more than a turn is for the pump");
        seat(ROW);
        pump.call(&lease).await;
        assert_eq!((served(), called()), (vec![], [true, true]));
        pump.shards.iter().for_each(|shard| shard.lock().clear());
        pump.end();
        assert_eq!(called(), [true, true], "all end");
    }

    #[tokio::test]
    async fn everybody_is_nudged_when_the_feed_ends() {
        let (cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        let witness = Arc::new(Witness { id: 1, log: Arc::default(), nudges: AtomicU64::new(0) });
        let _seat = Seat::take(feed.clone(), 1, witness.clone());
        drop(cache);
        Pump::run(feed, 0).await;
        assert!(witness.nudges.load(Ordering::SeqCst) >= 1);
    }
}
