//! A view of a decoded resource with its path, which notes the findings there.

use std::cell::RefCell;

use serde_json::Value;

use crate::model::finding::{BAD_VALUE, Findings, MISSING_FIELD};

/// A value inside a resource, with its path from the top.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    path: String,
    value: &'a Value,
    findings: &'a RefCell<Findings>,
}

impl<'a> At<'a> {
    /// The top of a resource.
    pub(super) fn top(value: &'a Value, findings: &'a RefCell<Findings>) -> Self {
        Self { path: String::new(), value, findings }
    }

    fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The field of this name, unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Self { path: self.below(name), value, findings: self.findings })
    }

    /// The elements of the list in the field of this name; none if it is absent.
    pub(super) fn list(&self, name: &str) -> Vec<Self> {
        let Some(list) = self.get(name) else { return Vec::new() };
        let items = list.value.as_array().map(Vec::as_slice).unwrap_or_default();
        let item = |(i, value)| Self { path: format!("{}[{i}]", list.path), value, findings: self.findings };
        items.iter().enumerate().map(item).collect()
    }

    /// The text of this value; empty if it is none.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The value itself.
    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// Notes that this value is not among those `expected`.
    pub(super) fn bad(&self, expected: impl Into<String>) {
        self.breaks(BAD_VALUE, expected);
    }

    /// Notes that this value breaks the rule `id`.
    pub(super) fn breaks(&self, id: &'static str, expected: impl Into<String>) {
        let shown = match self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.findings.borrow_mut().error(id, &self.path, &shown, expected);
    }

    /// Notes that `shown`, a part of this value, is not among those `expected`. `entry`: the entry of a map that it
    /// belongs to.
    pub(super) fn bad_part(&self, entry: Option<&str>, shown: &str, expected: impl Into<String>) {
        let path = entry.map_or_else(|| self.path.clone(), |entry| format!("{}[{entry}]", self.path));
        self.findings.borrow_mut().error(BAD_VALUE, &path, shown, expected);
    }

    /// Notes that the field of this name has to be set.
    pub(super) fn lacks(&self, name: &str) {
        self.breaks(MISSING_FIELD, format!("{name} has to be set"));
    }

    /// Notes that the field at a path below this value is missing.
    pub(super) fn missing(&self, path: &str, expected: &str) {
        self.findings.borrow_mut().error(MISSING_FIELD, &self.below(path), "", expected);
    }

    /// Demands that `good` accepts this value's text.
    pub(super) fn text_is(&self, good: impl Fn(&str) -> bool, expected: &str) {
        if !good(self.text()) {
            self.bad(expected);
        }
    }

    /// The same for the field of this name, if it is present and not empty.
    pub(super) fn field_is(&self, name: &str, good: impl Fn(&str) -> bool, expected: &str) {
        if let Some(field) = self.get(name).filter(|field| !field.text().is_empty()) {
            field.text_is(good, expected);
        }
    }

    /// Demands that the number in the field of this name, if present, lies in `range`.
    pub(super) fn field_in(&self, name: &str, range: std::ops::RangeInclusive<i64>) {
        let Some(field) = self.get(name) else { return };
        match field.value.as_i64() {
            Some(number) if range.contains(&number) => {}
            _ if *range.end() == i64::MAX => field.bad(format!("a number from {}", range.start())),
            _ => field.bad(format!("a number from {} to {}", range.start(), range.end())),
        }
    }

    /// Demands that the text in the field of this name, if present, is one of `choices`.
    pub(super) fn field_of(&self, name: &str, choices: &[&str]) {
        if let Some(field) = self.get(name) {
            field.text_is(|text| choices.contains(&text), &format!("one of {}", choices.join(", ")));
        }
    }

    /// Demands that the list in the field of this name has no item twice.
    pub(super) fn list_has_each_once(&self, name: &str, expected: &str) {
        let items = self.list(name);
        for (i, item) in items.iter().enumerate() {
            if items[..i].iter().any(|other| other.text() == item.text()) {
                item.breaks(crate::model::finding::REPEATED, expected);
            }
        }
    }
}
