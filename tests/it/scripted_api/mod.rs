//! The Kubernetes datastore against an API server whose answers a test chooses: every answer that a real one gives rarely, at
//! a bad time, or never.

mod failures;
mod kinds;
mod lists;
mod unknown;
mod vectors;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use bulrush::datastore::kubernetes::KubernetesStore;
use bulrush::datastore::{Event, Kind, Malformed};
use bulrush::syncer::kind_watch::{KindEvent, KindHub, Subscriber};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::scripted::Asked;

const PODS: &str = "/api/v1/pods";
/// Longer than any pause of a kind watch, in paused time.
const PATIENCE: Duration = Duration::from_secs(700);

/// The kind watches over a store, and their events.
struct Watching {
    events: mpsc::Receiver<(usize, KindEvent)>,
    _tasks: JoinSet<()>,
}

impl Watching {
    /// Watches kinds; each event carries the index of its kind.
    fn start(store: KubernetesStore, kinds: &[Kind]) -> Self {
        let mut hub = KindHub::new(Arc::new(store), 1);
        let (sender, events) = mpsc::channel(100);
        for (tag, kind) in kinds.iter().enumerate() {
            hub.subscribe(kind.clone(), Subscriber::new(tag, sender.clone()));
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(hub.run(CancellationToken::new()));
        Self { events, _tasks: tasks }
    }

    async fn next(&mut self) -> (usize, KindEvent) {
        let event = tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("an event comes in time");
        event.expect("the watches run")
    }

    /// The next event in short: `list`, `objects a@1 b@2`, `listed 10`, `put a@3, gone b, bad c to 12`, `absent`.
    async fn says(&mut self) -> String {
        words(self.next().await.1)
    }

    /// Fails unless these are the next events.
    async fn says_in_turn(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.says().await, *expected);
        }
    }

    /// Fails if there is an event within this time.
    async fn says_nothing_for(&mut self, time: Duration) {
        if let Ok(Some((_, event))) = tokio::time::timeout(time, self.events.recv()).await {
            panic!("one event too many: {}", words(event));
        }
    }

    /// Fails if an event was not expected.
    fn assert_silent(&mut self) {
        if let Ok((_, event)) = self.events.try_recv() {
            panic!("one event too many: {}", words(event));
        }
    }
}

fn words(event: KindEvent) -> String {
    match event {
        KindEvent::ListStart => "list".to_owned(),
        KindEvent::Objects(objects) => {
            let objects = objects.iter().map(|object| format!(" {}@{}", object.id, object.revision));
            format!("objects{}", objects.collect::<String>())
        }
        KindEvent::Malformed(malformed) => {
            let names = malformed.iter().map(|Malformed { id, .. }| format!(" {id}"));
            format!("bad{}", names.collect::<String>())
        }
        KindEvent::ListEnd { revision, .. } => format!("listed {revision}"),
        KindEvent::Changes(batch) => {
            let events: Vec<String> = batch
                .events
                .iter()
                .map(|event| match event {
                    Event::Put(object) => format!("put {}@{}", object.id, object.revision),
                    Event::Delete { id, .. } => format!("gone {id}"),
                    Event::Malformed(Malformed { id, .. }) => format!("bad {id}"),
                })
                .collect();
            format!("{} to {}", events.join(", "), batch.revision)
        }
        KindEvent::Absent => "absent".to_owned(),
        KindEvent::Lost => "lost".to_owned(),
    }
}

/// A small pod.
fn pod(name: &str, revision: &str) -> Json {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n", "resourceVersion": revision}})
}

/// A page of a list.
fn page(items: &[Json], revision: &str, next: &str) -> Json {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": revision, "continue": next}, "items": items})
}

/// Answers with a whole streaming list and leaves it open for ever.
fn serve(asked: Asked, objects: &[Json], revision: &str) {
    let feed = asked.stream();
    for object in objects {
        feed.event("ADDED", object);
    }
    feed.bookmark(revision, true);
    std::mem::forget(feed);
}
