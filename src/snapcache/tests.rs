//! Tests of the cache: suppression, batches, statuses, followers, long chains, and a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use imbl::ordmap::DiffItem;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::decoupler;
use crate::metrics::SyncerMetrics;
use crate::model::{AsOf, Key, SyncStatus, SyncerEvent, Update, UpdateType, Value};

fn update(key: &str, value: Option<&str>, update_type: UpdateType) -> Update {
    Update {
        key: key.into(),
        value: value.map(|text| Value::raw(text.to_owned())),
        revision: "1".into(),
        v3_resource_version: "".into(),
        ttl: Duration::ZERO,
        update_type,
        origin: None,
    }
}

fn put(key: &str, value: &str) -> Update {
    update(key, Some(value), UpdateType::New)
}

fn del(key: &str) -> Update {
    update(key, None, UpdateType::Deleted)
}

fn cache(max_batch_size: usize) -> (SnapCache, Reader, SyncerMetrics) {
    let metrics = SyncerMetrics::unregistered();
    let (cache, reader) = SnapCache::new(max_batch_size, metrics.clone());
    (cache, reader, metrics)
}

fn as_of(n: u64) -> AsOf {
    AsOf { revision: n.to_string().into(), at: SystemTime::UNIX_EPOCH + Duration::from_secs(n) }
}

#[test]
fn an_identical_value_is_dropped_whatever_its_type_and_revision() {
    let (mut cache, reader, metrics) = cache(100);
    cache.apply(vec![SyncerEvent::Updates(vec![put("/a", "1")])]);
    assert_eq!(reader.newest().sequence, 1);
    for update_type in [UpdateType::New, UpdateType::Updated, UpdateType::Unknown] {
        let again = Update { revision: "2".into(), ..update("/a", Some("1"), update_type) };
        cache.apply(vec![SyncerEvent::Updates(vec![again])]);
        assert_eq!(reader.newest().sequence, 1);
    }
    assert_eq!((metrics.updates_total.get(), metrics.updates_skipped.get()), (4, 3));
    let longer = Update { ttl: Duration::from_secs(1), ..put("/a", "1") };
    cache.apply(vec![SyncerEvent::Updates(vec![longer])]);
    assert_eq!(reader.newest().sequence, 2);
}

#[test]
fn deletions_are_never_dropped() {
    let (mut cache, reader, metrics) = cache(100);
    cache.apply(vec![SyncerEvent::Updates(vec![del("/a"), update("/b", None, UpdateType::New)])]);
    let crumb = reader.newest();
    let types: Vec<_> = crumb.deltas.iter().map(|update| update.update_type).collect();
    assert_eq!(types, [UpdateType::Deleted, UpdateType::New]);
    assert!(crumb.map.is_empty());
    assert_eq!(metrics.updates_skipped.get(), 0);
}

#[test]
fn two_changes_of_a_key_in_one_batch_are_two_deltas_in_order() {
    let (mut cache, reader, _) = cache(100);
    cache.apply(vec![SyncerEvent::Updates(vec![put("/a", "1"), put("/a", "2"), del("/a"), put("/a", "3")])]);
    let crumb = reader.newest();
    let values: Vec<_> =
        crumb.deltas.iter().map(|update| update.value.as_ref().map(|value| &value.bytes[..])).collect();
    assert_eq!(values, [Some(&b"1"[..]), Some(b"2"), None, Some(b"3")]);
}

#[test]
fn a_crumb_holds_at_most_the_batch_size_and_the_status_comes_with_the_last() {
    for (count, crumbs) in [(1, 1), (99, 1), (100, 1), (101, 2), (250, 3)] {
        let (mut cache, reader, _) = cache(100);
        let mut trail = reader.follow();
        let updates = (0..count).map(|n| put(&format!("/{n}"), "1")).collect();
        cache.apply(vec![
            SyncerEvent::Status(SyncStatus::ResyncInProgress),
            SyncerEvent::Updates(updates),
            SyncerEvent::Status(SyncStatus::InSync),
            SyncerEvent::Progress(as_of(5)),
        ]);
        let seen: Vec<_> = std::iter::from_fn(|| trail.try_next()).collect();
        assert_eq!(seen.len(), crumbs, "{count} updates");
        let (last, before) = seen.split_last().expect("something was published");
        assert!(before.iter().all(|crumb| crumb.status == SyncStatus::WaitForDatastore && crumb.as_of.is_none()));
        assert!(before.iter().all(|crumb| crumb.deltas.len() == 100));
        assert_eq!((last.status, last.map.len(), last.as_of.clone()), (SyncStatus::InSync, count, Some(as_of(5))));
        assert_eq!(reader.as_of(), Some(as_of(5)));
    }
}

#[test]
fn a_status_alone_makes_a_crumb_only_if_it_is_another_one() {
    let (mut cache, reader, _) = cache(100);
    cache.apply(vec![SyncerEvent::Status(SyncStatus::WaitForDatastore)]);
    assert_eq!(reader.newest().sequence, 0);
    cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync), SyncerEvent::Progress(as_of(9))]);
    assert_eq!((reader.newest().sequence, reader.newest().status), (1, SyncStatus::InSync));
    assert_eq!((reader.newest().as_of.clone(), reader.as_of()), (None, Some(as_of(9))));
    cache.apply(Vec::new());
    assert_eq!(reader.newest().sequence, 1);
}

#[test]
fn a_newcomer_starts_from_the_newest_content() {
    let (mut cache, reader, _) = cache(100);
    cache.apply(vec![SyncerEvent::Updates(vec![put("/b", "1"), put("/a", "1"), put("/c", "1"), del("/b")])]);
    let trail = reader.follow();
    let keys: Vec<_> = trail.position().map.keys().map(Key::as_str).collect();
    assert_eq!(keys, ["/a", "/c"]);
    assert!(trail.position().next().is_none());
}

#[tokio::test]
async fn a_follower_reads_the_rest_when_the_cache_is_gone_and_then_ends() {
    let (mut cache, reader, _) = cache(1);
    let mut trail = reader.follow();
    cache.apply(vec![SyncerEvent::Updates(vec![put("/a", "1"), put("/b", "1")])]);
    drop(cache);
    assert_eq!(trail.next().await.map(|crumb| crumb.sequence), Some(1));
    assert_eq!(trail.next().await.map(|crumb| crumb.sequence), Some(2));
    assert!(trail.next().await.is_none());
}

#[tokio::test]
async fn a_blocked_follower_can_be_stopped() {
    let (_cache, reader, _) = cache(1);
    let cancel = CancellationToken::new();
    let mut trail = reader.follow();
    let stop = cancel.clone();
    let follower = tokio::spawn(async move { stop.run_until_cancelled(trail.next()).await });
    tokio::task::yield_now().await;
    cancel.cancel();
    assert!(follower.await.expect("the follower does not panic").is_none());
}

/// Follows in a task of its own, yields after every `lag` crumbs, and rebuilds the content from the deltas.
fn follower(
    reader: &Reader,
    runtime: &tokio::runtime::Runtime,
    lag: usize,
) -> tokio::task::JoinHandle<(u64, BTreeMap<Key, Vec<u8>>)> {
    let mut trail = reader.follow();
    runtime.spawn(async move {
        let mut content = BTreeMap::new();
        let mut sequence = 0;
        while let Some(crumb) = trail.next().await {
            assert_eq!(crumb.sequence, sequence + 1, "every crumb is seen once and in order");
            sequence = crumb.sequence;
            for update in &crumb.deltas {
                match &update.value {
                    Some(value) => content.insert(update.key.clone(), value.bytes.to_vec()),
                    None => content.remove(&update.key),
                };
            }
            if lag > 0 && crumb.sequence % lag as u64 == 0 {
                tokio::task::yield_now().await;
            }
            if crumb.status == SyncStatus::InSync {
                break;
            }
        }
        (sequence, content)
    })
}

/// Sends `total` updates past followers of several speeds; each must see all and end with the map.
fn followers_see_everything(total: usize) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().expect("a runtime can be built");
    let (mut cache, reader, _) = cache(100);
    let followers: Vec<_> = [0, 1, 2, 7, 100].into_iter().map(|lag| follower(&reader, &runtime, lag)).collect();
    let mut sent = 0;
    // Batch sizes that vary: lone updates (where a wake-up is easiest to lose) and larger lots.
    for lot in [1, 1, 2, 99, 100, 101, 1, 1000].into_iter().cycle() {
        let updates = (sent..total.min(sent + lot)).map(|n| {
            let key = format!("/{}", n * 31 % 1000);
            if n % 5 == 4 { del(&key) } else { put(&key, &n.to_string()) }
        });
        cache.apply(vec![SyncerEvent::Updates(updates.collect())]);
        sent += lot;
        if sent >= total {
            break;
        }
    }
    cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    let newest = reader.newest();
    let expected: BTreeMap<Key, Vec<u8>> = newest
        .map
        .iter()
        .filter_map(|(key, update)| Some((key.clone(), update.value.as_ref()?.bytes.to_vec())))
        .collect();
    for follower in followers {
        let (sequence, content) = runtime.block_on(follower).expect("followers do not panic");
        assert_eq!(sequence, newest.sequence);
        assert_eq!(content, expected);
    }
}

#[test]
fn followers_of_all_speeds_see_every_update() {
    for total in [0, 1, 2, 99, 100, 101, 1000, 123_456] {
        followers_see_everything(total);
    }
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    // A ping-pong: the writer publishes only after the follower has seen the last crumb and is about to wait, so that a
    // lost wake-up would hang both.
    const ROUNDS: u64 = 20_000;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime can be built");
    let (mut cache, reader, _) = cache(1);
    let (seen, mut last_seen) = tokio::sync::mpsc::channel(1);
    let mut trail = reader.follow();
    runtime.spawn(async move {
        while let Some(crumb) = trail.next().await {
            if seen.send(crumb.sequence).await.is_err() {
                return;
            }
        }
    });
    runtime.block_on(async {
        for round in 1..=ROUNDS {
            cache.apply(vec![SyncerEvent::Updates(vec![put("/a", &round.to_string())])]);
            assert_eq!(last_seen.recv().await, Some(round));
        }
    });
}

#[test]
fn a_chain_of_a_million_crumbs_drops_without_recursion() {
    let (mut cache, reader, _) = cache(1);
    let oldest = reader.newest();
    for n in 0..1_000_000_u32 {
        // Statuses are the cheapest crumbs.
        let status = if n % 2 == 0 { SyncStatus::InSync } else { SyncStatus::ResyncInProgress };
        cache.apply(vec![SyncerEvent::Status(status)]);
    }
    assert_eq!(reader.newest().sequence, 1_000_000);
    drop((cache, reader));
    // Far too small for a million calls, and large enough for the handler of the profiler's signal, which another test
    // that runs beside this one may send to any thread: with 64 KiB it sometimes wrote beyond the end.
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(move || {
            assert_eq!(Arc::strong_count(&oldest), 1);
            drop(oldest);
        })
        .expect("a thread can be started")
        .join()
        .expect("dropping needs no deep stack");
}

#[test]
fn dropping_a_trail_frees_only_crumbs_that_no_other_trail_holds() {
    let (mut cache, reader, _) = cache(1);
    let slow = reader.follow();
    for n in 0..10 {
        cache.apply(vec![SyncerEvent::Updates(vec![put("/a", &n.to_string())])]);
    }
    let fifth = {
        let mut trail = slow.clone();
        while trail.position().sequence < 5 {
            trail.try_next().expect("the chain is whole");
        }
        trail
    };
    let first = Arc::downgrade(slow.position());
    drop(slow);
    assert!(first.upgrade().is_none());
    let mut rest = fifth;
    let seen: Vec<u64> = std::iter::from_fn(|| rest.try_next()).map(|crumb| crumb.sequence).collect();
    assert_eq!(seen, [6, 7, 8, 9, 10]);
}

#[tokio::test(start_paused = true)]
async fn the_task_reports_at_the_start_on_every_status_and_while_idle() {
    let (cache, reader, metrics) = cache(100);
    let (sender, from) = decoupler::channel(100);
    let (report, mut reports) = tokio::sync::mpsc::channel(16);
    let cancel = CancellationToken::new();
    let task = tokio::spawn(run(
        cache,
        from,
        move |health| {
            report.try_send(health.status).expect("reports are few");
        },
        cancel.clone(),
    ));
    assert_eq!(reports.recv().await, Some(SyncStatus::WaitForDatastore));
    sender.send(SyncerEvent::Updates(vec![put("/a", "1")])).await.expect("the task runs");
    sender.send(SyncerEvent::Progress(as_of(1))).await.expect("the task runs");
    sender.send(SyncerEvent::Status(SyncStatus::InSync)).await.expect("the task runs");
    assert_eq!(reports.recv().await, Some(SyncStatus::InSync));
    assert_eq!((reader.newest().map.len(), reader.as_of()), (1, Some(as_of(1))));
    let start = tokio::time::Instant::now();
    for beat in 1..=3 {
        assert_eq!(reports.recv().await, Some(SyncStatus::InSync));
        assert_eq!(start.elapsed(), HEARTBEAT * beat);
    }
    assert!(metrics.datastore_age_secs.get() > 0);
    cancel.cancel();
    task.await.expect("the task does not panic");
}

/// A cache for which the datastore never vouched is as old as itself, so that this is noticed; one whose kinds the
/// datastore does not know lacks nothing.
#[tokio::test(start_paused = true)]
async fn a_cache_that_was_never_in_sync_ages_from_the_start() {
    let (mut cache, _reader, metrics) = cache(100);
    let shown = |cache: &SnapCache| {
        cache.observe_age(SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
        (metrics.datastore_age_secs.get(), metrics.in_sync.get())
    };
    tokio::time::advance(Duration::from_secs(77)).await;
    assert_eq!(shown(&cache), (77, 0));
    cache.apply(vec![SyncerEvent::Updates(vec![put("/a", "1")]), SyncerEvent::Status(SyncStatus::ResyncInProgress)]);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(shown(&cache), (80, 0));
    cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    assert_eq!(shown(&cache), (0, 1));
    cache.apply(vec![SyncerEvent::Progress(as_of(990))]);
    assert_eq!(shown(&cache), (10, 1));
    cache.apply(vec![SyncerEvent::Status(SyncStatus::WaitForDatastore)]);
    assert_eq!(shown(&cache), (10, 0));
}

#[tokio::test]
async fn the_task_publishes_everything_sent_before_its_source_ended() {
    let (cache, reader, _) = cache(100);
    let (sender, from) = decoupler::channel(1000);
    for n in 0..300 {
        sender.send(SyncerEvent::Updates(vec![put(&format!("/{n}"), "1")])).await.expect("there is room");
    }
    drop(sender);
    run(cache, from, |_| {}, CancellationToken::new()).await;
    assert_eq!((reader.newest().map.len(), reader.newest().sequence), (300, 3));
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    Delete(u8),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u8..20, 0_u8..3).prop_map(|(key, value)| Op::Put(key, value)),
        1 => (0_u8..20).prop_map(Op::Delete),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_plain_map_at_every_crumb(
        batches in proptest::collection::vec(proptest::collection::vec(any_op(), 0..20), 0..20),
        max_batch_size in 1_usize..10,
    ) {
        let (mut cache, reader, _) = cache(max_batch_size);
        let mut trail = reader.follow();
        let mut crumbs = vec![reader.newest()];
        let mut model: BTreeMap<Key, String> = BTreeMap::new();
        for batch in batches {
            let updates = batch.iter().map(|op| match op {
                Op::Put(key, value) => put(&format!("/{key}"), &value.to_string()),
                Op::Delete(key) => del(&format!("/{key}")),
            });
            cache.apply(vec![SyncerEvent::Updates(updates.collect())]);
            for op in batch {
                match op {
                    Op::Put(key, value) => model.insert(format!("/{key}").into(), value.to_string()),
                    Op::Delete(key) => model.remove(format!("/{key}").as_str()),
                };
            }
            crumbs.extend(std::iter::from_fn(|| trail.try_next()));
            let content: BTreeMap<Key, String> = reader.newest().map.iter().map(text).collect();
            prop_assert_eq!(&content, &model);
        }
        // The difference of any two versions leads from one to the other: catch-ups rely on that.
        for (older, newer) in crumbs.iter().zip(crumbs.iter().rev()) {
            let mut content: BTreeMap<Key, String> = older.map.iter().map(text).collect();
            for item in older.map.diff(&newer.map) {
                match item {
                    DiffItem::Add(key, update) | DiffItem::Update { new: (key, update), .. } => {
                        let (key, value) = text((key, update));
                        content.insert(key, value);
                    }
                    DiffItem::Remove(key, _) => {
                        content.remove(key);
                    }
                }
            }
            let expected: BTreeMap<Key, String> = newer.map.iter().map(text).collect();
            prop_assert_eq!(content, expected);
        }
    }
}

fn text((key, update): (&Key, &Arc<Update>)) -> (Key, String) {
    let value = update.value.as_ref().expect("the map holds values only");
    (key.clone(), String::from_utf8_lossy(&value.bytes).into_owned())
}
