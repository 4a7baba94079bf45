//! Texts of objects and schemas: YAML and JSON, read strictly, with the position of every field.
//!
//! Pure. Used by [`load`](super::load), by `bulrush validate`, and by others who have a text and want to point into it. Everything that a text can
//! make us hold is bounded by the constants here and in [`yaml`].

mod json;
mod positions;
mod yaml;

use serde_json::Value;

pub use self::positions::Position;
use self::positions::{Mark, locate};
use crate::model::finding::Finding;
use crate::model::yaml::{MAX_DEPTH, MAX_DOCUMENTS};

/// Most remarks about one document.
const MAX_REMARKS: usize = 1000;
/// Rule: the text is neither YAML nor JSON, or exceeds a limit.
pub const MALFORMED: &str = "malformed";
/// Rule: a mapping has a key twice.
pub const DUPLICATE_KEY: &str = "duplicate-key";
/// Rule: a key is not a text.
pub const KEY_NOT_TEXT: &str = "key-not-text";
/// Rule: other programs read another value.
pub const AMBIGUOUS: &str = "ambiguous";

/// A document of a text.
#[derive(Debug)]
pub struct Document {
    /// Its value.
    pub value: Value,
    /// Odd things that the value does not show: keys that are there twice, values that other programs read otherwise.
    pub remarks: Vec<Finding>,
    places: Places,
}

/// How a document's positions are found.
#[derive(Debug)]
enum Places {
    /// All are known.
    Marks(Mark),
    /// The text is searched again, from this byte on.
    Text(std::sync::Arc<str>, usize),
}

impl Document {
    /// The position of the field or item at a JSON pointer; where there is none, that of the next one around it.
    #[must_use]
    pub fn position(&self, pointer: &str) -> Position {
        match &self.places {
            Places::Marks(mark) => locate(mark, pointer),
            Places::Text(text, start) => json::locate(text, *start, pointer),
        }
    }
}

/// A text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The place at which reading ended, if known.
    pub position: Option<Position>,
    /// The reason.
    pub reason: String,
}

/// The documents of a text, without empty ones.
///
/// # Errors
/// The text is not YAML (or JSON, if `is_json`), or exceeds a limit; the reason names the limit.
pub fn read(text: &[u8], is_json: bool) -> Result<Vec<Document>, Malformed> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        Malformed { position: Some(Position { line, column: 1 }), reason: "the text is not UTF-8".to_owned() }
    })?;
    if is_json { json::read(text) } else { yaml::read(text) }
}

#[cfg(test)]
mod tests;
