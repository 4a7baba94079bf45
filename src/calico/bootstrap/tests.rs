//! Initialisation against a datastore in memory that can be made to conflict and to fail.

use futures_util::future::BoxFuture;

use crate::datastore::write::Stored;
use crate::model::Revision;
use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::oneshot;

use super::*;

#[derive(Default)]
struct Memory {
    objects: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    conflicts: Mutex<u32>,
    failures: Mutex<u32>,
    writes: Mutex<u32>,
}

impl Memory {
    fn put(&self, key: &str, body: &str) {
        self.objects.lock().unwrap().insert(key.to_owned(), (body.as_bytes().to_vec(), 1));
    }

    fn get(&self, key: &str) -> Value {
        serde_json::from_slice(&self.objects.lock().unwrap()[key].0).unwrap()
    }
}

fn taken(counter: &Mutex<u32>) -> bool {
    let mut left = counter.lock().unwrap();
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

impl Writable for Memory {
    fn read<'a>(&'a self, kind: &'a Kind, id: &'a ObjectId) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        Box::pin(async move {
            if taken(&self.failures) {
                return Err(Error::Retry { doing: "read".to_owned(), reason: "scripted".to_owned() });
            }
            let objects = self.objects.lock().unwrap();
            Ok(objects
                .get(&format!("{}/{id}", kind.plural))
                .map(|(body, revision)| Stored { body: body.clone(), revision: Revision::from(revision.to_string()) }))
        })
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<Written, Error>> {
        let (body, before) = match write.change {
            Change::Create { body } => (body, None),
            Change::Update { body, before } => (body, Some(before.to_string())),
            Change::Delete { .. } => unreachable!("initialisation deletes nothing"),
        };
        Box::pin(async move {
            let mut objects = self.objects.lock().unwrap();
            let key = format!("{}/{}", write.kind.plural, write.id);
            let current = objects.get(&key).map(|(_, revision)| revision.to_string());
            if taken(&self.conflicts) || current != before {
                return Ok(Written::Conflict);
            }
            let next = objects.get(&key).map_or(1, |(_, revision)| revision + 1);
            objects.insert(key, (body, next));
            *self.writes.lock().unwrap() += 1;
            Ok(Written::Done(next.to_string().into()))
        })
    }
}

#[tokio::test]
async fn a_fresh_datastore_gets_everything_once() {
    let store = Memory::default();
    assert_eq!(ensure(&store, &InitOptions::default()).await.unwrap(), 4);
    let cluster = store.get("clusterinformations/default");
    assert_eq!(cluster["spec"]["datastoreReady"], true);
    assert_eq!(cluster["spec"]["clusterType"], "typha");
    assert_eq!(cluster["spec"]["clusterGUID"].as_str().unwrap().len(), 32);
    assert!(cluster["spec"].get("calicoVersion").is_none());
    for (name, order, action) in TIERS {
        let tier = store.get(&format!("tiers/{name}"));
        assert_eq!((&tier["spec"]["order"], &tier["spec"]["defaultAction"]), (&json!(order), &json!(action)));
    }
    assert_eq!(ensure(&store, &InitOptions::default()).await.unwrap(), 0, "idempotent");
    assert_eq!(*store.writes.lock().unwrap(), 4);
}

#[tokio::test]
async fn what_is_there_is_completed_and_never_overruled() {
    let store = Memory::default();
    store.put(
        "clusterinformations/default",
        r#"{"metadata":{"name":"default"},"spec":{"clusterGUID":"g","clusterType":"k8s,bgp","datastoreReady":false,"future":{"a":1}}}"#,
    );
    store.put("tiers/default", r#"{"metadata":{"name":"default"},"spec":{"order":5}}"#);
    let options = InitOptions { cluster_types: vec!["typha".to_owned(), "kdd".to_owned()], ..InitOptions::default() };
    ensure(&store, &options).await.unwrap();
    let spec = store.get("clusterinformations/default")["spec"].clone();
    assert_eq!(
        spec,
        json!({"clusterGUID":"g","clusterType":"k8s,bgp,typha,kdd","datastoreReady":false,"future":{"a":1}})
    );
    assert_eq!(store.get("tiers/default")["spec"], json!({"order": 5}));
    assert_eq!(ensure(&store, &options).await.unwrap(), 0);
}

#[tokio::test]
async fn an_unreadable_object_is_left_alone() {
    let store = Memory::default();
    store.put("clusterinformations/default", "junk");
    assert_eq!(ensure(&store, &InitOptions::default()).await.unwrap(), 3);
    assert_eq!(store.objects.lock().unwrap()["clusterinformations/default"].0, b"junk");
}

#[tokio::test]
async fn conflicts_are_read_again_but_not_for_ever() {
    let store = Memory::default();
    *store.conflicts.lock().unwrap() = 3;
    assert_eq!(ensure(&store, &InitOptions::default()).await.unwrap(), 4);
    let store = Memory::default();
    *store.conflicts.lock().unwrap() = u32::MAX;
    assert!(matches!(ensure(&store, &InitOptions::default()).await, Err(Error::Retry { .. })));
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_every_second() {
    let store = Memory::default();
    *store.failures.lock().unwrap() = 5;
    let start = tokio::time::Instant::now();
    initialise(&store, &InitOptions::default(), oneshot::channel().0).await;
    assert_eq!(start.elapsed(), 5 * RETRY_PAUSE);
    assert_eq!(*store.writes.lock().unwrap(), 4);
}

#[tokio::test]
async fn read_only_writes_nothing() {
    let store = Memory::default();
    let (may_serve, told) = oneshot::channel();
    initialise(&store, &InitOptions { read_only: true, ..InitOptions::default() }, may_serve).await;
    assert_eq!(told.await, Ok(()));
    assert!(store.objects.lock().unwrap().is_empty());
}

#[test]
fn uids_are_random_uuids() {
    let uid = random_uid();
    assert_eq!(uid.len(), 36);
    assert_eq!(&uid[14..15], "4");
    assert_ne!(uid, random_uid());
}
