//! A snapshot encoded once for all clients that arrive together, and read while it is still being made.
//!
//! A snapshot shows one mark of its feed. Its producer goes through the mark's map in key order, piece by piece (see
//! [`super::pieces`]): pieces that have not changed since the feed's last snapshot are taken over from that, the others
//! are encoded. Clients follow at their own pace. When a newer snapshot replaces an old one for the second time, the
//! old one gives up the bytes that it does not share with the one after it: slow clients that are still reading it
//! encode those for themselves, from the mark's map. So a feed never holds more than two encoded snapshots, however
//! many slow clients there are, and the two share equal pieces. The snapshot from which a producer takes over is one of
//! these: the producer drops each old piece when it has passed it.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::made::{Awaits, Made};
use super::pieces::{Base, EncodedPiece, Pieces, Recipe};
use super::ring::Mark;
use super::room::RoomShare;
use crate::metrics::SyncerMetrics;
use crate::model::Key;

/// Bytes before compression that are encoded without a pause: then clients are woken and other tasks run.
const YIELD_BYTES: usize = 512 << 10;

/// Bytes for which a piece that is taken over counts there: it costs only a few look-ups.
const TAKEN_OVER_BYTES: usize = 1 << 10;

/// The piece at a client's position in a snapshot.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, and the position after them.
    Bytes(Bytes, SnapshotCursor),
    /// The same, encoded for this client alone.
    Alone(Bytes, SnapshotCursor),
    /// The producer is not there yet: the client is nudged when it is.
    NotYet,
    /// Nothing more.
    End,
}

/// A client's position in a snapshot: the number of pieces that it has, and the last key of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotCursor {
    pieces: usize,
    last: Option<Key>,
}

#[derive(Debug, Default)]
struct Parts {
    /// Without their bytes if these were given up.
    pieces: Vec<EncodedPiece>,
    complete: bool,
    given_up: bool,
    /// Memory that the bytes take, if that is limited.
    taken: Option<RoomShare>,
    /// When the producer last made a piece.
    got_on_at: Option<Instant>,
}

/// The content at a position.
enum Stored {
    Piece(Piece),
    /// Bytes that were given up, up to this key or to the end.
    GivenUp(Option<Key>),
}

/// A snapshot of a feed.
#[derive(Debug)]
pub(crate) struct Snapshot {
    mark: Arc<Mark>,
    recipe: Recipe,
    made_at: Instant,
    made: Made<Parts, dyn Awaits>,
}

impl Snapshot {
    /// A snapshot of the content at `mark`, without pieces yet.
    pub(crate) fn new(mark: Arc<Mark>, recipe: Recipe, now: Instant) -> Arc<Self> {
        Arc::new(Self { mark, recipe, made_at: now, made: Made::new(Parts::default()) })
    }

    /// The mark that the snapshot shows.
    pub(crate) fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// When it was first asked for.
    pub(crate) fn made_at(&self) -> Instant {
        self.made_at
    }

    /// The beginning of the snapshot; may be empty.
    pub(crate) fn begin(&self) -> Bytes {
        self.recipe.format().snapshot_begin(self.mark.sequence, self.mark.map.len())
    }

    /// The end of the snapshot; may be empty.
    pub(crate) fn end(&self) -> Bytes {
        self.recipe.format().snapshot_end(self.mark.sequence, self.mark.as_of.as_ref())
    }

    /// The piece at a position. If it is not there yet, the client `reader` is nudged once there is progress.
    pub(crate) fn piece(&self, cursor: &SnapshotCursor, reader: &Arc<dyn Awaits>) -> Piece {
        let found = self.made.look_for(reader, |made| match made.pieces.get(cursor.pieces) {
            Some(piece) if !piece.bytes.is_empty() => {
                Some(Stored::Piece(Piece::Bytes(piece.bytes.clone(), cursor.after(piece.last.clone()))))
            }
            Some(piece) => Some(Stored::GivenUp(Some(piece.last.clone()))),
            None if made.complete => Some(Stored::Piece(Piece::End)),
            None if made.given_up => Some(Stored::GivenUp(None)),
            None => None,
        });
        let upto = match found {
            None => return Piece::NotYet,
            Some(Stored::Piece(piece)) => return piece,
            Some(Stored::GivenUp(upto)) => upto,
        };
        let Some(piece) = self.recipe.encode_between(&self.mark.map, cursor.last.as_ref(), upto.as_ref()) else {
            return Piece::End;
        };
        let mut next = cursor.after(piece.last);
        if upto.is_some() && next.last != upto {
            next.pieces = cursor.pieces;
        }
        Piece::Alone(piece.bytes, next)
    }

    /// Whether there is a piece or the end at a position, so that no client has to wait there for the producer.
    pub(crate) fn leads_on_from(&self, cursor: &SnapshotCursor) -> bool {
        self.made.see(|made| cursor.pieces < made.pieces.len() || made.complete || made.given_up)
    }

    /// The time for which the producer has made no progress; zero once it is done.
    pub(crate) fn stuck_for(&self, now: Instant) -> Duration {
        self.made.see(|made| {
            let got_on = made.got_on_at.unwrap_or(self.made_at);
            if made.complete || made.given_up { Duration::ZERO } else { now.saturating_duration_since(got_on) }
        })
    }

    /// Drops the bytes that the `newer` snapshot does not hold as well, if that is complete. Clients that are not done
    /// encode the dropped pieces from now on. May be repeated with an even newer snapshot.
    pub(crate) fn give_up(&self, newer: &Self) {
        let held: Option<HashSet<*const u8>> = newer
            .made
            .see(|newer| newer.complete.then(|| newer.pieces.iter().map(|piece| piece.bytes.as_ptr()).collect()));
        // A complete one will share more. The next one tries again.
        let Some(held) = held else { return };
        let dropped: Vec<Bytes> = self.made.progress(|made| {
            made.given_up = true;
            // The newer one holds the rest, and has taken room for it.
            made.taken = None;
            let lost = made.pieces.iter_mut().filter(|piece| !held.contains(&piece.bytes.as_ptr()));
            lost.map(|piece| std::mem::take(&mut piece.bytes)).collect()
        });
        // Not under the lock.
        drop(dropped);
    }

    /// The part of this snapshot that the feed's next one can take over: its pieces so far. `None`: it was given up.
    pub(crate) fn as_base(&self) -> Option<Base> {
        self.made.see(|made| {
            let base = || Base { map: self.mark.map.clone(), pieces: made.pieces.clone(), complete: made.complete };
            (!made.given_up).then(base)
        })
    }

    /// Makes all pieces, and lets other tasks run now and then. Ends early when the snapshot is no longer held, has
    /// been given up, or has no room in the memory of `taken`.
    pub(crate) async fn produce(
        this: Weak<Self>,
        base: Option<Base>,
        mut taken: Option<RoomShare>,
        metrics: SyncerMetrics,
    ) {
        let Some((map, recipe)) = this.upgrade().map(|this| (this.mark.map.clone(), this.recipe.clone())) else {
            return;
        };
        let Base { map: old_map, pieces: old, complete } = base.unwrap_or_default();
        let mut pieces = Pieces::new(&map, &recipe, &old_map, old, complete);
        let (mut raw_total, mut encoded_total) = (0, 0);
        loop {
            let (mut batch, mut work, mut fresh) = (Vec::new(), 0, 0);
            let done = loop {
                if work >= YIELD_BYTES {
                    break false;
                }
                let Some(next) = pieces.next() else { break true };
                raw_total += next.piece.raw;
                encoded_total += next.piece.bytes.len();
                work += if next.fresh { next.piece.raw } else { TAKEN_OVER_BYTES };
                fresh += u64::from(next.fresh);
                batch.push(next.piece);
            };
            metrics.snapshot_pieces_encoded.inc_by(fresh);
            metrics.snapshot_pieces_reused.inc_by(batch.len() as u64 - fresh);
            let Some(snapshot) = this.upgrade() else { return };
            let bytes = batch.iter().map(|piece| piece.bytes.len()).sum();
            let (given_up, dropped) = snapshot.made.progress(|made| {
                if made.given_up {
                    return (true, None);
                }
                if let Some(taken) = taken.take() {
                    made.taken = Some(taken);
                }
                if made.taken.as_mut().is_some_and(|taken| !taken.take(bytes)) {
                    // There is no room: clients encode the pieces for themselves.
                    made.given_up = true;
                    return (true, Some((std::mem::take(&mut made.pieces), made.taken.take())));
                }
                made.pieces.append(&mut batch);
                made.complete = done;
                made.got_on_at = Some(Instant::now());
                (false, None)
            });
            // Not under the lock.
            drop(dropped);
            drop(snapshot);
            if given_up {
                return;
            }
            if done {
                metrics.snapshot_raw_bytes.set(i64::try_from(raw_total).unwrap_or(i64::MAX));
                metrics.snapshot_compressed_bytes.set(i64::try_from(encoded_total).unwrap_or(i64::MAX));
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl SnapshotCursor {
    fn after(&self, last: Key) -> Self {
        Self { pieces: self.pieces + 1, last: Some(last) }
    }
}

#[cfg(test)]
mod tests;
