//! The seam for outlets: a [`WireFormat`] makes bytes that all connections of its format share.
//!
//! The snapshot cache knows no encoding, and the feed knows no protocol: a [`WireFormat`] stands between them. Its bytes do
//! not depend on a connection, so each crumb is encoded (and compressed) once per syncer and format, and all connections get
//! the same `Bytes`.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::model::{AsOf, SyncStatus, Update};

/// A part of a cache's history: the crumbs after `after`, up to and including `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRange {
    /// Sequence number of the crumb before the first one.
    pub after: u64,
    /// Sequence number of the last crumb.
    pub upto: u64,
}

/// Encodes for one protocol and compression. All returned bytes are whole messages (whole compressed chunks).
pub trait WireFormat: Send + Sync + fmt::Debug + 'static {
    /// Short name for logs, metrics and status, for example `gob-snappy`.
    fn name(&self) -> &'static str;

    /// The bytes at the start of a stream, before everything else: type definitions for gob, empty for others.
    fn prefix(&self) -> Bytes;

    /// Opens a snapshot of the cache at crumb `sequence`, with `entries` keys. Empty where the protocol has no such message.
    fn snapshot_begin(&self, _sequence: u64, _entries: usize) -> Bytes {
        Bytes::new()
    }

    /// A part of a snapshot, in key order. Every entry counts as new, whatever its stored type. `entries` is not empty.
    /// Returns the bytes and their size before compression.
    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize);

    /// Closes a snapshot. Empty where the protocol has no such message.
    fn snapshot_end(&self, _sequence: u64, _as_of: Option<&AsOf>) -> Bytes {
        Bytes::new()
    }

    /// Changes, in order, with their own types. `updates` may be empty only for protocols that number their messages.
    fn updates(&self, range: SeqRange, updates: &[Arc<Update>]) -> Bytes;

    /// A status, which counts from crumb `sequence` on.
    fn status(&self, sequence: u64, status: SyncStatus) -> Bytes;

    /// Asks for a sign of life.
    fn ping(&self, now: SystemTime, as_of: Option<&AsOf>) -> Bytes;

    /// Tells the reason why the connection is about to be closed, and addresses (`host:port`) that the client may go to instead,
    /// best first. `None`: the protocol has no such message.
    fn goodbye(&self, _reason: &str, _alternatives: &[String]) -> Option<Bytes> {
        None
    }
}
