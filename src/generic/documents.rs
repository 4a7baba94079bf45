//! The processor of documents: an etcd prefix whose values are objects of any kind, in JSON or YAML, or bytes that are passed on as they are.
//!
//! The key of a document only says where it is; its content says which object it is. So the processor keeps the key of each document, and of
//! two documents with the same object the one that was there first counts; in a list, the one whose etcd key comes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::canonical;
use super::key;
use super::objects::{Choices, absent, pair, readable};
use super::text::Text;
use crate::datastore::catalog::Catalog;
use crate::datastore::labels::Labels;
use crate::datastore::{Kind, Object, ObjectId, Pattern};
use crate::model::{self, Key, KvPair, Origin, no_revision, yaml};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// The group of values that are bytes.
pub const RAW_GROUP: &str = "bulrush.io";
/// The version of that kind.
pub const RAW_VERSION: &str = "v1";
/// The kind of values that are bytes.
pub const RAW_KIND: &str = "Bytes";
/// The form of the values below a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Objects in JSON or YAML, with `apiVersion`, `kind` and `metadata`.
    Objects,
    /// Bytes of the kind [`RAW_KIND`]; their name is the rest of the etcd key.
    Raw,
}

/// Which objects are wanted. A prefix of etcd cannot be asked for less, so the processor looks.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The kinds.
    pub patterns: Vec<Pattern>,
    /// The namespaces; none: all.
    pub namespaces: BTreeSet<String>,
    /// The labels.
    pub labels: Labels,
    /// The scopes of kinds.
    pub catalog: Arc<Catalog>,
}

/// The pseudo-kind under which the documents of a prefix are watched.
#[must_use]
pub fn kind(prefix: &str) -> Kind {
    Kind {
        group: RAW_GROUP.into(),
        version: RAW_VERSION.into(),
        name: "Document".into(),
        plural: "documents".into(),
        namespaced: false,
        etcd_prefix: Some(prefix.to_owned().into()),
    }
}

/// See the module.
#[derive(Debug)]
pub struct Documents {
    prefix: Box<str>,
    form: Form,
    wanted: Wanted,
    rank: u8,
    choices: Choices,
    /// Number of the present list.
    list: u32,
    /// The object that each document was when it was last good.
    objects: HashMap<ObjectId, Seen>,
    /// The document that has each object.
    owners: HashMap<Key, ObjectId>,
    /// Documents whose object another one has, to take over from it.
    heirs: HashMap<Key, BTreeMap<ObjectId, KvPair>>,
}

#[derive(Debug)]
struct Seen {
    key: Key,
    /// Number of the last list that had the document.
    list: u32,
}

impl Documents {
    /// The processor of the documents below `prefix`, which come from the datastore of this rank.
    #[must_use]
    pub fn new(prefix: &str, form: Form, wanted: Wanted, rank: u8, choices: Choices) -> Self {
        let (objects, owners, heirs) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { prefix: prefix.into(), form, wanted, rank, choices, list: 0, objects, owners, heirs }
    }

    fn origin_of(&self, id: &ObjectId) -> Origin {
        Origin { rank: self.rank, place: format!("{}{}", self.prefix, id.name).into() }
    }

    /// The pair of a document; `None` if it is not wanted.
    fn read(&self, object: &Object) -> Result<Option<KvPair>, String> {
        readable(object.body.len())?;
        let origin = self.origin_of(&object.id);
        if self.form == Form::Raw {
            let key = key::of(RAW_GROUP, RAW_KIND, &object.id);
            let wanted = self.wanted.patterns.iter().any(|pattern| pattern.matches(RAW_GROUP, RAW_VERSION, RAW_KIND));
            let revision = canonical::revision(&object.body);
            let (value, origin) = (Some(model::Value::raw(object.body.clone())), Some(Arc::new(origin)));
            let pair = KvPair { key, value, revision, v3_resource_version: no_revision(), origin };
            return Ok(wanted.then_some(pair));
        }
        let mut document = parse(&object.body)?;
        let text = |value: &Value, field: &str| match value.get(field) {
            Some(Value::String(text)) => Ok(text.clone()),
            None | Some(Value::Null) => Ok(String::new()),
            Some(other) => Err(format!("{field} is {other}, which is no text")),
        };
        let named =
            |field: &str, text: String| if text.is_empty() { Err(format!("{field} is missing")) } else { Ok(text) };
        let api_version = named("apiVersion", text(&document, "apiVersion")?)?;
        let kind = named("kind", text(&document, "kind")?)?;
        let metadata = document.get("metadata").unwrap_or(&Value::Null);
        let name = named("metadata.name", text(metadata, "name")?)?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let namespace = text(metadata, "namespace")?;
        let namespace = self.wanted.catalog.namespace(group, &kind, &namespace).to_owned();
        let labels = || -> BTreeMap<String, String> {
            let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
            labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
        };
        let Wanted { patterns, namespaces, labels: selector, .. } = &self.wanted;
        let wanted = patterns.iter().any(|pattern| pattern.matches(group, version, &kind))
            && (namespaces.is_empty() || namespace.is_empty() || namespaces.contains(&namespace))
            && (selector.is_empty() || selector.select(&labels()));
        if !wanted {
            return Ok(None);
        }
        if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
            if namespace.is_empty() {
                metadata.remove("namespace");
            } else {
                metadata.insert("namespace".to_owned(), namespace.clone().into());
            }
        }
        let id = ObjectId { namespace: namespace.into(), name: name.into() };
        let key = key::of(group, &kind, &id);
        let canonical = canonical::of_value(document, &api_version, &kind, self.choices.with_status)?;
        let text = Text::Held(object.body.clone());
        Ok(Some(pair(key, canonical, origin, self.choices.check.as_ref(), text)))
    }

    /// The document is no object any more: the next one that has its object takes over, or its key is absent.
    fn forget(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        let Some(Seen { key, .. }) = self.objects.remove(id) else { return };
        let mut heirs = self.heirs.remove(&key).unwrap_or_default();
        if self.owners.get(&key) != Some(id) {
            heirs.remove(id);
        } else if let Some((heir, pair)) = heirs.pop_first() {
            self.owners.insert(key.clone(), heir);
            out.push(pair);
        } else {
            self.owners.remove(&key);
            out.push(absent(key.clone()));
        }
        if !heirs.is_empty() {
            self.heirs.insert(key, heirs);
        }
    }

    /// The document cannot be read: its last good object stays, or is absent.
    fn went_bad(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        if !self.choices.keep_last_good {
            return self.forget(id, out);
        }
        if let Some(seen) = self.objects.get_mut(id) {
            seen.list = self.list;
            self.owners.entry(seen.key.clone()).or_insert_with(|| id.clone());
        }
    }

    /// The document has this pair, which counts unless a document before it has the same object.
    fn put(&mut self, id: &ObjectId, pair: KvPair, out: &mut Vec<KvPair>) -> Result<(), String> {
        if self.objects.get(id).is_some_and(|before| before.key != pair.key) {
            self.forget(id, out);
        }
        self.objects.insert(id.clone(), Seen { key: pair.key.clone(), list: self.list });
        if let Some(owner) = self.owners.get(&pair.key).filter(|owner| *owner != id) {
            let words = key::parts(&pair.key).map(|parts| parts.to_string()).unwrap_or_default();
            let reason = format!("{words} is at {}{} already, which counts", self.prefix, owner.name);
            self.heirs.entry(pair.key.clone()).or_default().insert(id.clone(), pair);
            return Err(reason);
        }
        self.owners.insert(pair.key.clone(), id.clone());
        out.push(pair);
        Ok(())
    }
}

impl Processor for Documents {
    fn on_resync(&mut self) {
        self.list = self.list.wrapping_add(1);
        // A list comes in the order of keys, so each object is taken by the first document again.
        self.owners.clear();
        self.heirs.clear();
    }

    fn on_list_end(&mut self, _out: &mut Vec<KvPair>) {
        let list = self.list;
        self.objects.retain(|_, seen| seen.list == list);
    }

    fn origin(&self) -> Option<Arc<Origin>> {
        Some(Arc::new(Origin { rank: self.rank, place: Box::default() }))
    }

    fn keeps_last_good(&self, id: &ObjectId) -> Option<Key> {
        if self.choices.keep_last_good { self.objects.get(id).map(|seen| seen.key.clone()) } else { None }
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let object = match event {
            ObjectEvent::Put(object) => object,
            ObjectEvent::Delete(id, _) => {
                self.forget(id, out);
                return Ok(());
            }
        };
        let id = &object.id;
        let result = match self.read(object) {
            Ok(Some(pair)) => self.put(id, pair, out),
            Ok(None) => {
                self.forget(id, out);
                Ok(())
            }
            Err(reason) => {
                self.went_bad(id, out);
                Err(reason)
            }
        };
        result.map_err(|reason| ConvertError { reason })
    }
}

/// Reads a document: JSON if it begins with a brace, else YAML.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(bytes).map_err(|error| format!("not readable as JSON: {error}"));
    }
    serde_saphyr::from_slice_with_options(bytes, yaml::options())
        .map_err(|error| format!("not readable as YAML: {error}"))
}

#[cfg(test)]
mod tests;
