//! Rules for the metadata of every resource, Kubernetes' own included.

use serde_json::Value;

use super::formats::is_name;
use super::tree::At;
use super::{NAME, formats};

/// Longest name of an object, in bytes: that of a DNS name.
const MAX_NAME: usize = 253;
/// Longest DNS-subdomain prefix of a qualified name.
const MAX_PREFIX: usize = 253;
/// Longest name part of a qualified name, and longest label value.
const MAX_WORD: usize = 63;
/// Keys and values of all annotations together, in bytes; Kubernetes' bound.
const MAX_ANNOTATIONS: usize = 256 * 1024;

const KEY: &str = "a name of up to 63 letters, digits, -, _ and ., with an optional DNS prefix and /";
const LABEL_VALUE: &str = "up to 63 letters, digits, -, _ and ., with a letter or digit at both ends";

/// Checks the metadata of a resource.
pub(super) fn check(resource: &At<'_>) {
    let metadata = resource.get("metadata");
    let field = |name: &str| metadata.as_ref().and_then(|metadata| metadata.get(name));
    match field("name") {
        Some(name) if name.text().len() > MAX_NAME => name.bad(format!("at most {MAX_NAME} bytes")),
        Some(name) => name.text_is(is_name, NAME),
        None => resource.missing("metadata.name", NAME),
    }
    if let Some(annotations) = field("annotations") {
        check_annotations(&annotations);
    }
    if let Some(labels) = field("labels") {
        check_labels(&labels);
    }
}

fn entries(map: &Value) -> impl Iterator<Item = (&String, &str)> {
    map.as_object().into_iter().flatten().map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

/// Checks labels: keys are qualified names, values label values.
pub(super) fn check_labels(labels: &At<'_>) {
    for (key, value) in entries(labels.value()) {
        if !is_qualified_name(key) {
            labels.bad_part(None, key, KEY);
        }
        if !value.is_empty() && !is_word(value) {
            labels.bad_part(Some(key), value, LABEL_VALUE);
        }
    }
}

/// Checks annotations: keys are qualified names in any case, and the total size is bounded.
pub(super) fn check_annotations(annotations: &At<'_>) {
    let mut size = 0;
    for (key, value) in entries(annotations.value()) {
        if !is_qualified_name(&key.to_lowercase()) {
            annotations.bad_part(None, key, KEY);
        }
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        annotations.bad_part(None, &format!("{size} bytes"), format!("at most {MAX_ANNOTATIONS} bytes in all"));
    }
}

/// Kubernetes' qualified name: a word, or a DNS subdomain, `/` and a word.
fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_word(text),
        Some((prefix, name)) => prefix.len() <= MAX_PREFIX && formats::is_name(prefix) && is_word(name),
    }
}

fn is_word(text: &str) -> bool {
    let end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    (1..=MAX_WORD).contains(&text.len())
        && end(text.bytes().next())
        && end(text.bytes().next_back())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}
