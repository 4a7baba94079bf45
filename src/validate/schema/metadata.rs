//! The rules for apiVersion, kind and metadata, which are the same for all kinds.
//!
//! Pure. Used by [`library`](super::library) and by `bulrush validate`.

use serde_json::{Map, Value};

use crate::model::finding::{
    BAD_VALUE, Finding, Findings, MISSING_FIELD, TOO_LARGE, UNKNOWN_FIELD, WRONG_TYPE, escaped,
};
use crate::model::nearest::nearest;
use crate::model::object::MAX_OBJECT_BYTES;

/// Longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;
/// Longest DNS label, and longest name or value of a label.
const MAX_LABEL: usize = 63;
/// Largest annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// The fields of metadata.
const FIELDS: [&str; 15] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "generateName",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];
/// Rule: the object is in a namespace and its kind is not, or the other way round.
pub const WRONG_SCOPE: &str = "wrong-scope";

/// The group, version and kind of an object; empty where it has none.
#[must_use]
pub fn kind_of(object: &Value) -> (&str, &str, &str) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group, version, object["kind"].as_str().unwrap_or_default())
}

/// Checks apiVersion, kind, metadata and the size of an object. `namespaced`: the kind's scope, where known.
pub fn check(object: &Value, namespaced: Option<bool>, findings: &mut Findings) {
    let Value::Object(top) = object else {
        let fault = "the document is no mapping with apiVersion, kind and metadata";
        return findings.add(Finding::of_field(WRONG_TYPE, "", fault));
    };
    let size = size(object);
    if size > MAX_OBJECT_BYTES {
        let fault = format!(
            "the object has {size} bytes as JSON, and {MAX_OBJECT_BYTES} are the limit (1.5 MiB): etcd takes no larger one"
        );
        findings.add(Finding::of_field(TOO_LARGE, "", fault));
    }
    api_version_and_kind(top, "", findings);
    match top.get("metadata") {
        Some(Value::Object(metadata)) => check_metadata(metadata, "", namespaced, kind_of(object).0, findings),
        Some(_) => findings.add(Finding::of_field(WRONG_TYPE, "/metadata", "it must be a mapping")),
        None => findings.add(Finding::of_field(MISSING_FIELD, "/metadata", "it has to be set, with a name")),
    }
}

/// Checks the object in a field with `x-kubernetes-embedded-resource`.
pub(super) fn check_embedded(object: &Map<String, Value>, path: &str, findings: &mut Findings) {
    api_version_and_kind(object, path, findings);
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
        findings.add(Finding::of_field(WRONG_TYPE, format!("{path}/metadata"), "it must be a mapping"));
    }
}

fn api_version_and_kind(top: &Map<String, Value>, path: &str, findings: &mut Findings) {
    for field in ["apiVersion", "kind"] {
        let place = format!("{path}/{field}");
        match top.get(field) {
            Some(Value::String(text)) if text.is_empty() => {
                findings.add(Finding::of_field(MISSING_FIELD, place, "it has to be set"));
            }
            Some(Value::String(text)) if field == "apiVersion" => {
                let (group, version) =
                    text.split_once('/').map_or((None, &**text), |(group, version)| (Some(group), version));
                if !group.is_none_or(is_subdomain) || !is_label(version) {
                    findings.add(Finding::of_value(
                        BAD_VALUE,
                        place,
                        text,
                        "group/version, or v1 for Kubernetes' core group",
                    ));
                }
            }
            Some(Value::String(text)) => {
                if !is_label(&text.to_ascii_lowercase()) {
                    findings.add(Finding::of_value(BAD_VALUE, place, text, "the name of a kind, such as ConfigMap"));
                }
            }
            None | Some(Value::Null) => findings.add(Finding::of_field(MISSING_FIELD, place, "it has to be set")),
            Some(other) => findings.add(Finding::of_value(WRONG_TYPE, place, &other.to_string(), "a text")),
        }
    }
}

fn check_metadata(
    metadata: &Map<String, Value>,
    path: &str,
    namespaced: Option<bool>,
    group: &str,
    findings: &mut Findings,
) {
    let place = |field: &str| format!("{path}/metadata/{}", escaped(field));
    for field in metadata.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        let near = nearest(field, FIELDS);
        let fault = if near.is_some() { String::new() } else { "metadata has no such field".to_owned() };
        findings.add(Finding::of_field(UNKNOWN_FIELD, place(field), fault).suggesting(near));
    }
    match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {
            let (good, expected) = if has_free_names(group) {
                let good = ![".", ".."].contains(&name.as_str()) && !name.contains(['/', '%']);
                (good, "a name without / and %")
            } else {
                (is_subdomain(name), "lower-case letters, digits, - and . (a DNS subdomain), at most 253")
            };
            if !good {
                findings.add(Finding::of_value(BAD_VALUE, place("name"), name, expected));
            }
        }
        None | Some(Value::Null | Value::String(_)) => {
            if !metadata.get("generateName").is_some_and(Value::is_string) {
                findings.add(Finding::of_field(MISSING_FIELD, place("name"), "it has to be set"));
            }
        }
        Some(other) => {
            findings.add(Finding::of_value(WRONG_TYPE, place("name"), &other.to_string(), "a text: put it in quotes"));
        }
    }
    match metadata.get("namespace") {
        None | Some(Value::Null) => {}
        Some(Value::String(namespace)) if namespace.is_empty() => {}
        Some(Value::String(namespace)) => {
            if namespaced == Some(false) {
                let fault = "objects of this kind are in no namespace: leave it out";
                findings.add(Finding::of_field(WRONG_SCOPE, place("namespace"), fault));
            } else if !is_label(namespace) {
                let expected = "lower-case letters, digits and - (a DNS label), at most 63";
                findings.add(Finding::of_value(BAD_VALUE, place("namespace"), namespace, expected));
            }
        }
        Some(other) => {
            let expected = "a text: put it in quotes";
            findings.add(Finding::of_value(WRONG_TYPE, place("namespace"), &other.to_string(), expected));
        }
    }
    words(metadata, path, "labels", findings);
    words(metadata, path, "annotations", findings);
}

/// Checks labels or annotations.
fn words(metadata: &Map<String, Value>, path: &str, field: &str, findings: &mut Findings) {
    let entries = match metadata.get(field) {
        None | Some(Value::Null) => return,
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            let place = format!("{path}/metadata/{field}");
            return findings.add(Finding::of_value(WRONG_TYPE, place, &other.to_string(), "a mapping of texts"));
        }
    };
    let is_label = field == "labels";
    let mut total = 0;
    for (key, value) in entries {
        let place = format!("{path}/metadata/{field}/{}", escaped(key));
        let lower = key.to_ascii_lowercase();
        if !is_qualified(if is_label { key } else { &lower }) {
            let expected = "a key such as app or example.com/app: letters, digits, -, _ and . between letters or digits, at most 63";
            findings.add(Finding::of_value(BAD_VALUE, place.clone(), key, expected));
        }
        match value {
            Value::String(text) => {
                total += key.len() + text.len();
                if is_label && !text.is_empty() && !is_word(text) {
                    let expected = "letters, digits, -, _ and . between letters or digits, at most 63";
                    findings.add(Finding::of_value(BAD_VALUE, place, text, expected));
                }
            }
            other => findings.add(Finding::of_value(WRONG_TYPE, place, &other.to_string(), "a text: put it in quotes")),
        }
    }
    if !is_label && total > MAX_ANNOTATIONS {
        let fault = format!("the annotations have {total} bytes, and {MAX_ANNOTATIONS} are the limit");
        findings.add(Finding::of_field(TOO_LARGE, format!("{path}/metadata/{field}"), fault));
    }
}

/// Whether names of a group need not be DNS names: Kubernetes' roles, and Calico's kinds, which have rules of their own.
fn has_free_names(group: &str) -> bool {
    group == "rbac.authorization.k8s.io" || group.ends_with("projectcalico.org")
}

/// Whether it is a DNS label.
fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL
        && is_bounded_by_alphanumerics(text)
        && text.bytes().all(|byte| is_lower(byte) || byte == b'-')
}

/// Whether it is a DNS subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    let part =
        |part: &str| is_bounded_by_alphanumerics(part) && part.bytes().all(|byte| is_lower(byte) || byte == b'-');
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(part)
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    let ends = (text.bytes().next(), text.bytes().next_back());
    matches!(ends, (Some(first), Some(last)) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}

/// Whether it is a label's value.
fn is_word(text: &str) -> bool {
    text.len() <= MAX_LABEL
        && is_bounded_by_alphanumerics(text)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether it is a label's key.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_word(name),
        None => is_word(key),
    }
}

/// The size of a value as JSON, without the escapes in its texts.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + 4 + size(value)).sum::<usize>() + 2,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(object: &Value, namespaced: Option<bool>) -> Vec<String> {
        let mut findings = Findings::none();
        check(object, namespaced, &mut findings);
        findings.as_slice().iter().map(Finding::line).collect()
    }

    fn object(metadata: Value) -> Value {
        json!({"apiVersion": "a.example/v1", "kind": "Thing", "metadata": metadata})
    }

    #[test]
    fn good_metadata_has_no_findings() {
        let metadata = json!({"name": "a.b-c", "namespace": "d", "labels": {"x.example/Ab_c": "", "app": "Web-1.0"}, "annotations": {"X/y": "any text\n"}});
        assert_eq!(lines(&object(metadata), Some(true)), [""; 0]);
        assert_eq!(lines(&object(json!({"generateName": "a-"})), None), [""; 0]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:node"}});
        assert_eq!(lines(&role, None), [""; 0]);
    }

    #[test]
    fn every_mistake_is_found() {
        for (metadata, expected) in [
            (json!({"name": "A"}), r#"error bad-value /metadata/name: "A" is not valid"#),
            (json!({"name": 7}), r#"error wrong-type /metadata/name: "7" is not valid: a text: put it in quotes"#),
            (json!({}), "error missing-field /metadata/name: it has to be set"),
            (json!({"name": "a", "namespace": "a.b"}), "error bad-value /metadata/namespace"),
            (json!({"name": "a", "lables": {}}), r#"error unknown-field /metadata/lables: did you mean "labels"?"#),
            (json!({"name": "a", "zzz": 1}), "error unknown-field /metadata/zzz: metadata has no such field"),
            (json!({"name": "a", "labels": {"a/b/c": "x"}}), "error bad-value /metadata/labels/a~1b~1c"),
            (json!({"name": "a", "labels": {"a": "x y"}}), "error bad-value /metadata/labels/a"),
            (json!({"name": "a", "labels": {"a": true}}), "error wrong-type /metadata/labels/a"),
            (
                json!({"name": "a", "annotations": {"a": "x".repeat(MAX_ANNOTATIONS)}}),
                "error too-large /metadata/annotations",
            ),
        ] {
            let found = lines(&object(metadata.clone()), Some(true));
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}, not {expected}");
        }
        let found = lines(&object(json!({"name": "a", "namespace": "b"})), Some(false));
        assert!(found[0].starts_with("error wrong-scope /metadata/namespace"), "{found:?}");
        let found = lines(&json!({"apiVersion": "a/b/c", "kind": 1, "metadata": []}), None);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(lines(&json!([1]), None).len(), 1);
        let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "x".repeat(MAX_OBJECT_BYTES)}});
        assert!(lines(&large, None)[0].starts_with("error too-large: "));
    }
}
