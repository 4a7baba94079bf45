//! Clients that lag: grace, the limit of history, last values only.

use std::time::Duration;

use tokio::time::timeout;

use super::harness::*;
use crate::model::{SyncStatus, SyncerEvent, UpdateType};
use crate::outlet::Outlet as _;
use crate::syncserver::Config;

fn big(n: usize) -> String {
    // Does not compress well, so that pipes fill in every encoding.
    let mut jitter = crate::syncserver::jitter::Jitter::new(n as u64);
    (0..500).map(|_| char::from(b'!' + u8::try_from(jitter.below(90)).expect("below 90"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_lags_by_more_than_the_history_gets_last_values_and_goes_on() {
    let config = Config { max_lag_bytes: 20_000, max_lag_updates: 200, ..config() };
    for speech in Speech::all() {
        let mut world = World::new(config.clone());
        world.put(&[("/gone", "1"), ("/same", "1")]);
        world.status(SyncStatus::InSync);
        let mut client = Client::new(world.dial(1024).await, speech.clone());
        client.hello("felix").await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        // It stops reading, and the world goes on.
        world.delete("/gone");
        for round in 0..50 {
            for key in 0..10 {
                world.put(&[(&format!("/k/{key}"), &big(round * 10 + key))]);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world.put(&[("/last", "1")]);
        let metrics = world.felix_metrics.clone();
        eventually("it shows how far the slowest is behind", || metrics.oldest_client_updates.get() > 400).await;
        client.until("the last key", |client| client.map.contains_key("/last")).await;
        let expected: Vec<u8> = big(49 * 10 + 3).into_bytes();
        assert_eq!(client.map["/k/3"], expected, "{speech:?}");
        assert!(!client.map.contains_key("/gone"), "{speech:?}: deletions are not lost");
        assert_eq!(client.map.len(), 12, "{speech:?}");
        assert!(client.updates < 400, "{speech:?}: {} updates, history is not replayed", client.updates);
        assert!(world.felix_metrics.catch_ups.get() >= 1, "{speech:?}");
        assert!(world.felix_metrics.updates_coalesced.get() > 100, "{speech:?}");
        world.put(&[("/again", "1")]);
        client.until("on the ring again", |client| client.map.contains_key("/again")).await;
        assert!(world.felix_metrics.feed_bytes.get() < 30_000, "the history is bounded");
        eventually("no client is behind any more", || metrics.oldest_client_updates.get() == 0).await;
        assert!(metrics.rounds.get() > 50, "{speech:?}");
        assert_eq!(metrics.lost_wakeups.get(), 0, "{speech:?}: a client that does not read has a reason to lag");
    }
}

/// Agents are connected before the data comes, and it comes faster than they take it.
#[tokio::test(start_paused = true)]
async fn clients_that_fall_out_together_all_get_everything() {
    let config = Config { max_lag_bytes: 20_000, max_lag_updates: 200, ..config() };
    for speech in Speech::all() {
        let mut world = World::new(config.clone());
        world.status(SyncStatus::ResyncInProgress);
        let mut clients = Vec::new();
        for _ in 0..10 {
            let mut client = Client::new(world.dial(1024).await, speech.clone());
            client.hello("felix").await;
            client.until("the stream", |client| client.status == SyncStatus::ResyncInProgress).await;
            clients.push(client);
        }
        for chunk in 0..20 {
            let values: Vec<(String, String)> = (0..100).map(|n| (format!("/k/{}", chunk * 100 + n), big(n))).collect();
            world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.status(SyncStatus::InSync);
        world.delete("/k/1");
        for client in &mut clients {
            client.until("in sync", |client| client.status == SyncStatus::InSync).await;
            client.until("the deletion", |client| !client.map.contains_key("/k/1")).await;
            assert_eq!(client.map.len(), 1999, "{speech:?}");
        }
        assert!(world.felix_metrics.catch_ups.get() >= 10, "{speech:?}");
        assert_eq!(world.felix_metrics.lost_wakeups.get(), 0, "{speech:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_slowest_client_is_shown_whatever_the_others_speak() {
    let mut world = World::new(Config { max_lag_bytes: 1 << 20, ..config() });
    world.put(&[("/a", "1")]);
    world.status(SyncStatus::InSync);
    let mut slow = Client::new(world.dial(1024).await, Speech::GobSnappy);
    slow.hello("felix").await;
    slow.until("in sync", |client| client.status == SyncStatus::InSync).await;
    let mut brisk = world.connect(Speech::native("none")).await;
    for n in 0..500 {
        world.put(&[(&format!("/k/{}", n % 10), &big(n))]);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if n % 10 == 0 {
            brisk.until("the change", |client| client.map.contains_key(&format!("/k/{}", n % 10))).await;
        }
    }
    let metrics = world.felix_metrics.clone();
    eventually("it shows", || metrics.oldest_client_updates.get() > 300).await;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(97)).await;
        assert!(metrics.oldest_client_updates.get() > 300, "{}", metrics.oldest_client_updates.get());
    }
    // It lacks the change that was published last, some seconds ago: its lag is the age of that change.
    let lag = world.handle.clients().iter().map(|client| client.lag).max().expect("two clients");
    assert!(lag >= Duration::from_millis(50 * 97), "{lag:?}");
    assert_eq!(metrics.lost_wakeups.get(), 0, "its socket is full");
    drop(slow);
    eventually("it has gone", || metrics.oldest_client_updates.get() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_snapshot_uses_the_grace_period_and_survives() {
    let config =
        Config { max_fall_behind: Duration::from_millis(500), new_client_grace: Duration::from_secs(1), ..config() };
    let mut world = World::new(config);
    let values: Vec<(String, String)> = (0..2000).map(|n| (format!("/k/{n}"), big(n))).collect();
    world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    world.status(SyncStatus::InSync);
    let mut client = Client::new(world.dial(4096).await, Speech::GobSnappy);
    client.hello("felix").await;
    client.until("the restart", |client| client.streaming).await;
    for n in 0..30 {
        world.put(&[(&format!("/late/{n}"), "1")]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The status comes last, when the client has all data that there was at the end of its snapshot.
    client.until("everything", |client| client.map.len() == 2030 && client.status == SyncStatus::InSync).await;
    assert_eq!(world.felix_metrics.connections_grace_used.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_behind_after_its_grace_is_cut() {
    let config = Config {
        max_fall_behind: Duration::from_millis(500),
        new_client_grace: Duration::from_secs(1),
        ping_interval: Duration::from_secs(1),
        ..config()
    };
    let mut world = World::new(config);
    world.put(&[("/a", "1")]);
    world.status(SyncStatus::InSync);
    let mut client = Client::new(world.dial(4096).await, Speech::GobSnappy);
    client.hello("felix").await;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for n in 0..200 {
        world.put(&[(&format!("/k/{n}"), &big(n))]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eventually("it is cut", || world.closed("fell-behind") == 1).await;
    assert_eq!(world.felix_metrics.connections_grace_used.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_delays_nobody() {
    let mut world = World::new(config());
    let mut stalled = Client::new(world.dial(256).await, Speech::GobPlain);
    stalled.hello("felix").await;
    let mut brisk = world.connect(Speech::GobPlain).await;
    for n in 0..100 {
        world.put(&[("/a", &big(n))]);
        let expected = big(n).into_bytes();
        let heard = brisk.until("the value", |client| client.map.get("/a") == Some(&expected));
        timeout(Duration::from_millis(100), heard).await.expect("at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_does_not_set_the_pace() {
    let mut world = World::new(config());
    let mut slow = Client::new(world.dial(256).await, Speech::GobPlain);
    slow.hello("felix").await;
    world.status(SyncStatus::InSync);
    slow.until("in sync", |client| client.status == SyncStatus::InSync).await;
    let mut brisk = world.connect(Speech::GobPlain).await;
    let mut last = String::new();
    for n in 0..30 {
        // The first of two changes gets stuck on its way, so that the second is taken only when the client reads on.
        for half in 0..2 {
            last = big(2 * n + half);
            world.put(&[("/a", &last)]);
            brisk.until("the value", |client| client.map.get("/a").is_some_and(|v| v == last.as_bytes())).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        slow.until("the value", |client| client.map.get("/a").is_some_and(|v| v == last.as_bytes())).await;
    }
    assert!(!last.is_empty());
    world.put(&[("/a", "1")]);
    brisk.until("one", |client| client.map["/a"] == b"1").await;
    world.put(&[("/a", "2")]);
    let heard = brisk.until("two", |client| client.map["/a"] == b"2");
    timeout(Duration::from_millis(5), heard).await.expect("rounds follow each other as with two brisk clients");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_given_up_is_still_read_to_its_end() {
    let mut world = World::new(Config { snapshot_max_age: Duration::from_millis(10), ..config() });
    let values: Vec<(String, String)> = (0..3000).map(|n| (format!("/k/{n:04}"), big(n))).collect();
    world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    world.status(SyncStatus::InSync);
    let mut slow = Client::new(world.dial(512).await, Speech::GobSnappy);
    slow.hello("felix").await;
    slow.until("the restart", |client| client.streaming).await;
    for n in 0..4 {
        world.put(&[("/changing", &n.to_string())]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut client = world.connect(Speech::GobSnappy).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    }
    assert!(world.felix_metrics.snapshots_generated.get() >= 4);
    slow.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert_eq!(slow.map.len() - usize::from(slow.map.contains_key("/changing")), 3000);
    slow.until("the newest", |client| client.map.get("/changing").is_some_and(|value| value == b"3")).await;
}

#[tokio::test(start_paused = true)]
async fn joined_changes_leave_out_replaced_values_but_no_deletion() {
    let mut world = World::new(Config { min_batching_age: Duration::ZERO, ..config() });
    let mut client = world.connect(Speech::GobSnappy).await;
    world.put(&[("/first", "1")]);
    client.until("the first key", |client| client.map.len() == 1).await;
    // All at once: the feed runs only after the last.
    for value in ["1", "2", "3"] {
        world.put(&[("/a", value)]);
    }
    world.delete("/a");
    for value in ["4", "5"] {
        world.felix.apply(vec![SyncerEvent::Updates(vec![update("/a", Some(value.as_bytes()))])]);
    }
    let Some(Heard::Updates(changes)) = client.next().await else { panic!("changes") };
    let short: Vec<_> =
        changes.iter().map(|change| (change.value.as_deref().map(<[u8]>::to_vec), change.update_type)).collect();
    assert_eq!(
        short,
        [
            (Some(b"3".to_vec()), UpdateType::Updated),
            (None, UpdateType::Deleted),
            (Some(b"5".to_vec()), UpdateType::Updated),
        ]
    );
}

/// Reads a number of bytes at each interval. Returns the time until the connection was closed; `None`: it was still
/// open after `most`.
async fn drip(client: &mut Client, bytes: usize, every: Duration, most: Duration) -> Option<Duration> {
    let (began, mut buffer) = (tokio::time::Instant::now(), vec![0; bytes]);
    while began.elapsed() < most {
        tokio::time::sleep(every).await;
        match tokio::io::AsyncReadExt::read(&mut client.io, &mut buffer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Some(began.elapsed()),
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_must_not_be_taken_at_a_drip() {
    const SECOND: Duration = Duration::from_secs(1);
    for speech in [Speech::GobSnappy, Speech::native("zstd")] {
        let mut world = World::new(config());
        let values: Vec<(String, String)> = (0..8000).map(|n| (format!("/k/{n}"), big(n))).collect();
        world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
        world.status(SyncStatus::InSync);
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Client::new(world.dial(1024).await, speech.clone());
            client.hello("felix").await;
            clients.push(client);
        }
        for client in &mut clients {
            client.until("the stream", |client| client.streaming).await;
        }
        let [dripping, slow, pausing] = &mut clients[..] else { panic!("three clients") };
        let dripping = drip(dripping, 100, 10 * SECOND, 1000 * SECOND);
        // Slower than any honest link, faster than the limit.
        let slow = drip(slow, 1024, SECOND / 6, 300 * SECOND);
        let pausing = async {
            tokio::time::sleep(119 * SECOND).await;
            pausing.until("in sync", |client| client.status == SyncStatus::InSync).await;
            assert_eq!(pausing.map.len(), 8000);
        };
        let (cut_after, slow, ()) = tokio::join!(dripping, slow, pausing);
        let secs = cut_after.expect("it is cut").as_secs();
        // The bytes in the pipe were still to be read.
        assert!((240..=400).contains(&secs), "{speech:?}: {secs} s");
        assert_eq!(slow, None, "{speech:?}: it is served");
        assert_eq!(world.closed("too-slow"), 1, "{speech:?}");
    }
}

/// Clients that take nothing of their snapshots, each of which shows another version of the map.
#[tokio::test(start_paused = true)]
async fn clients_with_the_oldest_versions_go_when_there_are_too_many() {
    const VERSIONS: u64 = 32;
    let config = Config { snapshot_max_age: Duration::ZERO, max_lag_updates: 2, ..config() };
    let mut world = World::new(config);
    let values: Vec<(String, String)> = (0..100).map(|n| (format!("/k/{n}"), big(n))).collect();
    world.put(&values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    world.status(SyncStatus::InSync);
    let mut clients = Vec::new();
    for n in 0..VERSIONS + 3 {
        // The first two versions have two clients each.
        for _ in 0..if n < 2 { 2 } else { 1 } {
            let mut client = Client::new(world.dial(1024).await, Speech::GobSnappy);
            client.hello("felix").await;
            client.until("the stream", |client| client.streaming).await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for change in 0..4 {
            world.put(&[("/changing", &format!("{n} {change}"))]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    eventually("those with the oldest go", || world.closed("oldest-version") == 5).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.closed("oldest-version"), 5, "and no others");
    let mut left = 0;
    for client in &mut clients[5..] {
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        left += 1;
    }
    assert_eq!(left, VERSIONS);
}
