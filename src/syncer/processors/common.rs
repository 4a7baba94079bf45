//! What several processors need.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::ConvertError;
use crate::model::{Key, KvPair, Value, no_revision};
use crate::validate::{Invalid, Validate};

impl ConvertError {
    /// An error with this reason: field, value, what is accepted.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// The body of an object does not have the form of its kind.
pub(super) fn unreadable(error: impl fmt::Display) -> ConvertError {
    ConvertError::new(format!("not readable as an object of its kind: {error}"))
}

/// A key that is not there, or no longer.
pub(super) fn blank(key: Key) -> KvPair {
    KvPair { key, value: None, revision: no_revision(), v3_resource_version: no_revision() }
}

/// A value that was checked while its typed form was at hand, which saves keeping that form for the validation stage.
/// The stage still is who refuses it.
pub(super) fn rejected_or_raw(bytes: Bytes, checked: Result<(), Invalid>) -> Value {
    match checked {
        Ok(()) => Value::raw(bytes),
        Err(invalid) => Value::checked(bytes, Arc::new(Rejected(invalid))),
    }
}

/// The outcome of a check, kept for the validation stage.
#[derive(Debug)]
struct Rejected(Invalid);

impl Validate for Rejected {
    fn validate(&self) -> Result<(), Invalid> {
        Err(self.0.clone())
    }
}
