//! A view of a decoded resource that knows where it is, so that errors can name the field.

use serde_json::Value;

use super::formats::invalid;
use crate::validate::Invalid;

/// A value inside a resource, with its path from the top.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    /// The top of a resource.
    pub(super) fn top(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    /// The field of this name, unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Some(Self { path, value })
    }

    /// The elements of the list in the field of this name; none if it is absent.
    pub(super) fn list(&self, name: &str) -> Vec<Self> {
        let Some(list) = self.get(name) else { return Vec::new() };
        let items = list.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().enumerate().map(|(i, value)| Self { path: format!("{}[{i}]", list.path), value }).collect()
    }

    /// The text of this value; empty if it is none.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The value itself.
    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// An error about this value.
    pub(super) fn invalid(&self, expected: impl Into<String>) -> Invalid {
        let shown = match self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        invalid(self.path.clone(), &shown, expected)
    }

    /// Demands that `good` holds of this value's text.
    pub(super) fn text_is(&self, good: impl Fn(&str) -> bool, expected: &str) -> Result<(), Invalid> {
        if good(self.text()) { Ok(()) } else { Err(self.invalid(expected)) }
    }

    /// The same for the field of this name, if it is there and not empty.
    pub(super) fn field_is(&self, name: &str, good: impl Fn(&str) -> bool, expected: &str) -> Result<(), Invalid> {
        match self.get(name) {
            Some(field) if !field.text().is_empty() => field.text_is(good, expected),
            _ => Ok(()),
        }
    }

    /// Demands that the number in the field of this name, if it is there, lies in `range`.
    pub(super) fn field_in(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<(), Invalid> {
        let Some(field) = self.get(name) else { return Ok(()) };
        match field.value.as_i64() {
            Some(number) if range.contains(&number) => Ok(()),
            _ if *range.end() == i64::MAX => Err(field.invalid(format!("a number from {}", range.start()))),
            _ => Err(field.invalid(format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// Demands that the text in the field of this name, if it is there, is one of `choices`.
    pub(super) fn field_of(&self, name: &str, choices: &[&str]) -> Result<(), Invalid> {
        match self.get(name) {
            Some(field) => field.text_is(|text| choices.contains(&text), &format!("one of {}", choices.join(", "))),
            None => Ok(()),
        }
    }
}
