//! The wire formats of Calico's protocol: plain gob, and gob in snappy chunks.
//!
//! The snapshot sharer and the feed call these through [`WireFormat`]; what they return is the same for every connection.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};

use super::format::{SeqRange, WireFormat};
use super::messages::{GobTime, Message, Ping};
use super::{gob, snappy};
use crate::model::{AsOf, SyncStatus, Update};

/// Updates in one message at most: Typha's number for its binary snapshot. Clients have a time limit per message, so a
/// slow link should get many.
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

    fn snapshot_begin(&self, _sequence: u64, _entries: usize) -> Bytes {
        Bytes::new()
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        let bytes = messages(entries, true);
        let size = bytes.len();
        (bytes, size)
    }

    fn snapshot_end(&self, _sequence: u64, _as_of: Option<&AsOf>) -> Bytes {
        Bytes::new()
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

    fn goodbye(&self, _reason: &str) -> Option<Bytes> {
        None
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

    fn snapshot_begin(&self, _sequence: u64, _entries: usize) -> Bytes {
        Bytes::new()
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        let (raw, size) = GobPlain.snapshot_chunk(entries);
        (compress(&raw, false), size)
    }

    fn snapshot_end(&self, _sequence: u64, _as_of: Option<&AsOf>) -> Bytes {
        Bytes::new()
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

    fn goodbye(&self, _reason: &str) -> Option<Bytes> {
        None
    }
}

/// One message.
fn message(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    gob::encode(message, &mut out);
    out.freeze()
}

/// Updates, in as many messages as they need; nothing for none.
fn messages(updates: &[Arc<Update>], as_new: bool) -> Bytes {
    let mut out = BytesMut::new();
    for part in updates.chunks(UPDATES_PER_MESSAGE) {
        gob::encode_updates(part.iter().map(Arc::as_ref), as_new, &mut out);
    }
    out.freeze()
}

fn compress(raw: &[u8], with_identifier: bool) -> Bytes {
    let mut out = BytesMut::new();
    snappy::frame(raw, &mut out, with_identifier);
    out.freeze()
}
