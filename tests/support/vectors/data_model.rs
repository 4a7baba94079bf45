//! Plays the data-model vectors: from a datastore's content and events to the updates that enter the snapshot cache.
//!
//! Every case's content goes into a [`Store`], and through kind watches, watcher caches, the watcher syncer and the validation stage as in
//! the daemon. The updates are compared byte for byte, after the lists and after every event. A case that
//! cannot be read fails. Differences on purpose are in two places, [`expected_statuses`] and [`lean`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bulrush::calico::pipelines;
use bulrush::calico::processors::Context;
use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Datastore, Dialect, Event, Kind, Malformed, Object, ObjectId};
use bulrush::decoupler;
use bulrush::demand::Demand;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::SyncerName;
use bulrush::model::{Revision, SyncerEvent, UpdateType};
use bulrush::pipeline::Stages;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::spec::PipelineSpec;
use bulrush::syncer::spec::Source;
use serde_json::Value as Json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::files::{self, text};
use super::lean;
use crate::paused::in_paused_time;

/// Kinds that Kubernetes itself serves: items of their lists carry no `apiVersion` and `kind`.
pub(crate) const BUILT_IN_GROUPS: &[&str] = &["", "networking.k8s.io", "discovery.k8s.io"];

/// Longest time for a step, in paused time: longer than any pause that a fault of the datastore can cause.
const SETTLE: Duration = Duration::from_secs(30);

/// The parts that a case may have. Any other part would be ignored.
const INPUTS: &[&str] = &["initial", "missingKinds", "etcd", "events"];

/// One case of the vectors.
pub(crate) struct Case {
    /// Its name; also its file, if it is not the repository's.
    name: String,
    pub(crate) syncer: SyncerName,
    /// `kdd-v1`, `kdd-v3` or `etcd`.
    pub(crate) datastore: String,
    /// The options of processors.
    pub(crate) context: Context,
    json: Json,
    is_ours: bool,
}

impl Case {
    fn new(json: Json, file: &files::File) -> Self {
        let name = text(&json, "name").to_owned();
        let name = if file.is_ours { name } else { format!("{name} ({})", file.path.display()) };
        let syncer = text(&json, "syncer");
        let datastore = text(&json, "datastore").to_owned();
        assert!(["kdd-v1", "kdd-v3", "etcd"].contains(&&*datastore), "{name}: unknown datastore {datastore:?}");
        let input = json["input"].as_object().unwrap_or_else(|| panic!("{name}: no input"));
        let unknown = input.keys().find(|input| !INPUTS.contains(&input.as_str()));
        assert!(unknown.is_none(), "{name}: unknown input {unknown:?}, known are {INPUTS:?}");
        let syncer = SyncerName::intern(syncer).unwrap_or_else(|_| panic!("{name}: unknown syncer {syncer:?}"));
        Self { context: context(&name, &json), is_ours: file.is_ours, name, syncer, datastore, json }
    }

    /// Whether it contains objects of these kinds.
    fn feeds(&self, kinds: &[Kind]) -> bool {
        let input = &self.json["input"];
        let is_object = |json: &Json| {
            json.is_object()
                && find_kind(kinds, &self.datastore, text(json, "apiVersion"), text(json, "kind")).is_some()
        };
        let is_key = |json: &Json| json["key"].as_str().is_some_and(|key| etcd_id(kinds, key).is_some());
        list(&input["initial"]).iter().any(is_object)
            || list(&input["etcd"]).iter().any(is_key)
            || list(&input["events"]).iter().any(|event| is_object(&event["object"]) || is_key(event))
    }
}

fn context(name: &str, case: &Json) -> Context {
    let mut context = Context { use_pod_cidr: case["usePodCIDR"].as_bool().unwrap_or(false), ..Context::default() };
    for (variable, value) in case["env"].as_object().into_iter().flatten() {
        assert_eq!(variable, "FELIX_INTERFACEPREFIX", "{name}: a variable that no processor knows");
        let prefixes = value.as_str().expect("variables are text");
        prefixes.split(',').next().unwrap_or_default().clone_into(&mut context.interface_prefix);
    }
    context
}

/// All cases of all files.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mut file in files::read("data-model") {
        let Json::Array(list) = file.content.take() else { panic!("{}: not a list of cases", file.path.display()) };
        cases.extend(list.into_iter().map(|json| Case::new(json, &file)));
    }
    cases
}

/// Runs all cases for which there are sources, each in a new store.
///
/// With `owns`, the sources are a part of a pipeline: only cases with objects of their kinds are run, and only keys for which
/// `owns` is true are compared. Returns the number of the repository's cases that ran.
///
/// # Panics
/// A case differs, or cannot be read; the message has the differences of all cases.
pub(crate) fn run_all<S: Store>(
    sources: impl Fn(&Case) -> Vec<Source>,
    owns: Option<fn(&str) -> bool>,
    new_store: impl Fn(&Case) -> S,
) -> usize {
    let (mut ours, mut total) = (0, 0);
    let mut failures = Vec::new();
    for case in &cases() {
        let sources = sources(case);
        let kinds: Vec<Kind> = sources.iter().flat_map(|source| source.kinds.iter().cloned()).collect();
        if kinds.is_empty() || (owns.is_some() && !case.feeds(&kinds)) {
            continue;
        }
        total += 1;
        ours += usize::from(case.is_ours);
        if let Err(difference) = run(case, sources, owns, || new_store(case)) {
            failures.push(format!("== {}: {difference}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {total} cases differ:\n{}", failures.len(), failures.join("\n"));
    ours
}

/// The last sent form of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    value: Option<String>,
    update_type: String,
    revision: String,
    v3_resource_version: String,
}

/// The updates that arrived in one step.
#[derive(Debug, Default)]
struct Output {
    updates: BTreeMap<String, Vec<Sent>>,
    statuses: Vec<String>,
}

/// The datastore of a running case.
pub(crate) trait Store {
    /// The source of the pipeline.
    fn datastore(&self) -> Arc<dyn Datastore>;
    /// Makes the kind unknown to the datastore.
    fn set_absent(&self, kind: &Kind);
    /// Replaces the content of a kind; earlier positions expire.
    fn load(&self, kind: &Kind, objects: Vec<Object>, revision: Revision);
    /// Applies an event.
    fn change(&self, kind: &Kind, event: Event, revision: Revision);
    /// Moves the position without a change.
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

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

/// The statuses that we have to send. Calico never gets in sync if it cannot read an object; we do, because a bad object
/// affects only itself.
fn expected_statuses(statuses: &Json, is_start: bool) -> Vec<String> {
    let mut statuses: Vec<String> =
        list(statuses).iter().map(|status| status.as_str().expect("a status is text").to_owned()).collect();
    if is_start && statuses.last().is_none_or(|last| last != "in-sync") {
        statuses.push("in-sync".to_owned());
    }
    statuses
}

fn run<S: Store>(
    case: &Case,
    sources: Vec<Source>,
    owns: Option<fn(&str) -> bool>,
    new_store: impl FnOnce() -> S,
) -> Result<(), String> {
    in_paused_time(async {
        let json = &case.json;
        let mut world = World::start(case, sources, new_store());
        let mut differences = String::new();
        let mut compare = |step: &str, expected: &Json, output: &Output| {
            compare(case, owns, step, expected, output, &mut differences);
        };
        let output = world.settle().await;
        compare("list", json, &output);
        let events = list(&json["input"]["events"]);
        assert_eq!(events.len(), list(&json["steps"]).len(), "{}: one step for every event", case.name);
        for (event, step) in events.iter().zip(list(&json["steps"])) {
            world.event(event);
            let output = world.settle().await;
            compare(text(step, "step"), step, &output);
        }
        world.stop().await;
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    })
}

/// The kind and the dialect of a Kubernetes object, if it is one of `kinds` in this mode.
fn find_kind(kinds: &[Kind], datastore: &str, api_version: &str, name: &str) -> Option<(Kind, Dialect)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (group, version, dialect) = match (datastore, group) {
        ("kdd-v1", "crd.projectcalico.org") => ("projectcalico.org", "v3", Dialect::CrdV1),
        ("kdd-v3", "projectcalico.org") => ("projectcalico.org", "v3", Dialect::V3),
        (_, "crd.projectcalico.org" | "projectcalico.org") => return None,
        ("kdd-v1" | "kdd-v3", _) => (group, version, Dialect::Kubernetes),
        (other, _) => panic!("{api_version} {name} in datastore {other}"),
    };
    let kind = kinds.iter().find(|kind| kind.group == group && kind.version == version && kind.name == name)?;
    Some((kind.clone(), dialect))
}

/// The kind and the name of the object at a key of etcd, if it is one of `kinds`.
fn etcd_id(kinds: &[Kind], key: &str) -> Option<(Kind, ObjectId)> {
    kinds.iter().find_map(|kind| {
        let rest = key.strip_prefix(&**kind.etcd_prefix.as_ref()?)?;
        let (namespace, name) = if kind.namespaced { rest.split_once('/')? } else { ("", rest) };
        Some((kind.clone(), ObjectId { namespace: namespace.into(), name: name.into() }))
    })
}

/// A datastore and a pipeline over it.
struct World<'a, S> {
    case: &'a Case,
    kinds: Vec<Kind>,
    store: S,
    etcd_revision: u64,
    received: decoupler::Receiver,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl<'a, S: Store> World<'a, S> {
    fn start(case: &'a Case, sources: Vec<Source>, store: S) -> Self {
        let kinds = sources.iter().flat_map(|source| source.kinds.iter().cloned()).collect();
        let spec = PipelineSpec {
            syncer: case.syncer,
            sources,
            inlets: Vec::new(),
            publishing: None,
            rules: pipelines::RULES,
            counts: None,
        };
        let mut hub = KindHub::new(store.datastore(), 1);
        let metrics = SyncerMetrics::unregistered();
        let (stages, received) = Stages::new(spec, &metrics, &mut hub, Demand::default());
        let cancel = CancellationToken::new();
        let mut world = Self { case, kinds, store, etcd_revision: 1, received, cancel, tasks: JoinSet::new() };
        world.fill();
        world.tasks.spawn(hub.run(world.cancel.clone()));
        world.tasks.spawn(stages.run(world.cancel.clone()));
        world
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.tasks.join_all().await;
    }

    /// Puts the initial content into the store.
    fn fill(&mut self) {
        let input = &self.case.json["input"];
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
            let Some((kind, id)) = etcd_id(&self.kinds, text(pair, "key")) else { continue };
            let Ok(object) = self.etcd_object(id, text(pair, "value")) else { continue };
            let objects = content.entry(kind).or_default();
            objects.retain(|known| known.id != object.id);
            objects.push(object);
        }
        let revision = if self.case.datastore == "etcd" { self.etcd_revision } else { 1000 };
        for kind in &self.kinds {
            self.store.load(kind, content.remove(kind).unwrap_or_default(), revision.to_string().into());
        }
    }

    fn find_kind(&self, api_version: &str, name: &str) -> Option<(Kind, Dialect)> {
        find_kind(&self.kinds, &self.case.datastore, api_version, name)
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
            place: None,
        };
        Some((kind, object))
    }

    /// An object of etcd, or the reason why the value is none.
    fn etcd_object(&self, id: ObjectId, value: &str) -> Result<Object, String> {
        serde_json::from_str::<serde::de::IgnoredAny>(value).map_err(|error| error.to_string())?;
        let revision = self.etcd_revision.to_string().into();
        Ok(Object { id, revision, dialect: Dialect::Etcd, body: value.to_owned().into(), place: None })
    }

    /// Applies an event of the case.
    fn event(&mut self, event: &Json) {
        match text(event, "type") {
            action @ ("PUT" | "DELETE") => {
                self.etcd_revision += 1;
                let Some((kind, id)) = etcd_id(&self.kinds, text(event, "key")) else { return };
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
            other => panic!("{}: unknown event {other:?}", self.case.name),
        }
    }

    /// Waits until nothing moves any more, and returns the updates and statuses that arrived.
    async fn settle(&mut self) -> Output {
        let mut events = Vec::new();
        let until = tokio::time::Instant::now() + SETTLE;
        // In paused time the clock moves only when no task can run: then everything has arrived.
        while let Ok(count) = tokio::time::timeout_at(until, self.received.recv_batch(&mut events, 1)).await {
            assert_ne!(count, 0, "the pipeline runs");
        }
        let mut output = Output::default();
        for event in events {
            match event {
                SyncerEvent::Status(status) => output.statuses.push(status.to_string()),
                SyncerEvent::Progress(_) => {}
                SyncerEvent::Updates(updates) => {
                    // The cases are of the development branch, whose agents get no key that is carried aside.
                    for update in updates.into_iter().filter(|update| !update.key.is_aside()) {
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

fn compare(
    case: &Case,
    owns: Option<fn(&str) -> bool>,
    step: &str,
    expected: &Json,
    output: &Output,
    differences: &mut String,
) {
    let owned = |key: &str| owns.is_none_or(|owns| owns(key));
    let mut wanted: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
    for update in list(&expected["output"]) {
        let or_empty = |field: &str| update[field].as_str().unwrap_or_default().to_owned();
        wanted.entry(text(update, "key").to_owned()).or_default().push(Sent {
            value: update["value"].as_str().map(|value| lean::owed(value, &case.datastore)),
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
        if want != got && !is_left_out && owned(key) {
            let _ = write!(differences, "\n  {step}: {key}\n    want {want:?}\n    got  {got:?}");
        }
    }
    let statuses = expected_statuses(&expected["statuses"], step == "list");
    // A part of a pipeline may not have the kinds that decide the case's statuses.
    if owns.is_none() && statuses != output.statuses {
        let _ = write!(differences, "\n  {step}: statuses\n    want {statuses:?}\n    got  {:?}", output.statuses);
    }
}

/// A case with a wrong expectation fails.
#[test]
fn a_wrong_vector_is_noticed() {
    let file = files::File { path: "none".into(), content: Json::Null, is_ours: true };
    let json = serde_json::json!({
        "name": "wrong", "syncer": "node-status", "datastore": "etcd", "input": {"etcd": []},
        "output": [{"key": "/k", "value": "v", "updateType": "new", "revision": "2", "v3ResourceVersion": ""}],
        "statuses": ["wait-for-ready", "resync", "in-sync"], "steps": []
    });
    let difference =
        run(&Case::new(json, &file), Vec::new(), None, MemoryStore::new).expect_err("the key does not come");
    assert!(difference.contains("/k"), "{difference}");
}
