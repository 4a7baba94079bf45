//! Holds processors against the shared data-model vectors: objects in, key-value pairs out, byte for byte.
//!
//! A test names the sources that it wants to try (kinds and their processor) and which keys are theirs; [`run`] picks the
//! cases that feed those kinds. What stands around a processor in the real pipeline (the watcher cache's comparison with
//! what was sent, validation) is a few lines here. The pipeline itself is held against the same vectors elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Context, ObjectEvent, Processor};
use crate::datastore::{Dialect, Kind, Object, ObjectId};
use crate::model::{KvPair, Revision};

#[path = "../../../tests/support/lean.rs"]
mod lean;

/// Some kinds and the processor that converts them, for one syncer.
pub(crate) struct Feed {
    /// Kinds whose objects go to the processor; kinds of Kubernetes and of etcd may stand side by side.
    pub(crate) kinds: Vec<Kind>,
    /// The processor; made anew for every case.
    pub(crate) processor: Box<dyn Processor>,
}

impl Feed {
    pub(crate) fn new(kinds: impl Into<Vec<Kind>>, processor: Box<dyn Processor>) -> Self {
        Self { kinds: kinds.into(), processor }
    }
}

/// One case of the vectors.
pub(crate) struct Case {
    pub(crate) name: String,
    /// `felix`, `bgp`, …
    pub(crate) syncer: String,
    /// `kdd-v1`, `kdd-v3` or `etcd`.
    pub(crate) datastore: String,
    pub(crate) context: Context,
    json: Json,
}

/// All cases that feed one of `feeds`' kinds, for one syncer.
///
/// Every pair whose key satisfies `owns` must come out as the case says, after the list and after each event. Returns
/// the names of the cases that were run.
///
/// # Panics
/// With the differences of all cases, or when no vectors can be read.
pub(crate) fn run(syncer: &str, feeds: fn(&Context) -> Vec<Feed>, owns: fn(&str) -> bool) -> Vec<String> {
    let mut ran = Vec::new();
    let mut differences = String::new();
    for case in cases() {
        if case.syncer != syncer {
            continue;
        }
        let mut world = World::new(&case, feeds(&case.context), owns);
        if !world.feeds_any() {
            continue;
        }
        if let Err(difference) = world.play() {
            let _ = write!(differences, "\n== {}: {difference}", case.name);
        }
        ran.push(case.name);
    }
    assert!(differences.is_empty(), "{differences}");
    ran
}

/// Where the vectors are: `BULRUSH_VECTORS`, beside the project, or the small set that belongs to it.
pub(crate) fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::env::var_os("BULRUSH_VECTORS").map_or_else(
        || {
            let shared = root.join("../shared/vectors");
            if shared.is_dir() { shared } else { root.join("tests/vectors") }
        },
        PathBuf::from,
    )
}

/// Fails when fewer cases ran than the shared set has; other sets may lack a kind.
pub(crate) fn assert_ran(ran: &[String], least: usize) {
    let shared = std::env::var_os("BULRUSH_VECTORS").is_none() && folder().ends_with("shared/vectors");
    assert!(!shared || ran.len() >= least, "only {} of {least} cases: {ran:?}", ran.len());
}

/// All cases of all files.
pub(crate) fn cases() -> Vec<Case> {
    let folder = folder().join("data-model");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no vectors in {}", folder.display());
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read(&file).unwrap();
        let list: Vec<Json> =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        cases.extend(list.into_iter().map(|json| Case {
            name: text_of(&json, "name"),
            syncer: text_of(&json, "syncer"),
            datastore: text_of(&json, "datastore"),
            context: context(&json),
            json,
        }));
    }
    cases
}

fn text_of(json: &Json, field: &str) -> String {
    json[field].as_str().unwrap_or_else(|| panic!("no text {field} in {json}")).to_owned()
}

fn context(case: &Json) -> Context {
    let mut context = Context { use_pod_cidr: case["usePodCIDR"].as_bool().unwrap_or(false), ..Context::default() };
    if let Some(prefixes) = case["env"]["FELIX_INTERFACEPREFIX"].as_str() {
        prefixes.split(',').next().unwrap_or_default().clone_into(&mut context.interface_prefix);
    }
    context
}

/// What a key was sent as.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    value: Option<String>,
    update_type: String,
    revision: String,
    v3_resource_version: String,
}

type Output = BTreeMap<String, Vec<Sent>>;

struct World<'a> {
    case: &'a Case,
    feeds: Vec<Feed>,
    owns: fn(&str) -> bool,
    /// Per feed: what the datastore holds, in order, and what was sent.
    objects: Vec<Vec<(Kind, Object)>>,
    sent: Vec<BTreeMap<String, Revision>>,
    etcd_revision: u64,
}

impl<'a> World<'a> {
    fn new(case: &'a Case, feeds: Vec<Feed>, owns: fn(&str) -> bool) -> Self {
        let mut world = Self {
            objects: vec![Vec::new(); feeds.len()],
            sent: vec![BTreeMap::new(); feeds.len()],
            case,
            feeds,
            owns,
            etcd_revision: 1,
        };
        for object in list(&case.json["input"]["initial"]) {
            if let Some((feed, kind, object)) = world.kubernetes_object(object) {
                world.store(feed, kind, object);
            }
        }
        for pair in list(&case.json["input"]["etcd"]) {
            if let Some((feed, kind, id)) = world.etcd_put(pair)
                && let Some(object) = world.etcd_object(id, pair)
            {
                world.store(feed, kind, object);
            }
        }
        world
    }

    fn feeds_any(&self) -> bool {
        let fed_later = list(&self.case.json["input"]["events"]).iter().any(|event| {
            self.kubernetes_object(&event["object"]).is_some()
                || event["key"].as_str().is_some_and(|key| self.etcd_id(key).is_some())
        });
        fed_later || self.objects.iter().any(|objects| !objects.is_empty())
    }

    fn store(&mut self, feed: usize, kind: Kind, object: Object) {
        let objects = &mut self.objects[feed];
        match objects.iter_mut().find(|(known, old)| *known == kind && old.id == object.id) {
            Some(slot) => slot.1 = object,
            None => objects.push((kind, object)),
        }
    }

    fn kubernetes_object(&self, json: &Json) -> Option<(usize, Kind, Object)> {
        let api_version = json["apiVersion"].as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (group, version, dialect) = match (group, self.case.datastore.as_str()) {
            ("crd.projectcalico.org", "kdd-v1") => ("projectcalico.org", "v3", Dialect::CrdV1),
            ("projectcalico.org", "kdd-v3") => ("projectcalico.org", "v3", Dialect::V3),
            ("crd.projectcalico.org" | "projectcalico.org", _) => return None,
            _ => (group, version, Dialect::Kubernetes),
        };
        let (feed, kind) = self.find_kind(|kind| {
            kind.group == group && kind.version == version && json["kind"].as_str() == Some(&kind.name)
        })?;
        let metadata = &json["metadata"];
        let text = |field: &str| Arc::from(metadata[field].as_str().unwrap_or_default());
        let object = Object {
            id: ObjectId { namespace: text("namespace"), name: text("name") },
            revision: text("resourceVersion"),
            dialect,
            body: serde_json::to_vec(json).unwrap().into(),
        };
        Some((feed, kind, object))
    }

    fn find_kind(&self, wanted: impl Fn(&Kind) -> bool) -> Option<(usize, Kind)> {
        self.feeds
            .iter()
            .enumerate()
            .find_map(|(index, feed)| feed.kinds.iter().find(|kind| wanted(kind)).map(|kind| (index, kind.clone())))
    }

    fn etcd_id(&self, key: &str) -> Option<(usize, Kind, ObjectId)> {
        let (feed, kind) =
            self.find_kind(|kind| kind.etcd_prefix.as_ref().is_some_and(|prefix| key.starts_with(&**prefix)))?;
        let rest = &key[kind.etcd_prefix.as_ref()?.len()..];
        let (namespace, name) = if kind.namespaced { rest.split_once('/')? } else { ("", rest) };
        Some((feed, kind, ObjectId { namespace: namespace.into(), name: name.into() }))
    }

    fn etcd_put(&mut self, pair: &Json) -> Option<(usize, Kind, ObjectId)> {
        self.etcd_revision += 1;
        self.etcd_id(pair["key"].as_str().expect("an etcd pair has a key"))
    }

    fn etcd_object(&self, id: ObjectId, pair: &Json) -> Option<Object> {
        let body = pair["value"].as_str().expect("an etcd pair has a value").to_owned();
        serde_json::from_str::<serde::de::IgnoredAny>(&body).ok()?;
        Some(Object { id, revision: self.etcd_revision.to_string().into(), dialect: Dialect::Etcd, body: body.into() })
    }

    fn play(&mut self) -> Result<(), String> {
        let mut output = Output::new();
        for feed in 0..self.feeds.len() {
            self.list(feed, &mut output);
        }
        self.compare("list", &self.case.json["output"], &output)?;
        for (number, event) in list(&self.case.json["input"]["events"]).iter().enumerate() {
            let mut output = Output::new();
            self.event(event, &mut output);
            let step = &self.case.json["steps"][number];
            self.compare(&format!("event {}", number + 1), &step["output"], &output)?;
        }
        Ok(())
    }

    /// A full list: what is not named by it any more is deleted.
    fn list(&mut self, feed: usize, output: &mut Output) {
        let mut pairs = Vec::new();
        let processor = &mut self.feeds[feed].processor;
        processor.on_resync();
        for (_, object) in &self.objects[feed] {
            // A pair that an unreadable object leaves behind counts; the error itself is for the log.
            let _ = processor.process(ObjectEvent::Put(object), &mut pairs);
        }
        processor.on_list_end(&mut pairs);
        let listed: BTreeSet<String> =
            pairs.iter().filter(|pair| pair.value.is_some()).map(|pair| pair.key.to_string()).collect();
        self.send(feed, pairs, output);
        let gone: Vec<String> = self.sent[feed].keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in gone {
            self.send(feed, vec![blank(&key)], output);
        }
    }

    fn event(&mut self, event: &Json, output: &mut Output) {
        let kind_of_event = event["type"].as_str().expect("an event has a type");
        match kind_of_event {
            "PUT" | "DELETE" => {
                let Some((feed, kind, id)) = self.etcd_put(event) else { return };
                if kind_of_event == "PUT" {
                    if let Some(object) = self.etcd_object(id, event) {
                        self.put(feed, kind, object, output);
                    }
                } else {
                    self.delete(feed, &kind, &id, output);
                }
            }
            "ADDED" | "MODIFIED" => {
                if let Some((feed, kind, object)) = self.kubernetes_object(&event["object"]) {
                    self.put(feed, kind, object, output);
                }
            }
            "DELETED" => {
                if let Some((feed, kind, object)) = self.kubernetes_object(&event["object"]) {
                    self.delete(feed, &kind, &object.id, output);
                }
            }
            "BOOKMARK" => {
                if let Some((feed, kind, object)) = self.kubernetes_object(&event["object"]) {
                    self.feeds[feed].processor.on_progress(&kind.name, &object.revision);
                }
            }
            "EXPIRE" => {
                let name = event["kind"].as_str().expect("an expiry names a kind");
                let mut probe = serde_json::json!({"metadata": {}});
                let (api_version, kind_name) = name.rsplit_once('/').expect("group/version/kind");
                probe["apiVersion"] = api_version.into();
                probe["kind"] = kind_name.into();
                let Some((feed, expired, _)) = self.kubernetes_object(&probe) else { return };
                self.objects[feed].retain(|(kind, _)| *kind != expired);
                for item in list(&event["items"]) {
                    if let Some((feed, kind, object)) = self.kubernetes_object(item) {
                        self.store(feed, kind, object);
                    }
                }
                self.list(feed, output);
            }
            other => panic!("unknown event {other}"),
        }
    }

    fn put(&mut self, feed: usize, kind: Kind, object: Object, output: &mut Output) {
        let mut pairs = Vec::new();
        let _ = self.feeds[feed].processor.process(ObjectEvent::Put(&object), &mut pairs);
        self.store(feed, kind, object);
        self.send(feed, pairs, output);
    }

    fn delete(&mut self, feed: usize, kind: &Kind, id: &ObjectId, output: &mut Output) {
        let objects = &mut self.objects[feed];
        let last =
            objects.iter().position(|(known, object)| known == kind && object.id == *id).map(|at| objects.remove(at).1);
        let mut pairs = Vec::new();
        let _ = self.feeds[feed].processor.process(ObjectEvent::Delete(id, last.as_ref()), &mut pairs);
        self.send(feed, pairs, output);
    }

    /// What the watcher cache and the validation stage make of pairs.
    fn send(&mut self, feed: usize, pairs: Vec<KvPair>, output: &mut Output) {
        for pair in pairs {
            let key = pair.key.to_string();
            let known = self.sent[feed].get(&key).cloned();
            let sent = match pair.value {
                None => {
                    if self.sent[feed].remove(&key).is_none() {
                        continue;
                    }
                    Sent {
                        value: None,
                        update_type: "deleted".to_owned(),
                        revision: String::new(),
                        v3_resource_version: String::new(),
                    }
                }
                Some(value) => {
                    if known.as_ref() == Some(&pair.revision) {
                        continue;
                    }
                    self.sent[feed].insert(key.clone(), pair.revision.clone());
                    let valid = value.subject.as_ref().is_none_or(|subject| subject.validate().is_ok());
                    Sent {
                        value: valid.then(|| String::from_utf8(value.bytes.to_vec()).expect("values are text")),
                        update_type: if known.is_some() { "updated" } else { "new" }.to_owned(),
                        revision: pair.revision.to_string(),
                        v3_resource_version: if valid { pair.v3_resource_version.to_string() } else { String::new() },
                    }
                }
            };
            if (self.owns)(&key) {
                output.entry(key).or_default().push(sent);
            }
        }
    }

    fn compare(&self, step: &str, expected: &Json, output: &Output) -> Result<(), String> {
        let mut wanted = Output::new();
        for update in list(expected) {
            let key = text_of(update, "key");
            if (self.owns)(&key) {
                let text = |field: &str| update[field].as_str().unwrap_or_default().to_owned();
                wanted.entry(key).or_default().push(Sent {
                    value: update["value"].as_str().map(|value| lean::owed(value, &self.case.datastore)),
                    update_type: text("updateType"),
                    revision: text("revision"),
                    v3_resource_version: text("v3ResourceVersion"),
                });
            }
        }
        let keys: BTreeSet<&String> = wanted.keys().chain(output.keys()).collect();
        let differences: Vec<String> = keys
            .into_iter()
            // The vectors leave the synthetic profile out unless a case is about it.
            .filter(|key| wanted.contains_key(*key) || !key.contains("/projectcalico-default-allow"))
            .filter(|key| wanted.get(*key) != output.get(*key))
            .map(|key| format!("\n  {key}\n    want {:?}\n    got  {:?}", wanted.get(key), output.get(key)))
            .collect();
        if differences.is_empty() { Ok(()) } else { Err(format!("{step}:{}", differences.concat())) }
    }
}

fn blank(key: &str) -> KvPair {
    let none = crate::model::no_revision();
    KvPair { key: key.into(), value: None, revision: none.clone(), v3_resource_version: none }
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}
