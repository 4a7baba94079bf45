//! The seam between values and validation: a value can be asked whether it may be distributed. The rules are in [`crate::validate`].

use std::fmt;

/// Why a value is invalid: the field, its value, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} is not valid: {expected}")]
pub struct Invalid {
    /// Path of the offending field, for example `spec.ingress[2].protocol`.
    pub field: String,
    /// The offending value, shortened when long.
    pub value: String,
    /// The accepted values.
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

/// Longest piece of an offending value that an error carries, in characters.
const MAX_SHOWN: usize = 80;

/// An [`Invalid`] with the value shortened.
pub(crate) fn invalid(field: impl Into<String>, value: &str, expected: impl Into<String>) -> Invalid {
    let value = match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    };
    Invalid { field: field.into(), value, expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_a_bounded_piece_of_the_value() {
        assert_eq!(invalid("f", &"é".repeat(1000), "y").value.chars().count(), MAX_SHOWN + 1);
        assert_eq!(invalid("f", "short", "y").value, "short");
    }
}
