//! The outlet seam: what a wire format turns into bytes that may be shared by every connection that speaks it.
//!
//! The snapshot cache knows no encoding, the feed knows no protocol: a [`WireFormat`] stands between them. What it returns
//! does not depend on a connection, so each crumb is encoded (and compressed) once per (syncer, format) and the same `Bytes`
//! go to everybody.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::model::{AsOf, SyncStatus, Update};

/// A stretch of a cache's history: from after `after` up to and including `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRange {
    /// Sequence number of the crumb before the stretch.
    pub after: u64,
    /// Sequence number of the last crumb of the stretch.
    pub upto: u64,
}

/// Encodes for one protocol and compression. All returned bytes are whole messages (whole compressed chunks).
pub trait WireFormat: Send + Sync + fmt::Debug + 'static {
    /// Short name for logs, metrics and status, for example `gob-snappy`.
    fn name(&self) -> &'static str;

    /// What a stream starts with, once, before everything else: type definitions for gob, empty for others.
    fn prefix(&self) -> Bytes;

    /// Opens a snapshot of the cache at crumb `sequence`, with `entries` keys. Empty where the protocol has no such message.
    fn snapshot_begin(&self, sequence: u64, entries: usize) -> Bytes;

    /// A part of a snapshot, in key order. Every entry counts as new, whatever its stored type. `entries` is not empty.
    /// Returns the bytes and their size before compression.
    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize);

    /// Closes a snapshot. Empty where the protocol has no such message.
    fn snapshot_end(&self, sequence: u64, as_of: Option<&AsOf>) -> Bytes;

    /// Changes, in order, with their own types. `updates` may be empty only for protocols that number what they send.
    fn updates(&self, range: SeqRange, updates: &[Arc<Update>]) -> Bytes;

    /// A status, true from crumb `sequence` on.
    fn status(&self, sequence: u64, status: SyncStatus) -> Bytes;

    /// Asks for a sign of life.
    fn ping(&self, now: SystemTime, as_of: Option<&AsOf>) -> Bytes;

    /// Says why the connection is about to be closed, and which addresses (`host:port`) the client may go to instead, best
    /// first. `None`: the protocol has no such message.
    fn goodbye(&self, reason: &str, alternatives: &[String]) -> Option<Bytes>;
}
