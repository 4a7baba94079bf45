//! The canonical form of an object: the bytes that agents receive, and the revision that follows from them alone.
//!
//! Pure. Two replicas that read the same object from any datastore send the same bytes under the same revision, so an agent that
//! moves from one to the other gets nothing twice.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::model::Revision;

/// Bytes of the digest that are the revision: two contents of one object have the same by accident in one of 2^64 cases.
const REVISION_BYTES: usize = 8;

/// An object in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct Canonical {
    /// The object, without the fields that are no content.
    pub value: Value,
    /// The same as JSON, fields in order of their names.
    pub bytes: Bytes,
    /// Digest of the bytes.
    pub revision: Revision,
    /// The last writer by the API server's records; empty if unknown.
    pub writer: String,
}

/// Makes the canonical form of an object of this `apiVersion` and kind. Items of lists do not say either, so both are filled in.
///
/// `resourceVersion` and `managedFields` are no content; `status` is content only `with_status`.
///
/// # Errors
/// The reason why the bytes are no object.
pub fn of_json(body: &[u8], api_version: &str, kind: &str, with_status: bool) -> Result<Canonical, String> {
    let value = serde_json::from_slice(body).map_err(|error| format!("not readable as JSON: {error}"))?;
    of_value(value, api_version, kind, with_status)
}

/// The same of a value.
///
/// # Errors
/// The reason why the value is no object.
pub fn of_value(value: Value, api_version: &str, kind: &str, with_status: bool) -> Result<Canonical, String> {
    let Value::Object(mut object) = value else { return Err("not a mapping".to_owned()) };
    let mut writer = String::new();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
        writer = metadata.remove("managedFields").as_ref().and_then(last_writer).unwrap_or_default();
    }
    if !with_status {
        object.remove("status");
    }
    fill_in(&mut object, "apiVersion", api_version);
    fill_in(&mut object, "kind", kind);
    let value = Value::Object(object);
    let bytes = serde_json::to_vec(&value).map_err(|error| format!("cannot be written as JSON: {error}"))?;
    let revision = revision(&bytes);
    // The writer's room grows by doubling; kept values must not keep it.
    Ok(Canonical { value, bytes: bytes.into_boxed_slice().into(), revision, writer })
}

/// The revision of bytes.
#[must_use]
pub fn revision(bytes: &[u8]) -> Revision {
    let digest = Sha256::digest(bytes);
    let mut text = String::with_capacity(2 * REVISION_BYTES);
    for byte in &digest[..REVISION_BYTES] {
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

fn fill_in(object: &mut Map<String, Value>, field: &str, value: &str) {
    if !object.contains_key(field) {
        object.insert(field.to_owned(), Value::from(value));
    }
}

/// The manager of the newest entry that is not about a subresource.
fn last_writer(entries: &Value) -> Option<String> {
    let entries = entries.as_array()?.iter().filter(|entry| entry.get("subresource").is_none());
    let newest =
        entries.max_by_key(|entry| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned())?;
    newest.get("manager")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn canonical(value: &Value, with_status: bool) -> Canonical {
        of_value(value.clone(), "v1", "ConfigMap", with_status).unwrap()
    }

    #[test]
    fn bookkeeping_is_no_content() {
        let plain = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}});
        let mut kept = plain.clone();
        kept["metadata"]["resourceVersion"] = json!("17");
        kept["metadata"]["managedFields"] = json!([
            {"manager": "kubectl", "time": "2026-01-02T00:00:00Z"},
            {"manager": "controller", "time": "2026-01-03T00:00:00Z", "subresource": "status"},
            {"manager": "helm", "time": "2026-01-01T00:00:00Z"},
        ]);
        kept["status"] = json!({"ready": true});
        let (one, other) = (canonical(&plain, false), canonical(&kept, false));
        assert_eq!((&one.bytes, &one.revision), (&other.bytes, &other.revision));
        assert_eq!((one.writer.as_str(), other.writer.as_str()), ("", "kubectl"));
        assert_ne!(canonical(&kept, true).revision, one.revision, "the status counts where it is asked for");
    }

    #[test]
    fn items_of_lists_get_their_kind() {
        let item = canonical(&json!({"metadata": {"name": "x"}}), false);
        assert_eq!(&item.bytes[..], br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#);
        assert_eq!(&*item.revision, &*revision(&item.bytes));
        assert_eq!(item.revision.len(), 2 * REVISION_BYTES);
    }

    #[test]
    fn others_are_refused() {
        for text in ["", "{", "[]", "1", "null", "\"x\""] {
            assert!(of_json(text.as_bytes(), "v1", "X", false).is_err(), "{text}");
        }
    }

    proptest! {
        /// The order of fields and the white space are no content.
        #[test]
        fn the_form_of_the_text_does_not_matter(entries in proptest::collection::btree_map("[a-z]{1,5}", 0_i32..9, 0..8)) {
            let forwards: Vec<String> = entries.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let backwards: Vec<String> = forwards.iter().rev().cloned().collect();
            let one = of_json(format!("{{{}}}", forwards.join(",")).as_bytes(), "v1", "X", true);
            let other = of_json(format!("{{ {} }}", backwards.join(" , ")).as_bytes(), "v1", "X", true);
            prop_assert_eq!(one, other);
        }
    }
}
