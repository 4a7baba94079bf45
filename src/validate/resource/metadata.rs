//! Rules for the metadata of every resource, Kubernetes' own included.

use serde_json::Value;

use super::formats::{invalid, is_name};
use super::tree::At;
use super::{NAME, formats};
use crate::validate::Invalid;

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
pub(super) fn check(resource: &At<'_>) -> Result<(), Invalid> {
    let metadata = resource.get("metadata");
    let field = |name: &str| metadata.as_ref().and_then(|metadata| metadata.get(name));
    let name = field("name").map_or("", |name| name.text());
    if name.len() > MAX_NAME {
        return Err(invalid("metadata.name", name, format!("at most {MAX_NAME} bytes")));
    }
    if !is_name(name) {
        return Err(invalid("metadata.name", name, NAME));
    }
    if let Some(annotations) = field("annotations") {
        check_annotations("metadata.annotations", annotations.value())?;
    }
    match field("labels") {
        Some(labels) => check_labels("metadata.labels", labels.value()),
        None => Ok(()),
    }
}

fn entries(map: &Value) -> impl Iterator<Item = (&String, &str)> {
    map.as_object().into_iter().flatten().map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

/// Checks labels: keys are qualified names, values label values.
pub(super) fn check_labels(field: &str, labels: &Value) -> Result<(), Invalid> {
    for (key, value) in entries(labels) {
        if !is_qualified_name(key) {
            return Err(invalid(field, key, KEY));
        }
        if !value.is_empty() && !is_word(value) {
            return Err(invalid(format!("{field}[{key}]"), value, LABEL_VALUE));
        }
    }
    Ok(())
}

/// Checks annotations: keys are qualified names in any case, all of them together are not too large.
pub(super) fn check_annotations(field: &str, annotations: &Value) -> Result<(), Invalid> {
    let mut size = 0;
    for (key, value) in entries(annotations) {
        if !is_qualified_name(&key.to_lowercase()) {
            return Err(invalid(field, key, KEY));
        }
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        return Err(invalid(field, &format!("{size} bytes"), format!("at most {MAX_ANNOTATIONS} bytes in all")));
    }
    Ok(())
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
