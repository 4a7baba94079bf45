//! Reads what is needed here from the API server's JSON: names, versions, where an object begins and ends. Everything else
//! is read later, when the object is converted; nothing is copied.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;

use crate::datastore::inlet::Malformed;
use crate::model::object::{Dialect, Object, ObjectId};
use crate::model::{Revision, strict};

/// The fields of an object's metadata that name it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    annotations: Option<Annotations>,
}

/// The one annotation that matters here.
#[derive(Debug, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<String>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    /// Absent in an answer that is no list; null in an empty one.
    #[serde(borrow)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    pub(super) what: &'a str,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The position that a bookmark tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// Everything up to here has been delivered.
    pub(super) revision: Revision,
    /// Whether it says that all objects that existed at the start have been delivered.
    pub(super) initial_events_end: bool,
}

/// Reads an object that begins and ends within `buffer`.
///
/// # Errors
/// The fault that keeps it from being one: it has no name, or no version.
pub(super) fn object(buffer: &Bytes, raw: &RawValue, dialect: Dialect) -> Result<Object, Unreadable> {
    // Metadata come first, so that of most objects little is read here.
    let metadata = strict::field::<Option<Metadata>>(raw.get(), "metadata")
        .map_err(|error| Unreadable { id: id_of_damaged(raw), reason: error.to_string() })?;
    let Metadata { name, namespace, resource_version, .. } = metadata.flatten().unwrap_or_default();
    let id = ObjectId { namespace: namespace.unwrap_or_default().into(), name: name.unwrap_or_default().into() };
    let Some(resource_version) = resource_version.filter(|version| !version.is_empty() && !id.name.is_empty()) else {
        let reason = "metadata.name or metadata.resourceVersion is missing".to_owned();
        return Err(Unreadable { id: (!id.name.is_empty()).then_some(id), reason });
    };
    let body = buffer.slice_ref(raw.get().as_bytes());
    Ok(Object { id, revision: resource_version.into(), dialect, body, place: None })
}

/// An object that is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// Its name, where it can be made out.
    pub(super) id: Option<ObjectId>,
    /// Why it cannot be read.
    pub(super) reason: String,
}

impl Unreadable {
    /// The report of it, if its name is known.
    pub(super) fn named(self) -> Option<Malformed> {
        let Self { id, reason } = self;
        if id.is_none() {
            warn!(reason, "the API server sent an object without a name: it is left out");
        }
        id.map(|id| Malformed { id, reason })
    }
}

/// The name of an object whose metadata are of wrong types in other places.
fn id_of_damaged(raw: &RawValue) -> Option<ObjectId> {
    /// Nothing else is read: it may be of any depth.
    #[derive(Deserialize)]
    struct Damaged {
        metadata: DamagedMetadata,
    }
    #[derive(Deserialize)]
    struct DamagedMetadata {
        name: String,
        #[serde(default)]
        namespace: Option<serde_json::Value>,
    }
    let DamagedMetadata { name, namespace } = strict::from_str::<Damaged>(raw.get()).ok()?.metadata;
    let namespace = namespace.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    (!name.is_empty()).then(|| ObjectId { namespace: namespace.into(), name: name.into() })
}

/// Reads a bookmark. `None`: it tells no position.
pub(super) fn bookmark(raw: &RawValue) -> Option<Bookmark> {
    let metadata = strict::field::<Option<Metadata>>(raw.get(), "metadata").ok()?;
    let Metadata { resource_version, annotations, .. } = metadata.flatten()?;
    let initial_events_end =
        annotations.and_then(|annotations| annotations.initial_events_end).is_some_and(|value| value == "true");
    let revision = resource_version.filter(|version| !version.is_empty())?.into();
    Some(Bookmark { revision, initial_events_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Object, Unreadable> {
        let buffer = Bytes::from(json.to_owned());
        let raw: &RawValue = serde_json::from_slice(&buffer).unwrap();
        object(&buffer, raw, Dialect::Kubernetes)
    }

    #[test]
    fn depth_hides_no_name() {
        let (open, close) = ("[".repeat(5000), "]".repeat(5000));
        let object = read(&format!(r#"{{"spec":{open}{close},"metadata":{{"name":"a","resourceVersion":"7"}}}}"#));
        assert_eq!(&*object.unwrap().id.name, "a");
        let damaged = read(&format!(r#"{{"spec":{open}{close},"metadata":{{"name":"a","resourceVersion":7}}}}"#));
        assert_eq!(&*damaged.unwrap_err().id.unwrap().name, "a");
    }

    #[test]
    fn an_object_is_its_bytes_and_its_name() {
        let json =
            r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","managedFields":[{}]},"spec":{"x":1}}"#;
        let object = read(json).unwrap();
        assert_eq!((object.id.to_string().as_str(), &*object.revision), ("n/a", "7"));
        assert_eq!(object.body, json);
    }

    #[test]
    fn what_has_no_name_or_version_is_unreadable_and_named_where_possible() {
        for (json, id) in [
            (r#"{"metadata":{"name":"a"}}"#, Some("a")),
            (r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":7}}"#, Some("n/a")),
            (r#"{"metadata":{"name":"a","resourceVersion":"1","annotations":[1]}}"#, Some("a")),
            (r#"{"metadata":{"name":5,"resourceVersion":"1"}}"#, None),
            (r#"{"metadata":null}"#, None),
            (r#"{"metadata":["a","n","7"]}"#, None),
            (r#"["a"]"#, None),
            ("[]", None),
            ("5", None),
        ] {
            let unreadable = read(json).unwrap_err();
            assert_eq!(unreadable.id.as_ref().map(ToString::to_string).as_deref(), id, "{json}");
        }
    }

    #[test]
    fn a_bookmark_tells_the_position_and_the_end_of_the_initial_events() {
        let read = |json: &str| bookmark(serde_json::from_str(json).unwrap());
        let plain = read(r#"{"metadata":{"resourceVersion":"9","creationTimestamp":null}}"#).unwrap();
        assert_eq!(plain, Bookmark { revision: "9".into(), initial_events_end: false });
        let end = read(
            r#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true","other":"x"}}}"#,
        );
        assert!(end.unwrap().initial_events_end);
        assert_eq!(read(r#"{"metadata":{}}"#), None);
    }
}
