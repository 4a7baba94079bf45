//! Encodes messages, with fixed type ids and without definitions.
//!
//! The lengths of frames and interface values stand before them. So the sizes of all parts are computed first, and then the
//! bytes are written once, in order, into memory that is reserved once.

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::super::messages::{GobTime, Message, SerializedUpdate};
use super::number::{int_len, put_int, put_uint, uint_len};
use super::schema::{NAME_PREFIX, Struct, id};
use crate::model::{Update, UpdateType};

/// The registered name of a revision's type.
const STRING: &str = "string";
/// The terminators of a message and its envelope.
const END: [u8; 2] = [0, 0];

/// Appends one message: a value for a stream that began with [`server_prefix`](super::server_prefix) or
/// [`client_prefix`](super::client_prefix), depending on the sender.
///
/// A revision that is not a string is sent as the string that Go would print for it.
pub fn encode(message: &Message, out: &mut BytesMut) {
    if let Message::Kvs(updates) = message {
        envelope_of_updates(updates.iter().map(UpdateParts::from), out);
        return;
    }
    let mut size = Sizer(0);
    put_fields(message, &mut size);
    envelope(Struct::of(message), size.0, out);
    put_fields(message, &mut Writer(out));
    out.put_slice(&END);
}

/// Appends one `MsgKVs` of these updates of the model. With `as_new` every update counts as new, as in a snapshot;
/// otherwise it keeps its type.
pub fn encode_updates<'a>(
    updates: impl ExactSizeIterator<Item = &'a Update> + Clone,
    as_new: bool,
    out: &mut BytesMut,
) {
    envelope_of_updates(updates.map(|update| UpdateParts::of_model(update, as_new)), out);
}

/// Takes the parts of a struct: one implementation adds up their size, another one writes them.
trait Sink {
    fn uint(&mut self, value: u64);
    fn int(&mut self, value: i64);
    fn bytes(&mut self, bytes: &[u8]);
}

struct Sizer(usize);

impl Sink for Sizer {
    fn uint(&mut self, value: u64) {
        self.0 += uint_len(value);
    }

    fn int(&mut self, value: i64) {
        self.0 += int_len(value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += uint_len(bytes.len() as u64) + bytes.len();
    }
}

struct Writer<'a>(&'a mut BytesMut);

impl Sink for Writer<'_> {
    fn uint(&mut self, value: u64) {
        put_uint(self.0, value);
    }

    fn int(&mut self, value: i64) {
        put_int(self.0, value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        put_uint(self.0, bytes.len() as u64);
        self.0.put_slice(bytes);
    }
}

/// Writes the fields of a struct in order. Zero values are left out; a field's number is relative to the last field written.
struct Fields<'a, S> {
    sink: &'a mut S,
    /// Number of the next field, counted from 1.
    number: u64,
    /// Number of the last field written.
    written: u64,
}

impl<'a, S: Sink> Fields<'a, S> {
    fn new(sink: &'a mut S) -> Self {
        Self { sink, number: 0, written: 0 }
    }

    /// Goes to the next field, and writes its relative number if it is there.
    fn field(&mut self, is_there: bool) -> bool {
        self.number += 1;
        if is_there {
            self.sink.uint(self.number - self.written);
            self.written = self.number;
        }
        is_there
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if self.field(!bytes.is_empty()) {
            self.sink.bytes(bytes);
        }
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn uint(&mut self, value: u64) -> &mut Self {
        if self.field(value != 0) {
            self.sink.uint(value);
        }
        self
    }

    fn int(&mut self, value: i64) -> &mut Self {
        if self.field(value != 0) {
            self.sink.int(value);
        }
        self
    }

    fn bool(&mut self, value: bool) -> &mut Self {
        self.uint(value.into())
    }

    fn time(&mut self, time: &GobTime) -> &mut Self {
        self.bytes(&time.0)
    }

    fn texts(&mut self, texts: &[String]) -> &mut Self {
        if self.field(!texts.is_empty()) {
            self.sink.uint(texts.len() as u64);
            for text in texts {
                self.sink.bytes(text.as_bytes());
            }
        }
        self
    }
}

/// The fields of a message that holds no updates.
fn put_fields<S: Sink>(message: &Message, sink: &mut S) {
    let mut fields = Fields::new(sink);
    match message {
        Message::ClientHello(hello) => {
            fields
                .text(&hello.hostname)
                .text(&hello.info)
                .text(&hello.version)
                .text(&hello.syncer_type)
                .bool(hello.supports_decoder_restart)
                .texts(&hello.supported_compression_algorithms)
                .bool(hello.supports_modern_policy_keys)
                .uint(hello.client_conn_id);
        }
        Message::ServerHello(hello) => {
            fields
                .text(&hello.version)
                .text(&hello.syncer_type)
                .bool(hello.supports_node_resource_updates)
                .uint(hello.server_conn_id);
        }
        Message::DecoderRestart(restart) => {
            fields.text(&restart.message).text(&restart.compression_algorithm);
        }
        Message::Ack | Message::Kvs(_) => {}
        Message::SyncStatus(status) => {
            fields.uint((*status).into());
        }
        Message::Ping(ping) => {
            fields.time(&ping.timestamp);
        }
        Message::Pong(pong) => {
            fields.time(&pong.ping_timestamp).time(&pong.pong_timestamp);
        }
    }
}

/// Writes the frame's length, and the envelope up to the message's first field. The caller then writes the fields, `fields`
/// bytes in all, and [`END`].
fn envelope(sent: Struct, fields: usize, out: &mut BytesMut) {
    let name_len = NAME_PREFIX.len() + sent.name().len();
    let value = fields as u64 + 1;
    let frame = int_len(Struct::Envelope.id().into())
        + 1
        + uint_len(name_len as u64)
        + name_len
        + int_len(sent.id().into())
        + uint_len(value)
        + fields
        + END.len();
    out.reserve(uint_len(frame as u64) + frame);
    put_uint(out, frame as u64);
    put_int(out, Struct::Envelope.id().into());
    out.put_u8(1);
    put_uint(out, name_len as u64);
    out.put_slice(NAME_PREFIX.as_bytes());
    out.put_slice(sent.name().as_bytes());
    put_int(out, sent.id().into());
    put_uint(out, value);
}

/// The fields of an update.
struct UpdateParts<'a> {
    key: &'a [u8],
    value: &'a [u8],
    /// `None` is Go's nil.
    revision: Option<&'a str>,
    v3_resource_version: &'a str,
    ttl_ns: i64,
    update_type: u8,
}

impl<'a> From<&'a SerializedUpdate> for UpdateParts<'a> {
    fn from(update: &'a SerializedUpdate) -> Self {
        Self {
            key: &update.key,
            value: &update.value,
            revision: update.revision.as_ref().map(|revision| revision.text.as_str()),
            v3_resource_version: &update.v3_resource_version,
            ttl_ns: update.ttl_ns,
            update_type: update.update_type,
        }
    }
}

impl<'a> UpdateParts<'a> {
    fn of_model(update: &'a Update, as_new: bool) -> Self {
        Self {
            key: update.key.as_str().as_bytes(),
            value: update.value.as_ref().map_or(&[], |value| &value.bytes),
            revision: Some(&update.revision),
            v3_resource_version: &update.v3_resource_version,
            ttl_ns: nanoseconds(update.ttl),
            update_type: if as_new { UpdateType::New } else { update.update_type } as u8,
        }
    }

    /// Writes the update with its terminator.
    fn put<S: Sink>(&self, sink: &mut S) {
        let mut fields = Fields::new(sink);
        fields.bytes(self.key).bytes(self.value);
        if fields.field(self.revision.is_some()) {
            let text = self.revision.unwrap_or_default().as_bytes();
            fields.sink.bytes(STRING.as_bytes());
            fields.sink.int(id::STRING.into());
            fields.sink.uint((1 + uint_len(text.len() as u64) + text.len()) as u64);
            fields.sink.uint(0);
            fields.sink.bytes(text);
        }
        fields.text(self.v3_resource_version).int(self.ttl_ns).uint(self.update_type.into());
        sink.uint(0);
    }
}

fn nanoseconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX)
}

fn envelope_of_updates<'a>(updates: impl ExactSizeIterator<Item = UpdateParts<'a>> + Clone, out: &mut BytesMut) {
    let count = updates.len();
    let fields = if count == 0 {
        0
    } else {
        let mut size = Sizer(1 + uint_len(count as u64));
        updates.clone().for_each(|update| update.put(&mut size));
        size.0
    };
    envelope(Struct::Kvs, fields, out);
    if count > 0 {
        let mut writer = Writer(out);
        writer.uint(1);
        writer.uint(count as u64);
        updates.for_each(|update| update.put(&mut writer));
    }
    out.put_slice(&END);
}
