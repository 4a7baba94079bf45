//! Passes over clients that only record when they are served.

use std::pin::pin;
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;

use super::*;
use crate::model::SyncerEvent;
use crate::snapcache::SnapCache;
use crate::syncserver::tests::harness::{eventually, lone_feed, lone_feed_with_pace, update};

#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Records when it was served.
#[derive(Debug, Default)]
struct Witness {
    id: u64,
    log: Arc<Mutex<Vec<u64>>>,
    nudges: AtomicU64,
    /// Whether it panics instead.
    panics: bool,
}

impl PumpClient for Witness {
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

    fn inspect(&self, _: &Check<'_>) -> Option<Finding> {
        Some(Finding::default())
    }

    fn note_version(&self, _: &mut Pinned) {}

    fn end_oldest(&self) {}
}

#[tokio::test]
async fn a_pass_serves_each_client_once_and_begins_elsewhere_when_told_to() {
    let (_cache, lease) = lone_feed();
    let feed = Arc::clone(&lease);
    let shard = &feed.pump().shards[0];
    let log = Arc::new(Mutex::new(Vec::new()));
    let witness = |id| Arc::new(Witness { id, log: log.clone(), ..Witness::default() });
    let seats: Vec<Registration> =
        (1..=200).map(|id| Registration::take(feed.pump().clone(), id, witness(id))).collect();
    let mut begins = Vec::new();
    for elsewhere in [false, true, false, true, true, true] {
        if elsewhere {
            feed.pump().begin_elsewhere();
        }
        shard.pass(feed.history()).await;
        let mut visited = std::mem::take(&mut *log.lock().expect("not poisoned"));
        begins.extend(visited.first().copied());
        visited.sort_unstable();
        assert_eq!(visited, (1..=200).collect::<Vec<_>>());
    }
    assert_eq!(begins, [1, 65, 65, 129, 193, 1]);
    drop(seats);
    shard.pass(feed.history()).await;
    assert!(log.lock().expect("not poisoned").is_empty(), "a client that has left is not served");
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
            let calls = &pump.shards[shard].calls;
            calls.next().now_or_never().is_some_and(|run| {
                calls.done(&run);
                true
            })
        })
    };
    pump.call(lease.history()).await;
    assert_eq!((served(), called()), (vec![], [false, false]), "there are no clients");
    seat(3);
    seat(ROW - 1);
    pump.call(lease.history()).await;
    assert_eq!((served(), called()), (vec![3, ROW - 1], [false, false]));
    (2 * ROW..3 * ROW).for_each(|id| drop(seat(id)));
    pump.call(lease.history()).await;
    assert_eq!((served(), called()), (vec![], [true, false]), "more than a batch is for the pump");
    seat(ROW);
    pump.call(lease.history()).await;
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
    let _registrations: Vec<Registration> =
        (0..=BATCH as u64).map(|id| Registration::take(feed.pump().clone(), id, bomb.clone())).collect();
    change(&mut cache, b"1");
    assert_eq!(feed.tasks().failure().await.to_string(), "task felix-gob-plain-pump-0 panicked: cannot serve this");
}

fn change(cache: &mut SnapCache, value: &[u8]) {
    cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
}

#[tokio::test(start_paused = true)]
async fn later_batches_also_get_changes_that_come_meanwhile_as_one_piece() {
    let (mut cache, lease) = lone_feed();
    let start = lease.head();
    let mut pass = Pass::new(lease.history());
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
    assert_eq!(found(&mut pass), (1, first.clone()), "all of one batch get the same");
    pass.end_batch(Instant::now());
    let (end, both) = found(&mut pass);
    assert_eq!((end, both.len(), &both[..first.len()]), (2, 2 * first.len(), &first[..]));
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_round_is_published_at_once_and_goes_to_all_with_the_next_one() {
    const PACE: Duration = Duration::from_millis(20);
    const CLIENTS: u64 = 2 * BATCH as u64;
    let (mut cache, lease) = lone_feed_with_pace(PACE);
    let feed = Arc::clone(&lease);
    let log = Arc::new(Mutex::new(Vec::new()));
    let witness = |id| Arc::new(Witness { id, log: log.clone(), ..Witness::default() });
    let _registrations: Vec<Registration> =
        (1..=CLIENTS).map(|id| Registration::take(feed.pump().clone(), id, witness(id))).collect();
    let served = || std::mem::take(&mut *log.lock().expect("not poisoned")).len() as u64;
    let start = Instant::now();
    let at = |ms| tokio::time::sleep_until(start + Duration::from_millis(ms));
    change(&mut cache, b"1");
    at(1).await;
    assert_eq!((feed.head().sequence, served(), feed.pump().is_busy()), (1, CLIENTS, false));
    // A pump that was called and has not finished.
    feed.pump().shards[0].calls.count();
    at(5).await;
    change(&mut cache, b"2");
    at(6).await;
    assert_eq!((feed.head().sequence, served()), (2, 0), "published, and no pump was called");
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
    // The findings of a check after a number of seconds, and whether clients are excused.
    let look = |secs: u64, late: bool| {
        let (mut found, now) = (Inspection::default(), start + Duration::from_secs(secs));
        let excused = shard.inspect(late, now, &mut found);
        (found.suspected, found.woken, found.stuck_for.as_secs(), excused)
    };
    assert_eq!(look(0, false), (0, 0, 0, false));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut next = pin!(shard.calls.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Its wake-up is lost.
    shard.calls.count();
    assert_eq!(look(1, false), (1, 0, 1, true), "perhaps it is about to begin");
    assert_eq!(look(2, true), (1, 0, 2, true), "woken tasks do not run in time");
    assert_eq!(look(3, false), (1, 1, 3, true));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "it is woken again");
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready(), "and finds that it was called");
    let pass = shard.pass(lease.history());
    tokio::pin!(pass);
    shard.begun.fetch_add(1, Ordering::AcqRel);
    assert_eq!(look(4, false), (0, 0, 4, true), "it is on its way");
    pass.await;
    assert_eq!(look(5, false), (1, 0, 0, false), "it was not under way at the last look, and has been around since");
    assert_eq!(pump.inspect(&head, 7, false, start, &mut Pinned::new(0)).most_lacked, 0, "there are no clients");
}

#[tokio::test]
async fn all_clients_are_nudged_when_the_feed_ends() {
    let (cache, lease) = lone_feed();
    let feed = Arc::clone(&lease);
    let witness = Arc::new(Witness { id: 1, ..Witness::default() });
    let _registration = Registration::take(feed.pump().clone(), 1, witness.clone());
    drop(cache);
    eventually("its pump has ended", || witness.nudges.load(Ordering::SeqCst) >= 1).await;
}
