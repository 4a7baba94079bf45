//! Kind watches against the memory datastore, in paused time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::calico::cluster::Cluster;
use crate::calico::kinds::{IP_POOL, POD, TIER, VM_INSTANCE_MIGRATION};
use crate::calico::release::Release;
use crate::datastore::memory::{MemoryStore, WatchFault};
use crate::datastore::{Dialect, Event, Kind, Malformed, Object, ObjectId};
use crate::demand::Demand;
use crate::model::{AsOf, no_revision};

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "".into(), name: name.into() }
}

fn object(name: &str) -> Object {
    Object { id: id(name), revision: no_revision(), dialect: Dialect::V3, body: Bytes::from_static(b"{}"), place: None }
}

/// A running hub and one subscriber of one kind.
struct Watched {
    store: MemoryStore,
    events: mpsc::Receiver<(usize, KindEvent)>,
    joiner: Joiner,
    statuses: tokio::sync::watch::Receiver<Vec<tokio::sync::watch::Receiver<KindStatus>>>,
    cancel: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn start(store: MemoryStore, kind: &Kind, capacity: usize) -> Self {
        Self::start_for(store, kind, capacity, Demand::default())
    }

    fn start_for(store: MemoryStore, kind: &Kind, capacity: usize, demand: Demand) -> Self {
        let mut hub = KindHub::new(Arc::new(store.clone()), 1).with_policy(Cluster::default());
        let (sender, events) = mpsc::channel(capacity);
        hub.subscribe(kind.clone(), Subscriber { demand, ..Subscriber::new(7, sender) });
        let (joiner, statuses, cancel) = (hub.joiner(), hub.statuses(), CancellationToken::new());
        let running = tokio::spawn(hub.run(cancel.clone()));
        Self { store, events, joiner, statuses, cancel, running }
    }

    /// The next event in short: `start`, `objects a b`, `end`, `+a -b ~` (changes, malformed as `?`), `absent`, `lost`.
    async fn next(&mut self) -> String {
        next(&mut self.events).await
    }

    fn phase(&self) -> Phase {
        self.statuses.borrow()[0].borrow().phase
    }
}

async fn next(events: &mut mpsc::Receiver<(usize, KindEvent)>) -> String {
    let (tag, event) = events.recv().await.expect("the watch runs");
    assert_eq!(tag, 7);
    match event {
        KindEvent::ListStart => "start".to_owned(),
        KindEvent::Objects(objects) => {
            objects.iter().fold("objects".to_owned(), |text, object| format!("{text} {}", object.id))
        }
        KindEvent::Malformed(malformed) => {
            malformed.iter().fold("?".to_owned(), |text, Malformed { id, .. }| format!("{text} {id}"))
        }
        KindEvent::ListEnd { .. } => "end".to_owned(),
        KindEvent::Changes(batch) => batch.events.iter().fold("~".to_owned(), |text, event| match event {
            Event::Put(object) => format!("{text} +{}", object.id),
            Event::Delete { id, .. } => format!("{text} -{id}"),
            Event::Malformed(Malformed { id, .. }) => format!("{text} ?{id}"),
        }),
        KindEvent::Absent => "absent".to_owned(),
        KindEvent::Lost => "lost".to_owned(),
    }
}

macro_rules! expect {
    ($watched:expr, $($event:literal),+) => {
        $(assert_eq!($watched.next().await, $event);)+
    };
}

// After the macro, which it uses.
mod refused;

#[tokio::test(start_paused = true)]
async fn lists_in_pages_then_watches() {
    let store = MemoryStore::new();
    store.set_page_size(2);
    for name in ["a", "b", "c"] {
        store.put(&IP_POOL, object(name));
    }
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "start", "objects a b", "objects c", "end");
    watched.store.put(&IP_POOL, object("d"));
    watched.store.delete(&IP_POOL, &id("a"));
    watched.store.bookmark(&IP_POOL, None, Some(AsOf { revision: "9".into(), at: SystemTime::UNIX_EPOCH }));
    expect!(watched, "~ +d", "~ -a", "~");
    assert_eq!(watched.phase(), Phase::Watching);
    assert_eq!((watched.store.lists(&IP_POOL), watched.store.watches(&IP_POOL)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_named_by_lists_as_by_watches() {
    let store = MemoryStore::new();
    let malformed = |name| Event::Malformed(Malformed { id: id(name), reason: "no JSON".to_owned() });
    store.put(&IP_POOL, object("a"));
    store.batch(&IP_POOL, vec![malformed("b")], None);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "start", "objects a", "? b", "end");
    watched.store.batch(&IP_POOL, vec![malformed("a")], None);
    expect!(watched, "~ ?a");
    watched.store.end_watches(&IP_POOL, WatchFault::Expires);
    expect!(watched, "start", "? a b", "end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_breaks_continues_without_a_list() {
    let mut watched = Watched::start(MemoryStore::new(), &IP_POOL, 1);
    expect!(watched, "start", "end");
    for (round, fault) in [WatchFault::Ends, WatchFault::Breaks, WatchFault::Ends].into_iter().enumerate() {
        watched.store.watched(&IP_POOL, round + 1).await;
        watched.store.open_watches(&IP_POOL, 1).await;
        watched.store.end_watches(&IP_POOL, fault);
        // Happens while the watch is away, and is delivered all the same.
        watched.store.put(&IP_POOL, object(&round.to_string()));
        assert_eq!(watched.next().await, format!("~ +{round}"));
    }
    assert_eq!(watched.store.lists(&IP_POOL), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_position_is_listed_again_at_once() {
    let mut watched = Watched::start(MemoryStore::new(), &IP_POOL, 1);
    expect!(watched, "start", "end");
    watched.store.watched(&IP_POOL, 1).await;
    let start = tokio::time::Instant::now();
    watched.store.load(&IP_POOL, vec![object("a")], "2000".into());
    expect!(watched, "start", "objects a", "end");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn failures_for_long_are_told_once_and_a_list_follows() {
    let mut watched = Watched::start(MemoryStore::new(), &IP_POOL, 1);
    expect!(watched, "start", "end");
    watched.store.watched(&IP_POOL, 1).await;
    let start = tokio::time::Instant::now();
    watched.store.refuse(&IP_POOL, 200);
    watched.store.end_watches(&IP_POOL, WatchFault::Breaks);
    expect!(watched, "lost");
    assert!(start.elapsed() >= LOST_AFTER && start.elapsed() < LOST_AFTER + Duration::from_secs(11));
    assert_eq!(watched.phase(), Phase::Lost);
    expect!(watched, "start", "end");
    watched.store.put(&IP_POOL, object("a"));
    expect!(watched, "~ +a");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_answers_is_given_up() {
    let store = MemoryStore::new();
    store.put(&IP_POOL, object("a"));
    store.hold_pages(&IP_POOL);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    watched.store.listed(&IP_POOL, 2).await;
    watched.store.release_pages(&IP_POOL, 9);
    expect!(watched, "start", "objects a", "end");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_half_way_begins_again() {
    let store = MemoryStore::new();
    store.set_page_size(1);
    store.load(&IP_POOL, vec![object("a"), object("b")], "5".into());
    store.hold_pages(&IP_POOL);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    watched.store.release_pages(&IP_POOL, 1);
    expect!(watched, "start", "objects a");
    // The second page does not come in time; the next list is whole.
    watched.store.listed(&IP_POOL, 2).await;
    watched.store.release_pages(&IP_POOL, 2);
    expect!(watched, "start", "objects a", "objects b", "end");
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_slows_the_reading() {
    let store = MemoryStore::new();
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "start", "end");
    watched.store.watched(&IP_POOL, 1).await;
    for n in 0..50 {
        watched.store.put(&IP_POOL, object(&n.to_string()));
    }
    // Let everything run that can run: in paused time, a sleep ends when nothing else can move.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(watched.events.len(), 1);
    for n in 0..50 {
        assert_eq!(watched.next().await, format!("~ +{n}"));
    }
}

/// A watch that is open, whose subscriber can make use of changes in 20 ms.
async fn in_twenty_ms() -> (Watched, crate::demand::Consumer, Instant) {
    let demand = Demand::default();
    let mut watched = Watched::start_for(MemoryStore::new(), &IP_POOL, 8, demand.clone());
    expect!(watched, "start", "end");
    watched.store.watched(&IP_POOL, 1).await;
    let (consumer, start) = (demand.consumer(), Instant::now());
    consumer.wants(Some(start + Duration::from_millis(20)));
    (watched, consumer, start)
}

#[tokio::test(start_paused = true)]
async fn changes_that_nobody_can_use_yet_are_put_off_and_read_together() {
    let (mut watched, consumer, start) = in_twenty_ms().await;
    for name in ["a", "b", "c"] {
        watched.store.put(&IP_POOL, object(name));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let last = watched.store.delete(&IP_POOL, &id("a"));
    expect!(watched, "~ +a +b +c -a");
    assert_eq!(start.elapsed(), Duration::from_millis(18), "shortly before");
    assert_eq!(watched.statuses.borrow()[0].borrow().revision, last);
    // Too late to wait for the others.
    watched.store.put(&IP_POOL, object("d"));
    expect!(watched, "~ +d");
    assert_eq!(start.elapsed(), Duration::from_millis(18));
    // Nobody is served any more: nothing is put off.
    consumer.wants(None);
    watched.store.put(&IP_POOL, object("e"));
    expect!(watched, "~ +e");
    assert_eq!(start.elapsed(), Duration::from_millis(18));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_change_ends_what_is_read_together() {
    let (mut watched, consumer, start) = in_twenty_ms().await;
    watched.store.put(&IP_POOL, object("a"));
    watched.store.put(&IP_POOL, object("b"));
    watched.store.bookmark(&IP_POOL, None, None);
    watched.store.put(&IP_POOL, object("c"));
    expect!(watched, "~ +a +b", "~");
    assert_eq!(start.elapsed(), Duration::ZERO, "it tells how far those before it are");
    expect!(watched, "~ +c");
    assert_eq!(start.elapsed(), Duration::from_millis(18));
    // The watch breaks while a change is put off: that is handed on, and what follows comes from the next watch.
    consumer.wants(Some(start + Duration::from_millis(40)));
    watched.store.put(&IP_POOL, object("d"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    watched.store.put(&IP_POOL, object("e"));
    watched.store.end_watches(&IP_POOL, WatchFault::Breaks);
    expect!(watched, "~ +d", "~ +e");
    assert_eq!(watched.store.lists(&IP_POOL), 1);
    // A position by itself costs nobody anything, and those who vouch by it should not have to wait.
    consumer.wants(Some(Instant::now() + Duration::from_millis(20)));
    let again = Instant::now();
    watched.store.bookmark(&IP_POOL, None, None);
    expect!(watched, "~");
    assert_eq!(again.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn neither_a_burst_nor_anything_for_long_is_put_off() {
    let (mut watched, consumer, start) = in_twenty_ms().await;
    for n in 0..40 {
        watched.store.put(&IP_POOL, object(&n.to_string()));
    }
    let first = watched.next().await;
    assert!(first.starts_with("~ +0 +1") && first.ends_with("+31"), "{first}");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let rest = watched.next().await;
    assert!(rest.starts_with("~ +32") && rest.ends_with("+39"), "{rest}");
    assert_eq!(start.elapsed(), Duration::from_millis(18));
    let again = Instant::now();
    consumer.wants(Some(again + Duration::from_secs(3600)));
    watched.store.put(&IP_POOL, object("a"));
    expect!(watched, "~ +a");
    assert_eq!(again.elapsed(), Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn one_list_and_watch_serves_all_subscribers() {
    let store = MemoryStore::new();
    store.put(&IP_POOL, object("a"));
    let mut hub = KindHub::new(Arc::new(store.clone()), 1);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (sender, events) = mpsc::channel(8);
        hub.subscribe(IP_POOL, Subscriber::new(7, sender));
        readers.push(events);
    }
    let running = tokio::spawn(hub.run(CancellationToken::new()));
    for events in &mut readers {
        for expected in ["start", "objects a", "end"] {
            assert_eq!(next(events).await, expected);
        }
    }
    // One that goes away does not disturb the others.
    readers.pop();
    store.put(&IP_POOL, object("b"));
    for events in &mut readers {
        assert_eq!(next(events).await, "~ +b");
    }
    assert_eq!((store.lists(&IP_POOL), store.watches(&IP_POOL)), (1, 1));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_joins_later_gets_a_whole_list() {
    let store = MemoryStore::new();
    store.put(&IP_POOL, object("a"));
    let mut watched = Watched::start(store, &IP_POOL, 8);
    expect!(watched, "start", "objects a", "end");
    watched.store.watched(&IP_POOL, 1).await;
    let (sender, mut late) = mpsc::channel(8);
    assert!(watched.joiner.subscribe(IP_POOL, Subscriber::new(7, sender.clone())).await);
    for expected in ["start", "objects a", "end"] {
        assert_eq!(next(&mut late).await, expected);
    }
    expect!(watched, "start", "objects a", "end");
    // A kind that nobody watched so far.
    assert!(watched.joiner.subscribe(POD, Subscriber::new(7, sender)).await);
    for expected in ["start", "end"] {
        assert_eq!(next(&mut late).await, expected);
    }
    assert_eq!(watched.statuses.borrow().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancelling_stops_the_hub_even_while_a_subscriber_blocks() {
    let store = MemoryStore::new();
    for n in 0..10 {
        store.put(&IP_POOL, object(&n.to_string()));
    }
    store.set_page_size(1);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "start");
    watched.cancel.cancel();
    watched.running.await.expect("the hub does not panic");
    while watched.events.recv().await.is_some() {}
}
