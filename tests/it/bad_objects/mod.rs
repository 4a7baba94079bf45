//! Bad objects: each goes the whole way from a datastore into the snapshot cache, beside a good object
//! of its kind. It may cost its own keys, it is reported, and it affects no other object.

mod bodies;
mod random;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Event, Kind, Object, ObjectId};
use bulrush::decoupler;
use bulrush::demand::Demand;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::SyncerName;
use bulrush::model::{SyncStatus, SyncerEvent};
use bulrush::pipeline::Stages;
use bulrush::problems::{MAX_TEXT, ProblemBook};
use bulrush::syncer::kind_watch::KindHub;
use serde_json::Value as Json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use bodies::{Good, Place};

/// Longest time for a step, in paused time.
const SETTLE: Duration = Duration::from_secs(30);

/// The content of all syncers' agents, by syncer and key.
type View = BTreeMap<(SyncerName, String), String>;

/// The pipelines of all syncers over one store with two good objects of a kind, the second of which a test damages.
struct Road {
    kind: Kind,
    place: Place,
    good: Good,
    store: MemoryStore,
    revision: u64,
    ends: Vec<(SyncerName, decoupler::Receiver, ProblemBook)>,
    view: View,
    /// The content while both objects are good, and the second object's part of it.
    whole: View,
    own: BTreeSet<(SyncerName, String)>,
    tasks: JoinSet<()>,
}

impl Road {
    /// Starts with both objects good.
    async fn start(good: &Good, place: Place) -> Self {
        let store = MemoryStore::new();
        let mut hub = KindHub::new(Arc::new(store.clone()), 1);
        let mut tasks = JoinSet::new();
        let cancel = CancellationToken::new();
        let mut ends = Vec::new();
        let mut kind = None;
        for spec in pipelines::calico(Flavour::Kubernetes, &Context::default()) {
            let wanted = |known: &&Kind| known.name == good.kind && known.group == good.group;
            let mut kinds = spec.sources.iter().flat_map(|source| &source.kinds);
            kind = kind.or_else(|| kinds.find(wanted).cloned());
            let (syncer, metrics) = (spec.syncer, SyncerMetrics::unregistered());
            let (stages, received) = Stages::new(spec, &metrics, &mut hub, Demand::default());
            ends.push((syncer, received, stages.problems().clone()));
            tasks.spawn(stages.run(cancel.clone()));
        }
        let kind = kind.unwrap_or_else(|| panic!("{} is watched by some syncer", good.kind));
        let mut road = Self {
            kind,
            place,
            good: good.clone(),
            store,
            revision: 100,
            ends,
            view: View::new(),
            whole: View::new(),
            own: BTreeSet::new(),
            tasks,
        };
        let objects = vec![road.object(1, &good.body(1, place))];
        road.store.load(&road.kind, objects, "100".into());
        road.tasks.spawn(hub.run(cancel));
        let statuses = road.settle().await;
        assert_eq!(statuses.len(), 12, "{}: every syncer gets in sync: {statuses:?}", good.kind);
        let one = road.view.clone();
        road.put(&good.body(2, place).to_string()).await;
        road.whole = road.view.clone();
        road.own = road.whole.keys().filter(|key| !one.contains_key(*key)).cloned().collect();
        assert!(!road.own.is_empty(), "{}: a good object has keys", good.kind);
        assert_eq!(road.problems(), [""; 0], "{}: good objects are good", good.kind);
        road
    }

    fn id(&self, number: usize) -> ObjectId {
        let metadata = &self.good.body(number, self.place)["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
        ObjectId { namespace: text("namespace"), name: text("name") }
    }

    fn object(&self, number: usize, body: &Json) -> Object {
        let revision = self.revision.to_string().into();
        Object {
            id: self.id(number),
            revision,
            dialect: self.place.dialect(),
            body: body.to_string().into(),
            place: None,
        }
    }

    /// Writes the second object as this text, and waits until nothing moves. All syncers have to stay in sync.
    async fn put(&mut self, body: &str) {
        self.revision += 1;
        let revision = self.revision.to_string().into();
        let body = body.to_owned().into();
        let object = Object { id: self.id(2), revision, dialect: self.place.dialect(), body, place: None };
        self.store.batch(&self.kind, vec![Event::Put(object)], None);
        assert_eq!(self.settle().await, [], "{}: no status changes", self.good.kind);
    }

    /// Waits until nothing moves, and returns the statuses that arrived.
    async fn settle(&mut self) -> Vec<(SyncerName, SyncStatus)> {
        let mut statuses = Vec::new();
        let mut events = Vec::new();
        for (syncer, received, _) in &mut self.ends {
            let until = tokio::time::Instant::now() + SETTLE;
            // In paused time the clock moves only when no task can run: then everything has arrived.
            while let Ok(count) = tokio::time::timeout_at(until, received.recv_batch(&mut events, 1)).await {
                assert_ne!(count, 0, "the pipeline runs");
            }
            for event in events.drain(..) {
                match event {
                    SyncerEvent::Status(status) => statuses.push((*syncer, status)),
                    SyncerEvent::Progress(_) => {}
                    SyncerEvent::Updates(updates) => {
                        for update in updates {
                            let key = (*syncer, update.key.to_string());
                            match update.value {
                                Some(value) => {
                                    let text = String::from_utf8(value.bytes.to_vec()).expect("values are text");
                                    self.view.insert(key, text)
                                }
                                None => self.view.remove(&key),
                            };
                        }
                    }
                }
            }
        }
        statuses
    }

    /// The second object's keys that are there now, with any value.
    fn left(&self) -> BTreeSet<&(SyncerName, String)> {
        self.view.keys().filter(|key| self.own.contains(*key)).collect()
    }

    /// The reported problems, as `name: reason`.
    fn problems(&self) -> Vec<String> {
        let of_book = |(_, _, book): &(_, _, ProblemBook)| book.snapshot(100);
        let problems = self.ends.iter().flat_map(of_book);
        problems.map(|problem| format!("{}: {}", problem.subject.name, problem.reason)).collect()
    }

    /// Checks that hold for any damage of the second object.
    fn check_others(&self, damage: &str) {
        for (key, value) in self.whole.iter().filter(|(key, _)| !self.own.contains(*key)) {
            assert_eq!(self.view.get(key), Some(value), "{damage}: {key:?} of another object has changed");
        }
        let object = format!("{} {}", self.kind, self.id(2));
        for (syncer, _, book) in &self.ends {
            for problem in book.snapshot(100) {
                let name = &problem.subject.name;
                let is_key = name.starts_with("/calico/") && !self.whole.contains_key(&(*syncer, name.clone()));
                let is_own = self.own.contains(&(*syncer, name.clone()));
                assert!(*name == object || is_own || is_key, "{damage}: {name} is reported, not {object}");
                assert!(!problem.reason.is_empty() && problem.reason.len() < 2 * MAX_TEXT, "{damage}: {problem:?}");
            }
        }
    }

    /// Repairs the second object, after which everything has to be as before.
    async fn heal(&mut self, damage: &str) {
        let body = self.good.body(2, self.place).to_string();
        self.put(&body).await;
        assert_eq!(self.problems(), [""; 0], "{damage}: no problem is left after the repair");
        for (key, value) in &self.whole {
            assert_eq!(self.view.get(key), Some(value), "{damage}: {key:?} is back");
        }
        let left: Vec<_> = self.view.keys().filter(|key| !self.whole.contains_key(*key)).collect();
        assert!(left.is_empty(), "{damage}: {left:?} stay after the repair");
    }
}
