//! JSON Schema (drafts 4 to 2020-12) for kinds without a CRD: bound to kinds, compiled, and its verdicts as findings.
//!
//! Pure: references to other documents are refused, nothing is fetched. A schema is bound to its kinds by the keyword
//! `x-kubernetes-group-version-kind` at its top, as in the schemas that Kubernetes publishes, or by its fields `apiVersion` and `kind`, if each of
//! them has one value by `const` or `enum`.

use std::fmt;

use jsonschema::error::ValidationErrorKind as Fault;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::walk::MAX_GATHERED;
use crate::model::finding::{BAD_VALUE, Finding, Findings, MISSING_FIELD, UNKNOWN_FIELD, WRONG_TYPE, escaped};
use crate::model::nearest::nearest;

/// The keyword that names the kinds of a schema.
const KINDS: &str = "x-kubernetes-group-version-kind";
/// Longest message that is taken over, in characters: it quotes the value.
const MAX_MESSAGE: usize = 300;

/// A compiled JSON Schema.
pub(super) struct Plain {
    validator: Validator,
    /// As written, for `explain`.
    pub(super) written: Value,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain")
    }
}

/// A group, a version and a kind.
pub(super) type Named = (String, String, String);

/// The kinds for which a schema is. Empty: it does not say so.
pub(super) fn kinds(schema: &Value) -> Vec<Named> {
    let named = |entry: &Value| {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        Some((text("group").unwrap_or_default(), text("version")?, text("kind")?))
    };
    match schema.get(KINDS) {
        Some(Value::Array(list)) => list.iter().filter_map(named).collect(),
        Some(entry) => named(entry).into_iter().collect(),
        None => {
            let only = |field: &str| {
                let schema = schema.get("properties")?.get(field)?;
                let listed =
                    schema.get("enum").and_then(Value::as_array).filter(|list| list.len() == 1).map(|list| &list[0]);
                schema.get("const").or(listed)?.as_str().map(str::to_owned)
            };
            let named = only("apiVersion").zip(only("kind")).map(|(api_version, kind)| {
                let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
                (group.to_owned(), version.to_owned(), kind)
            });
            named.into_iter().collect()
        }
    }
}

/// Whether a document looks like a JSON Schema, and not like an object.
pub(super) fn is_schema(document: &Value) -> bool {
    let has = |field: &str| document.get(field).is_some();
    has("$schema") || has(KINDS) || (!has("apiVersion") && (has("properties") || has("$defs") || has("definitions")))
}

/// Compiles a schema.
///
/// # Errors
/// The schema is none, or refers to other documents; the text says where and why.
pub(super) fn compile(schema: &Value) -> Result<Plain, (String, String)> {
    let compiled = jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| (error.instance_path().to_string(), shortened(&error.to_string())))?;
    Ok(Plain { validator: compiled, written: schema.clone() })
}

impl Plain {
    /// Notes all that is wrong with an object.
    pub(super) fn check(&self, object: &Value, findings: &mut Findings) {
        let mut errors = self.validator.iter_errors(object);
        for error in errors.by_ref().take(MAX_GATHERED) {
            let at = error.instance_path().to_string();
            match error.kind() {
                Fault::AdditionalProperties { unexpected } | Fault::UnevaluatedProperties { unexpected } => {
                    let known = self.fields_at(error.schema_path().to_string().as_str());
                    for name in unexpected {
                        let near = nearest(name, known.iter().map(String::as_str));
                        let fault = if near.is_some() { "" } else { "there is no such field" };
                        let place = format!("{at}/{}", escaped(name));
                        findings.add(Finding::of_field(UNKNOWN_FIELD, place, fault).suggesting(near));
                    }
                }
                Fault::Required { property } => {
                    let name = property.as_str().unwrap_or_default();
                    findings.add(Finding::of_field(
                        MISSING_FIELD,
                        format!("{at}/{}", escaped(name)),
                        "it has to be set",
                    ));
                }
                Fault::Type { .. } => findings.add(Finding::of_field(WRONG_TYPE, at, shortened(&error.to_string()))),
                _ => findings.add(Finding::of_field(BAD_VALUE, at, shortened(&error.to_string()))),
            }
        }
        findings.leave_out(errors.count());
    }

    /// The names of the fields beside a keyword of the schema.
    fn fields_at(&self, keyword: &str) -> Vec<String> {
        let around = keyword.rsplit_once('/').map_or("", |(around, _)| around);
        let fields = self.written.pointer(around).and_then(|schema| schema.get("properties")?.as_object());
        fields.map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    }
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}
