//! Snapshot, changes, statuses: the content that clients hold, and the order of messages.

use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};

use super::harness::*;
use crate::model::{SyncStatus, SyncerEvent, UpdateType};
use crate::outlet::Outlet as _;
use crate::outlet::status::ClientState;

#[tokio::test(start_paused = true)]
async fn a_client_gets_the_snapshot_then_the_status_then_changes() {
    for speech in Speech::all() {
        let mut world = World::new(config());
        world.put(&[("/b", "2"), ("/a", "1"), ("/c", "3")]);
        world.status(SyncStatus::InSync);
        let mut client = world.connect(speech.clone()).await;
        let mut heard = Vec::new();
        while client.status != SyncStatus::InSync {
            heard.push(client.next().await.expect("still connected"));
        }
        let words: Vec<&Heard> =
            heard.iter().filter(|heard| !matches!(heard, Heard::Hello | Heard::Restart | Heard::Snapshot)).collect();
        let [Heard::Updates(snapshot), Heard::Status(SyncStatus::InSync)] = words[..] else {
            panic!("{speech:?}: {heard:?}");
        };
        let keys: Vec<&str> = snapshot.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["/a", "/b", "/c"], "{speech:?}: in key order");
        assert!(snapshot.iter().all(|change| change.update_type == UpdateType::New), "{speech:?}");

        world.put(&[("/a", "one")]);
        client.until("the change", |client| client.map["/a"] == b"one").await;
        world.delete("/b");
        client.until("the deletion", |client| client.map.len() == 2).await;
        world.status(SyncStatus::ResyncInProgress);
        client.until("the status", |client| client.status == SyncStatus::ResyncInProgress).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_is_not_told_before_there_is_one() {
    for speech in Speech::all() {
        let mut world = World::new(config());
        let mut client = world.connect(speech).await;
        world.put(&[("/a", "1")]);
        client.until("the key", |client| client.map.len() == 1).await;
        assert_eq!(client.status, SyncStatus::WaitForDatastore);
        world
            .felix
            .apply(vec![SyncerEvent::Updates(vec![update("/b", Some(b"2"))]), SyncerEvent::Status(SyncStatus::InSync)]);
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        assert_eq!(client.map.len(), 2, "all data comes before the status");
    }
}

/// Clients at rest, with all the room they want, get everything of a burst after which nothing more happens.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_large_burst_comes_without_a_further_change() {
    for speech in Speech::all() {
        for (updates, len) in [(600, 2 << 10), (3, 200 << 10), (2000, 600), (40, 100 << 10)] {
            let mut world = World::new(config());
            let mut client = Client::new(world.dial(64 << 20).await, speech.clone());
            client.hello("felix").await;
            world.status(SyncStatus::ResyncInProgress);
            client.until("the stream", |client| client.status == SyncStatus::ResyncInProgress).await;
            // Bytes that do not compress.
            let noise = |n: u64| {
                let mut rng = rand::rngs::StdRng::seed_from_u64(n);
                let mut value = vec![0; len];
                rng.fill_bytes(&mut value);
                value
            };
            let burst = (0..updates).map(|n| update(&format!("/k/{n}"), Some(&noise(n)))).collect();
            world.felix.apply(vec![SyncerEvent::Updates(burst), SyncerEvent::Status(SyncStatus::InSync)]);
            let what = format!("{updates} updates of {len} bytes, {speech:?}");
            client.until(&what, |client| client.status == SyncStatus::InSync).await;
            assert_eq!(client.map.len() as u64, updates, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn syncers_are_kept_apart() {
    let mut world = World::new(config());
    let mut felix = world.connect(Speech::GobSnappy).await;
    let mut bgp = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    bgp.hello("bgp").await;
    world
        .bgp
        .apply(vec![SyncerEvent::Updates(vec![update("/bgp", Some(b"1"))]), SyncerEvent::Status(SyncStatus::InSync)]);
    bgp.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert!(bgp.map.contains_key("/bgp"));
    world.status(SyncStatus::ResyncInProgress);
    felix.until("resync", |client| client.status == SyncStatus::ResyncInProgress).await;
    assert!(felix.map.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_keys_come_and_half_of_them_go() {
    for speech in Speech::all() {
        let mut world = World::new(config());
        let keys: Vec<String> = (0..10_000).map(|n| format!("/k/{n:05}")).collect();
        let mut early = world.connect(speech.clone()).await;
        early.until("hello", |client| client.greeted).await;
        for chunk in keys.chunks(500) {
            world.put(&chunk.iter().map(|key| (key.as_str(), "value")).collect::<Vec<_>>());
        }
        world.status(SyncStatus::InSync);
        let mut late = world.connect(speech.clone()).await;
        for client in [&mut early, &mut late] {
            client.until("in sync", |client| client.status == SyncStatus::InSync).await;
            assert_eq!(client.map.len(), 10_000, "{speech:?}");
        }
        let gone = keys.iter().step_by(2).map(|key| update(key, None)).collect();
        world.felix.apply(vec![SyncerEvent::Updates(gone)]);
        world.put(&[("/last", "1")]);
        for client in [&mut early, &mut late] {
            client.until("the last key", |client| client.map.contains_key("/last")).await;
            assert_eq!(client.map.len(), 5_001, "{speech:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_begins_with_another_is_another() {
    let mut world = World::new(config());
    let mut client = world.connect(Speech::GobSnappy).await;
    world.put(&[("/pool/10", "a"), ("/pool/100", "b")]);
    client.until("both", |client| client.map.len() == 2).await;
    world.delete("/pool/10");
    client.until("one gone", |client| client.map.len() == 1).await;
    assert!(client.map.contains_key("/pool/100"));
}

#[tokio::test(start_paused = true)]
async fn a_filter_shows_only_its_keys() {
    let mut world = World::new(config());
    world.put(&[("/a/1", "1"), ("/b/1", "1")]);
    let speech = Speech::Native { compression: "zstd", prefixes: vec!["/a/".to_owned()] };
    let mut client = world.connect(speech).await;
    client.until("the snapshot", |client| client.map.len() == 1).await;
    for n in 0..50 {
        world.put(&[("/b/1", &n.to_string())]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.put(&[("/a/2", "2")]);
    world.status(SyncStatus::InSync);
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert_eq!(client.map.keys().collect::<Vec<_>>(), ["/a/1", "/a/2"]);
    let newest = world.felix_metrics.breadcrumb_seq_number.get();
    let clients = world.handle.clients();
    assert_eq!(i64::try_from(clients[0].sequence), Ok(newest), "hidden changes move the position, too");
}

#[tokio::test(start_paused = true)]
async fn clients_that_arrive_together_share_a_snapshot() {
    let mut world = World::new(config());
    world.put(&[("/a", "1")]);
    world.status(SyncStatus::InSync);
    for n in 0..20 {
        let mut client = world.connect(Speech::GobSnappy).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        world.put(&[("/a", &n.to_string())]);
        client.until("the change", |client| client.map["/a"] == n.to_string().into_bytes()).await;
    }
    assert_eq!(world.felix_metrics.snapshots_generated.get(), 1);
    assert_eq!(world.felix_metrics.snapshots_reused.get(), 19);
    tokio::time::sleep(config().snapshot_max_age + Duration::from_millis(1)).await;
    let mut client = world.connect(Speech::GobSnappy).await;
    client.until("the newest value", |client| client.map.contains_key("/a")).await;
    assert_eq!(client.map["/a"], b"19", "an outdated snapshot is not given to new clients");
    assert_eq!(world.felix_metrics.snapshots_generated.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_clients_are_counted_and_all_converge() {
    let mut world = World::new(config());
    let mut clients = Vec::new();
    for n in 0..100 {
        clients.push(world.connect(Speech::all().swap_remove(n % 5)).await);
    }
    let keys: Vec<String> = (0..1000).map(|n| format!("/k/{n}")).collect();
    world.put(&keys.iter().map(|key| (key.as_str(), "v")).collect::<Vec<_>>());
    world.status(SyncStatus::InSync);
    for client in &mut clients {
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        assert_eq!(client.map.len(), 1000);
    }
    assert_eq!(world.server_metrics.connections_active.get(), 100);
    assert_eq!(world.felix_metrics.connections_streaming.get(), 100);
    assert_eq!(world.handle.clients().iter().filter(|client| client.state == ClientState::Following).count(), 100);
    clients.clear();
    let (active, streaming) = (&world.server_metrics.connections_active, &world.felix_metrics.connections_streaming);
    eventually("all are gone", || active.get() == 0 && streaming.get() == 0).await;
    assert_eq!(world.closed("client-closed"), 100);
    assert!(world.handle.clients().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_ends_ends_its_clients() {
    let world = World::new(config());
    let mut client = world.connect(Speech::native("none")).await;
    client.until("hello", |client| client.greeted).await;
    let World { felix, run, .. } = world;
    drop(felix);
    let goodbye = client.until_closed().await.expect("a goodbye");
    assert!(goodbye.contains("felix"), "{goodbye}");
    assert!(!run.is_finished());
}
