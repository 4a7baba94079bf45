//! The typed form of a value on its way to the validation stage: the object, and the check that is asked about it.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::text::Text;
use crate::model::Origin;
use crate::model::finding::{Findings, Validate};

/// Finds everything that is wrong with an object. The second value is the object as it was, where it is known.
pub type Check = Arc<dyn Fn(&Value, Option<&Value>) -> Findings + Send + Sync>;

/// An object that waits for validation.
pub(super) struct Subject {
    pub(super) object: Value,
    pub(super) check: Check,
    pub(super) origin: Arc<Origin>,
    pub(super) text: Text,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Validate for Subject {
    fn validate(&self) -> Findings {
        (self.check)(&self.object, None)
    }

    fn validate_change(&self, old: &[u8]) -> Findings {
        (self.check)(&self.object, serde_json::from_slice(old).ok().as_ref())
    }

    fn places(&self, pointers: &[String]) -> Vec<String> {
        self.text.places(&self.origin.place, &self.object, pointers)
    }
}
