//! Writes messages as payload bytes and reads them, in the bincode format (wincode), with all limits of [`super`].
//!
//! The configuration is fixed for all versions: little-endian, variable-length integers, also for lengths, and one
//! byte for an option's tag. As in bincode, a list is its length and its elements. Lists are read by hand, so that the count is
//! checked before anything is allocated.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use wincode::config::Configuration;
use wincode::int_encoding::{LittleEndian, VarInt};
use wincode::len::BincodeLen;
use wincode::{SchemaRead, SchemaWrite};

use super::messages::{Ack, ClientHello, Goodbye, KeyError, Limits, Position, ServerHello};
use super::{
    Error, MAX_ACK_ERRORS, MAX_ALTERNATIVES, MAX_COMPRESSIONS, MAX_KEY_BYTES, MAX_PREFIXES, MAX_SERVER_FRAME_BYTES,
    MAX_TEXT_BYTES, MAX_UPDATES_ACCEPTED,
};
use crate::model::{AsOf, Key, SyncStatus, Update, UpdateType, Value};

/// The one bincode configuration of the protocol.
///
/// wincode's own allocation limit is never reached: all texts and byte strings are borrowed from the payload.
type Config = Configuration<true, MAX_SERVER_FRAME_BYTES, BincodeLen, LittleEndian, VarInt>;

const CONFIG: Config =
    Configuration::default().with_preallocation_size_limit::<MAX_SERVER_FRAME_BYTES>().with_varint_encoding();

/// An update on the wire.
#[derive(SchemaWrite, SchemaRead)]
struct WireUpdate<'a> {
    key: &'a str,
    value: Option<&'a [u8]>,
    revision: &'a str,
    v3_resource_version: &'a str,
    ttl_ns: u64,
    update_type: u8,
}

/// Fewest bytes of an update: five lengths or tags of one byte, and the type.
const MIN_UPDATE_BYTES: usize = 6;

#[derive(SchemaWrite, SchemaRead)]
struct WireAsOf<'a> {
    at_unix_ns: u64,
    revision: &'a str,
}

#[derive(SchemaWrite, SchemaRead)]
struct WirePosition {
    epoch: u64,
    seq: u64,
}

/// Appends a value's bytes.
fn put<T>(out: &mut Vec<u8>, value: &T)
where
    T: SchemaWrite<Config, Src = T>,
{
    wincode::config::serialize_into(out, value, CONFIG).expect("memory takes any value, and no length exceeds 64 bits");
}

/// Reads a payload from front to back.
pub(super) struct Reader<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8], what: &'static str) -> Self {
        Self { left: payload, what }
    }

    fn take<T>(&mut self) -> Result<T, Error>
    where
        T: SchemaRead<'a, Config, Dst = T>,
    {
        T::get(&mut self.left).map_err(|error| Error::Payload { what: self.what, reason: error.to_string() })
    }

    /// A text of at most [`MAX_TEXT_BYTES`].
    fn text(&mut self) -> Result<String, Error> {
        self.text_within(MAX_TEXT_BYTES).map(str::to_owned)
    }

    fn text_within(&mut self, limit: usize) -> Result<&'a str, Error> {
        let text = self.take::<&str>()?;
        if text.len() > limit {
            return Err(Error::TooLong { what: self.what, bytes: text.len(), limit });
        }
        Ok(text)
    }

    /// A count of elements of at least `min_bytes` each.
    fn count(&mut self, min_bytes: usize, limit: usize) -> Result<usize, Error> {
        let announced = self.take::<u64>()?;
        let limit = limit.min(self.left.len() / min_bytes);
        match usize::try_from(announced) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(Error::Count { what: self.what, announced, limit }),
        }
    }

    fn texts(&mut self, limit: usize) -> Result<Vec<String>, Error> {
        let count = self.count(1, limit)?;
        (0..count).map(|_| self.text()).collect()
    }

    pub(super) fn as_of(&mut self) -> Result<Option<AsOf>, Error> {
        let Some(wire) = self.take::<Option<WireAsOf<'a>>>()? else { return Ok(None) };
        Ok(Some(AsOf { revision: Arc::from(wire.revision), at: self.time(wire.at_unix_ns)? }))
    }

    fn time(&self, unix_ns: u64) -> Result<SystemTime, Error> {
        UNIX_EPOCH.checked_add(Duration::from_nanos(unix_ns)).ok_or_else(|| Error::Payload {
            what: self.what,
            reason: format!("time {unix_ns} ns after 1970 is beyond this machine's clock"),
        })
    }

    fn update(&mut self) -> Result<Update, Error> {
        let wire = self.take::<WireUpdate<'a>>()?;
        let update_type = UpdateType::from_wire(wire.update_type.into()).ok_or_else(|| Error::Payload {
            what: self.what,
            reason: format!("key {}: update type {} is not known", wire.key.escape_debug(), wire.update_type),
        })?;
        Ok(Update {
            key: Key::from(wire.key),
            // Copied, not sliced: a small value must not keep its whole frame in memory.
            value: wire.value.map(|bytes| Value::raw(Bytes::copy_from_slice(bytes))),
            revision: Arc::from(wire.revision),
            v3_resource_version: Arc::from(wire.v3_resource_version),
            ttl: Duration::from_nanos(wire.ttl_ns),
            update_type,
            origin: None,
        })
    }

    /// A list of updates.
    pub(super) fn updates(&mut self) -> Result<Vec<Update>, Error> {
        let count = self.count(MIN_UPDATE_BYTES, MAX_UPDATES_ACCEPTED)?;
        (0..count).map(|_| self.update()).collect()
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        self.take()
    }

    pub(super) fn timed(&mut self) -> Result<SystemTime, Error> {
        let unix_ns = self.number()?;
        self.time(unix_ns)
    }

    pub(super) fn status(&mut self) -> Result<SyncStatus, Error> {
        let number = self.take::<u8>()?;
        SyncStatus::from_wire(number.into())
            .ok_or_else(|| Error::Payload { what: self.what, reason: format!("status {number} is not known") })
    }

    pub(super) fn client_hello(&mut self) -> Result<ClientHello, Error> {
        Ok(ClientHello {
            min_version: self.take::<u16>()?,
            max_version: self.take::<u16>()?,
            agent: self.text()?,
            agent_version: self.text()?,
            syncer: self.text()?,
            compressions: self.texts(MAX_COMPRESSIONS)?,
            prefixes: self.texts(MAX_PREFIXES)?,
            resume: self.take::<Option<WirePosition>>()?.map(|at| Position { epoch: at.epoch, seq: at.seq }),
            conn_id: self.take::<u64>()?,
        })
    }

    pub(super) fn server_hello(&mut self) -> Result<ServerHello, Error> {
        Ok(ServerHello {
            version: self.take::<u16>()?,
            server: self.text()?,
            server_version: self.text()?,
            syncer: self.text()?,
            compression: self.text()?,
            epoch: self.take::<u64>()?,
            conn_id: self.take::<u64>()?,
            resumed: self.take::<bool>()?,
            limits: Limits {
                max_frame_bytes: self.take::<u32>()?,
                ping_interval_ms: self.take::<u64>()?,
                pong_timeout_ms: self.take::<u64>()?,
            },
        })
    }

    pub(super) fn ack(&mut self) -> Result<Ack, Error> {
        let applied = self.take::<u64>()?;
        let count = self.count(2, MAX_ACK_ERRORS)?;
        let errors = (0..count).map(|_| {
            let key = Key::from(self.text_within(MAX_KEY_BYTES)?);
            Ok(KeyError { key, reason: self.text()? })
        });
        let errors = errors.collect::<Result<_, Error>>()?;
        Ok(Ack { applied, errors })
    }

    pub(super) fn goodbye(&mut self) -> Result<Goodbye, Error> {
        Ok(Goodbye { reason: self.text()?, alternatives: self.texts(MAX_ALTERNATIVES)? })
    }

    /// Checks that nothing is left. Not for hellos, to which later versions may append fields.
    pub(super) fn end(self) -> Result<(), Error> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(Error::TrailingBytes { what: self.what, bytes: self.left.len() })
        }
    }
}

/// The longest start of `text` that has at most `limit` bytes and ends between characters.
fn clip(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, &clip(text, MAX_TEXT_BYTES));
}

fn put_texts(out: &mut Vec<u8>, texts: &[String], limit: usize) {
    let texts = &texts[..texts.len().min(limit)];
    put(out, &(texts.len() as u64));
    for text in texts {
        put_text(out, text);
    }
}

/// Nanoseconds since 1970; zero for earlier times.
fn unix_ns(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    put(out, &number);
}

pub(super) fn put_time(out: &mut Vec<u8>, at: SystemTime) {
    put(out, &unix_ns(at));
}

pub(super) fn put_as_of(out: &mut Vec<u8>, as_of: Option<&AsOf>) {
    put(out, &as_of.map(|as_of| WireAsOf { at_unix_ns: unix_ns(as_of.at), revision: &as_of.revision }));
}

pub(super) fn put_status(out: &mut Vec<u8>, status: SyncStatus) {
    put(out, &(status as u8));
}

/// Number of bytes of an update, roughly: an upper bound, except for texts of more than 64 KiB.
pub(super) fn update_bytes(update: &Update) -> usize {
    const FIXED: usize = 32;
    let value = update.value.as_ref().map_or(0, |value| value.bytes.len());
    FIXED + update.key.len() + value + update.revision.len() + update.v3_resource_version.len()
}

/// Appends one update. With `as_new` its type is New, as in a snapshot.
pub(super) fn put_update(out: &mut Vec<u8>, update: &Update, as_new: bool) {
    let wire = WireUpdate {
        key: &update.key,
        value: update.value.as_ref().map(|value| &value.bytes[..]),
        revision: &update.revision,
        v3_resource_version: &update.v3_resource_version,
        ttl_ns: u64::try_from(update.ttl.as_nanos()).unwrap_or(u64::MAX),
        update_type: if as_new { UpdateType::New } else { update.update_type } as u8,
    };
    put(out, &wire);
}

pub(super) fn put_client_hello(out: &mut Vec<u8>, hello: &ClientHello) {
    put(out, &hello.min_version);
    put(out, &hello.max_version);
    put_text(out, &hello.agent);
    put_text(out, &hello.agent_version);
    put_text(out, &hello.syncer);
    put_texts(out, &hello.compressions, MAX_COMPRESSIONS);
    put_texts(out, &hello.prefixes, MAX_PREFIXES);
    put(out, &hello.resume.map(|at| WirePosition { epoch: at.epoch, seq: at.seq }));
    put(out, &hello.conn_id);
}

pub(super) fn put_server_hello(out: &mut Vec<u8>, hello: &ServerHello) {
    put(out, &hello.version);
    put_text(out, &hello.server);
    put_text(out, &hello.server_version);
    put_text(out, &hello.syncer);
    put_text(out, &hello.compression);
    put(out, &hello.epoch);
    put(out, &hello.conn_id);
    put(out, &hello.resumed);
    put(out, &hello.limits.max_frame_bytes);
    put(out, &hello.limits.ping_interval_ms);
    put(out, &hello.limits.pong_timeout_ms);
}

pub(super) fn put_ack(out: &mut Vec<u8>, ack: &Ack) {
    put(out, &ack.applied);
    let errors = &ack.errors[..ack.errors.len().min(MAX_ACK_ERRORS)];
    put(out, &(errors.len() as u64));
    for error in errors {
        put(out, &clip(&error.key, MAX_KEY_BYTES));
        put_text(out, &error.reason);
    }
}

pub(super) fn put_goodbye(out: &mut Vec<u8>, reason: &str, alternatives: &[String]) {
    put_text(out, reason);
    put_texts(out, alternatives, MAX_ALTERNATIVES);
}
