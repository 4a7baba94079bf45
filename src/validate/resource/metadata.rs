//! Metadata of any kind: name, labels, annotations.

use crate::model::schema::{Fields, Node};
use crate::validate::syntax::{is_dns_subdomain, is_label_value, is_qualified_name};
use crate::validate::{Invalid, invalid};

/// What keys and values of all annotations may take together, in bytes; Kubernetes' limit.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Checks an object's metadata.
///
/// # Errors
/// The first rule that it breaks.
pub(super) fn check(metadata: &Fields) -> Result<(), Invalid> {
    let name = metadata.text("name");
    if !is_dns_subdomain(name) {
        return Err(invalid("metadata.name", name, "a lower-case DNS subdomain of at most 253 characters"));
    }
    check_labels("metadata.labels", metadata.get("labels"))?;
    let mut size = 0;
    for (key, value) in metadata.get("annotations").and_then(Node::as_map).into_iter().flatten() {
        if !is_qualified_name(&key.to_lowercase()) {
            return Err(invalid(
                "metadata.annotations",
                key,
                "keys of at most 63 letters, digits, - _ . after an optional DNS subdomain and slash",
            ));
        }
        size += key.len() + value.as_text().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        return Err(invalid("metadata.annotations", &format!("{size} bytes"), "at most 262144 bytes in all"));
    }
    Ok(())
}

/// Checks a map of labels.
///
/// # Errors
/// The first key or value that is not valid.
pub(super) fn check_labels(field: &str, labels: Option<&Node>) -> Result<(), Invalid> {
    for (key, value) in labels.and_then(Node::as_map).into_iter().flatten() {
        if !is_qualified_name(key) {
            return Err(invalid(
                field,
                key,
                "keys of at most 63 letters, digits, - _ . after an optional DNS subdomain and slash",
            ));
        }
        let value = value.as_text().unwrap_or_default();
        if !is_label_value(value) {
            return Err(invalid(
                &format!("{field}[{key}]"),
                value,
                "at most 63 letters, digits, - _ ., beginning and ending with a letter or digit",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::schema::{Case, decode, find};

    fn verdict(json: &str) -> Result<(), String> {
        let metadata = decode(find("v1.ObjectMeta").unwrap(), json.as_bytes(), Case::Exact).unwrap();
        check(&metadata).map_err(|invalid| invalid.field)
    }

    #[test]
    fn metadata_is_checked() {
        let long = format!(r#"{{"name":"a","annotations":{{"k":"{}"}}}}"#, "x".repeat(MAX_ANNOTATIONS));
        for (json, field) in [
            (r#"{"name":"a.b","labels":{"x.io/K":"V_1"},"annotations":{"X.IO/K":"any thing"}}"#, None),
            (r#"{"name":""}"#, Some("metadata.name")),
            (r#"{"name":"A"}"#, Some("metadata.name")),
            (r#"{"name":"a","labels":{"k":"no blanks"}}"#, Some("metadata.labels[k]")),
            (r#"{"name":"a","labels":{"":"v"}}"#, Some("metadata.labels")),
            (r#"{"name":"a","annotations":{"a b":"v"}}"#, Some("metadata.annotations")),
            (&long, Some("metadata.annotations")),
        ] {
            assert_eq!(verdict(json).err().as_deref(), field, "{:.60}", json);
        }
    }
}
