//! Any number of clients, any pace, any changes: in the end they hold the content of the map.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::harness::*;
use crate::model::{SyncStatus, SyncerEvent};
use crate::paused::in_paused_time;
use crate::syncserver::Config;
use crate::syncserver::jitter::Jitter;

#[derive(Clone, Debug)]
enum Act {
    /// Puts or deletes some keys in one batch, with or without a status.
    Change { keys: Vec<(u8, Option<u16>)>, status: Option<SyncStatus> },
    /// A client comes.
    Connect { speech: usize, pipe: usize },
    /// A client reads up to this number of messages.
    Read { client: usize, messages: usize },
    /// A client goes.
    Leave { client: usize },
    /// Time passes.
    Wait { ms: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let keys = proptest::collection::vec((0_u8..30, proptest::option::weighted(0.8, any::<u16>())), 1..12);
    let status =
        proptest::option::weighted(0.2, prop_oneof![Just(SyncStatus::InSync), Just(SyncStatus::ResyncInProgress)]);
    let act = prop_oneof![
        6 => (keys, status).prop_map(|(keys, status)| Act::Change { keys, status }),
        2 => (0_usize..5, 64_usize..4096).prop_map(|(speech, pipe)| Act::Connect { speech, pipe }),
        4 => (0_usize..8, 1_usize..20).prop_map(|(client, messages)| Act::Read { client, messages }),
        1 => (0_usize..8).prop_map(|client| Act::Leave { client }),
        3 => (0_u64..80).prop_map(|ms| Act::Wait { ms }),
    ];
    proptest::collection::vec(act, 10..120)
}

type Content = BTreeMap<String, Vec<u8>>;

/// All contents that were in sync, in order, and all values of each key.
struct Model {
    now: Content,
    in_sync: Vec<Content>,
    history: BTreeMap<String, Vec<Option<Vec<u8>>>>,
}

async fn play(acts: Vec<Act>, seed: u64) {
    let config = Config {
        max_lag_bytes: 3000,
        max_lag_updates: 40,
        snapshot_max_age: Duration::from_millis(50),
        // From almost no pace to rounds that are far apart.
        pace_per_client: Duration::from_millis(seed % 4 * 7),
        seed,
        ..config()
    };
    let mut world = World::new(config);
    let mut clients: Vec<Client> = Vec::new();
    let mut model = Model { now: Content::new(), in_sync: vec![Content::new()], history: BTreeMap::new() };
    let mut status = SyncStatus::WaitForDatastore;
    let mut jitter = Jitter::new(seed | 1);
    for act in acts {
        match act {
            Act::Change { keys, status: new_status } => {
                let mut events = Vec::new();
                for (key, value) in &keys {
                    let key = format!("/k/{key}");
                    let value = value.map(|value| {
                        let mut bytes = format!("{value}:").into_bytes();
                        bytes
                            .extend((0..jitter.below(200)).map(|_| b'a' + u8::try_from(jitter.below(26)).unwrap_or(0)));
                        bytes
                    });
                    events.push(update(&key, value.as_deref()));
                    match &value {
                        Some(value) => model.now.insert(key.clone(), value.clone()),
                        None => model.now.remove(&key),
                    };
                    model.history.entry(key).or_default().push(value);
                }
                let mut batch = vec![SyncerEvent::Updates(events)];
                if let Some(new_status) = new_status {
                    status = new_status;
                    batch.push(SyncerEvent::Status(new_status));
                }
                world.felix.apply(batch);
                if status == SyncStatus::InSync {
                    model.in_sync.push(model.now.clone());
                }
            }
            Act::Connect { speech, pipe } => {
                if clients.len() < 8 {
                    let mut client = Client::new(world.dial(pipe).await, Speech::all().swap_remove(speech));
                    client.hello("felix").await;
                    clients.push(client);
                }
            }
            Act::Read { client, messages } => {
                if let Some(client) = clients.get_mut(client) {
                    for _ in 0..messages {
                        let next = tokio::time::timeout(Duration::from_millis(5), client.next()).await;
                        let Ok(heard) = next else { break };
                        assert!(heard.is_some(), "no client is cut here");
                        check_status(client, heard.as_ref(), &model);
                    }
                }
            }
            Act::Leave { client } => {
                if client < clients.len() {
                    clients.remove(client);
                }
            }
            Act::Wait { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
    world.put(&[("/end", "1")]);
    world.felix.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    model.now.insert("/end".to_owned(), b"1".to_vec());
    model.in_sync.push(model.now.clone());
    for client in &mut clients {
        while client.status != SyncStatus::InSync || !client.map.contains_key("/end") {
            let heard = client.next().await.expect("no client is cut here");
            check_status(client, Some(&heard), &model);
        }
        assert_eq!(client.map, model.now, "in the end a client has the content of the cache");
    }
    // Only pings come after the end.
    for client in &mut clients {
        while let Ok(heard) = tokio::time::timeout(Duration::from_secs(2), client.next()).await {
            assert!(matches!(heard, Some(Heard::Ping(_))), "only pings come after the end, but {heard:?}");
        }
    }
}

/// A client that is told in-sync must hold exactly the content of a moment that was in sync: no less, no more.
fn check_status(client: &Client, heard: Option<&Heard>, model: &Model) {
    if let Some(Heard::Status(SyncStatus::InSync)) = heard {
        let known = model.in_sync.contains(&client.map);
        assert!(known, "told in-sync with a content that was never in sync: {:?}", client.map.keys());
    }
    if let Some(Heard::Updates(changes)) = heard {
        for change in changes {
            let versions = model.history.get(&change.key).map_or(&[][..], Vec::as_slice);
            let ever = change.key == "/end" || versions.contains(&change.value);
            assert!(ever, "{} never had this value", change.key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_clients_end_with_the_map(acts in acts(), seed in any::<u64>()) {
        in_paused_time(play(acts, seed));
    }
}
