//! Each invariant notices when it is broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulrush::calico::release::Release;
use bulrush::calico::syncers::FELIX;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::{SyncerEvent, Value, no_revision};
use bulrush::snapcache::SnapCache;

use super::super::ledger::{Change, Note};
use super::*;

fn value(version: u64) -> Value {
    Value::raw(format!(r#"{{"labels":{{"version":"v{version}"}}}}"#))
}

fn put(key: &str, version: u64) -> Update {
    Update {
        key: key.into(),
        value: Some(value(version)),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: UpdateType::New,
        origin: None,
    }
}

fn agent(held: &[(&str, u64)]) -> Agent {
    Agent {
        syncer: FELIX,
        prefixes: Vec::new(),
        line: Release::Master,
        state: held.iter().map(|&(key, version)| (key.into(), value(version).bytes)).collect(),
        status: SyncStatus::InSync,
        seen: held.iter().map(|&(key, version)| (key.into(), version)).collect(),
        server: "server",
        since: Duration::from_secs(10),
    }
}

/// A book in which `a` was put as version 1, deleted, and put as version 4, and `b` was put as version 2. Crumb 1 has a1 and b2 and
/// came at 5 s, crumb 2 has a4 and b2 and came at `second` seconds.
fn book(second: u64) -> Book {
    let mut book = Book::default();
    book.begin("server");
    let change = |version, present| Change { version, present };
    book.truth = BTreeMap::from([
        ("a".into(), vec![change(1, true), change(3, false), change(4, true)]),
        ("b".into(), vec![change(2, true)]),
    ]);
    let (mut cache, reader) = SnapCache::new(10, SyncerMetrics::unregistered());
    let mut notes = Vec::new();
    for (at, updates) in [(5, vec![put("a", 1), put("b", 2)]), (second, vec![put("a", 4)])] {
        cache.apply(vec![SyncerEvent::Updates(updates), SyncerEvent::Status(SyncStatus::InSync)]);
        notes.push(Note::new(1, Duration::from_secs(at), FELIX, Arc::clone(&reader.newest())));
    }
    book.crumbs.insert(("server", FELIX), notes);
    book
}

#[test]
fn in_sync_with_the_newest_map_is_honest_and_with_an_outdated_or_partial_one_is_not() {
    assert_eq!(invariant_in_sync_is_honest(&book(6), &agent(&[("a", 4), ("b", 2)])), Ok(()));
    // Crumb 2 came after the connection, so crumb 1 is honest, too.
    assert_eq!(invariant_in_sync_is_honest(&book(11), &agent(&[("a", 1), ("b", 2)])), Ok(()));
    let words = invariant_in_sync_is_honest(&book(6), &agent(&[("a", 1), ("b", 2)])).unwrap_err();
    assert!(words.contains("older than the connection"), "{words}");
    let words = invariant_in_sync_is_honest(&book(6), &agent(&[("a", 4)])).unwrap_err();
    assert!(words.contains("no cache in sync") && words.contains("b is missing"), "{words}");
    let elsewhere = Agent { server: "other", ..agent(&[("a", 4), ("b", 2)]) };
    assert!(invariant_in_sync_is_honest(&book(6), &elsewhere).is_err(), "the map of another server");
}

#[test]
fn a_state_is_compared_with_its_crumb() {
    assert_eq!(invariant_state_is_the_map_at(&book(6), &agent(&[("a", 1), ("b", 2)]), 1), Ok(()));
    assert!(invariant_state_is_the_map_at(&book(6), &agent(&[("a", 1), ("b", 2)]), 2).is_err());
    assert!(invariant_state_is_the_map_at(&book(6), &agent(&[]), 7).is_err());
    let elsewhere = Agent { server: "other", ..agent(&[("a", 1), ("b", 2)]) };
    assert!(invariant_state_is_the_map_at(&book(6), &elsewhere, 1).is_err(), "a crumb of another server");
}

#[test]
fn the_state_of_an_agent_of_an_old_release_is_compared_in_its_own_keys() {
    let modern: Key = "/calico/v1/policy/GlobalNetworkPolicy//sec.p".into();
    let policy = |version: u64| {
        let value = Some(Value::raw(format!(r#"{{"tier":"sec","selector":"version == 'v{version}'"}}"#)));
        Update { value, ..put(&modern, version) }
    };
    let mut book = Book::default();
    book.begin("server");
    book.truth.insert(modern.clone(), vec![Change { version: 1, present: true }]);
    let (mut cache, reader) = SnapCache::new(10, SyncerMetrics::unregistered());
    cache.apply(vec![SyncerEvent::Updates(vec![policy(1)]), SyncerEvent::Status(SyncStatus::InSync)]);
    let note = Note::new(1, Duration::from_secs(5), FELIX, Arc::clone(&reader.newest()));
    book.crumbs.insert(("server", FELIX), vec![note]);
    let old: Key = "/calico/v1/policy/tier/sec/policy/sec.p".into();
    let value = bytes::Bytes::from_static(br#"{"selector":"version == 'v1'"}"#);
    let holds = |key: &Key| Agent { line: Release::V3_31, state: [(key.clone(), value.clone())].into(), ..agent(&[]) };
    assert_eq!(invariant_in_sync_is_honest(&book, &holds(&old)), Ok(()));
    assert!(invariant_in_sync_is_honest(&book, &holds(&modern)).is_err(), "today's key");
    assert_eq!(deletion(&book, &holds(&old), &old), Deletion::Spurious(1));
    assert!(invariant_no_step_back(&book, &holds(&old), &old, Some(2)).is_err(), "a version that never was");
}

#[test]
fn a_delete_needs_a_deletion_after_the_held_version() {
    let judged =
        |agent: &Agent, key: &str| invariant_delete_is_real(deletion(&book(6), agent, &key.into()), &key.into());
    let held = agent(&[("a", 1), ("b", 2)]);
    assert_eq!(judged(&held, "a"), Ok(()));
    assert!(judged(&held, "b").is_err());
    assert!(judged(&agent(&[("a", 4)]), "a").is_err(), "deleted before version 4");
}

#[test]
fn only_another_server_may_be_behind() {
    // The second server has been in sync without b; the first one has b.
    let two = |in_sync: bool| {
        let mut book = book(6);
        let (mut cache, reader) = SnapCache::new(10, SyncerMetrics::unregistered());
        let status = if in_sync { SyncStatus::InSync } else { SyncStatus::ResyncInProgress };
        cache.apply(vec![SyncerEvent::Updates(vec![put("a", 4)]), SyncerEvent::Status(status)]);
        let behind = Note::new(2, Duration::from_secs(7), FELIX, Arc::clone(&reader.newest()));
        book.alive.insert("behind", 2);
        book.crumbs.insert(("behind", FELIX), vec![behind]);
        book
    };
    let key = "b".into();
    let moved = Agent { server: "behind", seen: BTreeMap::new(), ..agent(&[("a", 4), ("b", 2)]) };
    assert_eq!(deletion(&two(true), &moved, &key), Deletion::StepBack);
    assert_eq!(deletion(&two(false), &moved, &key), Deletion::Spurious(2), "not in sync yet");
    let stayed = Agent { server: "server", ..moved.clone() };
    assert_eq!(deletion(&two(true), &stayed, &key), Deletion::Spurious(2), "this server has the key");
    let told = Agent { server: "behind", ..agent(&[("a", 4), ("b", 2)]) };
    assert_eq!(deletion(&two(true), &told, &key), Deletion::Spurious(2), "this server itself has sent it");
}

#[test]
fn versions_do_not_go_back_and_exist_in_the_datastore() {
    let judged = |agent: &Agent, version| invariant_no_step_back(&book(6), agent, &"a".into(), Some(version));
    let held = agent(&[("a", 4)]);
    assert_eq!(judged(&agent(&[("a", 1)]), 4), Ok(()));
    assert!(judged(&held, 1).is_err());
    assert!(judged(&held, 3).is_err(), "3 was a deletion");
    let mut deleted = held;
    deleted.state.clear();
    assert!(judged(&deleted, 4).is_err(), "resurrected");
}

#[test]
fn gaps_early_statuses_and_wrong_types_are_noticed() {
    assert_eq!(invariant_no_gap(3, 3, 5), Ok(()));
    assert!(invariant_no_gap(3, 4, 5).is_err());
    assert!(invariant_no_gap(3, 3, 2).is_err());
    assert_eq!(invariant_status_follows_its_data(Some(4), SyncStatus::InSync, 4), Ok(()));
    assert!(invariant_status_follows_its_data(Some(3), SyncStatus::InSync, 4).is_err());
    assert!(invariant_status_follows_its_data(None, SyncStatus::InSync, 0).is_err());
    assert_eq!(invariant_update_type_fits(&agent(&[]), &put("a", 1)), Ok(()));
    assert!(invariant_update_type_fits(&agent(&[("a", 1)]), &put("a", 4)).is_err(), "new, but held");
}

#[test]
fn the_final_state_is_compared_with_cache_and_datastore() {
    let store = MemoryStore::new();
    let words = invariant_final_state(&book(6), &agent(&[("a", 1), ("b", 2)]), &store).unwrap_err();
    assert!(words.contains("differs from the cache: a is"), "{words}");
    let words = invariant_final_state(&book(6), &agent(&[("a", 4), ("b", 2)]), &store).unwrap_err();
    assert!(words.contains("the datastore has []"), "{words}");
}
