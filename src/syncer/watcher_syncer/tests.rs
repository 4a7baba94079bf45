//! Whole syncers against the memory datastore.

use crate::calico::syncers::{FELIX, NODE_STATUS};
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;
use crate::calico::kinds::{IP_POOL, NAMESPACE, POD};
use crate::datastore::memory::{MemoryStore, WatchFault};
use crate::datastore::{Dialect, Event, Kind, Object, ObjectId};
use crate::model::{Key, KvPair, SyncStatus, UpdateType, Value, no_revision};
use crate::paused::in_paused_time;
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};
use crate::syncer::source::CHUNK;

/// `/{source}/{name}` = body.
#[derive(Debug)]
struct Plain(&'static str);

impl Processor for Plain {
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let (id, object) = match event {
            ObjectEvent::Put(object) => (&object.id, Some(object)),
            ObjectEvent::Delete(id, _) => (id, None),
        };
        out.push(KvPair {
            key: format!("/{}/{}", self.0, id.name).into(),
            value: object.map(|object| Value::raw(object.body.clone())),
            revision: object.map_or_else(no_revision, |object| object.revision.clone()),
            v3_resource_version: no_revision(),
            origin: None,
        });
        Ok(())
    }
}

/// A syncer over the memory datastore, and an agent that holds the data it was sent.
struct Running {
    store: MemoryStore,
    received: decoupler::Receiver,
    content: BTreeMap<Key, Bytes>,
    statuses: Vec<SyncStatus>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

static SOURCES: [(&str, Kind); 2] = [("pools", IP_POOL), ("pods", POD)];

impl Running {
    fn start(store: MemoryStore) -> Self {
        let mut hub = KindHub::new(std::sync::Arc::new(store.clone()), 1);
        let metrics = SyncerMetrics::unregistered();
        let new = |(name, kind): (&'static str, Kind)| {
            WatcherCache::new(name, vec![kind], Box::new(Plain(name)), metrics.clone(), ProblemBook::new(FELIX))
        };
        let (out, received) = decoupler::channel(decoupler::DEFAULT_CAPACITY);
        let syncer = WatcherSyncer::new(FELIX, SOURCES.clone().into_iter().map(new).collect(), &mut hub, out);
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(hub.run(cancel.clone()));
        tasks.spawn(syncer.run(cancel.clone()));
        Self { store, received, content: BTreeMap::new(), statuses: Vec::new(), cancel, tasks }
    }

    fn hear(&mut self, event: SyncerEvent) {
        match event {
            SyncerEvent::Status(status) => self.statuses.push(status),
            SyncerEvent::Progress(_) => {}
            SyncerEvent::Updates(updates) => {
                assert_ne!(self.statuses.last(), Some(&SyncStatus::WaitForDatastore), "nothing comes while waiting");
                for update in updates {
                    let old = match update.value {
                        Some(value) => self.content.insert(update.key.clone(), value.bytes),
                        None => self.content.remove(&update.key),
                    };
                    assert_eq!(old.is_none(), update.update_type == UpdateType::New, "{}", update.key);
                }
            }
        }
    }

    async fn until(&mut self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            let mut batch = Vec::new();
            assert_ne!(self.received.recv_batch(&mut batch, 1).await, 0, "the syncer runs");
            for event in batch {
                self.hear(event);
            }
        }
    }

    async fn until_equal(&mut self) {
        let expected: BTreeMap<Key, Bytes> = SOURCES
            .iter()
            .flat_map(|(name, kind)| {
                let objects = self.store.content(kind);
                objects.into_iter().map(move |object| (format!("/{name}/{}", object.id.name).into(), object.body))
            })
            .collect();
        self.until(|running| running.content == expected && running.statuses.last() == Some(&SyncStatus::InSync)).await;
    }
}

fn object(name: &str, body: &str) -> Object {
    Object {
        id: ObjectId { namespace: "".into(), name: name.into() },
        revision: no_revision(),
        dialect: Dialect::V3,
        body: Bytes::copy_from_slice(body.as_bytes()),
        place: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_normal_start_says_wait_resync_in_sync_and_brings_everything_before_in_sync() {
    let store = MemoryStore::new();
    store.set_page_size(1000);
    for n in 0..2500 {
        store.put(&POD, object(&n.to_string(), "x"));
    }
    let mut running = Running::start(store);
    running.until(|running| running.statuses.last() == Some(&SyncStatus::InSync)).await;
    assert_eq!(running.statuses, [SyncStatus::WaitForDatastore, SyncStatus::ResyncInProgress, SyncStatus::InSync]);
    assert_eq!(running.content.len(), 2500);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_does_not_answer_keeps_the_syncer_out_of_sync() {
    let store = MemoryStore::new();
    store.refuse(&POD, 1);
    store.put(&IP_POOL, object("a", "x"));
    let mut running = Running::start(store.clone());
    running.until(|running| running.content.len() == 1).await;
    assert_eq!(running.statuses.last(), Some(&SyncStatus::ResyncInProgress));
    assert_eq!(store.lists(&POD), 1);
    running.until(|running| running.statuses.last() == Some(&SyncStatus::InSync)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_datastore_leads_back_to_waiting_without_deleting_anything() {
    let store = MemoryStore::new();
    store.put(&IP_POOL, object("a", "x"));
    store.put(&POD, object("b", "x"));
    let mut running = Running::start(store.clone());
    running.until(|running| running.statuses.last() == Some(&SyncStatus::InSync)).await;
    for kind in [&IP_POOL, &POD] {
        store.watched(kind, 1).await;
        store.refuse(kind, 100);
        store.end_watches(kind, WatchFault::Breaks);
    }
    running.until(|running| running.statuses.last() == Some(&SyncStatus::WaitForDatastore)).await;
    assert_eq!(running.content.len(), 2);
    running.until_equal().await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_or_losing_the_reader_ends_everything() {
    let mut running = Running::start(MemoryStore::new());
    running.until(|running| running.statuses.last() == Some(&SyncStatus::InSync)).await;
    running.cancel.cancel();
    running.tasks.join_all().await;
    // Without a reader the syncer ends by itself; the hub waits for other subscribers.
    let running = Running::start(MemoryStore::new());
    let Running { received, cancel, mut tasks, .. } = running;
    drop(received);
    tasks.join_next().await.expect("one task ends").expect("and does not panic");
    cancel.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_syncer_without_sources_is_in_sync() {
    let mut hub = KindHub::new(std::sync::Arc::new(MemoryStore::new()), 1);
    let (out, mut received) = decoupler::channel(10);
    let syncer = WatcherSyncer::new(NODE_STATUS, Vec::new(), &mut hub, out);
    let cancel = CancellationToken::new();
    let running = tokio::spawn(syncer.run(cancel.clone()));
    let mut events = Vec::new();
    while events.len() < 3 {
        received.recv_batch(&mut events, 3).await;
    }
    assert_eq!(events.last(), Some(&SyncerEvent::Status(SyncStatus::InSync)));
    cancel.cancel();
    running.await.expect("the syncer does not panic");
}

/// A processor with a bug.
#[derive(Debug)]
struct Panics;

impl Processor for Panics {
    fn process(&mut self, _: ObjectEvent<'_>, _: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        panic!("a bug")
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_source_is_passed_on() {
    // A page of more than a chunk is converted by a task of its own.
    for objects in [1, 2 * CHUNK] {
        let store = MemoryStore::new();
        for n in 0..objects {
            store.put(&NAMESPACE, object(&n.to_string(), "x"));
        }
        let mut hub = KindHub::new(std::sync::Arc::new(store), 1);
        let metrics = SyncerMetrics::unregistered();
        let cache = WatcherCache::new("bug", vec![NAMESPACE], Box::new(Panics), metrics, ProblemBook::new(FELIX));
        let (out, _received) = decoupler::channel(10);
        let syncer = WatcherSyncer::new(FELIX, vec![cache], &mut hub, out);
        let cancel = CancellationToken::new();
        let hub = tokio::spawn(hub.run(cancel.clone()));
        let ended = tokio::spawn(syncer.run(cancel.clone())).await;
        assert!(ended.is_err_and(|error| error.is_panic()), "with {objects} objects");
        cancel.cancel();
        hub.await.expect("the hub does not panic");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(bool, u8, u8),
    Delete(bool, u8),
    End(bool, WatchFault),
    Refuse(bool, u8),
    Absent(bool),
    Present(bool),
    /// Let time pass, in seconds.
    Wait(u16),
}

fn any_op() -> impl Strategy<Value = Op> {
    let fault = prop_oneof![Just(WatchFault::Ends), Just(WatchFault::Breaks), Just(WatchFault::Expires)];
    prop_oneof![
        8 => (any::<bool>(), 0_u8..6, 0_u8..9).prop_map(|(kind, name, body)| Op::Put(kind, name, body)),
        4 => (any::<bool>(), 0_u8..6).prop_map(|(kind, name)| Op::Delete(kind, name)),
        3 => (any::<bool>(), fault).prop_map(|(kind, fault)| Op::End(kind, fault)),
        2 => (any::<bool>(), 0_u8..90).prop_map(|(kind, times)| Op::Refuse(kind, times)),
        1 => any::<bool>().prop_map(Op::Absent),
        1 => any::<bool>().prop_map(Op::Present),
        3 => (0_u16..900).prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The agent ends with the content of the datastore and in sync, after any operations on it.
    #[test]
    fn the_agent_ends_with_the_datastores_content(ops in proptest::collection::vec(any_op(), 0..40)) {
        in_paused_time(async {
            let store = MemoryStore::new();
            store.set_page_size(2);
            let mut running = Running::start(store.clone());
            let [(_, pools), (_, pods_kind)] = &SOURCES;
            let kind = |pods: bool| if pods { pods_kind } else { pools };
            for op in ops {
                match op {
                    Op::Put(pods, name, body) => {
                        store.put(kind(pods), object(&name.to_string(), &body.to_string()));
                    }
                    Op::Delete(pods, name) => {
                        let id = object(&name.to_string(), "").id;
                        store.batch(kind(pods), vec![Event::Delete { id, last: None }], None);
                    }
                    Op::End(pods, fault) => store.end_watches(kind(pods), fault),
                    Op::Refuse(pods, times) => store.refuse(kind(pods), times.into()),
                    Op::Absent(pods) => store.set_absent(kind(pods), true),
                    Op::Present(pods) => store.set_absent(kind(pods), false),
                    Op::Wait(seconds) => {
                        let over = tokio::time::Instant::now() + Duration::from_secs(seconds.into());
                        loop {
                            let mut batch = Vec::new();
                            tokio::select! {
                                () = tokio::time::sleep_until(over) => break,
                                _ = running.received.recv_batch(&mut batch, 1) => {
                                    for event in batch {
                                        running.hear(event);
                                    }
                                }
                            }
                        }
                    }
                }
            }
            for (_, kind) in &SOURCES {
                store.set_absent(kind, false);
            }
            running.until_equal().await;
        });
    }
}
