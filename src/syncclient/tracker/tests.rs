//! Tables of servers' messages and the consumer's events, and a property against a model.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::model::{Value, no_revision};

fn update(key: &str, value: &str, update_type: UpdateType) -> Update {
    Update {
        key: Key::from(key),
        value: (!value.is_empty()).then(|| Value::raw(value.to_owned())),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type,
        origin: None,
    }
}

/// Messages of a server, in short: `+k=v` new, `~k=v` updated, `-k` deleted, `!k` invalid, and `wait`, `resync`, `in-sync`,
/// `up`, `down`. Updates that follow each other are one message.
fn play(tracker: &mut Tracker, script: &str) -> String {
    let mut heard = Vec::new();
    let mut batch = Vec::new();
    let flush = |tracker: &mut Tracker, batch: &mut Vec<Update>| {
        if batch.is_empty() { Vec::new() } else { tracker.on_updates(std::mem::take(batch)) }
    };
    for word in script.split_whitespace() {
        let (key, value) = word[1..].split_once('=').unwrap_or((&word[1..], ""));
        let outputs = match word {
            _ if word.starts_with('+') => {
                batch.push(update(key, value, UpdateType::New));
                continue;
            }
            _ if word.starts_with('~') => {
                batch.push(update(key, value, UpdateType::Updated));
                continue;
            }
            _ if word.starts_with('-') => {
                batch.push(update(key, "", UpdateType::Deleted));
                continue;
            }
            _ if word.starts_with('!') => {
                batch.push(update(key, "", UpdateType::Updated));
                continue;
            }
            _ => {
                let mut outputs = flush(tracker, &mut batch);
                outputs.extend(match word {
                    "up" => tracker.on_connected(),
                    "down" => tracker.on_disconnected(),
                    "wait" => tracker.on_status(SyncStatus::WaitForDatastore),
                    "resync" => tracker.on_status(SyncStatus::ResyncInProgress),
                    "in-sync" => tracker.on_status(SyncStatus::InSync),
                    other => panic!("unknown word {other}"),
                });
                outputs
            }
        };
        heard.extend(outputs);
    }
    heard.extend(flush(tracker, &mut batch));
    heard.into_iter().map(describe).collect::<Vec<_>>().join(" ")
}

fn describe(output: Output) -> String {
    match output {
        Output::Status(status) => status.to_string(),
        Output::Updates(updates) => {
            let words = updates.iter().map(|update| {
                let value = update.value.as_ref().map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
                match (update.update_type, value) {
                    (UpdateType::New, Some(value)) => format!("+{}={value}", update.key),
                    (UpdateType::Updated, Some(value)) => format!("~{}={value}", update.key),
                    (UpdateType::Deleted, None) => format!("-{}", update.key),
                    (UpdateType::Updated, None) => format!("!{}", update.key),
                    other => panic!("nobody should hear {other:?}"),
                }
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn a_first_connection_is_passed_on() {
    for (script, heard) in [
        ("up", "resync"),
        ("up wait", "resync wait-for-ready"),
        ("up resync in-sync", "resync in-sync"),
        ("up +a=1 +b=2 in-sync", "resync +a=1 +b=2 in-sync"),
        ("up +a=1 in-sync ~a=2 -a", "resync +a=1 in-sync ~a=2 -a"),
        ("up in-sync wait in-sync", "resync in-sync wait-for-ready in-sync"),
        ("up in-sync resync in-sync", "resync in-sync resync in-sync"),
    ] {
        assert_eq!(play(&mut Tracker::default(), script), heard, "{script}");
    }
}

#[test]
fn types_are_those_of_the_consumer() {
    for (script, heard) in [
        // A server that coalesces may call a key new that was there, or updated that was not.
        ("up ~a=1", "resync +a=1"),
        ("up +a=1 resync +a=2", "resync +a=1 ~a=2"),
        // Nothing changes.
        ("up +a=1 resync ~a=1", "resync +a=1"),
        ("up -a !b", "resync"),
        // Invalid is absent, but not deleted.
        ("up +a=1 in-sync !a -a +a=1", "resync +a=1 in-sync !a +a=1"),
        ("up +a=1 in-sync -a +a=1", "resync +a=1 in-sync -a +a=1"),
        ("up +a=1 in-sync +a=", "resync +a=1 in-sync !a"),
    ] {
        assert_eq!(play(&mut Tracker::default(), script), heard, "{script}");
    }
}

/// Two servers with different keys; the client moves between them. The state follows the current server, shared keys become
/// updates (or nothing, if they are equal), what is gone is deleted.
#[test]
fn test_reconnection() {
    let mut tracker = Tracker::default();
    assert_eq!(play(&mut tracker, "up +a=1 +b=1 +c=1 in-sync"), "resync +a=1 +b=1 +c=1 in-sync");
    assert_eq!(play(&mut tracker, "down"), "resync");
    assert_eq!(play(&mut tracker, "up +b=2 +c=1 +d=2 in-sync"), "~b=2 +d=2 -a in-sync");
    assert_eq!(play(&mut tracker, "down up +a=1 +b=1 +c=1 in-sync"), "resync +a=1 ~b=1 -d in-sync");
    assert_eq!(tracker.len(), 3);
}

/// The second server is not in sync: the union is kept and the status stays resync until it is.
#[test]
fn test_reconnection_new_server_not_in_sync() {
    let mut tracker = Tracker::default();
    assert_eq!(play(&mut tracker, "up +a=1 +b=1 in-sync down"), "resync +a=1 +b=1 in-sync resync");
    assert_eq!(play(&mut tracker, "up wait resync +b=2 +c=2"), "~b=2 +c=2");
    assert_eq!(tracker.len(), 3, "the union is kept");
    assert_eq!(play(&mut tracker, "in-sync"), "-a in-sync");
    assert_eq!(tracker.len(), 2);
}

#[test]
fn reconnections_before_in_sync_keep_everything() {
    for (script, heard) in [
        ("up +a=1 in-sync down up +b=1 down up +c=1", "resync +a=1 in-sync resync +b=1 +c=1"),
        ("up +a=1 in-sync down up +b=1 down up +c=1 in-sync", "resync +a=1 in-sync resync +b=1 +c=1 -a -b in-sync"),
        // A key that the new server deletes before it is in sync is not deleted twice.
        ("up +a=1 +b=1 in-sync down up -a in-sync", "resync +a=1 +b=1 in-sync resync -a -b in-sync"),
        // Mentioned and deleted within the resync.
        ("up +a=1 in-sync down up +a=1 -a in-sync", "resync +a=1 in-sync resync -a in-sync"),
        // Lost before anything was in sync.
        ("up +a=1 down up in-sync", "resync +a=1 -a in-sync"),
        // A server that goes back to resync and again in sync deletes nothing.
        ("up +a=1 in-sync resync in-sync", "resync +a=1 in-sync resync in-sync"),
        ("down up", "resync"),
    ] {
        assert_eq!(play(&mut Tracker::default(), script), heard, "{script}");
    }
}

#[test]
fn a_change_of_time_to_live_is_a_change() {
    let mut tracker = Tracker::default();
    tracker.on_connected();
    let first = update("a", "1", UpdateType::New);
    let second = Update { ttl: Duration::from_secs(1), ..first.clone() };
    assert_eq!(tracker.on_updates(vec![first.clone()]).len(), 1);
    assert_eq!(tracker.on_updates(vec![second]).len(), 1);
    let other_revision = Update { revision: "9".into(), ttl: Duration::from_secs(1), ..first };
    assert_eq!(tracker.on_updates(vec![other_revision]), []);
}

#[test]
fn many_stale_keys_are_deleted_in_bounded_events() {
    let mut tracker = Tracker::default();
    tracker.on_connected();
    tracker.on_updates((0..2500).map(|n| update(&format!("k{n:05}"), "v", UpdateType::New)).collect());
    tracker.on_disconnected();
    tracker.on_connected();
    let outputs = tracker.on_status(SyncStatus::InSync);
    let sizes: Vec<usize> = outputs
        .iter()
        .map(|output| match output {
            Output::Updates(updates) => updates.len(),
            Output::Status(_) => 0,
        })
        .collect();
    assert_eq!(sizes, [1000, 1000, 500, 0]);
    assert!(tracker.is_empty());
}

proptest! {
    /// For all orders of servers, lost at any time: once one is in sync, the consumer holds its content; a
    /// consumer that applies all events never sees a new key twice or a deletion of a key that it does not hold.
    #[test]
    fn the_consumer_ends_with_the_servers_content(
        visits in vec((btree_map("[a-e]", "[xyz]", 0..5), any::<prop::sample::Index>(), any::<bool>()), 1..8)
    ) {
        let mut tracker = Tracker::default();
        let mut consumer: BTreeMap<String, String> = BTreeMap::new();
        let mut heard_status = None;
        for (content, cut, completes) in visits {
            let mut outputs = tracker.on_connected();
            let snapshot: Vec<Update> =
                content.iter().map(|(key, value)| update(key, value, UpdateType::New)).collect();
            let upto = if completes { snapshot.len() } else { cut.index(snapshot.len() + 1) };
            for update in &snapshot[..upto] {
                outputs.extend(tracker.on_updates(vec![update.clone()]));
            }
            if completes {
                outputs.extend(tracker.on_status(SyncStatus::InSync));
            } else {
                outputs.extend(tracker.on_disconnected());
            }
            for output in outputs {
                match output {
                    Output::Status(status) => heard_status = Some(status),
                    Output::Updates(updates) => for update in updates {
                        let key = update.key.to_string();
                        match (update.update_type, update.value) {
                            (UpdateType::New, Some(value)) => {
                                let value = String::from_utf8(value.bytes.to_vec()).unwrap();
                                prop_assert_eq!(consumer.insert(key, value), None);
                            }
                            (UpdateType::Updated, Some(value)) => {
                                let value = String::from_utf8(value.bytes.to_vec()).unwrap();
                                let before = consumer.insert(key, value.clone());
                                prop_assert!(before.is_some_and(|before| before != value));
                            }
                            (UpdateType::Deleted, None) => prop_assert!(consumer.remove(&key).is_some()),
                            other => prop_assert!(false, "unexpected {other:?}"),
                        }
                    }
                }
            }
            prop_assert_eq!(tracker.len(), consumer.len());
            if completes {
                prop_assert_eq!(&consumer, &content);
                prop_assert_eq!(heard_status, Some(SyncStatus::InSync));
                tracker.on_disconnected();
            } else {
                for (key, value) in content.iter().take(upto) {
                    prop_assert_eq!(consumer.get(key), Some(value));
                }
            }
        }
    }
}
