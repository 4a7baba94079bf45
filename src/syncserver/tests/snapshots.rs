//! Snapshots while keys change: each is made from the one before, and every client gets the map.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::harness::*;
use crate::model::SyncStatus;

/// Seed of the changes.
const SEED: u64 = 0x0b01_0005;

#[tokio::test(start_paused = true)]
async fn clients_of_every_kind_get_the_map_while_snapshots_are_made_of_each_other() {
    let mut world = World::new(config());
    let mut random = StdRng::seed_from_u64(SEED);
    let mut truth: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let all: Vec<(String, String)> = (0..4000).map(|n| (format!("/k/{n:04}"), "v".repeat(100 + n % 50))).collect();
    world.put(&all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>());
    truth.extend(all.into_iter().map(|(key, value)| (key, value.into_bytes())));
    world.status(SyncStatus::InSync);
    let mut speeches = Speech::all();
    speeches.push(Speech::Native { compression: "none", prefixes: vec!["/k/1".to_owned()] });
    for _ in 0..8 {
        for speech in &speeches {
            let mut client = world.connect(speech.clone()).await;
            client.until("in sync", |client| client.status == SyncStatus::InSync).await;
            let wanted = |key: &str| {
                !matches!(speech, Speech::Native { prefixes, .. } if !prefixes.is_empty()) || key.starts_with("/k/1")
            };
            let expected: BTreeMap<_, _> =
                truth.iter().filter(|(key, _)| wanted(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
            assert!(client.map == expected, "{speech:?}");
        }
        for _ in 0..5 {
            let key = format!("/k/{:04}", random.random_range(0..5000));
            if random.random_bool(0.3) {
                world.delete(&key);
                truth.remove(&key);
            } else {
                let value = "w".repeat(random.random_range(1..300));
                world.put(&[(&key, &value)]);
                truth.insert(key, value.into_bytes());
            }
        }
        tokio::time::sleep(config().snapshot_max_age + Duration::from_millis(1)).await;
    }
    let metrics = &world.felix_metrics;
    assert_eq!(metrics.snapshots_generated.get(), 8 * 6);
    let (encoded, reused) = (metrics.snapshot_pieces_encoded.get(), metrics.snapshot_pieces_reused.get());
    assert!(reused > encoded, "{reused} reused, {encoded} encoded");
}

#[tokio::test(start_paused = true)]
async fn an_unused_snapshot_is_not_kept() {
    let mut world = World::new(config());
    let all: Vec<String> = (0..3000).map(|n| format!("/k/{n:04}")).collect();
    world.put(&all.iter().map(|key| (key.as_str(), "v")).collect::<Vec<_>>());
    world.status(SyncStatus::InSync);
    let mut reused = Vec::new();
    for pause in [6, 12, 0] {
        let mut client = world.connect(Speech::GobSnappy).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        reused.push(world.felix_metrics.snapshot_pieces_reused.get());
        world.put(&[("/k/0000", &pause.to_string())]);
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
    assert_eq!(world.felix_metrics.snapshots_generated.get(), 3);
    assert!(reused[1] > 0, "after a short while, unchanged pieces are taken over");
    assert_eq!(reused[2], reused[1], "after a longer one, there is no snapshot to take over from");
}
