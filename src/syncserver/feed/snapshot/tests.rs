//! Snapshots that follow each other, without a server.

use crate::syncserver::client::record::Client;
use crate::syncserver::feed::made::Awaits;
use std::future::poll_fn;
use std::time::Duration;

use super::super::ring::{Limits, Ring};
use super::super::room::Room;
use super::*;
use crate::model::{SyncerEvent, Update, UpdateType, Value, no_revision};
use crate::outlet::filter::Filter;
use crate::snapcache::{Reader, SnapCache};
use crate::syncserver::calls::Call;
use crate::syncserver::server::tracker::Tracker;
use crate::syncserver::wire::Wire;

struct Source {
    cache: SnapCache,
    reader: Reader,
    metrics: SyncerMetrics,
}

impl Source {
    fn new() -> Self {
        let metrics = SyncerMetrics::unregistered();
        let (cache, reader) = SnapCache::new(10_000, metrics.clone());
        Self { cache, reader, metrics }
    }

    fn put(&mut self, keys: impl Iterator<Item = usize>, revision: usize) {
        let update = |key: usize| Update {
            key: Key::from(format!("/k/{key:05}")),
            value: Some(Value::raw(format!("{key} {revision}").repeat(40))),
            revision: Arc::from(revision.to_string()),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::Updated,
            origin: None,
        };
        self.cache.apply(vec![SyncerEvent::Updates(keys.map(update).collect())]);
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        let wire = Wire::GobPlain;
        let recipe = Recipe::new(wire.format(), Filter::default(), 1000, wire.snapshot_piece_bytes());
        let mark = Ring::new(&self.reader.newest(), Limits { bytes: 0, updates: 0 }).head().clone();
        Snapshot::new(mark, recipe, Instant::now())
    }

    async fn produce(&self, snapshot: &Arc<Snapshot>, base: Option<&Snapshot>) -> (u64, u64) {
        let (encoded, reused) = (self.metrics.snapshot_pieces_encoded.get(), self.metrics.snapshot_pieces_reused.get());
        let base = base.and_then(Snapshot::as_base);
        Snapshot::produce(Arc::downgrade(snapshot), base, None, self.metrics.clone()).await;
        let metrics = &self.metrics;
        (metrics.snapshot_pieces_encoded.get() - encoded, metrics.snapshot_pieces_reused.get() - reused)
    }
}

fn client() -> Arc<Client> {
    Tracker::default().add(1, ([10, 0, 0, 1], 1).into(), None, Instant::now())
}

fn waiter() -> Arc<dyn Awaits> {
    client()
}

/// All bytes from a position on.
fn read(snapshot: &Snapshot, place: &mut SnapshotCursor, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..most {
        match snapshot.piece(place, &waiter()) {
            Piece::Bytes(bytes, next) | Piece::Alone(bytes, next) => {
                all.extend_from_slice(&bytes);
                *place = next;
            }
            Piece::NotYet => panic!("it has been made"),
            Piece::End => break,
        }
    }
    all
}

fn read_all(snapshot: &Snapshot) -> Vec<u8> {
    read(snapshot, &mut SnapshotCursor::default(), usize::MAX)
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_costs_the_changes_since_the_last_one() {
    let mut source = Source::new();
    source.put(0..20_000, 0);
    let first = source.snapshot();
    let (all, reused) = source.produce(&first, None).await;
    assert!(all > 50 && reused == 0, "{all} {reused}");
    source.put([1, 10_000, 10_001].into_iter(), 1);
    let second = source.snapshot();
    let (encoded, reused) = source.produce(&second, Some(&first)).await;
    assert!((2..=3).contains(&encoded), "{encoded}");
    assert_eq!(encoded + reused, all);
    let alone = source.snapshot();
    source.produce(&alone, None).await;
    assert_eq!(read_all(&second), read_all(&alone));
    assert_ne!(read_all(&second), read_all(&first));
    let raw = source.metrics.snapshot_raw_bytes.get();
    assert_eq!(
        usize::try_from(raw),
        Ok(read_all(&second).len()),
        "pieces that were taken over count as part of the snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_but_the_snapshots_holds_their_bytes() {
    let mut source = Source::new();
    source.put(0..5000, 0);
    let first = source.snapshot();
    source.produce(&first, None).await;
    source.put(0..1, 1);
    let second = source.snapshot();
    source.produce(&second, Some(&first)).await;
    drop(first);
    second.made.see(|made| {
        assert!(made.complete);
        assert!(made.pieces.iter().all(|piece| piece.bytes.is_unique()));
    });
}

#[tokio::test(start_paused = true)]
async fn a_reader_goes_on_where_it_was_when_the_bytes_are_given_up() {
    let mut source = Source::new();
    source.put(0..5000, 0);
    let first = source.snapshot();
    source.produce(&first, None).await;
    source.put((0..5000).step_by(700), 1);
    let second = source.snapshot();
    source.produce(&second, Some(&first)).await;
    let whole = read_all(&second);
    let mut place = SnapshotCursor::default();
    let mut parts = read(&second, &mut place, 5);
    source.put(0..5000, 2);
    let third = source.snapshot();
    source.produce(&third, Some(&second)).await;
    second.give_up(&third);
    assert!(matches!(second.piece(&place, &waiter()), Piece::Alone(..)));
    let empty = second.made.see(|made| made.pieces.iter().all(|piece| piece.bytes.is_empty()));
    assert!(empty, "the two have nothing in common");
    let rest = read(&second, &mut place, usize::MAX);
    // The cut of the rest may differ, its content may not.
    parts.extend_from_slice(&rest);
    assert_eq!(said(&parts), said(&whole));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_newer_snapshots_share_are_not_given_up() {
    let mut source = Source::new();
    source.put(0..5000, 0);
    let first = source.snapshot();
    let (all, _) = source.produce(&first, None).await;
    let whole = read_all(&first);
    let mut given_up: Vec<Arc<Snapshot>> = Vec::new();
    let mut last = first.clone();
    for n in 1..=3 {
        source.put(std::iter::once(1000 * n), n);
        let next = source.snapshot();
        source.produce(&next, Some(&last)).await;
        given_up.push(std::mem::replace(&mut last, next));
        for older in &given_up {
            older.give_up(&last);
        }
    }
    let (mut place, mut parts, mut alone) = (SnapshotCursor::default(), Vec::new(), 0);
    loop {
        match first.piece(&place, &waiter()) {
            Piece::End => break,
            Piece::NotYet => panic!("it has been made"),
            Piece::Bytes(bytes, next) => {
                parts.extend_from_slice(&bytes);
                place = next;
            }
            Piece::Alone(bytes, next) => {
                parts.extend_from_slice(&bytes);
                place = next;
                alone += 1;
            }
        }
    }
    assert!((1..=3).contains(&alone) && all > 20, "{alone} of {all}: those with a changed key");
    assert_eq!(said(&parts), said(&whole));
    // The newest one holds all bytes that they hold.
    let held: Vec<*const u8> = last.made.see(|made| made.pieces.iter().map(|piece| piece.bytes.as_ptr()).collect());
    for older in &given_up {
        let fits = |piece: &EncodedPiece| piece.bytes.is_empty() || held.contains(&piece.bytes.as_ptr());
        assert!(older.made.see(|made| made.pieces.iter().all(fits)));
    }
}

/// Keys, values and revisions of a gob stream, in order.
fn said(gob: &[u8]) -> Vec<String> {
    use crate::syncproto::gob::{Decoder, Limits, server_prefix};
    use crate::syncproto::messages::Message;
    let mut decoder = Decoder::new(Limits::client());
    decoder.push(&server_prefix());
    decoder.push(gob);
    let mut all = Vec::new();
    while let Some(envelope) = decoder.next().expect("good gob") {
        let Some(Message::Kvs(updates)) = envelope.0 else { panic!("only updates") };
        all.extend(updates.iter().map(|update| format!("{update:?}")));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn pieces_of_an_unfinished_snapshot_are_reused() {
    let mut source = Source::new();
    source.put(0..20_000, 0);
    let first = source.snapshot();
    let (all, _) = source.produce(&first, None).await;
    first.made.progress(|made| {
        made.pieces.truncate(20);
        made.complete = false;
    });
    let second = source.snapshot();
    let (_, reused) = source.produce(&second, Some(&first)).await;
    assert!((19..=20).contains(&reused), "{reused} of {all}");
    let alone = source.snapshot();
    source.produce(&alone, None).await;
    assert_eq!(said(&read_all(&second)), said(&read_all(&alone)));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_no_longer_held_is_not_finished() {
    let mut source = Source::new();
    source.put(0..20_000, 0);
    let snapshot = source.snapshot();
    let task = tokio::spawn(Snapshot::produce(Arc::downgrade(&snapshot), None, None, source.metrics.clone()));
    let client = client();
    let waiter: Arc<dyn Awaits> = client.clone();
    assert!(matches!(snapshot.piece(&SnapshotCursor::default(), &waiter), Piece::NotYet));
    assert_eq!(poll_fn(|cx| client.calls().poll_call(cx)).await, Call::Look, "the first pieces");
    assert!(
        matches!(snapshot.piece(&SnapshotCursor::default(), &waiter), Piece::Bytes(..)),
        "it is read while it is made"
    );
    drop(snapshot);
    task.await.expect("the producer ends");
    assert_eq!(source.metrics.snapshot_raw_bytes.get(), 0, "before the end");
}

#[tokio::test]
async fn a_snapshot_without_room_is_encoded_for_each_client() {
    let mut source = Source::new();
    source.put(0..20_000, 0);
    let alone = source.snapshot();
    source.produce(&alone, None).await;
    let size: usize = alone.made.see(|made| made.pieces.iter().map(|piece| piece.bytes.len()).sum());
    let room = Room::new(size / 2);
    for attempt in 1..=2 {
        let snapshot = source.snapshot();
        let producing = Snapshot::produce(Arc::downgrade(&snapshot), None, Some(room.taker()), source.metrics.clone());
        producing.await;
        assert!(snapshot.made.see(|made| made.pieces.is_empty()), "{attempt}: nothing is kept");
        assert!(snapshot.as_base().is_none(), "the next one has nothing to take over");
        assert!(matches!(snapshot.piece(&SnapshotCursor::default(), &waiter()), Piece::Alone(..)));
        assert_eq!(said(&read_all(&snapshot)), said(&read_all(&alone)));
    }
    assert!(room.taker().take(size / 2), "all room has come back");
}
