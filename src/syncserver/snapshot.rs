//! A snapshot encoded once for all clients that arrive together, and read while it is still being made.
//!
//! A snapshot shows one mark of its feed. Its producer goes through the mark's map in key order, piece by piece (see
//! [`super::pieces`]): what has not changed since the feed's last snapshot is taken over from there, the rest is encoded.
//! Clients follow at their own pace. When a newer snapshot replaces an old one for the second time, the old one gives up the
//! bytes that it does not have in common with the one after it: clients that are still reading it (slow ones) encode those for
//! themselves, from the mark's map. So a feed never holds more than two encoded snapshots, however many slow clients there are,
//! and two that share what is equal. What the producer takes over from is part of these: it lets go of each old piece when it
//! passes it.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::made::Made;
use super::pieces::{Base, Encoded, Pieces, Recipe};
use super::ring::Mark;
use super::room::Taken;
use super::tracker::Client;
use crate::metrics::SyncerMetrics;
use crate::model::Key;

/// Bytes before compression that are encoded until others get their turn: clients are woken, and no worker is held up for
/// long.
const TURN_BYTES: usize = 512 << 10;

/// What a piece that is taken over counts as in a turn: it costs a few look-ups only.
const TAKEN_OVER_BYTES: usize = 1 << 10;

/// What a client finds where it stands in a snapshot.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes, and where the next piece begins.
    Bytes(Bytes, Place),
    /// The same, encoded for this client alone.
    Alone(Bytes, Place),
    /// The producer is not there yet: the client is nudged when it is.
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

#[derive(Debug, Default)]
struct Parts {
    /// Without their bytes if these have been given up.
    pieces: Vec<Encoded>,
    complete: bool,
    given_up: bool,
    /// The room that the bytes take, if that is limited.
    taken: Option<Taken>,
    /// When the producer made a piece last.
    got_on_at: Option<Instant>,
}

/// The content at a place.
enum Found {
    Piece(Piece),
    /// Bytes that were given up, up to this key or to the end.
    GivenUp(Option<Key>),
}

/// A snapshot of a feed.
#[derive(Debug)]
pub(super) struct Snapshot {
    mark: Arc<Mark>,
    recipe: Recipe,
    made_at: Instant,
    made: Made<Parts, Client>,
}

impl Snapshot {
    /// A snapshot of what there is at `mark`, nothing of it encoded yet.
    pub(super) fn new(mark: Arc<Mark>, recipe: Recipe, now: Instant) -> Arc<Self> {
        Arc::new(Self { mark, recipe, made_at: now, made: Made::new(Parts::default()) })
    }

    /// The place in the feed's history that the snapshot shows.
    pub(super) fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// When it was asked for first.
    pub(super) fn made_at(&self) -> Instant {
        self.made_at
    }

    /// What opens the snapshot; may be empty.
    pub(super) fn begin(&self) -> Bytes {
        self.recipe.format().snapshot_begin(self.mark.sequence, self.mark.map.len())
    }

    /// What closes the snapshot; may be empty.
    pub(super) fn end(&self) -> Bytes {
        self.recipe.format().snapshot_end(self.mark.sequence, self.mark.as_of.as_ref())
    }

    /// The piece at a place. If it is not there yet, the client `who` asks is nudged once there is progress.
    pub(super) fn piece(&self, place: &Place, who: &Arc<Client>) -> Piece {
        let found = self.made.look_for(who, |made| match made.pieces.get(place.pieces) {
            Some(piece) if !piece.bytes.is_empty() => {
                Some(Found::Piece(Piece::Bytes(piece.bytes.clone(), place.after(piece.last.clone()))))
            }
            Some(piece) => Some(Found::GivenUp(Some(piece.last.clone()))),
            None if made.complete => Some(Found::Piece(Piece::End)),
            None if made.given_up => Some(Found::GivenUp(None)),
            None => None,
        });
        let upto = match found {
            None => return Piece::NotYet,
            Some(Found::Piece(piece)) => return piece,
            Some(Found::GivenUp(upto)) => upto,
        };
        let Some(piece) = self.recipe.encode_between(&self.mark.map, place.last.as_ref(), upto.as_ref()) else {
            return Piece::End;
        };
        let mut next = place.after(piece.last);
        if upto.is_some() && next.last != upto {
            next.pieces = place.pieces;
        }
        Piece::Alone(piece.bytes, next)
    }

    /// Whether there is something at a place, or nothing more: nobody has to wait there for the producer.
    pub(super) fn leads_on_from(&self, place: &Place) -> bool {
        self.made.see(|made| place.pieces < made.pieces.len() || made.complete || made.given_up)
    }

    /// For how long the producer has not got on; nothing once it is done.
    pub(super) fn stuck_for(&self, now: Instant) -> Duration {
        self.made.see(|made| {
            let got_on = made.got_on_at.unwrap_or(self.made_at);
            if made.complete || made.given_up { Duration::ZERO } else { now.saturating_duration_since(got_on) }
        })
    }

    /// Drops the bytes that this `newer` snapshot does not hold as well, if that is complete. Clients that are not done encode
    /// what they lack of them from now on. May be repeated with a snapshot that is newer still.
    pub(super) fn give_up(&self, newer: &Self) {
        let held: Option<HashSet<*const u8>> = newer
            .made
            .see(|newer| newer.complete.then(|| newer.pieces.iter().map(|piece| piece.bytes.as_ptr()).collect()));
        // It will hold more of them. The next one will come again.
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

    /// The part of this snapshot that the next one of the feed can take over: the pieces that there are, complete or not. `None`: it was
    /// given up.
    pub(super) fn as_base(&self) -> Option<Base> {
        self.made.see(|made| {
            let base = || Base { map: self.mark.map.clone(), pieces: made.pieces.clone(), complete: made.complete };
            (!made.given_up).then(base)
        })
    }

    /// Makes all pieces, giving way to others now and then. Ends early when nobody holds the snapshot any more, when it
    /// has been given up, or when there is no room for it where that is to be `taken`.
    pub(super) async fn produce(
        this: Weak<Self>,
        base: Option<Base>,
        mut taken: Option<Taken>,
        metrics: SyncerMetrics,
    ) {
        let Some((map, recipe)) = this.upgrade().map(|this| (this.mark.map.clone(), this.recipe.clone())) else {
            return;
        };
        let Base { map: old_map, pieces: old, complete } = base.unwrap_or_default();
        let mut pieces = Pieces::new(&map, &recipe, &old_map, old, complete);
        let (mut raw_total, mut encoded_total) = (0, 0);
        loop {
            let (mut turn, mut work, mut fresh) = (Vec::new(), 0, 0);
            let done = loop {
                if work >= TURN_BYTES {
                    break false;
                }
                let Some(next) = pieces.next() else { break true };
                raw_total += next.piece.raw;
                encoded_total += next.piece.bytes.len();
                work += if next.fresh { next.piece.raw } else { TAKEN_OVER_BYTES };
                fresh += u64::from(next.fresh);
                turn.push(next.piece);
            };
            metrics.snapshot_pieces_encoded.inc_by(fresh);
            metrics.snapshot_pieces_reused.inc_by(turn.len() as u64 - fresh);
            let Some(snapshot) = this.upgrade() else { return };
            let bytes = turn.iter().map(|piece| piece.bytes.len()).sum();
            let (given_up, dropped) = snapshot.made.progress(|made| {
                if made.given_up {
                    return (true, None);
                }
                if let Some(taken) = taken.take() {
                    made.taken = Some(taken);
                }
                if made.taken.as_mut().is_some_and(|taken| !taken.take(bytes)) {
                    // There is no room: clients encode what they lack.
                    made.given_up = true;
                    return (true, Some((std::mem::take(&mut made.pieces), made.taken.take())));
                }
                made.pieces.append(&mut turn);
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

impl Place {
    fn after(&self, last: Key) -> Self {
        Self { pieces: self.pieces + 1, last: Some(last) }
    }
}

#[cfg(test)]
mod tests;
