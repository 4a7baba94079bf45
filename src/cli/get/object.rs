//! An object out of a key and its value.

use std::collections::BTreeMap;

use serde_json::Value;

use super::wanted::Kind;
use crate::model::{ResourceKey, Update};

/// An object of any kind, as a syncer has it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// Empty for objects that belong to no namespace.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: String,
    /// The object; a value that is no JSON as text. `None`: deleted, or its value must not be used.
    pub(super) body: Option<Value>,
}

impl Found {
    /// The object of an update. `None`: its key is not that of an object.
    pub(super) fn of(update: &Update) -> Option<Self> {
        let ResourceKey { group, kind, namespace, name } = ResourceKey::parse(&update.key)?;
        let read = |bytes: &[u8]| {
            serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
        };
        Some(Self {
            kind: Kind { name: kind.to_owned(), group: group.to_owned() },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            revision: update.revision.to_string(),
            body: update.value.as_ref().map(|value| read(&value.bytes)),
        })
    }

    /// Its labels.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.body.as_ref().and_then(|body| body.pointer("/metadata/labels")).and_then(Value::as_object);
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        labels.into_iter().flatten().filter_map(text).collect()
    }

    /// When it was created, as it says itself.
    pub(super) fn created(&self) -> &str {
        let created = self.body.as_ref().and_then(|body| body.pointer("/metadata/creationTimestamp"));
        created.and_then(Value::as_str).unwrap_or_default()
    }

    /// For example `virtualservice.networking.istio.io/reviews`.
    pub(super) fn short(&self) -> String {
        format!("{}/{}", self.kind.to_string().to_lowercase(), self.name)
    }
}
