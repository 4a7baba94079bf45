//! The rules of a schema for single values: ranges, lengths, patterns, forms, required fields.
//!
//! Pure. Used by [`walk`](super::walk).

use std::collections::HashSet;

use serde_json::{Number, Value};

use super::node::Limits;
use crate::model::finding::{BAD_VALUE, Finding, MISSING_FIELD, REPEATED, escaped};
use crate::model::nearest::nearest;

/// Rule: none of several alternatives holds, or too many, or one that must not.
pub const NO_ALTERNATIVE: &str = "no-alternative";
/// Most accepted values that a finding lists.
const MAX_LISTED: usize = 12;

/// Notes the rules that a value breaks. Paths are below the value.
pub(super) fn check(value: &Value, limits: &Limits, noted: &mut Vec<Finding>) {
    if !limits.values.is_empty() && !limits.values.iter().any(|accepted| same(accepted, value)) {
        let mut accepted: Vec<String> = limits.values.iter().take(MAX_LISTED).map(plain).collect();
        if limits.values.len() > MAX_LISTED {
            accepted.push("…".to_owned());
        }
        let near = value.as_str().and_then(|text| nearest(text, limits.values.iter().filter_map(Value::as_str)));
        let finding = Finding::of_value(BAD_VALUE, "", &as_text(value), format!("one of {}", accepted.join(", ")));
        noted.push(finding.suggesting(near));
    }
    if let Some(format) = limits.format
        && !format.fits(value)
    {
        noted.push(Finding::of_value(BAD_VALUE, "", &as_text(value), format.in_words()));
    }
    match value {
        Value::Number(number) => range(number, limits, noted),
        Value::String(text) => of_text(text, limits, noted),
        Value::Array(items) => {
            count(items.len(), limits.min_items, limits.max_items, "items", noted);
            let mut seen = HashSet::new();
            if limits.unique && !items.iter().all(|item| seen.insert(item.to_string())) {
                noted.push(Finding::of_field(REPEATED, "", "the list has an item twice"));
            }
        }
        Value::Object(fields) => {
            for name in limits.required.iter().filter(|name| !fields.contains_key(*name)) {
                noted.push(Finding::of_field(MISSING_FIELD, format!("/{}", escaped(name)), "it has to be set"));
            }
            count(fields.len(), limits.min_properties, limits.max_properties, "fields", noted);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn range(number: &Number, limits: &Limits, noted: &mut Vec<Finding>) {
    let mut wrong = |expected: String| noted.push(Finding::of_value(BAD_VALUE, "", &number.to_string(), expected));
    if let Some(minimum) = &limits.minimum {
        let order = compare(number, minimum);
        if order.is_lt() || (limits.above_minimum && order.is_eq()) {
            wrong(format!("a number {} {minimum}", if limits.above_minimum { "above" } else { "from" }));
        }
    }
    if let Some(maximum) = &limits.maximum {
        let order = compare(number, maximum);
        if order.is_gt() || (limits.below_maximum && order.is_eq()) {
            wrong(format!("a number {} {maximum}", if limits.below_maximum { "below" } else { "up to" }));
        }
    }
    if let Some(of) = &limits.multiple_of {
        let quotient = number.as_f64().unwrap_or_default() / of.as_f64().unwrap_or(1.0);
        if !quotient.is_finite() || quotient.fract().abs() > f64::EPSILON {
            wrong(format!("a multiple of {of}"));
        }
    }
}

fn of_text(text: &str, limits: &Limits, noted: &mut Vec<Finding>) {
    if limits.min_length.is_some() || limits.max_length.is_some() {
        count(text.chars().count(), limits.min_length, limits.max_length, "characters", noted);
    }
    if let Some((pattern, regex)) = &limits.pattern
        && !regex.is_match(text)
    {
        noted.push(Finding::of_value(BAD_VALUE, "", text, format!("a text that matches {pattern}")));
    }
}

fn count(count: usize, least: Option<u64>, most: Option<u64>, of: &str, noted: &mut Vec<Finding>) {
    let one = |limit: u64| if limit == 1 { of.strip_suffix('s').unwrap_or(of) } else { of };
    if let Some(least) = least.filter(|least| (count as u64) < *least) {
        noted.push(Finding::of_field(
            BAD_VALUE,
            "",
            format!("it has {count} {}, and needs {least} {} at least", one(count as u64), one(least)),
        ));
    }
    if let Some(most) = most.filter(|most| (count as u64) > *most) {
        noted.push(Finding::of_field(
            BAD_VALUE,
            "",
            format!("it has {count} {}, and {most} at most are accepted", one(count as u64)),
        ));
    }
}

/// The order of two numbers, exact for whole ones.
fn compare(a: &Number, b: &Number) -> std::cmp::Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
    }
}

/// Whether two values are the same; `1` and `1.0` are.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b).is_eq(),
        _ => a == b,
    }
}

/// A text as it is, another value as JSON.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value in a list of words: the empty text is shown as two quotes.
fn plain(value: &Value) -> String {
    if value.as_str() == Some("") { "\"\"".to_owned() } else { as_text(value) }
}
