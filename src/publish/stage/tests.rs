use std::time::Duration;

use prometheus::IntGauge;

use super::*;
use crate::metrics::SyncerMetrics;
use crate::model::{Value, no_revision};
use crate::snapcache::Reader;
use crate::syncer::spec::Publishing;

const QUIET: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(2);

fn update(key: &str, value: Option<&str>, update_type: UpdateType) -> Update {
    Update {
        key: key.into(),
        value: value.map(|value| Value::raw(value.to_owned())),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type,
        origin: None,
    }
}

fn put(key: &str, value: &str) -> SyncerEvent {
    SyncerEvent::Updates(vec![update(key, Some(value), UpdateType::Updated)])
}

fn delete(key: &str) -> SyncerEvent {
    SyncerEvent::Updates(vec![update(key, None, UpdateType::Deleted)])
}

/// A stage that runs; the writing end, and the content.
fn running() -> (decoupler::Sender, Reader) {
    let (cache, reader) = SnapCache::new(usize::MAX, SyncerMetrics::unregistered());
    let candidates = Candidates::new(IntGauge::new("conflicts", "for a test").unwrap());
    let strategy = Strategy::new(Publishing { quiet: QUIET, max_delay: MAX_DELAY });
    let (sender, from) = decoupler::channel(10_000);
    let publisher = Publisher::new(SyncerName::new("mesh"), cache.with_kinds(|key| &key[..2]), candidates, strategy);
    tokio::spawn(run(publisher, from, |_| {}, CancellationToken::new()));
    (sender, reader)
}

async fn send(sender: &decoupler::Sender, event: SyncerEvent) {
    sender.send(event).await.expect("the stage runs");
    // Time is paused: it goes on only when the stage has nothing to do.
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

#[tokio::test(start_paused = true)]
async fn all_data_of_the_first_sync_are_one_publication() {
    let (sender, reader) = running();
    send(&sender, SyncerEvent::Status(SyncStatus::ResyncInProgress)).await;
    for n in 0..5_000 {
        sender.send(put(&format!("/a{n}"), "x")).await.expect("the stage runs");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let silent = reader.newest();
    assert_eq!((silent.map.len(), silent.status), (0, SyncStatus::ResyncInProgress));
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    let newest = reader.newest();
    assert_eq!((newest.sequence, newest.deltas.len(), newest.status), (silent.sequence + 1, 5_000, SyncStatus::InSync));
}

#[tokio::test(start_paused = true)]
async fn changes_are_published_after_quiet_and_by_the_longest_delay_at_the_latest() {
    let (sender, reader) = running();
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    let first = reader.newest().sequence;
    let start = Instant::now();
    send(&sender, put("/a", "1")).await;
    send(&sender, put("/a", "2")).await;
    assert_eq!(reader.newest().sequence, first, "it is not quiet yet");
    let mut trail = reader.follow();
    let crumb = trail.next().await.expect("the stage runs");
    assert!((QUIET..QUIET + Duration::from_millis(5)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!((crumb.sequence, crumb.deltas.len()), (first + 1, 1));
    // A flood of changes that never rests: one publication for each longest delay.
    let start = Instant::now();
    while start.elapsed() < 5 * MAX_DELAY {
        sender.send(put(&format!("/b{}", start.elapsed().as_micros()), "x")).await.expect("the stage runs");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let published = reader.newest().sequence - first - 1;
    assert!((4..=5).contains(&published), "{published}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_and_goes_between_publications_is_no_change() {
    let (sender, reader) = running();
    send(&sender, put("/a", "1")).await;
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    let first = reader.newest();
    send(&sender, put("/b", "1")).await;
    send(&sender, delete("/b")).await;
    send(&sender, delete("/a")).await;
    send(&sender, put("/a", "1")).await;
    tokio::time::sleep(QUIET * 2).await;
    assert_eq!(reader.newest().sequence, first.sequence);
    send(&sender, delete("/a")).await;
    send(&sender, put("/a", "2")).await;
    tokio::time::sleep(QUIET * 2).await;
    let crumb = reader.newest();
    let told: Vec<UpdateType> = crumb.deltas.iter().map(|update| update.update_type).collect();
    assert_eq!((crumb.sequence, told), (first.sequence + 1, vec![UpdateType::Updated]));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_worse_is_told_at_once_and_in_sync_with_all_data() {
    let (sender, reader) = running();
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    send(&sender, put("/a", "1")).await;
    send(&sender, SyncerEvent::Status(SyncStatus::WaitForDatastore)).await;
    let away = reader.newest();
    assert_eq!((away.status, away.map.len()), (SyncStatus::WaitForDatastore, 0));
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    let back = reader.newest();
    assert_eq!((back.status, back.map.len()), (SyncStatus::InSync, 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_publication_of_each_kind_is_known() {
    let (sender, reader) = running();
    send(&sender, put("/a1", "1")).await;
    send(&sender, put("/b1", "1")).await;
    send(&sender, SyncerEvent::Status(SyncStatus::InSync)).await;
    let first = reader.newest().sequence;
    send(&sender, put("/b1", "2")).await;
    tokio::time::sleep(QUIET * 2).await;
    let kinds: Vec<(String, u64)> = reader.newest().kinds.iter().map(|(kind, at)| (kind.to_string(), *at)).collect();
    assert_eq!(kinds, [("/a".to_owned(), first), ("/b".to_owned(), first + 1)]);
}
