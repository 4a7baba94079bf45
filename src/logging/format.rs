//! Makes a line of an event: readable text, or one JSON object.
//!
//! Text: `2026-11-21 10:15:02.123 [INFO][4711] bulrush::daemon 42: message key="value"`. Times are UTC, because a
//! program cannot safely learn the local time zone while it has threads. Fields of the spans around an event follow its own fields.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};

use crate::config::Severity;
use crate::model::timestamp::Timestamp;

/// Longest line in bytes. Longer lines are cut: a line may quote text from a peer.
const MAX_LINE: usize = 16 << 10;

/// A line that is ready to be written, without its end of line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its severity.
    pub(super) severity: Severity,
    /// Its text.
    pub(super) text: Arc<str>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    /// A number or bool: the same in text and JSON.
    Plain(String),
    /// A text.
    Text(String),
}

/// The fields of an event or span.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// The message of an event.
    pub(super) message: String,
    /// The target of an event of the `log` crate.
    pub(super) target: Option<String>,
    /// All others, in order.
    pub(super) others: Vec<(&'static str, FieldValue)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            ("message", FieldValue::Plain(text) | FieldValue::Text(text)) => self.message = text,
            ("log.target", FieldValue::Plain(text) | FieldValue::Text(text)) => self.target = Some(text),
            ("log.module_path" | "log.file" | "log.line", _) => {}
            (name, value) => {
                self.others.retain(|(other, _)| *other != name);
                self.others.push((name, value));
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, FieldValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, FieldValue::Text(value.to_owned()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, FieldValue::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, FieldValue::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, FieldValue::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        let text = value.to_string();
        self.put(field, if value.is_finite() { FieldValue::Plain(text) } else { FieldValue::Text(text) });
    }
}

/// The parts of a line.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) at: SystemTime,
    pub(super) severity: Severity,
    pub(super) target: &'a str,
    pub(super) line: Option<u32>,
    pub(super) fields: &'a Fields,
    /// Fields of the spans around it, the innermost first.
    pub(super) spans: &'a [(&'static str, FieldValue)],
}

impl Event<'_> {
    fn all_fields(&self) -> impl Iterator<Item = &(&'static str, FieldValue)> {
        let own = &self.fields.others;
        own.iter().chain(self.spans.iter().filter(|(name, _)| own.iter().all(|(other, _)| other != name)))
    }

    /// As readable text.
    pub(super) fn text(&self) -> Line {
        let mut out = String::with_capacity(160);
        let _ = write!(out, "{} [{}][{}] {}", timestamp(self.at, ' '), self.severity, std::process::id(), self.target);
        if let Some(line) = self.line {
            let _ = write!(out, " {line}");
        }
        out.push_str(": ");
        escape_into(&mut out, &self.fields.message);
        for (name, value) in self.all_fields() {
            match value {
                FieldValue::Plain(value) => {
                    let _ = write!(out, " {name}={value}");
                }
                FieldValue::Text(value) => {
                    let _ = write!(out, " {name}=\"");
                    escape_into(&mut out, &value.replace('\\', "\\\\").replace('"', "\\\""));
                    out.push('"');
                }
            }
        }
        cut(&mut out);
        Line { severity: self.severity, text: out.into() }
    }

    /// As a JSON object.
    pub(super) fn json(&self) -> Line {
        let mut out = format!("{{\"time\":\"{}Z\",\"level\":\"{}\"", timestamp(self.at, 'T'), self.severity);
        let text = |out: &mut String, name: &str, value: &str| {
            let value = cut_to(value, MAX_LINE / 4);
            out.push_str(",\"");
            out.push_str(name);
            out.push_str("\":");
            out.push_str(&serde_json::to_string(value).expect("a text becomes JSON"));
        };
        text(&mut out, "target", self.target);
        text(&mut out, "message", &self.fields.message);
        for (name, value) in self.all_fields() {
            // A line that gets too long loses whole fields, so that it stays JSON.
            if out.len() > MAX_LINE / 2 {
                break;
            }
            // The names of the fields that every line has are not used twice.
            let name =
                if ["time", "level", "target", "message"].contains(name) { &format!("field_{name}") } else { *name };
            match value {
                FieldValue::Plain(value) => {
                    let _ = write!(out, ",\"{name}\":{value}");
                }
                FieldValue::Text(value) => text(&mut out, name, value),
            }
        }
        out.push('}');
        Line { severity: self.severity, text: out.into() }
    }
}

/// A line about dropped lines.
pub(super) fn dropped(count: u64, json: bool) -> Line {
    let fields = Fields {
        message: "dropped log lines because the destination was too slow".to_owned(),
        target: None,
        others: vec![("count", FieldValue::Plain(count.to_string()))],
    };
    let event = Event {
        at: SystemTime::now(),
        severity: Severity::Warning,
        target: "bulrush::logging",
        line: None,
        fields: &fields,
        spans: &[],
    };
    if json { event.json() } else { event.text() }
}

/// Control characters as Rust escapes them, so that no text can begin a line of its own.
fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

fn cut(text: &mut String) {
    if text.len() > MAX_LINE {
        let end = cut_to(text, MAX_LINE).len();
        text.truncate(end);
        text.push_str(" …(cut)");
    }
}

/// The longest start of a text of at most `max` bytes.
fn cut_to(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// A moment in UTC with milliseconds, `separator` between date and time.
pub(crate) fn timestamp(at: SystemTime, separator: char) -> String {
    let text = Timestamp::at(at).to_string();
    let millis = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).subsec_millis();
    format!("{}{separator}{}.{millis:03}", &text[..10], &text[11..19])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        for (secs, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (951_868_800, "2000-03-01 00:00:00.000"),
            (1_798_761_599, "2026-12-31 23:59:59.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(secs), ' '), expected);
        }
    }
}
