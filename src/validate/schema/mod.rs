//! Validation by schemas: CustomResourceDefinitions with CEL, and JSON Schema.
//!
//! A pure library: only [`load`] reads files. It knows no pipeline and no command; both give it objects, and get findings.
//!
//! ```text
//!  files ─► load ─► text ─► definition ─► compile ─► node ┐
//!                     │      plain (JSON Schema)          ├─► library ─► check: metadata, defaults, walk (limits, cel) ─► findings
//!                     └── positions of findings           ┘
//! ```
//!
//! The order of the checks is the API server's: metadata, unknown fields, defaults, types and values, lists, rules in CEL, rules
//! that compare with the old object. docs/validation.md tells the differences.

pub mod cel;
mod compile;
mod defaults;
mod definition;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod formats;
mod keywords;
pub mod library;
pub mod limits;
pub mod load;
pub mod metadata;
pub mod node;
mod plain;
mod regexes;
mod stack;
pub mod text;
mod walk;
mod wording;

pub use library::{Added, KnownKind, Library, Schema};
pub use load::SchemaError;
pub use walk::{RULE_FAILED, RULE_TOO_COSTLY};

#[cfg(test)]
mod tests;
