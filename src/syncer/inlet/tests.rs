//! The status of an inlet, as a table; and whole inlets against the memory datastore in paused time.

use std::time::Duration;

use SyncStatus::{InSync, ResyncInProgress, WaitForDatastore};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::calico::syncers::FELIX;
use crate::datastore::memory::MemoryStore;
use crate::datastore::{Dialect, Object, ObjectId, Selection, Unknown};
use crate::decoupler;
use crate::model::{KvPair, SyncerEvent, Value, no_revision};
use crate::paused::in_paused_time;
use crate::syncer::kind_watch::KindHub;
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};
use crate::syncer::watcher_syncer::WatcherSyncer;

/// An event, and the statuses that follow from it.
enum Step {
    Told(usize),
    Kind(usize, SyncStatus),
    TimeIsOver,
}
use Step::{Kind as OfKind, TimeIsOver, Told};

fn statuses(standing: &mut Standing, step: &Step) -> Vec<SyncStatus> {
    let mut out = Vec::new();
    match step {
        Told(new) => standing.kinds_told(*new, &mut out),
        OfKind(kind, status) => standing.take(*kind, CacheItem::Status(*status), &mut out),
        TimeIsOver => standing.time_is_over(&mut out),
    }
    let status = |item| if let CacheItem::Status(status) = item { Some(status) } else { None };
    out.into_iter().filter_map(status).collect()
}

#[test]
fn the_status_follows_the_kinds_that_count() {
    for (may_be_spared, steps) in [
        // One kind: its own statuses.
        (
            false,
            vec![
                (Told(1), vec![]),
                (OfKind(0, ResyncInProgress), vec![ResyncInProgress]),
                (OfKind(0, InSync), vec![InSync]),
                (OfKind(0, WaitForDatastore), vec![WaitForDatastore]),
                (TimeIsOver, vec![]),
            ],
        ),
        // No kinds: nothing to wait for.
        (false, vec![(Told(0), vec![ResyncInProgress, InSync])]),
        // A kind that comes later does not disturb the status, and counts from its first in-sync on.
        (
            false,
            vec![
                (Told(1), vec![]),
                (OfKind(0, ResyncInProgress), vec![ResyncInProgress]),
                (OfKind(0, InSync), vec![InSync]),
                (Told(1), vec![]),
                (OfKind(1, ResyncInProgress), vec![]),
                (OfKind(1, InSync), vec![]),
                (OfKind(1, ResyncInProgress), vec![ResyncInProgress]),
            ],
        ),
        // A datastore that is not required: spared after its time, and when it is lost later.
        (true, vec![(TimeIsOver, vec![ResyncInProgress, InSync]), (Told(1), vec![]), (OfKind(0, InSync), vec![])]),
        (
            true,
            vec![
                (Told(1), vec![]),
                (OfKind(0, ResyncInProgress), vec![ResyncInProgress]),
                (OfKind(0, InSync), vec![InSync]),
                (OfKind(0, WaitForDatastore), vec![]),
            ],
        ),
    ] {
        let mut standing = Standing::new(may_be_spared);
        for (index, (step, expected)) in steps.iter().enumerate() {
            assert_eq!(statuses(&mut standing, step), *expected, "spared {may_be_spared}, step {index}");
        }
    }
}

/// `/{kind}/{version}/{name}`, with the version of the kind as the value.
#[derive(Debug)]
struct Plain(Kind);

impl Processor for Plain {
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let (id, put) = match event {
            ObjectEvent::Put(object) => (&object.id, true),
            ObjectEvent::Delete(id, _) => (id, false),
        };
        let value = put.then(|| Value::raw(self.0.version.to_string()));
        let (key, revision) = (format!("/{}/{}", self.0.name, id.name).into(), self.0.version.as_ref().into());
        out.push(KvPair { key, value, revision, v3_resource_version: no_revision(), origin: None });
        Ok(())
    }
}

fn kind(name: &'static str, version: &'static str) -> Kind {
    let (group, plural) = ("example.org".into(), "".into());
    Kind { group, version: version.into(), name: name.into(), plural, namespaced: true, etcd_prefix: None }
}

fn object(name: &str) -> Object {
    Object {
        id: ObjectId { namespace: "a".into(), name: name.into() },
        revision: no_revision(),
        dialect: Dialect::Kubernetes,
        body: "{}".into(),
        place: None,
    }
}

/// A datastore whose kinds the test tells.
#[derive(Debug)]
struct Telling {
    store: MemoryStore,
    kinds: watch::Receiver<KindsNow>,
}

impl crate::datastore::Datastore for Telling {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<crate::datastore::ListPage, Error>> {
        self.store.list(selection)
    }

    fn watch(
        &self,
        selection: &Selection,
        from: &crate::model::Revision,
    ) -> BoxStream<'static, Result<crate::datastore::WatchBatch, Error>> {
        self.store.watch(selection, from)
    }

    fn kinds(&self, _patterns: &[crate::datastore::Pattern]) -> BoxStream<'static, Result<KindsNow, Error>> {
        let mut kinds = self.kinds.clone();
        kinds.mark_changed();
        stream::unfold(kinds, |mut kinds| async move {
            if kinds.changed().await.is_err() {
                pending::<()>().await;
            }
            let now = kinds.borrow_and_update().clone();
            Some((Ok(now), kinds))
        })
        .boxed()
    }
}

#[test]
fn kinds_come_late_and_change_their_version_without_a_loss() {
    in_paused_time(async {
        let store = MemoryStore::new();
        store.put(&kind("Bed", "v1"), object("b"));
        store.put(&kind("Bed", "v2"), object("b"));
        store.put(&kind("Hedge", "v1"), object("h"));
        let tell = |kinds: Vec<Kind>| KindsNow { kinds, unknown: Vec::new() };
        let (told, kinds) = watch::channel(tell(vec![kind("Bed", "v1")]));
        let datastore: Arc<dyn crate::datastore::Datastore> = Arc::new(Telling { store: store.clone(), kinds });
        let mut hub = KindHub::new(datastore.clone(), 1);
        let recheck = watch::Sender::new(());
        let inlet = Inlet {
            name: "memory".into(),
            datastore,
            patterns: Vec::new(),
            fixed: None,
            joiner: hub.joiner(),
            select: Arc::new(Selection::from),
            processor: Arc::new(|kind| Box::new(Plain(kind.clone()))),
            spared_after: None,
            again: recheck.subscribe(),
        };
        let (metrics, problems) = (SyncerMetrics::unregistered(), ProblemBook::new(FELIX));
        let (out, mut events) = decoupler::channel(100);
        let syncer = WatcherSyncer::new(FELIX, Vec::new(), &mut hub, out);
        let (syncer, statuses) = syncer.with_inlets(vec![inlet], &metrics, &problems);
        let stop = CancellationToken::new();
        tokio::spawn(hub.run(stop.clone()));
        tokio::spawn(syncer.run(stop.clone()));
        let mut hear = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (mut said, mut batch) = (Vec::new(), Vec::new());
            while tokio::time::timeout(Duration::from_secs(1), events.recv_batch(&mut batch, 100)).await.is_ok() {}
            for event in batch {
                match event {
                    SyncerEvent::Status(status) => said.push(status.to_string()),
                    SyncerEvent::Updates(updates) => said.extend(updates.into_iter().map(|update| {
                        let value = update.value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
                        format!("{:?} {} {}", update.update_type, update.key, value.unwrap_or_default())
                    })),
                    SyncerEvent::Progress(_) => {}
                }
            }
            said
        };
        assert_eq!(hear().await, ["wait-for-ready", "resync", "New /Bed/b v1", "in-sync"]);
        told.send_replace(tell(vec![kind("Bed", "v1"), kind("Hedge", "v1")]));
        assert_eq!(hear().await, ["New /Hedge/h v1"]);
        told.send_replace(tell(vec![kind("Bed", "v2"), kind("Hedge", "v1")]));
        assert_eq!(hear().await, ["Updated /Bed/b v2"]);
        // All objects come again, without a status.
        recheck.send_replace(());
        let mut again = hear().await;
        again.sort_unstable();
        assert_eq!(again, ["Updated /Bed/b v2", "Updated /Hedge/h v1"]);
        // The old version is followed no more.
        store.put(&kind("Bed", "v1"), object("other"));
        assert_eq!(hear().await, [""; 0]);
        // A kind that is no longer told keeps its objects until its watch says that they are gone.
        let unknown = vec![Unknown { pattern: "example.org/v1/Hegde".parse().unwrap(), reason: "a reason".to_owned() }];
        told.send_replace(KindsNow { kinds: vec![kind("Bed", "v2")], unknown });
        assert_eq!(hear().await, [""; 0]);
        let status = statuses[0].borrow().clone();
        assert_eq!((status.kinds, &*status.unknown[0].0), (1, "example.org/v1/Hegde"));
        stop.cancel();
    });
}
