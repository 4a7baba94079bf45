//! The only deliberate difference from Typha's bytes: `metadata.managedFields` of Kubernetes' objects.
//!
//! Shared by all tests that compare values with the data-model vectors, which hold Typha's bytes.

use serde::de::IgnoredAny;
use serde_json::Value as Json;

/// The value that we have to send where a vector has `value`: without managed fields, unless it comes from etcd.
///
/// # Panics
/// The value has managed fields outside of an object's metadata.
pub(crate) fn owed(value: &str, datastore: &str) -> String {
    const FIELD: &str = "\"managedFields\":";
    if datastore == "etcd" {
        return value.to_owned();
    }
    let Some(start) = value.find(FIELD) else { return value.to_owned() };
    let object: Json = serde_json::from_str(value).expect("a value with managed fields is an object");
    assert!(object["metadata"]["managedFields"].is_array(), "managed fields are part of the metadata: {value}");
    let content = start + FIELD.len();
    let mut rest = serde_json::Deserializer::from_str(&value[content..]).into_iter::<IgnoredAny>();
    rest.next().expect("a field has a value").expect("of JSON");
    let end = content + rest.byte_offset();
    let (before, after) = (&value[..start], &value[end..]);
    match after.strip_prefix(',') {
        Some(after) => format!("{before}{after}"),
        None => format!("{}{after}", before.strip_suffix(',').unwrap_or(before)),
    }
}

#[test]
fn only_managed_fields_are_removed() {
    let value = r#"{"metadata":{"name":"a","managedFields":[{"a":"]"},{}]},"spec":{}}"#;
    assert_eq!(owed(value, "kdd-v1"), r#"{"metadata":{"name":"a"},"spec":{}}"#);
    assert_eq!(owed(value, "etcd"), value);
    let value = r#"{"metadata":{"managedFields":[],"name":"a"}}"#;
    assert_eq!(owed(value, "kdd-v3"), r#"{"metadata":{"name":"a"}}"#);
    assert_eq!(owed("text", "kdd-v3"), "text");
}
