//! The processor of one kind's objects, of a folder or an API server: one key each, the whole object as its value.

use std::path::Path;
use std::sync::Arc;

use super::canonical;
use super::key;
use super::subject::{Check, Subject};
use super::text::Text;
use crate::datastore::{Kind, ObjectId};
use crate::model::object::MAX_OBJECT_BYTES;
use crate::model::{Key, KvPair, Origin, Value, no_revision};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// The choices of a syncer about its values.
#[derive(Clone)]
pub struct Choices {
    /// The status is content, too.
    pub with_status: bool,
    /// An object that cannot be read keeps its last good value.
    pub keep_last_good: bool,
    /// The check of values; `None`: all are good.
    pub check: Option<Check>,
}

impl std::fmt::Debug for Choices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Choices").field("with_status", &self.with_status).finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Objects {
    kind: Kind,
    api_version: String,
    rank: u8,
    choices: Choices,
    text: Text,
}

impl Objects {
    /// The processor of a kind's objects, which come from the datastore of this rank: from this folder, or an API server.
    #[must_use]
    pub fn new(kind: &Kind, rank: u8, choices: Choices, folder: Option<Arc<Path>>) -> Self {
        let api_version =
            if kind.group.is_empty() { kind.version.to_string() } else { format!("{}/{}", kind.group, kind.version) };
        let text = folder.map_or(Text::None, Text::Below);
        Self { kind: kind.clone(), api_version, rank, choices, text }
    }

    fn key(&self, id: &ObjectId) -> Key {
        key::of(&self.kind.group, &self.kind.name, id)
    }
}

impl Processor for Objects {
    fn origin(&self) -> Option<Arc<Origin>> {
        Some(Arc::new(Origin { rank: self.rank, place: Box::default() }))
    }

    fn keeps_last_good(&self, id: &ObjectId) -> Option<Key> {
        self.choices.keep_last_good.then(|| self.key(id))
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let object = match event {
            ObjectEvent::Put(object) => object,
            ObjectEvent::Delete(id, _) => {
                out.push(absent(self.key(id)));
                return Ok(());
            }
        };
        let key = self.key(&object.id);
        let read = readable(object.body.len()).and_then(|()| {
            canonical::of_json(&object.body, &self.api_version, &self.kind.name, self.choices.with_status)
        });
        match read {
            Ok(canonical) => {
                let place = object.place.as_deref().unwrap_or(&canonical.writer).into();
                let origin = Origin { rank: self.rank, place };
                out.push(pair(key, canonical, origin, self.choices.check.as_ref(), self.text.clone()));
                Ok(())
            }
            Err(reason) => {
                if !self.choices.keep_last_good {
                    out.push(absent(key));
                }
                Err(ConvertError { reason })
            }
        }
    }
}

/// A pair without a value.
pub(super) fn absent(key: Key) -> KvPair {
    KvPair { key, value: None, revision: no_revision(), v3_resource_version: no_revision(), origin: None }
}

/// The pair of an object.
pub(super) fn pair(
    key: Key,
    canonical: canonical::Canonical,
    origin: Origin,
    check: Option<&Check>,
    text: Text,
) -> KvPair {
    let origin = Arc::new(origin);
    let value = match check {
        Some(check) => {
            let (object, check, origin) = (canonical.value, check.clone(), origin.clone());
            Value::checked(canonical.bytes, Arc::new(Subject { object, check, origin, text }))
        }
        None => Value::raw(canonical.bytes),
    };
    let (revision, origin) = (canonical.revision, Some(origin));
    KvPair { key, value: Some(value), revision, v3_resource_version: no_revision(), origin }
}

/// Fails for an object that is too large to be looked at.
pub(super) fn readable(bytes: usize) -> Result<(), String> {
    if bytes > MAX_OBJECT_BYTES {
        return Err(format!("it has {bytes} bytes, and {MAX_OBJECT_BYTES} are the limit (1.5 MiB)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::datastore::{Dialect, Object};

    fn kind() -> Kind {
        "networking.istio.io/v1/VirtualService"
            .parse()
            .map(|pattern: crate::datastore::Pattern| {
                let (version, name) = pattern.kind.unwrap();
                let (group, version, name) = (pattern.group.into(), version.into(), name.into());
                Kind { group, version, name, plural: "virtualservices".into(), namespaced: true, etcd_prefix: None }
            })
            .unwrap()
    }

    fn object(body: impl Into<Bytes>) -> Object {
        Object {
            id: ObjectId { namespace: "default".into(), name: "reviews".into() },
            revision: "7".into(),
            dialect: Dialect::Kubernetes,
            body: body.into(),
            place: Some("reviews.yaml:3".into()),
        }
    }

    fn processed(keep_last_good: bool, body: impl Into<Bytes>) -> (Vec<KvPair>, Result<(), ConvertError>) {
        let mut out = Vec::new();
        let mut objects = Objects::new(&kind(), 1, Choices { with_status: false, keep_last_good, check: None }, None);
        let result = objects.process(ObjectEvent::Put(&object(body)), &mut out);
        (out, result)
    }

    #[test]
    fn an_object_is_one_pair_with_its_place() {
        let (pairs, result) = processed(true, r#"{"metadata":{"name":"reviews","resourceVersion":"7"},"spec":{}}"#);
        assert_eq!(result, Ok(()));
        let [pair] = &pairs[..] else { panic!("{pairs:?}") };
        assert_eq!(pair.key.as_str(), "/bulrush/v1/networking.istio.io/VirtualService/default/reviews");
        assert_eq!(pair.origin.as_deref(), Some(&Origin { rank: 1, place: "reviews.yaml:3".into() }));
        let expected = r#"{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"reviews"},"spec":{}}"#;
        assert_eq!(pair.value, Some(Value::raw(expected)));
        assert_eq!(pair.revision, canonical::revision(expected.as_bytes()));
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_value_or_is_absent() {
        let huge = format!(r#"{{"spec":"{}"}}"#, "x".repeat(MAX_OBJECT_BYTES));
        for body in ["{", "[]", &huge] {
            let (pairs, result) = processed(true, body.to_owned());
            assert!(pairs.is_empty() && result.is_err());
            let (pairs, result) = processed(false, body.to_owned());
            assert!(pairs.len() == 1 && pairs[0].value.is_none() && result.is_err());
        }
    }
}
