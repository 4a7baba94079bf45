//! The cache's promises: deduplication, deletes by comparison, statuses, freshness, poison objects, and a model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::calico::kinds::{IP_POOL, NAMESPACE};
use crate::calico::syncers::FELIX;
use crate::datastore::{Dialect, Malformed};
use crate::model::{Revision, Value, no_revision};

/// Makes the keys `/{name}/1` and `/{name}/2` of an object. Its body chooses them: `both`, `one` (only the first key), `bad` (no
/// conversion, keys blanked), `mute` (no conversion, nothing emitted).
#[derive(Default)]
struct Splitter {
    own_key: bool,
    calls: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

fn pair(key: String, value: Option<&Object>, revision: Revision) -> KvPair {
    let value = value.map(|object| Value::raw(object.body.clone()));
    KvPair { key: key.into(), value, revision, v3_resource_version: no_revision(), origin: None }
}

impl Processor for Splitter {
    fn on_resync(&mut self) {
        self.calls.lock().expect("no panic before").push("resync".to_owned());
    }

    fn on_list_end(&mut self, out: &mut Vec<KvPair>) {
        self.calls.lock().expect("no panic before").push("list end".to_owned());
        if self.own_key {
            out.push(pair("/own".to_owned(), Some(&object("own", "1", "both")), "1".into()));
        }
    }

    fn on_progress(&mut self, kind_name: &str, revision: &str) {
        self.calls.lock().expect("no panic before").push(format!("{kind_name} {revision}"));
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let (id, object) = match event {
            ObjectEvent::Put(object) => (&object.id, Some(object)),
            ObjectEvent::Delete(id, _) => (id, None),
        };
        let keys = [format!("/{}/1", id.name), format!("/{}/2", id.name)];
        let body = object.map_or(&b""[..], |object| &object.body);
        let revision = object.map_or_else(no_revision, |object| object.revision.clone());
        let bad = Err(ConvertError { reason: "spec.cidr: bad".to_owned() });
        match body {
            b"mute" => return bad,
            b"bad" => out.extend(keys.map(|key| pair(key, None, revision.clone()))),
            b"one" => {
                let [first, second] = keys;
                out.push(pair(first, object, revision.clone()));
                out.push(pair(second, None, revision));
            }
            _ => out.extend(keys.map(|key| pair(key, object, revision.clone()))),
        }
        if body == b"bad" { bad } else { Ok(()) }
    }
}

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "".into(), name: name.into() }
}

fn object(name: &str, revision: &str, body: &'static str) -> Object {
    Object {
        id: id(name),
        revision: revision.into(),
        dialect: Dialect::V3,
        body: Bytes::from_static(body.as_bytes()),
        place: None,
    }
}

fn put(name: &str, revision: &str, body: &'static str) -> Event {
    Event::Put(object(name, revision, body))
}

fn delete(name: &str) -> Event {
    Event::Delete { id: id(name), last: None }
}

fn as_of(seconds: u64) -> AsOf {
    AsOf { revision: seconds.to_string().into(), at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
}

struct Fixture {
    cache: WatcherCache,
    metrics: SyncerMetrics,
    problems: ProblemBook,
    calls: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

impl Fixture {
    fn new(kinds: Vec<Kind>) -> Self {
        Self::with(kinds, Splitter::default())
    }

    fn with(kinds: Vec<Kind>, processor: Splitter) -> Self {
        let metrics = SyncerMetrics::unregistered();
        let problems = ProblemBook::new(FELIX);
        let calls = processor.calls.clone();
        let cache = WatcherCache::new("Source", kinds, Box::new(processor), metrics.clone(), problems.clone());
        Self { cache, metrics, problems, calls }
    }

    /// The cache's output after `step`, in short: `new /a/1@7`, `updated …`, `deleted /a/1`, statuses, `as of 3`.
    fn step(&mut self, step: impl FnOnce(&mut WatcherCache, &mut Vec<CacheItem>)) -> Vec<String> {
        let mut out = Vec::new();
        step(&mut self.cache, &mut out);
        let mut said = Vec::new();
        for item in out {
            match item {
                CacheItem::Updates(updates) => {
                    assert!(!updates.is_empty());
                    said.extend(updates.iter().map(|update| match update.update_type {
                        UpdateType::Deleted => {
                            assert!(update.value.is_none() && update.revision.is_empty());
                            format!("deleted {}", update.key)
                        }
                        UpdateType::New => format!("new {}@{}", update.key, update.revision),
                        UpdateType::Updated => format!("updated {}@{}", update.key, update.revision),
                        UpdateType::Unknown => panic!("{update:?}"),
                    }));
                }
                CacheItem::Status(status) => said.push(status.to_string()),
                CacheItem::Vouch(Vouch::At(as_of)) => said.push(format!("as of {}", as_of.revision)),
                CacheItem::Vouch(Vouch::Exempt) => said.push("as of now".to_owned()),
                CacheItem::Vouch(Vouch::None) => said.push("as of never".to_owned()),
            }
        }
        said
    }

    fn list(&mut self, kind: usize, objects: &[Object]) -> Vec<String> {
        self.step(|cache, out| {
            cache.list_started(kind, out);
            cache.objects_listed(kind, objects, out);
            cache.list_ended(kind, None, out);
        })
    }

    fn change(&mut self, kind: usize, events: &[Event]) -> Vec<String> {
        self.step(|cache, out| cache.changed(kind, events, out))
    }
}

#[test]
fn a_normal_start_goes_through_resync_to_in_sync_after_the_data() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    let said = fixture.list(0, &[object("a", "7", "both")]);
    assert_eq!(said, ["resync", "new /a/1@7", "new /a/2@7", "in-sync"]);
    assert_eq!(fixture.cache.len(), 2);
    assert_eq!(*fixture.calls.lock().expect("no panic before"), ["resync", "list end"]);
}

/// A datastore that was restored from a backup counts on from there, and gives out revisions a second time.
#[test]
fn a_known_revision_with_another_content_is_an_update_in_a_list_and_swallowed_in_a_watch() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "7", "both"), object("b", "8", "both")]);
    let said = fixture.list(0, &[object("a", "7", "other"), object("b", "8", "one")]);
    assert_eq!(said, ["resync", "updated /a/1@7", "updated /a/2@7", "updated /b/1@8", "deleted /b/2", "in-sync"]);
    assert!(fixture.change(0, &[put("a", "7", "both")]).is_empty());
    // It was not sent, so the next list brings it.
    assert_eq!(fixture.list(0, &[object("a", "7", "both")])[1..3], ["updated /a/1@7", "updated /a/2@7"]);
}

#[test]
fn what_was_sent_is_swallowed_and_another_revision_is_an_update_of_all_keys() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "7", "both")]);
    assert!(fixture.change(0, &[put("a", "7", "both")]).is_empty());
    assert_eq!(fixture.change(0, &[put("a", "8", "both")]), ["updated /a/1@8", "updated /a/2@8"]);
    assert_eq!(fixture.change(0, &[put("a", "9", "one")]), ["updated /a/1@9", "deleted /a/2"]);
    assert!(fixture.change(0, &[delete("never-seen")]).is_empty());
    assert_eq!(fixture.change(0, &[delete("a"), put("a", "10", "one")]), ["deleted /a/1", "new /a/1@10"]);
}

#[test]
fn an_object_without_a_revision_is_always_sent() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "", "one")]);
    assert_eq!(fixture.change(0, &[put("a", "", "one")]), ["updated /a/1@"]);
}

#[test]
fn after_a_new_list_only_differences_are_sent() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("same", "1", "one"), object("changed", "2", "one"), object("removed", "3", "both")]);
    let said =
        fixture.list(0, &[object("same", "1", "one"), object("changed", "12", "one"), object("added", "13", "one")]);
    assert_eq!(
        said,
        ["resync", "updated /changed/1@12", "new /added/1@13", "deleted /removed/1", "deleted /removed/2", "in-sync"]
    );
}

#[test]
fn a_list_that_fails_half_way_deletes_nothing() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "1", "one"), object("b", "2", "one")]);
    let said = fixture.step(|cache, out| {
        cache.list_started(0, out);
        cache.objects_listed(0, &[object("c", "3", "one")], out);
        // The next attempt:
        cache.list_started(0, out);
        cache.objects_listed(0, &[object("b", "2", "one")], out);
    });
    assert_eq!(said, ["resync", "new /c/1@3"]);
    let said = fixture.step(|cache, out| cache.list_ended(0, None, out));
    assert_eq!(said, ["deleted /a/1", "deleted /c/1", "in-sync"]);
}

#[test]
fn a_lost_datastore_changes_the_status_and_nothing_else() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "1", "one")]);
    assert_eq!(fixture.step(|cache, out| cache.lost(0, out)), ["wait-for-ready"]);
    assert_eq!(fixture.cache.len(), 1);
    assert_eq!(fixture.list(0, &[object("a", "1", "one")]), ["resync", "in-sync"]);
}

#[test]
fn an_absent_kind_is_in_sync_and_keeps_what_is_known() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    assert_eq!(fixture.step(|cache, out| cache.absent(0, out)), ["resync", "in-sync", "as of now"]);
    assert!(fixture.step(|cache, out| cache.absent(0, out)).is_empty());
    // It appears: no dip of the status.
    assert_eq!(fixture.list(0, &[object("a", "1", "one")]), ["new /a/1@1", "as of never"]);
    assert_eq!(fixture.step(|cache, out| cache.absent(0, out)), ["as of now"]);
    assert_eq!(fixture.list(0, &[]), ["deleted /a/1", "as of never"]);
}

#[test]
fn a_source_with_two_kinds_is_in_sync_when_both_are_and_each_list_deletes_only_its_own() {
    let mut fixture = Fixture::with(vec![IP_POOL, NAMESPACE], Splitter { own_key: true, ..Splitter::default() });
    assert_eq!(fixture.list(0, &[object("a", "1", "one")]), ["resync", "new /a/1@1"]);
    assert_eq!(fixture.list(1, &[object("b", "1", "one")]), ["new /b/1@1", "new /own@1", "in-sync"]);
    assert_eq!(fixture.list(1, &[]), ["resync", "deleted /b/1", "in-sync"]);
    assert_eq!(fixture.list(0, &[object("a", "1", "one")]), ["resync", "in-sync"]);
    let calls = fixture.calls.lock().expect("no panic before").clone();
    assert_eq!(calls, ["resync", "list end", "list end", "list end"]);
}

#[test]
fn keys_that_the_processor_adds_come_even_if_the_kind_is_absent() {
    let mut fixture = Fixture::with(vec![IP_POOL], Splitter { own_key: true, ..Splitter::default() });
    let said = fixture.step(|cache, out| cache.absent(0, out));
    assert_eq!(said, ["resync", "new /own@1", "in-sync", "as of now"]);
    assert!(fixture.list(0, &[]).iter().all(|item| item != "deleted /own"));
}

#[test]
fn an_object_that_cannot_be_converted_affects_only_itself() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    let said = fixture.list(0, &[object("a", "1", "mute"), object("b", "2", "one"), object("c", "3", "bad")]);
    assert_eq!(said, ["resync", "new /b/1@2", "in-sync"]);
    assert_eq!(fixture.metrics.objects_unconvertible.get(), 2);
    let problems = fixture.problems.snapshot(10);
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0].subject.name, "projectcalico.org/v3/IPPool a");
    // Good to bad: the processor says what becomes of the keys. The status stays, no list is asked for.
    assert_eq!(fixture.change(0, &[put("b", "4", "bad")]), ["deleted /b/1"]);
    assert_eq!(fixture.problems.len(), 3);
    assert_eq!(fixture.change(0, &[put("b", "5", "one"), delete("c")]), ["new /b/1@5"]);
    assert_eq!(fixture.problems.len(), 1);
    fixture.list(0, &[object("b", "5", "one")]);
    assert!(fixture.problems.is_empty());
}

#[test]
fn something_that_is_not_json_counts_as_absent_and_is_reported() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "1", "one")]);
    let malformed = Event::Malformed(Malformed { id: id("a"), reason: "expected value at line 1".to_owned() });
    assert_eq!(fixture.change(0, &[malformed]), ["deleted /a/1"]);
    assert_eq!((fixture.problems.len(), fixture.metrics.objects_unconvertible.get()), (1, 1));
    assert_eq!(fixture.change(0, &[put("a", "3", "one")]), ["new /a/1@3"]);
    assert!(fixture.problems.is_empty());
}

#[test]
fn what_a_list_cannot_read_is_reported_until_it_is_readable_or_gone() {
    let mut fixture = Fixture::new(vec![IP_POOL]);
    fixture.list(0, &[object("a", "1", "one"), object("b", "2", "one")]);
    let mut relist = |names: &[&str], objects: &[Object]| {
        let malformed: Vec<_> =
            names.iter().map(|name| Malformed { id: id(name), reason: "no JSON".to_owned() }).collect();
        let said = fixture.step(|cache, out| {
            cache.list_started(0, out);
            cache.malformed_listed(0, &malformed);
            cache.objects_listed(0, objects, out);
            cache.list_ended(0, None, out);
        });
        let problems = fixture.problems.snapshot(10).into_iter().map(|problem| problem.subject.name);
        (said.join(", "), problems.collect::<Vec<_>>().join(", "))
    };
    let b = object("b", "2", "one");
    assert_eq!(
        relist(&["a"], std::slice::from_ref(&b)),
        ("resync, deleted /a/1, in-sync".to_owned(), "projectcalico.org/v3/IPPool a".to_owned())
    );
    assert_eq!(relist(&["a"], &[b]).0, "resync, in-sync");
    assert_eq!(relist(&[], &[]), ("resync, deleted /b/1, in-sync".to_owned(), String::new()));
    assert_eq!(fixture.metrics.objects_unconvertible.get(), 2);
}

#[test]
fn the_oldest_moment_among_the_kinds_is_what_counts() {
    let mut fixture = Fixture::new(vec![IP_POOL, NAMESPACE]);
    let end = |kind, seconds| {
        move |cache: &mut WatcherCache, out: &mut Vec<CacheItem>| cache.list_ended(kind, Some(as_of(seconds)), out)
    };
    let bookmark = |seconds: u64| WatchBatch {
        events: Vec::new(),
        revision: seconds.to_string().into(),
        as_of: Some(as_of(seconds)),
    };
    assert_eq!(fixture.step(end(0, 5)), ["resync"]);
    assert_eq!(fixture.step(end(1, 3)), ["in-sync", "as of 3"]);
    assert!(fixture.step(|cache, out| cache.advanced(0, &bookmark(8), out)).is_empty());
    assert_eq!(fixture.step(|cache, out| cache.advanced(1, &bookmark(7), out)), ["as of 7"]);
    assert_eq!(fixture.calls.lock().expect("no panic before")[1..], ["IPPool 8", "Namespace 7"]);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, bool),
    Delete(u8),
    /// The watch misses this many of the following changes; a list finds them.
    Gap(u8),
    Lost,
    Absent,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_u8..8, any::<bool>()).prop_map(|(name, both)| Op::Put(name, both)),
        3 => (0_u8..8).prop_map(Op::Delete),
        1 => (0_u8..6).prop_map(Op::Gap),
        1 => Just(Op::Lost),
        1 => Just(Op::Absent),
    ]
}

proptest! {
    /// After missed events, losses and new lists alike: after a list, an agent holds the datastore's content; types are right at every
    /// step; nothing is deleted that is there.
    #[test]
    fn an_agent_ends_with_what_the_datastore_holds(ops in proptest::collection::vec(any_op(), 0..80)) {
        let mut fixture = Fixture::new(vec![IP_POOL]);
        let mut store: BTreeMap<String, Object> = BTreeMap::new();
        let mut agent: BTreeSet<String> = BTreeSet::new();
        let mut hear = |said: Vec<String>| {
            for item in said {
                let key = |item: &str| item.split(['@', ' ']).nth(1).expect("an update names a key").to_owned();
                match item.split(' ').next() {
                    Some("new") => assert!(agent.insert(key(&item)), "{item} was there"),
                    Some("updated") => assert!(agent.contains(&key(&item)), "{item} was not there"),
                    Some("deleted") => assert!(agent.remove(&key(&item)), "{item} was not there"),
                    _ => {}
                }
            }
            agent.clone()
        };
        let mut missed = 0;
        let mut gap = false;
        hear(fixture.list(0, &[]));
        for (revision, op) in ops.into_iter().enumerate() {
            let event = match op {
                Op::Put(name, both) => {
                    let name = name.to_string();
                    let object = object(&name, &(revision + 1).to_string(), if both { "both" } else { "one" });
                    store.insert(name, object.clone());
                    Event::Put(object)
                }
                Op::Delete(name) => {
                    store.remove(&name.to_string());
                    delete(&name.to_string())
                }
                Op::Gap(count) => {
                    missed = count;
                    gap = true;
                    continue;
                }
                Op::Lost => {
                    let before = hear(Vec::new());
                    prop_assert_eq!(hear(fixture.step(|cache, out| cache.lost(0, out))), before);
                    gap = true;
                    continue;
                }
                Op::Absent => {
                    let before = hear(Vec::new());
                    prop_assert_eq!(hear(fixture.step(|cache, out| cache.absent(0, out))), before);
                    gap = true;
                    continue;
                }
            };
            if missed > 0 {
                missed -= 1;
                continue;
            }
            if gap {
                gap = false;
                let objects: Vec<Object> = store.values().cloned().collect();
                hear(fixture.list(0, &objects));
            } else {
                hear(fixture.change(0, &[event]));
            }
            let expected: BTreeSet<String> = store
                .values()
                .flat_map(|object| {
                    let keys = [format!("/{}/1", object.id), format!("/{}/2", object.id)];
                    keys.into_iter().take(if object.body == "both" { 2 } else { 1 })
                })
                .collect();
            prop_assert_eq!(hear(Vec::new()), expected);
        }
    }
}
