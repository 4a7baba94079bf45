//! Positions in a text, by JSON pointer.

use std::borrow::Cow;
use std::fmt;

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The place of a field (of its key), of an item, or of a document.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) inner: Inner,
}

/// The places within a value.
#[derive(Debug)]
pub(super) enum Inner {
    None,
    Fields(Vec<(Box<str>, Mark)>),
    Items(Vec<Mark>),
}

impl Mark {
    pub(super) fn position(&self) -> Position {
        Position { line: self.line.into(), column: self.column.into() }
    }
}

/// The steps of a JSON pointer.
pub(super) fn steps(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> {
    pointer.split('/').skip(1).map(|step| {
        if step.contains('~') { Cow::Owned(step.replace("~1", "/").replace("~0", "~")) } else { Cow::Borrowed(step) }
    })
}

/// The place of a pointer, or of the next one around it.
pub(super) fn locate(mark: &Mark, pointer: &str) -> Position {
    let mut here = mark;
    for step in steps(pointer) {
        let next = match &here.inner {
            Inner::None => None,
            // The last of several counts, as it does for the value.
            Inner::Fields(fields) => fields.iter().rev().find(|(name, _)| **name == *step).map(|(_, mark)| mark),
            Inner::Items(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
        };
        match next {
            Some(next) => here = next,
            None => break,
        }
    }
    here.position()
}
