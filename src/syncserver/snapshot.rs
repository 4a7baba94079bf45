//! A snapshot encoded once for all clients that arrive together, and read while it is still being made.
//!
//! A snapshot shows one mark of its feed. Its producer walks the mark's map in key order and encodes piece by piece; clients
//! follow at their own pace. When a newer snapshot replaces an old one for the second time, the old one gives up its bytes:
//! clients that are still reading it (slow ones) encode the pieces that they lack for themselves, from the mark's map. So a
//! feed never holds more than two encoded snapshots, however many slow clients there are.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::filter::Filter;
use super::ring::Mark;
use crate::metrics::SyncerMetrics;
use crate::model::{Key, Update};
use crate::snapcache::Map;
use crate::syncproto::format::WireFormat;

/// A piece ends when its values pass this many bytes, so that encoding one never holds up a worker for long and a client
/// gets each message whole well within its read timeout.
const PIECE_BYTES: usize = 512 << 10;

/// What a client finds where it stands in a snapshot.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes, and where the next piece begins.
    Bytes(Bytes, Place),
    /// The producer is not there yet: wait for [`Snapshot::progress`].
    NotYet,
    /// Nothing more.
    End,
}

/// Where a client stands in a snapshot: how many pieces it has, and the last key of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pieces: usize,
    last: Option<Key>,
}

#[derive(Debug)]
struct Encoded {
    bytes: Bytes,
    last: Key,
}

#[derive(Debug, Default)]
struct Pieces {
    encoded: Vec<Encoded>,
    complete: bool,
    given_up: bool,
}

/// A snapshot of a feed.
#[derive(Debug)]
pub(super) struct Snapshot {
    mark: Arc<Mark>,
    format: Arc<dyn WireFormat>,
    filter: Filter,
    piece_entries: usize,
    made_at: Instant,
    pieces: Mutex<Pieces>,
    progress: watch::Sender<u64>,
}

impl Snapshot {
    /// A snapshot of what there is at `mark`, nothing of it encoded yet. A piece has at most `piece_entries` entries.
    pub(super) fn new(
        mark: Arc<Mark>,
        format: Arc<dyn WireFormat>,
        filter: Filter,
        piece_entries: usize,
        now: Instant,
    ) -> Arc<Self> {
        let (progress, _) = watch::channel(0);
        Arc::new(Self { mark, format, filter, piece_entries, made_at: now, pieces: Mutex::default(), progress })
    }

    /// The place in the feed's history that the snapshot shows.
    pub(super) fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// When it was asked for first.
    pub(super) fn made_at(&self) -> Instant {
        self.made_at
    }

    /// Changes whenever there are more pieces, and when they are complete.
    pub(super) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// What opens the snapshot; may be empty.
    pub(super) fn begin(&self) -> Bytes {
        self.format.snapshot_begin(self.mark.sequence, self.mark.map.len())
    }

    /// What closes the snapshot; may be empty.
    pub(super) fn end(&self) -> Bytes {
        self.format.snapshot_end(self.mark.sequence, self.mark.as_of.as_ref())
    }

    /// The piece at a place.
    pub(super) fn piece(&self, place: &Place) -> Piece {
        {
            let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(piece) = pieces.encoded.get(place.pieces) {
                let next = Place { pieces: place.pieces + 1, last: Some(piece.last.clone()) };
                return Piece::Bytes(piece.bytes.clone(), next);
            }
            if !pieces.given_up {
                return if pieces.complete { Piece::End } else { Piece::NotYet };
            }
        }
        match self.encode_after(place.last.as_ref()) {
            Some((bytes, _, last)) => Piece::Bytes(bytes, Place { pieces: place.pieces + 1, last: Some(last) }),
            None => Piece::End,
        }
    }

    /// Drops the encoded pieces. Clients that are not done encode what they lack from now on.
    pub(super) fn give_up(&self) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.given_up = true;
        pieces.encoded = Vec::new();
        drop(pieces);
        self.progress.send_modify(|ticks| *ticks += 1);
    }

    fn encode_after(&self, last: Option<&Key>) -> Option<(Bytes, usize, Key)> {
        let entries = entries_after(&self.mark.map, &self.filter, last, self.piece_entries);
        let last = entries.last()?.key.clone();
        let (bytes, raw) = self.format.snapshot_chunk(&entries);
        Some((bytes, raw, last))
    }

    /// Encodes the whole snapshot, giving way after each piece. Ends early when nobody holds the snapshot any more, or when
    /// it has been given up.
    pub(super) async fn produce(this: Weak<Self>, metrics: SyncerMetrics) {
        let mut last = None;
        let (mut raw_total, mut encoded_total) = (0, 0);
        loop {
            let Some(snapshot) = this.upgrade() else { return };
            let piece = snapshot.encode_after(last.as_ref());
            let done = piece.is_none();
            {
                let mut pieces = snapshot.pieces.lock().unwrap_or_else(PoisonError::into_inner);
                if pieces.given_up {
                    return;
                }
                if let Some((bytes, raw, key)) = piece {
                    raw_total += raw;
                    encoded_total += bytes.len();
                    pieces.encoded.push(Encoded { bytes, last: key.clone() });
                    last = Some(key);
                } else {
                    pieces.complete = true;
                }
            }
            snapshot.progress.send_modify(|ticks| *ticks += 1);
            drop(snapshot);
            if done {
                metrics.snapshot_raw_bytes.set(i64::try_from(raw_total).unwrap_or(i64::MAX));
                metrics.snapshot_compressed_bytes.set(i64::try_from(encoded_total).unwrap_or(i64::MAX));
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The entries of one piece: those that pass the filter after a key, in key order.
fn entries_after(map: &Map, filter: &Filter, last: Option<&Key>, most: usize) -> Vec<Arc<Update>> {
    let from = last.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
    let mut entries = Vec::with_capacity(most.min(map.len()));
    let mut bytes = 0;
    for (key, entry) in map.range((from, Bound::Unbounded)) {
        if !filter.admits(key) {
            continue;
        }
        bytes += entry.value.as_ref().map_or(0, |value| value.bytes.len());
        entries.push(entry.clone());
        if entries.len() == most || bytes >= PIECE_BYTES {
            break;
        }
    }
    entries
}
