//! Prints events: rows for people here, [`lines`](super::lines) for programs.
//!
//! Keys and values come from a datastore, so their control characters are removed before they reach a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use super::lines::{Form, change};
use super::screen::{Colour, Screen};
use super::shown::Format;
use crate::model::Update;
use crate::syncclient::SyncEvent;

/// Least room for a value in a row; a narrower terminal wraps the row.
const MIN_VALUE_CHARS: usize = 10;

/// Writes events to an output in one form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renderer {
    format: Format,
    screen: Screen,
}

impl Renderer {
    /// Rows for a screen, or documents.
    #[must_use]
    pub(super) fn new(format: Format, screen: Screen) -> Self {
        Self { format, screen }
    }

    /// A key of a snapshot.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn entry(&self, update: &Update, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            Format::Table => self.row("", None, update, out),
            Format::Json => Form::Json.entry(update, out),
            Format::Yaml => Form::Yaml.entry(update, out),
        }
    }

    /// An event as it happens. `keys` is the number of keys held after it.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn event(&self, event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            Format::Table => self.table_event(event, keys, out),
            Format::Json => Form::Json.event(event, keys, out),
            Format::Yaml => Form::Yaml.event(event, keys, out),
        }
    }

    fn table_event(&self, event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
        let note = match event {
            SyncEvent::Updates(updates) => {
                return updates.iter().try_for_each(|update| {
                    let (sign, colour) = match change(update) {
                        "new" => ("+ ", Colour::Green),
                        "deleted" => ("- ", Colour::Red),
                        "invalid" => ("! ", Colour::Red),
                        _ => ("~ ", Colour::Yellow),
                    };
                    self.row(sign, Some(colour), update, out)
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
        writeln!(out, "{}", self.screen.paint(Colour::Faint, &format!("== {}", printable(&note))))
    }

    fn row(&self, sign: &str, colour: Option<Colour>, update: &Update, out: &mut impl Write) -> io::Result<()> {
        let row = self.fitted(sign, update);
        match colour {
            Some(colour) => writeln!(out, "{}", self.screen.paint(colour, row.trim_end())),
            None => writeln!(out, "{}", row.trim_end()),
        }
    }

    /// A row that fits the screen.
    fn fitted(&self, sign: &str, update: &Update) -> String {
        let key = printable(&update.key);
        let value = match &update.value {
            None => Cow::Borrowed(""),
            Some(value) => Cow::Owned(printable(&String::from_utf8_lossy(&value.bytes)).into_owned()),
        };
        let revision = if update.revision.is_empty() { String::new() } else { format!("  @{}", update.revision) };
        let row = format!("{sign}{key}{revision}  {value}");
        let Some(width) = self.screen.width else { return row };
        if row.trim_end().chars().count() <= width {
            return row;
        }
        // A row that is too long loses, in this order: the value beyond its first characters, the revision, the start of the key.
        let room = width.saturating_sub(sign.len() + if value.is_empty() { 0 } else { MIN_VALUE_CHARS + 2 });
        let head = format!("{key}{revision}");
        let head =
            if head.chars().count() <= room { Cow::Owned(head) } else { cut_front(&key, room.max(MIN_VALUE_CHARS)) };
        let left = width.saturating_sub(sign.len() + head.chars().count() + 2);
        let value = cut(&value, left.max(MIN_VALUE_CHARS));
        format!("{sign}{head}  {value}")
    }
}

/// Text without control characters.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::model::{AsOf, Key, SyncStatus, UpdateType, Value};
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

    fn render(format: Format, width: Option<usize>) -> String {
        render_on(format, Screen { width, colours: false })
    }

    fn render_on(format: Format, screen: Screen) -> String {
        let renderer = Renderer::new(format, screen);
        let mut out = Vec::new();
        for event in events() {
            renderer.event(&event, 5, &mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_lines_are_stable() {
        let text = render(Format::Json, None);
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
    fn documents_say_the_same_as_lines() {
        let text = render(Format::Yaml, None);
        let objects = |text: String| -> Vec<serde_json::Value> { serde_saphyr::from_multiple(&text).unwrap() };
        let lines: Vec<serde_json::Value> =
            render(Format::Json, None).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects(text.clone()), lines, "{text}");
    }

    #[test]
    fn rows_are_coloured_where_that_is_wanted() {
        let text = render_on(Format::Table, Screen { width: Some(40), colours: true });
        for row in ["\x1b[32m+ /calico/v1/config/Number  12345678901…\x1b[0m", "\x1b[31m- /k/object\x1b[0m"] {
            assert!(text.lines().any(|line| line == row), "{text:?}");
        }
        let plain = text.replace("\x1b[0m", "").replace("\x1b[31m", "").replace("\x1b[32m", "");
        let plain = plain.replace("\x1b[33m", "").replace("\x1b[2m", "");
        assert_eq!(plain, render(Format::Table, Some(40)), "colours take no room");
    }

    #[test]
    fn rows_are_for_people() {
        insta::assert_snapshot!(render(Format::Table, None), @r##"
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
            for row in render(Format::Table, Some(width)).lines().filter(|row| !row.starts_with("==")) {
                assert!(row.chars().count() <= width, "{width}: {row}");
            }
        }
        insta::assert_snapshot!(render(Format::Table, Some(40)), @r##"
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
