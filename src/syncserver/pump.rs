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
//! What comes into the ring while a pass is under way goes to those whose turn is still to come, as if the pass had begun with
//! it: with thousands of clients a pass takes so long that they would otherwise get what is old already. The others get it
//! with the next pass.
//!
//! A pump waits for nobody: a socket that is full and a line that is locked are left to the client's task. After silence a pass
//! begins at another client than the last one, so that nobody is always last. Round after round they begin at the same one:
//! everybody is served at equal distances.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;

use super::errands::Errands;
use super::feed::Feed;
use super::inspection::{Check, Found, Inspection, Waits};
use super::pinned::Pinned;
use super::ring::{Mark, Taken};

/// Clients served between two looks at the clock: at some 6 µs for each, about a third of a millisecond.
const TURN: usize = 64;

/// How long a pump keeps its worker before other tasks get their turn. Not shorter: where thousands of agents fetch their
/// snapshots, each turn of the others lasts a hundred times as long as this.
const KEEP: Duration = Duration::from_millis(2);

/// Most bytes that a client is given in one pass; what lags by more is for its task, which fills sockets in its own time.
const STRETCH_BYTES: usize = 256 << 10;

/// Pieces that together are no larger than this are copied into one.
const JOINED_BYTES: usize = 64 << 10;

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

    /// Housekeeping looks in: wakes the client's task if it is forgotten. `None`: its task is at work on it.
    fn inspect(&self, check: &Check<'_>) -> Option<Found>;

    /// Notes which version of the map the client holds, unless its task is at work on it.
    fn note_version(&self, pinned: &mut Pinned);

    /// Ends the connection: the version of the map that it holds has to go.
    fn let_go(&self);
}

/// Where a client stands.
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// The last place that was handed to it; that of its snapshot while this is on its way.
    pub(super) mark: Arc<Mark>,
    /// Bytes that were written to it.
    pub(super) bytes_sent: u64,
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
    /// It ends before the newest place.
    pub(super) more: bool,
    /// How old its first change was when the turn began in which it was looked up.
    pub(super) lag: Duration,
}

/// One way around all clients.
pub(super) struct Pass<'a> {
    feed: &'a Feed,
    /// What follows the mark with this sequence number.
    known: Option<(u64, Ahead)>,
    /// Sequence number of the newest place when that was looked up.
    head: u64,
    /// When the present turn began.
    pub(super) now: Instant,
    /// Bytes written in this turn.
    pub(super) bytes: u64,
    /// Clients that were given what is known, not yet in the metrics.
    served: u32,
}

impl<'a> Pass<'a> {
    pub(super) fn new(feed: &'a Feed) -> Self {
        Self { feed, known: None, head: 0, now: Instant::now(), bytes: 0, served: 0 }
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
            self.head = head.sequence;
            let ahead = match taken {
                Taken::Nothing => Ahead::Nothing,
                Taken::Forgotten(_) => Ahead::Forgotten,
                // With a count of its own: pumps that run side by side would pull the one of the ring to and fro, twice for
                // every client.
                Taken::UpTo(end) => Ahead::Stretch(Stretch {
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

    /// Some clients have had their turn. Whoever is next gets what has come into the ring meanwhile as well.
    fn turn_over(&mut self, now: Instant) {
        self.count(now);
        if self.feed.head().sequence != self.head {
            self.known = None;
        }
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

/// Few small pieces as one: they go to many clients, and one piece is written with less ado.
fn joined(mut pieces: VecDeque<Bytes>) -> VecDeque<Bytes> {
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    if pieces.len() < 2 || bytes > JOINED_BYTES {
        return pieces;
    }
    [pieces.make_contiguous().concat().into()].into()
}

/// The clients of a feed that may be served.
#[derive(Default)]
struct Shard {
    passengers: Mutex<BTreeMap<u64, Arc<dyn Passenger>>>,
    /// The number at which passes begin.
    first: AtomicU64,
    /// The next one is to begin elsewhere.
    elsewhere: AtomicBool,
    /// Rounds that are to be taken to them.
    errands: Errands,
    /// Passes that were begun, and the last of them that is over.
    begun: AtomicU64,
    done: AtomicU64,
    /// For housekeeping alone.
    seen: Mutex<Seen>,
}

/// The findings of housekeeping at a pump the last time.
#[derive(Debug, Default)]
struct Seen {
    begun: u64,
    done: u64,
    /// Whether it was called and no pass was under way.
    idle: bool,
    /// The time from which on it has not come back from its clients.
    since: Option<Instant>,
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Passenger>>> {
        // One client is put in or taken out under this lock, so a panic cannot leave half of anything.
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
pub(super) struct Pump {
    shards: Box<[Shard]>,
    /// Connections in a row that one of them serves.
    row: u64,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Pump {
    /// Pumps for a runtime with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        let shards = workers.clamp(1, MAX_SHARDS);
        Self { shards: (0..shards).map(|_| Shard::default()).collect(), row: ROW }
    }

    /// The same pumps, with this number of connections in a row for each.
    pub(super) fn with_rows_of(mut self, connections: u64) -> Self {
        self.row = connections.max(1);
        self
    }

    /// How many there are.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Housekeeping looks in at all clients, and wakes those that are forgotten. `late`: tasks that are woken do not run in time,
    /// so nobody is. Waits for nobody: a client that is just being looked after counts as lacking as much as the worst one did the
    /// `last` time. Notes the version of the map that each client holds.
    pub(super) fn inspect(&self, head: &Mark, last: u64, late: bool, now: Instant, pinned: &mut Pinned) -> Inspection {
        let mut inspection = Inspection::default();
        let mut row = Vec::with_capacity(TURN);
        for shard in &self.shards {
            let on_its_way = shard.inspect(late, now, &mut inspection);
            let check = Check { head, excused: late || on_its_way };
            let mut from = Bound::Unbounded;
            while let Some(next) = shard.turn(from, Bound::Unbounded, &mut row) {
                from = next;
                for client in row.drain(..) {
                    let found = client.inspect(&check).unwrap_or(Found { lacks: last, waits: Waits::No });
                    inspection.most_lacked = inspection.most_lacked.max(found.lacks);
                    inspection.count(found.waits);
                    client.note_version(pinned);
                }
            }
        }
        inspection
    }

    /// Ends the connections of clients, if they are still there.
    pub(super) fn let_go(&self, clients: &[u64]) {
        for id in clients {
            let passenger = self.shard_of(*id).lock().get(id).cloned();
            if let Some(passenger) = passenger {
                passenger.let_go();
            }
        }
    }

    fn shard_of(&self, id: u64) -> &Shard {
        let shards = self.shards.len() as u64;
        &self.shards[usize::try_from(id / self.row % shards).expect("a remainder of a usize is a usize")]
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
            None if clients <= TURN => {
                let now = first.pass(feed).await;
                feed.on_pass(now);
            }
            second => {
                first.errands.call();
                second.into_iter().chain(with_clients).for_each(|(shard, _)| shard.errands.call());
            }
        }
    }

    /// The next passes are to begin at other clients than the last ones.
    pub(super) fn begin_elsewhere(&self) {
        self.shards.iter().for_each(|shard| shard.elsewhere.store(true, Ordering::Relaxed));
    }

    /// Whether a round is on its way to clients: what is put into the ring now gets to some of them with it.
    pub(super) fn is_busy(&self) -> bool {
        self.shards.iter().any(|shard| shard.errands.are_pending())
    }

    /// A pass that never ends.
    #[cfg(test)]
    pub(super) fn get_stuck(&self) {
        self.shards[0].errands.count();
        self.shards[0].begun.fetch_add(1, Ordering::AcqRel);
    }

    /// There will be no more: all pumps are to go around once more and end.
    pub(super) fn end(&self) {
        self.shards.iter().for_each(|shard| shard.errands.end());
    }

    /// Serves the clients of one shard for as long as the feed lives.
    pub(super) async fn run(feed: Arc<Feed>, shard: usize) {
        let shard = &feed.pump().shards[shard];
        loop {
            let errand = shard.errands.next().await;
            let now = shard.pass(&feed).await;
            shard.errands.done(&errand);
            feed.on_pass(now);
            if errand.last {
                for passenger in shard.lock().values() {
                    passenger.nudge();
                }
                return;
            }
        }
    }
}

impl Shard {
    /// Housekeeping looks whether the pump gets on, and wakes it if it does not seem to know that it was called. Returns
    /// whether a pass is on its way of which it is not certain that it has come to all clients since the last look.
    fn inspect(&self, late: bool, now: Instant, inspection: &mut Inspection) -> bool {
        // Plain values, looked at by housekeeping alone.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = self.errands.are_pending();
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
            self.errands.remind();
        }
        inspection.count(waits);
        let went_around = done > seen.begun;
        *seen = Seen { begun, done, idle, since: seen.since };
        busy && !went_around
    }

    /// Where a pass begins.
    fn begin(&self) -> u64 {
        let first = self.first.load(Ordering::Relaxed);
        if !self.elsewhere.swap(false, Ordering::Relaxed) {
            return first;
        }
        let passengers = self.lock();
        let next = passengers.range(first..).map(|(id, _)| *id).nth(TURN).unwrap_or(0);
        self.first.store(next, Ordering::Relaxed);
        next
    }

    /// Goes around all clients, beginning where the last pass began unless it is to begin elsewhere: then one turn after that.
    /// Returns when it was over.
    async fn pass(&self, feed: &Feed) -> Instant {
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let first = self.begin();
        let mut pass = Pass::new(feed);
        let mut turn = Vec::with_capacity(TURN);
        let mut kept_since = pass.now;
        for (mut from, upto) in [(Bound::Included(first), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(first))]
        {
            while let Some(next) = self.turn(from, upto, &mut turn) {
                from = next;
                // A turn is what bounds the work here; the runtime's own budget would have sockets seem full.
                unconstrained(async {
                    for passenger in turn.drain(..) {
                        passenger.serve(&mut pass);
                    }
                })
                .await;
                pass.turn_over(Instant::now());
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
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    use futures_util::FutureExt;

    use super::super::tests::harness::{eventually, lone_feed, lone_feed_with_pace, update};
    use super::*;
    use crate::model::SyncerEvent;
    use crate::snapcache::SnapCache;

    #[derive(Default)]
    struct Wakes(AtomicU64);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Writes down when it was served.
    #[derive(Debug, Default)]
    struct Witness {
        id: u64,
        log: Arc<Mutex<Vec<u64>>>,
        nudges: AtomicU64,
        /// It panics instead.
        panics: bool,
    }

    impl Passenger for Witness {
        fn serve(&self, _: &mut Pass<'_>) {
            assert!(!self.panics, "cannot serve this");
            self.log.lock().expect("not poisoned").push(self.id);
        }

        fn nudge(&self) {
            self.nudges.fetch_add(1, Ordering::SeqCst);
        }

        fn position(&self) -> Option<Position> {
            None
        }

        fn inspect(&self, _: &Check<'_>) -> Option<Found> {
            Some(Found::default())
        }

        fn note_version(&self, _: &mut Pinned) {}

        fn let_go(&self) {}
    }

    #[tokio::test]
    async fn a_pass_goes_to_everybody_once_and_begins_elsewhere_when_told_to() {
        let (_cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        let shard = &feed.pump().shards[0];
        let log = Arc::new(Mutex::new(Vec::new()));
        let witness = |id| Arc::new(Witness { id, log: log.clone(), ..Witness::default() });
        let seats: Vec<Seat> = (1..=200).map(|id| Seat::take(feed.clone(), id, witness(id))).collect();
        let mut begins = Vec::new();
        for elsewhere in [false, true, false, true, true, true] {
            if elsewhere {
                feed.pump().begin_elsewhere();
            }
            shard.pass(&feed).await;
            let mut visited = std::mem::take(&mut *log.lock().expect("not poisoned"));
            begins.extend(visited.first().copied());
            visited.sort_unstable();
            assert_eq!(visited, (1..=200).collect::<Vec<_>>());
        }
        assert_eq!(begins, [1, 65, 65, 129, 193, 1]);
        drop(seats);
        shard.pass(&feed).await;
        assert!(log.lock().expect("not poisoned").is_empty(), "whoever has left is not served");
    }

    #[tokio::test]
    async fn a_few_clients_are_served_at_once_and_only_pumps_with_clients_are_woken() {
        let (_cache, lease) = lone_feed();
        let pump = Pump::new(2);
        let log = Arc::new(Mutex::new(Vec::new()));
        let witness = |id| Arc::new(Witness { id, log: log.clone(), ..Witness::default() });
        let seat = |id| pump.shard_of(id).lock().insert(id, witness(id));
        let served = || std::mem::take(&mut *log.lock().expect("not poisoned"));
        let called = || {
            [0, 1].map(|shard: usize| {
                let errands = &pump.shards[shard].errands;
                errands.next().now_or_never().is_some_and(|errand| {
                    errands.done(&errand);
                    true
                })
            })
        };
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

    #[tokio::test(start_paused = true)]
    async fn a_pump_that_panics_is_a_failure() {
        let (mut cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        // More than the feed serves itself.
        let bomb = Arc::new(Witness { panics: true, ..Witness::default() });
        let _seats: Vec<Seat> = (0..=TURN as u64).map(|id| Seat::take(feed.clone(), id, bomb.clone())).collect();
        change(&mut cache, b"1");
        assert_eq!(feed.tasks().failure().await.to_string(), "task felix-gob-plain-pump-0 panicked: cannot serve this");
    }

    fn change(cache: &mut SnapCache, value: &[u8]) {
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_had_no_turn_yet_gets_what_comes_meanwhile_as_one_piece() {
        let (mut cache, lease) = lone_feed();
        let start = lease.head();
        let mut pass = Pass::new(&lease);
        let found = |pass: &mut Pass<'_>| {
            let Ahead::Stretch(stretch) = pass.after(&start) else { panic!("there is something") };
            assert_eq!(stretch.pieces.len(), 1);
            (stretch.end.sequence, stretch.pieces[0].clone())
        };
        change(&mut cache, b"1");
        eventually("it is published", || lease.head().sequence == 1).await;
        let (end, first) = found(&mut pass);
        assert_eq!(end, 1);
        change(&mut cache, b"2");
        eventually("it is published", || lease.head().sequence == 2).await;
        assert_eq!(found(&mut pass), (1, first.clone()), "all of one turn get the same");
        pass.turn_over(Instant::now());
        let (end, both) = found(&mut pass);
        assert_eq!((end, both.len(), &both[..first.len()]), (2, 2 * first.len(), &first[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_a_round_is_on_its_way_is_published_at_once_and_goes_to_all_with_the_next_one() {
        const PACE: Duration = Duration::from_millis(20);
        const CLIENTS: u64 = 2 * TURN as u64;
        let (mut cache, lease) = lone_feed_with_pace(PACE);
        let feed = Arc::clone(&lease);
        let log = Arc::new(Mutex::new(Vec::new()));
        let witness = |id| Arc::new(Witness { id, log: log.clone(), ..Witness::default() });
        let _seats: Vec<Seat> = (1..=CLIENTS).map(|id| Seat::take(feed.clone(), id, witness(id))).collect();
        let served = || std::mem::take(&mut *log.lock().expect("not poisoned")).len() as u64;
        let start = Instant::now();
        let at = |ms| tokio::time::sleep_until(start + Duration::from_millis(ms));
        change(&mut cache, b"1");
        at(1).await;
        assert_eq!((feed.head().sequence, served(), feed.pump().is_busy()), (1, CLIENTS, false));
        // A pump that was called and has not come back.
        feed.pump().shards[0].errands.count();
        at(5).await;
        change(&mut cache, b"2");
        at(6).await;
        assert_eq!((feed.head().sequence, served()), (2, 0), "published, and nobody was called");
        change(&mut cache, b"3");
        at(7).await;
        assert_eq!(feed.head().sequence, 2, "not so soon again");
        at(8).await;
        assert_eq!((feed.head().sequence, served()), (3, 0));
        at(19).await;
        assert_eq!(served(), 0);
        at(21).await;
        assert_eq!((served(), feed.pump().is_busy()), (CLIENTS, false), "the next round, though nothing further came");
        change(&mut cache, b"4");
        at(39).await;
        assert_eq!((feed.head().sequence, served()), (3, 0), "no round is on its way, so this waits for the next one");
        at(41).await;
        assert_eq!((feed.head().sequence, served()), (4, CLIENTS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pump_that_does_not_come_is_called_again_and_clients_have_a_reason_until_it_has_been_around() {
        let (_cache, lease) = lone_feed();
        let (pump, head) = (Pump::new(1), lease.head());
        let shard = &pump.shards[0];
        let start = Instant::now();
        // The findings of a look after a number of seconds: sure ones and suspicions, and whether clients have a reason.
        let look = |secs: u64, late: bool| {
            let (mut found, now) = (Inspection::default(), start + Duration::from_secs(secs));
            let excused = shard.inspect(late, now, &mut found);
            (found.suspected, found.woken, found.stuck_for.as_secs(), excused)
        };
        assert_eq!(look(0, false), (0, 0, 0, false));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut next = pin!(shard.errands.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Its waking is lost.
        shard.errands.count();
        assert_eq!(look(1, false), (1, 0, 1, true), "perhaps it is about to begin");
        assert_eq!(look(2, true), (1, 0, 2, true), "nobody gets his turn");
        assert_eq!(look(3, false), (1, 1, 3, true));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "it is woken again");
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready(), "and finds that it was called");
        let pass = shard.pass(&lease);
        tokio::pin!(pass);
        shard.begun.fetch_add(1, Ordering::AcqRel);
        assert_eq!(look(4, false), (0, 0, 4, true), "it is on its way");
        pass.await;
        assert_eq!(
            look(5, false),
            (1, 0, 0, false),
            "it was not under way at the last look, and has been around since"
        );
        assert_eq!(pump.inspect(&head, 7, false, start, &mut Pinned::new(0)).most_lacked, 0, "nobody is there");
    }

    #[tokio::test]
    async fn everybody_is_nudged_when_the_feed_ends() {
        let (cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        let witness = Arc::new(Witness { id: 1, ..Witness::default() });
        let _seat = Seat::take(feed.clone(), 1, witness.clone());
        drop(cache);
        eventually("its pump has ended", || witness.nudges.load(Ordering::SeqCst) >= 1).await;
    }
}
