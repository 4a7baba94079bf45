//! Events as JSON lines and as YAML documents, for programs. `docs/client.md` describes them.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::{Update, UpdateType};
use crate::syncclient::SyncEvent;

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One line each. Values keep all their digits.
    Json,
    /// One document each, begun by `---`.
    Yaml,
}

impl Form {
    /// A key of a snapshot.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn entry(self, update: &Update, out: &mut impl Write) -> io::Result<()> {
        self.print(&line(update, self), out)
    }

    /// An event as it happens. `keys` is the number of keys held after it.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn event(self, event: &SyncEvent, keys: usize, out: &mut impl Write) -> io::Result<()> {
        match event {
            SyncEvent::Updates(updates) => updates.iter().try_for_each(|update| self.entry(update, out)),
            event => self.print(&note(event, keys), out),
        }
    }

    /// A value of any type.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn print(self, value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Json => {
                serde_json::to_writer(&mut *out, value)?;
                out.write_all(b"\n")
            }
            Self::Yaml => {
                let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
                writeln!(out, "---\n{}", text.trim_end())
            }
        }
    }
}

/// The effect of an update on its key, in a word.
pub(super) fn change(update: &Update) -> &'static str {
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
    /// JSON of several lines, made one line; and JSON as YAML.
    Compact(serde_json::Value),
    Text(&'a str),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn line(update: &Update, form: Form) -> Line<'_> {
    let (mut value, mut value_base64) = (None, None);
    if let Some(present) = &update.value {
        match std::str::from_utf8(&present.bytes) {
            Ok(text) => value = Some(json_value(text, form)),
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

fn json_value(text: &str, form: Form) -> JsonValue<'_> {
    if form == Form::Yaml || text.contains(['\n', '\r']) {
        if let Ok(value) = serde_json::from_str(text) {
            return JsonValue::Compact(value);
        }
    } else if let Ok(raw) = serde_json::from_str::<&RawValue>(text) {
        return JsonValue::Raw(raw);
    }
    JsonValue::Text(text)
}

/// An event that is not an update, as a line.
fn note(event: &SyncEvent, keys: usize) -> Option<Line<'_>> {
    Some(match event {
        SyncEvent::Updates(_) => return None,
        SyncEvent::Status(status) => Line::Status { status: status.as_str(), keys },
        SyncEvent::Progress(as_of) => {
            let since = as_of.at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let at_unix_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            Line::Progress { revision: &as_of.revision, at_unix_ns }
        }
        SyncEvent::Connected { address, server } => Line::Connected {
            address,
            server: &server.name,
            version: &server.version,
            protocol: server.protocol,
            compression: &server.compression,
        },
        SyncEvent::Disconnected { address, reason, retry_in } => {
            let retry_in_ms = retry_in.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
            Line::Disconnected { address, reason: reason.to_string(), retry_in_ms }
        }
    })
}
