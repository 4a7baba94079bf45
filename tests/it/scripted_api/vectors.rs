//! All data-model vectors of Kubernetes through a scripted API server: from its bytes to the agents' data.
//!
//! The server here keeps the content of a case and answers as a real one does, with streaming lists or in small pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bulrush::calico::catalog::{CalicoGroup, catalog};
use bulrush::calico::pipelines::Flavour;
use bulrush::datastore::kubernetes::KubernetesStore;
use bulrush::datastore::{Datastore, Event, Kind, Malformed, Object, ObjectId};
use bulrush::model::Revision;
use bulrush::syncer::spec::Source;
use serde_json::{Value as Json, json};
use tokio::task::AbortHandle;

use crate::data_model_vectors::pipeline;
use crate::scripted::{self, Asked, Feed, ScriptedApi, status};
use crate::vectors::data_model::{BUILT_IN_GROUPS, Case, Store, run_all};

/// The pipeline of a case of Kubernetes; empty for other cases.
fn of_kubernetes(case: &Case) -> Vec<Source> {
    if case.datastore.starts_with("kdd-") { pipeline(Flavour::Kubernetes, case) } else { Vec::new() }
}

#[test]
fn all_kubernetes_vectors_through_streaming_lists() {
    run_all(of_kubernetes, None, |case| Server::start(case, None));
}

#[test]
fn all_kubernetes_vectors_through_pages() {
    run_all(of_kubernetes, None, |case| Server::start(case, Some(1)));
}

/// A store over a server with content.
struct Server {
    store: KubernetesStore,
    content: Arc<Mutex<Content>>,
    calico_path: &'static str,
    answering: AbortHandle,
}

#[derive(Default)]
struct Content {
    /// The kinds by path.
    kinds: BTreeMap<String, Served>,
    /// Whether the server gives no streaming lists.
    only_pages: bool,
    /// Largest page, also if more is asked for.
    page: usize,
}

#[derive(Default)]
struct Served {
    kind: Json,
    absent: bool,
    objects: BTreeMap<ObjectId, Json>,
    revision: String,
    watches: Vec<Feed>,
}

impl Server {
    fn start(case: &Case, page: Option<usize>) -> Self {
        let (group, calico_path) = match &*case.datastore {
            "kdd-v1" => (CalicoGroup::CrdV1, "crd.projectcalico.org/v1"),
            _ => (CalicoGroup::V3, "projectcalico.org/v3"),
        };
        let (store, api) = scripted::start(|config| config.catalog = catalog(Some(group)));
        let content = Content { only_pages: page.is_some(), page: page.unwrap_or(usize::MAX), ..Content::default() };
        let content = Arc::new(Mutex::new(content));
        let answering = tokio::spawn(answer_all(api, Arc::clone(&content))).abort_handle();
        Self { store, content, calico_path, answering }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("no panic before")
    }

    fn with<T>(&self, kind: &Kind, change: impl FnOnce(&mut Served) -> T) -> T {
        let path = if kind.group == "projectcalico.org" {
            format!("/apis/{}/{}", self.calico_path, kind.plural)
        } else if kind.group.is_empty() {
            format!("/api/{}/{}", kind.version, kind.plural)
        } else {
            format!("/apis/{}/{}/{}", kind.group, kind.version, kind.plural)
        };
        let api_version =
            if kind.group.is_empty() { kind.version.to_string() } else { format!("{}/{}", kind.group, kind.version) };
        let mut content = self.lock();
        let served = content.kinds.entry(path).or_default();
        if BUILT_IN_GROUPS.contains(&&*kind.group) {
            served.kind = json!({"kind": &*kind.name, "apiVersion": api_version});
        }
        change(served)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

fn json_of(object: &Object) -> Json {
    serde_json::from_slice(&object.body).expect("a vector's object is JSON")
}

impl Served {
    /// An object as a watch sends it: with its kind, which lists may leave out.
    fn named(&self, object: &Json) -> Json {
        let mut object = object.clone();
        for (field, value) in self.kind.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }

    fn tell(&mut self, what: &str, object: &Json) {
        let object = self.named(object);
        self.watches.retain(Feed::is_read);
        for watch in &self.watches {
            watch.event(what, &object);
        }
    }
}

impl Store for Server {
    fn datastore(&self) -> Arc<dyn Datastore> {
        Arc::new(self.store.clone())
    }

    fn set_absent(&self, kind: &Kind) {
        self.with(kind, |served| served.absent = true);
    }

    fn load(&self, kind: &Kind, objects: Vec<Object>, revision: Revision) {
        self.with(kind, |served| {
            served.objects = objects.iter().map(|object| (object.id.clone(), json_of(object))).collect();
            served.revision = revision.to_string();
            for watch in served.watches.drain(..) {
                watch.event("ERROR", &status(410, "Expired", "too old resource version"));
            }
        });
    }

    fn change(&self, kind: &Kind, event: Event, revision: Revision) {
        self.with(kind, |served| {
            served.revision = revision.to_string();
            match event {
                Event::Put(object) => {
                    let json = json_of(&object);
                    let known = served.objects.insert(object.id, json.clone());
                    served.tell(if known.is_some() { "MODIFIED" } else { "ADDED" }, &json);
                }
                Event::Delete { id, last } => {
                    served.objects.remove(&id);
                    served.tell("DELETED", &json_of(&last.expect("the API server tells the last form")));
                }
                Event::Malformed(Malformed { id, reason }) => panic!("{id}: {reason}"),
            }
        });
    }

    fn bookmark(&self, kind: &Kind, revision: Revision) {
        self.with(kind, |served| {
            served.watches.retain(Feed::is_read);
            for watch in &served.watches {
                watch.bookmark(&revision, false);
            }
        });
    }
}

async fn answer_all(mut api: ScriptedApi, content: Arc<Mutex<Content>>) {
    while let Some(asked) = api.recv().await {
        answer(asked, &mut content.lock().expect("no panic before"));
    }
}

fn answer(asked: Asked, content: &mut Content) {
    let (only_pages, page) = (content.only_pages, content.page);
    let Some(served) = content.kinds.get_mut(&asked.path).filter(|served| !served.absent) else {
        // Definitions may not be read: a kind counts as missing if this answer repeats.
        return asked.answer(404, &[], "404 page not found\n");
    };
    match (asked.is_watch(), asked.wants_initial_events()) {
        (true, true) if only_pages => asked.refuse(422, "Invalid", "sendInitialEvents is forbidden"),
        (true, true) => {
            let feed = asked.stream();
            for object in served.objects.values() {
                feed.event("ADDED", &served.named(object));
            }
            feed.bookmark(&served.revision, true);
            served.watches.push(feed);
        }
        (true, false) if asked.query("resourceVersion") != served.revision => {
            asked.refuse(410, "Expired", "too old resource version");
        }
        (true, false) => served.watches.push(asked.stream()),
        (false, _) => {
            let from: usize = asked.query("continue").parse().unwrap_or(0);
            let items: Vec<&Json> = served.objects.values().skip(from).take(page).collect();
            let next = from + items.len();
            let next = if next < served.objects.len() { next.to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": served.revision, "continue": next});
            asked.json(&json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}));
        }
    }
}
