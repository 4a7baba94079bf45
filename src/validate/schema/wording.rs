//! Words about values and alternatives, for findings.
//!
//! Pure. Used by [`walk`](super::walk).

use serde_json::Value;

use super::limits;
use super::node::Node;
use crate::model::finding::{Finding, MISSING_FIELD};

/// Longest value that a finding quotes, in characters; the finding shortens it further.
const MAX_QUOTED: usize = 400;

/// The field of a branch that says nothing but that one field is required.
pub(super) fn only_required(branch: &Node) -> Option<&str> {
    match branch.limits.as_ref()?.required.as_slice() {
        [field] => Some(field),
        _ => None,
    }
}

/// The finding for a value that fits no branch.
pub(super) fn no_branch(faults: &[Finding]) -> Finding {
    let missing: Option<Vec<&str>> = faults
        .iter()
        .map(|fault| (fault.id == MISSING_FIELD).then(|| fault.path.rsplit('/').next().unwrap_or_default()))
        .collect();
    let fault = match missing {
        Some(fields) => format!("one of {} has to be set", fields.join(", ")),
        None => {
            let texts: Vec<String> = faults.iter().take(4).map(Finding::to_string).collect();
            format!("it fits none of the alternatives: {}", texts.join(" | "))
        }
    };
    Finding::of_field(limits::NO_ALTERNATIVE, "", fault)
}

/// A value for a finding: texts as they are, others as JSON, large ones by their type.
pub(super) fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(fields) => format!("a mapping with {}", some_of(fields.keys())),
        other => other.to_string().chars().take(MAX_QUOTED).collect(),
    }
}

/// Some names of a list.
pub(super) fn some_of<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&str> = names.map(String::as_str).collect();
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => names.join(", "),
    }
}
