//! Validation: an invalid value becomes an absent one, is counted, and is logged once with its reason.
//!
//! Sits between a syncer and its snapshot cache. Rules are pure functions over typed values; nothing here does I/O.

use std::fmt;

pub mod filter;
pub mod node_counter;
pub mod resource;
pub mod rules;
pub mod syntax;

/// Why a value is invalid: the field, its value, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} is not valid: {expected}")]
pub struct Invalid {
    /// Path of the offending field, for example `spec.ingress[2].protocol`.
    pub field: String,
    /// The offending value, shortened when long.
    pub value: String,
    /// What would have been accepted.
    pub expected: String,
}

/// A typed value that can say whether it may be distributed.
pub trait Validate: Send + Sync + fmt::Debug {
    /// Checks the value.
    ///
    /// # Errors
    /// The first rule that the value breaks.
    fn validate(&self) -> Result<(), Invalid>;
}

/// Longest part of an offending value that goes into a message, in characters.
const MAX_SHOWN: usize = 100;

/// An [`Invalid`] with the value shortened.
pub(crate) fn invalid(field: &str, value: &str, expected: &str) -> Invalid {
    let value = match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    };
    Invalid { field: field.to_owned(), value, expected: expected.to_owned() }
}
