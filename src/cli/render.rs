//! Prints events as rows for people and as JSON lines for programs. `docs/client.md` describes the lines.
//!
//! Keys and values come from a datastore, so their control characters are removed before they reach a terminal.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Output;
use crate::model::{Update, UpdateType};
use crate::syncclient::SyncEvent;

/// Least room for a value in a row; a narrower terminal wraps the row.
const MIN_VALUE_CHARS: usize = 10;

/// Writes events to an output in one form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renderer {
    output: Output,
    /// Longest row, in characters. `None`: no limit.
    width: Option<usize>,
}

impl Renderer {
    /// Rows of at most `width` characters, or JSON lines.
    #[must_use]
    pub(super) fn new(output: Output, width: Option<usize>) -> Self {
        Self { output, width }
    }

    /// A key of a snapshot.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn entry(&self, update: &Update, out: &mut impl Write) -> io::Result<()> {
        match self.output {
            Output::Table => self.row("", update, out),
            Output::Json => json(&line(update), out),
        }
    }

    /// An event as it happens. `keys` is the number of keys held after it.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn event(&self, event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
        match self.output {
            Output::Table => self.table_event(event, keys, out),
            Output::Json => json_event(event, keys, out),
        }
    }

    fn table_event(&self, event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
        let note = match event {
            SyncEvent::Updates(updates) => {
                return updates.iter().try_for_each(|update| {
                    let sign = match change(update) {
                        "new" => "+ ",
                        "deleted" => "- ",
                        "invalid" => "! ",
                        _ => "~ ",
                    };
                    self.row(sign, update, out)
                });
            }
            // The next change shows it too.
            SyncEvent::Progress(_) => return Ok(()),
            SyncEvent::Status(status) => format!("{status}, {keys} keys"),
            SyncEvent::Connected { address, server } => {
                let name = if server.name.is_empty() { "server" } else { &server.name };
                format!(
                    "connected to {address}: {name} {}, {} protocol, compression {}",
                    server.version, server.protocol, server.compression
                )
            }
            SyncEvent::Disconnected { address, reason, retry_in } => match retry_in {
                Some(pause) => {
                    format!("no connection to {address}: {reason}; next try in {:.1} s", pause.as_secs_f64())
                }
                None => format!("no connection to {address}: {reason}; giving up"),
            },
        };
        writeln!(out, "== {}", printable(&note))
    }

    fn row(&self, sign: &str, update: &Update, out: &mut impl Write) -> io::Result<()> {
        let key = printable(&update.key);
        let value = match &update.value {
            None => Cow::Borrowed(""),
            Some(value) => Cow::Owned(printable(&String::from_utf8_lossy(&value.bytes)).into_owned()),
        };
        let revision = if update.revision.is_empty() { String::new() } else { format!("  @{}", update.revision) };
        let row = format!("{sign}{key}{revision}  {value}");
        let Some(width) = self.width else { return writeln!(out, "{}", row.trim_end()) };
        if row.trim_end().chars().count() <= width {
            return writeln!(out, "{}", row.trim_end());
        }
        // A row that is too long loses, in this order: the value beyond its first characters, the revision, the start of the key.
        let room = width.saturating_sub(sign.len() + if value.is_empty() { 0 } else { MIN_VALUE_CHARS + 2 });
        let head = format!("{key}{revision}");
        let head =
            if head.chars().count() <= room { Cow::Owned(head) } else { cut_front(&key, room.max(MIN_VALUE_CHARS)) };
        let left = width.saturating_sub(sign.len() + head.chars().count() + 2);
        let value = cut(&value, left.max(MIN_VALUE_CHARS));
        writeln!(out, "{}", format!("{sign}{head}  {value}").trim_end())
    }
}

/// Text without control characters.
fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// At most `chars` characters, with an ellipsis where something is left out.
fn cut(text: &str, chars: usize) -> Cow<'_, str> {
    if text.chars().count() <= chars {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(chars.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// The last `chars` characters at most, because keys differ at their ends.
fn cut_front(text: &str, chars: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= chars {
        return Cow::Borrowed(text);
    }
    Cow::Owned(std::iter::once('…').chain(text.chars().skip(count + 1 - chars)).collect())
}

/// The effect of an update on its key, in a word.
fn change(update: &Update) -> &'static str {
    match (&update.value, update.update_type) {
        (None, UpdateType::Deleted) => "deleted",
        (None, _) => "invalid",
        (Some(_), UpdateType::New) => "new",
        (Some(_), _) => "updated",
    }
}

/// A line of JSON. Field order is part of the form.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Update {
        change: &'static str,
        key: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<JsonValue<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        value_base64: Option<String>,
        revision: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        v3_resource_version: &'a str,
        #[serde(skip_serializing_if = "is_zero")]
        ttl_ns: u64,
    },
    Status {
        status: &'static str,
        keys: usize,
    },
    Progress {
        revision: &'a str,
        at_unix_ns: u64,
    },
    Connected {
        address: &'a str,
        server: &'a str,
        version: &'a str,
        protocol: &'a str,
        compression: &'a str,
    },
    Disconnected {
        address: &'a str,
        reason: String,
        retry_in_ms: Option<u64>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonValue<'a> {
    /// JSON as received, with all its digits.
    Raw(&'a RawValue),
    /// JSON of several lines, made one line.
    Compact(serde_json::Value),
    Text(&'a str),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn line(update: &Update) -> Line<'_> {
    let (mut value, mut value_base64) = (None, None);
    if let Some(present) = &update.value {
        match std::str::from_utf8(&present.bytes) {
            Ok(text) => value = Some(json_value(text)),
            Err(_) => value_base64 = Some(STANDARD.encode(&present.bytes)),
        }
    }
    Line::Update {
        change: change(update),
        key: &update.key,
        value,
        value_base64,
        revision: &update.revision,
        v3_resource_version: &update.v3_resource_version,
        ttl_ns: u64::try_from(update.ttl.as_nanos()).unwrap_or(u64::MAX),
    }
}

fn json_value(text: &str) -> JsonValue<'_> {
    if text.contains(['\n', '\r']) {
        if let Ok(value) = serde_json::from_str(text) {
            return JsonValue::Compact(value);
        }
    } else if let Ok(raw) = serde_json::from_str::<&RawValue>(text) {
        return JsonValue::Raw(raw);
    }
    JsonValue::Text(text)
}

fn json_event(event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
    match event {
        SyncEvent::Updates(updates) => updates.iter().try_for_each(|update| json(&line(update), out)),
        SyncEvent::Status(status) => json(&Line::Status { status: status.as_str(), keys }, out),
        SyncEvent::Progress(as_of) => {
            let since = as_of.at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let at_unix_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            json(&Line::Progress { revision: &as_of.revision, at_unix_ns }, out)
        }
        SyncEvent::Connected { address, server } => {
            let line = Line::Connected {
                address,
                server: &server.name,
                version: &server.version,
                protocol: server.protocol,
                compression: &server.compression,
            };
            json(&line, out)
        }
        SyncEvent::Disconnected { address, reason, retry_in } => {
            let retry_in_ms = retry_in.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
            json(&Line::Disconnected { address, reason: reason.to_string(), retry_in_ms }, out)
        }
    }
}

fn json(line: &Line<'_>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{AsOf, Key, SyncStatus, Value};
    use crate::syncclient::{Error, ServerInfo};

    fn update(key: &str, value: Option<&[u8]>, update_type: UpdateType) -> Update {
        Update {
            key: Key::from(key),
            value: value.map(|value| Value::raw(value.to_vec())),
            revision: "12".into(),
            v3_resource_version: "".into(),
            ttl: Duration::ZERO,
            update_type,
            origin: None,
        }
    }

    fn events() -> Vec<SyncEvent> {
        vec![
            SyncEvent::Connected {
                address: "localhost:5473".to_owned(),
                server: ServerInfo {
                    name: "bulrush-0".to_owned(),
                    version: "0.1.0".to_owned(),
                    protocol: "native",
                    compression: "zstd".to_owned(),
                    conn_id: 1,
                    epoch: Some(2),
                },
            },
            SyncEvent::Updates(vec![
                update("/calico/v1/config/LogSeverityScreen", Some(b"INFO"), UpdateType::New),
                update("/calico/v1/config/Number", Some(b"12345678901234567890.0"), UpdateType::New),
                update("/k/object", Some(b"{\"b\":1,\n \"a\":[2]}"), UpdateType::Updated),
                update("/k/bytes", Some(b"\xff\x00"), UpdateType::Updated),
                update("/k/escape", Some(b"\x1b[31mred"), UpdateType::New),
            ]),
            SyncEvent::Status(SyncStatus::InSync),
            SyncEvent::Updates(vec![
                Update { revision: "".into(), ..update("/k/object", None, UpdateType::Deleted) },
                Update {
                    v3_resource_version: "9".into(),
                    ttl: Duration::from_nanos(5),
                    ..update("/k/bytes", None, UpdateType::Updated)
                },
            ]),
            SyncEvent::Progress(AsOf { revision: "13".into(), at: UNIX_EPOCH + Duration::from_nanos(1) }),
            SyncEvent::Disconnected {
                address: "localhost:5473".to_owned(),
                reason: Error::Closed { hint: "" },
                retry_in: Some(Duration::from_millis(250)),
            },
            SyncEvent::Disconnected { address: "b:1".to_owned(), reason: Error::Stopped, retry_in: None },
        ]
    }

    fn render(output: Output, width: Option<usize>) -> String {
        let renderer = Renderer::new(output, width);
        let mut out = Vec::new();
        for event in events() {
            renderer.event(&event, 5, &mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_lines_are_stable() {
        let text = render(Output::Json, None);
        insta::assert_snapshot!(text, @r##"
        {"type":"connected","address":"localhost:5473","server":"bulrush-0","version":"0.1.0","protocol":"native","compression":"zstd"}
        {"type":"update","change":"new","key":"/calico/v1/config/LogSeverityScreen","value":"INFO","revision":"12"}
        {"type":"update","change":"new","key":"/calico/v1/config/Number","value":12345678901234567890.0,"revision":"12"}
        {"type":"update","change":"updated","key":"/k/object","value":{"a":[2],"b":1},"revision":"12"}
        {"type":"update","change":"updated","key":"/k/bytes","value_base64":"/wA=","revision":"12"}
        {"type":"update","change":"new","key":"/k/escape","value":"\u001b[31mred","revision":"12"}
        {"type":"status","status":"in-sync","keys":5}
        {"type":"update","change":"deleted","key":"/k/object","revision":""}
        {"type":"update","change":"invalid","key":"/k/bytes","revision":"12","v3_resource_version":"9","ttl_ns":5}
        {"type":"progress","revision":"13","at_unix_ns":1}
        {"type":"disconnected","address":"localhost:5473","reason":"server closed the connection","retry_in_ms":250}
        {"type":"disconnected","address":"b:1","reason":"client was closed","retry_in_ms":null}
        "##);
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn rows_are_for_people() {
        insta::assert_snapshot!(render(Output::Table, None), @r##"
        == connected to localhost:5473: bulrush-0 0.1.0, native protocol, compression zstd
        + /calico/v1/config/LogSeverityScreen  @12  INFO
        + /calico/v1/config/Number  @12  12345678901234567890.0
        ~ /k/object  @12  {"b":1,  "a":[2]}
        ~ /k/bytes  @12  �
        + /k/escape  @12   [31mred
        == in-sync, 5 keys
        - /k/object
        ! /k/bytes  @12
        == no connection to localhost:5473: server closed the connection; next try in 0.2 s
        == no connection to b:1: client was closed; giving up
        "##);
    }

    #[test]
    fn rows_fit_the_terminal() {
        for width in [30, 40, 80] {
            for row in render(Output::Table, Some(width)).lines().filter(|row| !row.starts_with("==")) {
                assert!(row.chars().count() <= width, "{width}: {row}");
            }
        }
        insta::assert_snapshot!(render(Output::Table, Some(40)), @r##"
        == connected to localhost:5473: bulrush-0 0.1.0, native protocol, compression zstd
        + …/config/LogSeverityScreen  INFO
        + /calico/v1/config/Number  12345678901…
        ~ /k/object  @12  {"b":1,  "a":[2]}
        ~ /k/bytes  @12  �
        + /k/escape  @12   [31mred
        == in-sync, 5 keys
        - /k/object
        ! /k/bytes  @12
        == no connection to localhost:5473: server closed the connection; next try in 0.2 s
        == no connection to b:1: client was closed; giving up
        "##);
    }
}
