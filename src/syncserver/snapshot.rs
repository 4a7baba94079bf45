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
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::pieces::{Base, Encoded, Pieces, Recipe};
use super::ring::Mark;
use super::room::Taken;
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

#[derive(Debug, Default)]
struct Made {
    /// Without their bytes if these have been given up.
    pieces: Vec<Encoded>,
    complete: bool,
    given_up: bool,
    /// The room that the bytes take, if that is limited.
    taken: Option<Taken>,
    /// When the producer made a piece last.
    got_on_at: Option<Instant>,
}

/// A snapshot of a feed.
#[derive(Debug)]
pub(super) struct Snapshot {
    mark: Arc<Mark>,
    recipe: Recipe,
    made_at: Instant,
    made: Mutex<Made>,
    progress: watch::Sender<u64>,
}

impl Snapshot {
    /// A snapshot of what there is at `mark`, nothing of it encoded yet.
    pub(super) fn new(mark: Arc<Mark>, recipe: Recipe, now: Instant) -> Arc<Self> {
        let (progress, _) = watch::channel(0);
        Arc::new(Self { mark, recipe, made_at: now, made: Mutex::default(), progress })
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        // Half of a change would give clients wrong data: whoever comes to it fails as well.
        self.made.lock().expect("a panic in the middle of a change of the snapshot")
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
        self.recipe.format().snapshot_begin(self.mark.sequence, self.mark.map.len())
    }

    /// What closes the snapshot; may be empty.
    pub(super) fn end(&self) -> Bytes {
        self.recipe.format().snapshot_end(self.mark.sequence, self.mark.as_of.as_ref())
    }

    /// The piece at a place.
    pub(super) fn piece(&self, place: &Place) -> Piece {
        let upto = {
            let made = self.lock();
            match made.pieces.get(place.pieces) {
                Some(piece) if !piece.bytes.is_empty() => {
                    return Piece::Bytes(piece.bytes.clone(), place.after(piece.last.clone()));
                }
                Some(piece) => Some(piece.last.clone()),
                None if made.complete => return Piece::End,
                None if made.given_up => None,
                None => return Piece::NotYet,
            }
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
        let made = self.lock();
        place.pieces < made.pieces.len() || made.complete || made.given_up
    }

    /// For how long the producer has not got on; nothing once it is done.
    pub(super) fn stuck_for(&self, now: Instant) -> Duration {
        let made = self.lock();
        let got_on = made.got_on_at.unwrap_or(self.made_at);
        if made.complete || made.given_up { Duration::ZERO } else { now.saturating_duration_since(got_on) }
    }

    /// Drops the bytes that this `newer` snapshot does not hold as well, if that is complete. Clients that are not done encode
    /// what they lack of them from now on. May be repeated with a snapshot that is newer still.
    pub(super) fn give_up(&self, newer: &Self) {
        let held: HashSet<*const u8> = {
            let newer = newer.lock();
            if !newer.complete {
                // It will hold more of them. The next one will come again.
                return;
            }
            newer.pieces.iter().map(|piece| piece.bytes.as_ptr()).collect()
        };
        let mut made = self.lock();
        made.given_up = true;
        // What is left is held by the newer one, which has taken room for it.
        made.taken = None;
        let lost = made.pieces.iter_mut().filter(|piece| !held.contains(&piece.bytes.as_ptr()));
        let dropped: Vec<Bytes> = lost.map(|piece| std::mem::take(&mut piece.bytes)).collect();
        drop(made);
        drop(dropped);
        self.progress.send_modify(|ticks| *ticks += 1);
    }

    /// There is no room for it: drops all bytes, and clients encode what they lack.
    fn give_up_all(&self) {
        let mut made = self.lock();
        let dropped = (std::mem::take(&mut made.pieces), made.taken.take());
        made.given_up = true;
        drop(made);
        drop(dropped);
        self.progress.send_modify(|ticks| *ticks += 1);
    }

    /// What the next snapshot of the feed can take over from this one: the pieces that there are, complete or not. `None`: it was
    /// given up.
    pub(super) fn as_base(&self) -> Option<Base> {
        let made = self.lock();
        let base = || Base { map: self.mark.map.clone(), pieces: made.pieces.clone(), complete: made.complete };
        (!made.given_up).then(base)
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
            {
                let mut made = snapshot.lock();
                if made.given_up {
                    return;
                }
                if let Some(taken) = taken.take() {
                    made.taken = Some(taken);
                }
                if made.taken.as_mut().is_some_and(|taken| !taken.take(bytes)) {
                    drop(made);
                    snapshot.give_up_all();
                    return;
                }
                made.pieces.append(&mut turn);
                made.complete = done;
                made.got_on_at = Some(Instant::now());
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

impl Place {
    fn after(&self, last: Key) -> Self {
        Self { pieces: self.pieces + 1, last: Some(last) }
    }
}

#[cfg(test)]
mod tests;
