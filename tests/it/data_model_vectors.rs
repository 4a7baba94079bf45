//! The whole road from a datastore to the snapshot cache's door, held against the shared data-model vectors.
//!
//! Every case's content goes into a [`Store`], here a memory datastore; kind watches, watcher caches, the watcher syncer and the validation
//! stage make of it what they make in the daemon; what arrives is compared byte for byte, after the lists and after every event.
//! A case that cannot be read fails. What we do differently on purpose is said in two places,
//! [`expected_statuses`] and [`lean`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Datastore, Dialect, Event, Kind, Malformed, Object, ObjectId};
use bulrush::decoupler;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::{Revision, SyncerEvent, UpdateType};
use bulrush::problems::ProblemBook;
use bulrush::syncer::SyncerType;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::pipelines::{self, Flavour};
use bulrush::syncer::processors::Context;
use bulrush::syncer::watcher_cache::WatcherCache;
use bulrush::syncer::watcher_syncer::WatcherSyncer;
use bulrush::validate::filter::ValidationFilter;
use serde_json::Value as Json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lean;

/// Cases that are not run, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[];

/// Kinds that Kubernetes itself serves: items of their lists carry no `apiVersion` and `kind`.
pub(crate) const BUILT_IN_GROUPS: &[&str] = &["", "networking.k8s.io", "discovery.k8s.io"];

/// How long a step may take, in paused time: longer than any pause that a fault of the datastore can cause.
const SETTLE: Duration = Duration::from_secs(30);

/// What a key was sent as.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    value: Option<String>,
    update_type: String,
    revision: String,
    v3_resource_version: String,
}

/// What arrived in one step.
#[derive(Debug, Default)]
struct Output {
    updates: BTreeMap<String, Vec<Sent>>,
    statuses: Vec<String>,
}

/// Where the content of a case is while it runs.
pub(crate) trait Store {
    /// What the pipeline reads from.
    fn datastore(&self) -> Arc<dyn Datastore>;
    /// The kind is not known to the datastore.
    fn set_absent(&self, kind: &Kind);
    /// Replaces the content of a kind; earlier positions expire.
    fn load(&self, kind: &Kind, objects: Vec<Object>, revision: Revision);
    /// Something happens.
    fn change(&self, kind: &Kind, event: Event, revision: Revision);
    /// The position moves without a change.
    fn bookmark(&self, kind: &Kind, revision: Revision);
}

impl Store for MemoryStore {
    fn datastore(&self) -> Arc<dyn Datastore> {
        Arc::new(self.clone())
    }

    fn set_absent(&self, kind: &Kind) {
        self.set_absent(kind, true);
    }

    fn load(&self, kind: &Kind, objects: Vec<Object>, revision: Revision) {
        self.load(kind, objects, revision);
    }

    fn change(&self, kind: &Kind, event: Event, revision: Revision) {
        self.batch(kind, vec![event], Some(revision));
    }

    fn bookmark(&self, kind: &Kind, revision: Revision) {
        self.bookmark(kind, Some(revision), None);
    }
}

#[test]
fn all_data_model_vectors_through_the_pipeline() {
    let flavour = |datastore: &str| if datastore == "etcd" { Flavour::Etcd } else { Flavour::Kubernetes };
    run_all(|_| true, flavour, |_| MemoryStore::new());
}

#[test]
fn all_data_model_vectors_of_kubernetes_through_the_folders_pipeline() {
    run_all(|_| true, |_| Flavour::Folder, |_| MemoryStore::new());
}

/// Runs all cases whose datastore is `wanted`, each with the pipeline of a flavour and a new store.
#[expect(clippy::print_stdout, reason = "the counts are part of what this test is asked for")]
pub(crate) fn run_all<S: Store>(
    wanted: fn(&str) -> bool,
    flavour: fn(&str) -> Flavour,
    new_store: impl Fn(&Json) -> S,
) {
    let mut failures = Vec::new();
    let (mut passed, mut left_out) = (0, 0);
    let mut cases = cases();
    cases.retain(|case| wanted(text(case, "datastore")));
    assert!(!cases.is_empty(), "there are cases");
    for case in &cases {
        let name = text(case, "name");
        if let Some((_, reason)) = LEFT_OUT.iter().find(|(left_out, _)| *left_out == name) {
            println!("left out: {name}: {reason}");
            left_out += 1;
            continue;
        }
        match run(case, flavour(text(case, "datastore")), || new_store(case)) {
            Ok(()) => passed += 1,
            Err(difference) => failures.push(format!("== {name}: {difference}")),
        }
    }
    println!("{passed} passed, {} failed, {left_out} left out, of {}", failures.len(), cases.len());
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// Where the vectors are: `BULRUSH_VECTORS`, beside the project, or the small set that belongs to it.
fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::env::var_os("BULRUSH_VECTORS").map_or_else(
        || {
            let shared = root.join("../shared/vectors");
            if shared.is_dir() { shared } else { root.join("tests/vectors") }
        },
        PathBuf::from,
    )
}

fn cases() -> Vec<Json> {
    let folder = folder().join("data-model");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("read {}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let cases: Vec<Json> = files
        .iter()
        .flat_map(|file| {
            let text = std::fs::read(file).expect("the file can be read");
            serde_json::from_slice::<Vec<Json>>(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        })
        .collect();
    assert!(!cases.is_empty(), "no vectors in {}", folder.display());
    cases
}

pub(crate) fn text<'a>(json: &'a Json, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_else(|| panic!("no text {field:?} in {json}"))
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn context(case: &Json) -> Context {
    let mut context = Context { use_pod_cidr: case["usePodCIDR"].as_bool().unwrap_or(false), ..Context::default() };
    for (name, value) in case["env"].as_object().into_iter().flatten() {
        assert_eq!(name, "FELIX_INTERFACEPREFIX", "a variable that no processor knows");
        let prefixes = value.as_str().expect("variables are text");
        prefixes.split(',').next().unwrap_or_default().clone_into(&mut context.interface_prefix);
    }
    context
}

/// The statuses that we owe. Where Calico never gets in sync because of one object that it cannot read, we do: one bad object
/// affects only itself.
fn expected_statuses(statuses: &Json, is_start: bool) -> Vec<String> {
    let mut statuses: Vec<String> =
        list(statuses).iter().map(|status| status.as_str().expect("a status is text").to_owned()).collect();
    if is_start && statuses.last().is_none_or(|last| last != "in-sync") {
        statuses.push("in-sync".to_owned());
    }
    statuses
}

fn run<S: Store>(case: &Json, flavour: Flavour, new_store: impl FnOnce() -> S) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let mut world = World::start(case, flavour, new_store());
        let mut differences = String::new();
        let output = world.settle().await;
        compare(case, "list", &case["output"], &expected_statuses(&case["statuses"], true), &output, &mut differences);
        let events = list(&case["input"]["events"]);
        assert_eq!(events.len(), list(&case["steps"]).len(), "one step for every event");
        for (event, step) in events.iter().zip(list(&case["steps"])) {
            world.event(event);
            let output = world.settle().await;
            let statuses = expected_statuses(&step["statuses"], false);
            compare(case, text(step, "step"), &step["output"], &statuses, &output, &mut differences);
        }
        world.stop().await;
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    })
}

/// A datastore and a pipeline over it.
struct World<'a, S> {
    case: &'a Json,
    kinds: Vec<Kind>,
    store: S,
    etcd_revision: u64,
    received: decoupler::Receiver,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl<'a, S: Store> World<'a, S> {
    fn start(case: &'a Json, flavour: Flavour, store: S) -> Self {
        let syncer = SyncerType::from_name(text(case, "syncer")).expect("a known syncer");
        let specs = pipelines::calico(flavour, &context(case));
        let spec = specs.into_iter().find(|spec| spec.syncer == syncer).expect("every syncer has a pipeline");
        let metrics = SyncerMetrics::unregistered(syncer);
        let problems = ProblemBook::new(syncer);
        let mut kinds = Vec::new();
        let new_cache = |source: pipelines::Source| {
            kinds.extend(source.kinds.iter().cloned());
            WatcherCache::new(source.name, source.kinds, source.processor, metrics.clone(), problems.clone())
        };
        let caches = spec.sources.into_iter().map(new_cache).collect();
        let mut hub = KindHub::new(store.datastore(), 1);
        let (to_filter, from_syncer) = decoupler::channel(decoupler::DEFAULT_CAPACITY);
        let (to_cache, received) = decoupler::channel(decoupler::DEFAULT_CAPACITY);
        let cancel = CancellationToken::new();
        let mut world = Self { case, kinds, store, etcd_revision: 1, received, cancel, tasks: JoinSet::new() };
        world.fill();
        let syncer = WatcherSyncer::new(syncer, caches, &mut hub, to_filter);
        let filter = ValidationFilter::new(metrics, problems, None);
        world.tasks.spawn(hub.run(world.cancel.clone()));
        world.tasks.spawn(syncer.run(world.cancel.clone()));
        world.tasks.spawn(filter.run(from_syncer, to_cache, world.cancel.clone()));
        world
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.tasks.join_all().await;
    }

    /// Puts the initial content into the store.
    fn fill(&mut self) {
        let input = &self.case["input"];
        for missing in list(&input["missingKinds"]) {
            let (api_version, kind) = split_kind(missing.as_str().expect("kinds are text"));
            if let Some((kind, _)) = self.find_kind(api_version, kind) {
                self.store.set_absent(&kind);
            }
        }
        let mut content: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        for json in list(&input["initial"]) {
            if let Some((kind, object)) = self.kubernetes_object(json, true) {
                content.entry(kind).or_default().push(object);
            }
        }
        for pair in list(&input["etcd"]) {
            self.etcd_revision += 1;
            let Some((kind, id)) = self.etcd_id(text(pair, "key")) else { continue };
            let Ok(object) = self.etcd_object(id, text(pair, "value")) else { continue };
            let objects = content.entry(kind).or_default();
            objects.retain(|known| known.id != object.id);
            objects.push(object);
        }
        let revision = if text(self.case, "datastore") == "etcd" { self.etcd_revision } else { 1000 };
        for kind in &self.kinds {
            self.store.load(kind, content.remove(kind).unwrap_or_default(), revision.to_string().into());
        }
    }

    /// The kind and the dialect of a Kubernetes object, if the syncer watches it in this mode.
    fn find_kind(&self, api_version: &str, name: &str) -> Option<(Kind, Dialect)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (group, version, dialect) = match (text(self.case, "datastore"), group) {
            ("kdd-v1", "crd.projectcalico.org") => ("projectcalico.org", "v3", Dialect::CrdV1),
            ("kdd-v3", "projectcalico.org") => ("projectcalico.org", "v3", Dialect::V3),
            (_, "crd.projectcalico.org" | "projectcalico.org") => return None,
            ("kdd-v1" | "kdd-v3", _) => (group, version, Dialect::Kubernetes),
            (other, _) => panic!("{api_version} {name} in datastore {other}"),
        };
        let kind =
            self.kinds.iter().find(|kind| kind.group == group && kind.version == version && kind.name == name)?;
        Some((kind.clone(), dialect))
    }

    fn kubernetes_object(&self, json: &Json, is_listed: bool) -> Option<(Kind, Object)> {
        let (kind, dialect) = self.find_kind(text(json, "apiVersion"), text(json, "kind"))?;
        let mut body = json.clone();
        if is_listed && BUILT_IN_GROUPS.contains(&&*kind.group) {
            let fields = body.as_object_mut().expect("an object is an object");
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let metadata = |field: &str| json["metadata"][field].as_str().unwrap_or_default().into();
        let object = Object {
            id: ObjectId { namespace: metadata("namespace"), name: metadata("name") },
            revision: metadata("resourceVersion"),
            dialect,
            body: body.to_string().into(),
        };
        Some((kind, object))
    }

    fn etcd_id(&self, key: &str) -> Option<(Kind, ObjectId)> {
        self.kinds.iter().find_map(|kind| {
            let rest = key.strip_prefix(&**kind.etcd_prefix.as_ref()?)?;
            let (namespace, name) = if kind.namespaced { rest.split_once('/')? } else { ("", rest) };
            Some((kind.clone(), ObjectId { namespace: namespace.into(), name: name.into() }))
        })
    }

    /// An object of etcd, or why it is not one.
    fn etcd_object(&self, id: ObjectId, value: &str) -> Result<Object, String> {
        serde_json::from_str::<serde::de::IgnoredAny>(value).map_err(|error| error.to_string())?;
        let revision = self.etcd_revision.to_string().into();
        Ok(Object { id, revision, dialect: Dialect::Etcd, body: value.to_owned().into() })
    }

    /// Lets an event happen.
    fn event(&mut self, event: &Json) {
        match text(event, "type") {
            action @ ("PUT" | "DELETE") => {
                self.etcd_revision += 1;
                let Some((kind, id)) = self.etcd_id(text(event, "key")) else { return };
                let change = if action == "DELETE" {
                    Event::Delete { id, last: None }
                } else {
                    match self.etcd_object(id.clone(), text(event, "value")) {
                        Ok(object) => Event::Put(object),
                        Err(reason) => Event::Malformed(Malformed { id, reason }),
                    }
                };
                self.store.change(&kind, change, self.etcd_revision.to_string().into());
            }
            action @ ("ADDED" | "MODIFIED" | "DELETED") => {
                let Some((kind, object)) = self.kubernetes_object(&event["object"], false) else { return };
                let revision = object.revision.clone();
                let change = if action == "DELETED" {
                    Event::Delete { id: object.id.clone(), last: Some(object) }
                } else {
                    Event::Put(object)
                };
                self.store.change(&kind, change, revision);
            }
            "BOOKMARK" => {
                let Some((kind, object)) = self.kubernetes_object(&event["object"], false) else { return };
                self.store.bookmark(&kind, object.revision);
            }
            "EXPIRE" => {
                let (api_version, name) = split_kind(text(event, "kind"));
                let Some((kind, _)) = self.find_kind(api_version, name) else { return };
                let items = list(&event["items"]).iter().filter_map(|item| self.kubernetes_object(item, true));
                let objects = items.map(|(item_kind, object)| {
                    assert_eq!(item_kind, kind, "items are of the kind that expired");
                    object
                });
                self.store.load(&kind, objects.collect(), "2000".into());
            }
            other => panic!("unknown event {other:?}"),
        }
    }

    /// Waits until nothing moves any more, and returns what arrived.
    async fn settle(&mut self) -> Output {
        let mut events = Vec::new();
        let until = tokio::time::Instant::now() + SETTLE;
        // In paused time the clock moves only when no task can: then everything has arrived.
        while let Ok(count) = tokio::time::timeout_at(until, self.received.recv_batch(&mut events, 1)).await {
            assert_ne!(count, 0, "the pipeline runs");
        }
        let mut output = Output::default();
        for event in events {
            match event {
                SyncerEvent::Status(status) => output.statuses.push(status.to_string()),
                SyncerEvent::Progress(_) => {}
                SyncerEvent::Updates(updates) => {
                    for update in updates {
                        assert!(update.ttl.is_zero());
                        let update_type = match update.update_type {
                            UpdateType::New => "new",
                            UpdateType::Updated => "updated",
                            UpdateType::Deleted => "deleted",
                            UpdateType::Unknown => "unknown",
                        };
                        output.updates.entry(update.key.to_string()).or_default().push(Sent {
                            value: update.value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()),
                            update_type: update_type.to_owned(),
                            revision: update.revision.to_string(),
                            v3_resource_version: update.v3_resource_version.to_string(),
                        });
                    }
                }
            }
        }
        output
    }
}

fn split_kind(kind: &str) -> (&str, &str) {
    kind.rsplit_once('/').expect("a kind is named group/version/kind")
}

fn compare(case: &Json, step: &str, expected: &Json, statuses: &[String], output: &Output, differences: &mut String) {
    let mut wanted: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
    for update in list(expected) {
        let or_empty = |field: &str| update[field].as_str().unwrap_or_default().to_owned();
        wanted.entry(text(update, "key").to_owned()).or_default().push(Sent {
            value: update["value"].as_str().map(|value| lean::owed(value, text(case, "datastore"))),
            update_type: text(update, "updateType").to_owned(),
            revision: or_empty("revision"),
            v3_resource_version: or_empty("v3ResourceVersion"),
        });
    }
    let keys: BTreeSet<&String> = wanted.keys().chain(output.updates.keys()).collect();
    for key in keys {
        // The vectors leave the synthetic profile out unless a case is about it.
        let is_left_out = key.contains("/projectcalico-default-allow") && !wanted.contains_key(key);
        let (want, got) = (wanted.get(key), output.updates.get(key));
        if want != got && !is_left_out {
            let _ = write!(differences, "\n  {step}: {key}\n    want {want:?}\n    got  {got:?}");
        }
    }
    if statuses != output.statuses {
        let _ = write!(differences, "\n  {step}: statuses\n    want {statuses:?}\n    got  {:?}", output.statuses);
    }
}

/// The harness itself notices what it should.
#[test]
fn a_wrong_vector_is_noticed() {
    let case = serde_json::json!({
        "name": "wrong", "syncer": "node-status", "datastore": "etcd", "input": {"etcd": []},
        "output": [{"key": "/k", "value": "v", "updateType": "new", "revision": "2", "v3ResourceVersion": ""}],
        "statuses": ["wait-for-ready", "resync", "in-sync"], "steps": []
    });
    let difference = run(&case, Flavour::Etcd, MemoryStore::new).expect_err("the key does not come");
    assert!(difference.contains("/k"), "{difference}");
}
