//! JSON documents of the API server.

use serde_json::Value;

/// A text of a JSON document; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
