//! The wire formats of Calico's protocol: plain gob, and gob in snappy chunks.
//!
//! The snapshot sharer and the feed call these through [`WireFormat`]. Their bytes are the same for every connection.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};

use super::format::{SeqRange, WireFormat};
use super::messages::{GobTime, Message, Ping};
use super::{gob, snappy};
use crate::model::{AsOf, SyncStatus, Update};

/// Most updates in one message: Typha's number for its binary snapshot. Clients have a time limit per message, so a
/// slow link needs many small messages.
const UPDATES_PER_MESSAGE: usize = 1000;

/// Plain gob.
#[derive(Clone, Copy, Debug, Default)]
pub struct GobPlain;

/// Gob in framed snappy. Every call returns whole chunks; the stream identifier is part of the prefix.
#[derive(Clone, Copy, Debug, Default)]
pub struct GobSnappy;

impl WireFormat for GobPlain {
    fn name(&self) -> &'static str {
        "gob"
    }

    /// All definitions. A handshake that has sent them must not send them again.
    fn prefix(&self) -> Bytes {
        gob::server_prefix()
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        let bytes = messages(entries, true);
        let size = bytes.len();
        (bytes, size)
    }

    fn updates(&self, _range: SeqRange, updates: &[Arc<Update>]) -> Bytes {
        messages(updates, false)
    }

    fn status(&self, _sequence: u64, status: SyncStatus) -> Bytes {
        message(&Message::SyncStatus(status as u8))
    }

    fn ping(&self, now: SystemTime, _as_of: Option<&AsOf>) -> Bytes {
        message(&Message::Ping(Ping { timestamp: GobTime::from_system_time(now) }))
    }
}

impl WireFormat for GobSnappy {
    fn name(&self) -> &'static str {
        "gob-snappy"
    }

    /// The stream identifier and all definitions.
    fn prefix(&self) -> Bytes {
        compress(&gob::server_prefix(), true)
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        let (raw, size) = GobPlain.snapshot_chunk(entries);
        (compress(&raw, false), size)
    }

    fn updates(&self, range: SeqRange, updates: &[Arc<Update>]) -> Bytes {
        compress(&GobPlain.updates(range, updates), false)
    }

    fn status(&self, sequence: u64, status: SyncStatus) -> Bytes {
        compress(&GobPlain.status(sequence, status), false)
    }

    fn ping(&self, now: SystemTime, as_of: Option<&AsOf>) -> Bytes {
        compress(&GobPlain.ping(now, as_of), false)
    }
}

/// One message.
fn message(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    gob::encode(message, &mut out);
    trimmed(out)
}

/// Updates, in as many messages as they need. No bytes if there is no update.
fn messages(updates: &[Arc<Update>], as_new: bool) -> Bytes {
    let mut out = BytesMut::new();
    for part in updates.chunks(UPDATES_PER_MESSAGE) {
        gob::encode_updates(part.iter().map(Arc::as_ref), as_new, &mut out);
    }
    trimmed(out)
}

fn compress(raw: &[u8], with_identifier: bool) -> Bytes {
    let mut out = BytesMut::new();
    snappy::frame(raw, &mut out, with_identifier);
    trimmed(out)
}

/// Freezes without much spare room, because the slowest connection may keep these bytes for long.
fn trimmed(out: BytesMut) -> Bytes {
    if out.capacity() - out.len() > out.len() / 8 { Bytes::copy_from_slice(&out) } else { out.freeze() }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::super::gob::{Decoder, Envelope, Limits};
    use super::*;
    use crate::model::{UpdateType, Value, no_revision};

    const RANGE: SeqRange = SeqRange { after: 0, upto: 1 };

    fn update(number: usize) -> Arc<Update> {
        Arc::new(Update {
            key: format!("/calico/v1/config/Key{number:05}").into(),
            value: Some(Value::raw(format!("value {number}"))),
            revision: number.to_string().into(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::Updated,
            origin: None,
        })
    }

    fn read(gob: &[u8]) -> Vec<Message> {
        let mut decoder = Decoder::new(Limits::client());
        decoder.push(gob);
        let messages =
            std::iter::from_fn(|| decoder.next().unwrap()).map(|Envelope(message)| message.unwrap()).collect();
        decoder.finish().unwrap();
        messages
    }

    fn unpack(snappy: &[u8]) -> Vec<u8> {
        let mut decoder = snappy::Decoder::new();
        decoder.push(snappy);
        let mut content = Vec::new();
        while let Some(chunk) = decoder.next_chunk().unwrap() {
            content.extend_from_slice(&chunk);
        }
        decoder.finish().unwrap();
        content
    }

    /// Everything that a stream may hold, in this format.
    fn stream(format: &dyn WireFormat, updates: &[Arc<Update>]) -> Vec<u8> {
        [
            format.prefix(),
            format.snapshot_begin(7, updates.len()),
            format.snapshot_chunk(updates).0,
            format.snapshot_end(7, None),
            format.status(7, SyncStatus::InSync),
            format.updates(RANGE, &updates[..2]),
            format.ping(UNIX_EPOCH + Duration::from_millis(1500), None),
        ]
        .concat()
    }

    fn check(messages: &[Message]) {
        let [Message::Kvs(first), Message::Kvs(second), Message::Kvs(third), rest @ ..] = messages else {
            panic!("2,500 updates are three messages: {messages:?}");
        };
        assert_eq!([first.len(), second.len(), third.len()], [1000, 1000, 500]);
        assert_eq!(first[0].update_type, UpdateType::New as u8, "a snapshot says new");
        assert_eq!(third[499].key, "/calico/v1/config/Key02499");
        assert_eq!(third[499].revision.as_ref().unwrap().text, "2499");
        let [Message::SyncStatus(2), Message::Kvs(delta), Message::Ping(ping)] = rest else {
            panic!("then the rest: {rest:?}");
        };
        assert_eq!(delta.len(), 2);
        assert_eq!(delta[1].update_type, UpdateType::Updated as u8, "a delta keeps its type");
        assert_eq!(ping.timestamp.to_system_time(), Some(UNIX_EPOCH + Duration::from_millis(1500)));
    }

    #[test]
    fn both_formats_carry_the_same() {
        let updates: Vec<_> = (0..2500).map(update).collect();
        let plain = stream(&GobPlain, &updates);
        check(&read(&plain));
        let packed = stream(&GobSnappy, &updates);
        assert_eq!(unpack(&packed), plain);
        assert!(packed.len() < plain.len() / 2, "{} of {}", packed.len(), plain.len());
    }

    #[test]
    fn the_size_before_compression_is_told() {
        let updates: Vec<_> = (0..100).map(update).collect();
        let (plain, plain_size) = GobPlain.snapshot_chunk(&updates);
        assert_eq!(plain_size, plain.len());
        assert_eq!(GobSnappy.snapshot_chunk(&updates).1, plain_size);
    }

    #[test]
    fn nothing_is_sent_where_there_is_nothing_to_say() {
        assert!(GobPlain.updates(RANGE, &[]).is_empty());
        assert!(GobSnappy.updates(RANGE, &[]).is_empty());
        assert!(GobSnappy.snapshot_begin(1, 0).is_empty());
        assert!(GobSnappy.snapshot_end(1, None).is_empty());
        assert_eq!(GobSnappy.goodbye("drained", &[]), None);
    }

    #[test]
    fn only_the_prefix_has_the_stream_identifier() {
        assert!(GobSnappy.prefix().starts_with(snappy::STREAM_IDENTIFIER));
        assert!(!GobSnappy.status(1, SyncStatus::InSync).starts_with(snappy::STREAM_IDENTIFIER));
    }
}
