//! Where a snapshot is cut into pieces, and which pieces of an older snapshot serve a newer one as they are. No I/O, no clock.
//!
//! ```text
//!  old pieces   |  a  |  b  |  c  |  d  |          a range is what lies between the ends of two old pieces
//!  changed keys          ^     ^^                   (the last one has no end)
//!  new pieces   |  a  |  b' | c' | c"|  d  |       only ranges with changed keys are encoded, and cut if they have grown
//! ```
//!
//! Ends of pieces stay where they are until a piece gets too large or two neighbours too small, so a change moves no other
//! piece. The weight of a piece is about its size on the wire before compression. [`super::snapshot`] takes the pieces from
//! here as fast as they are needed.
//!
//! Invariants, whatever has changed since the first snapshot:
//! - the pieces hold exactly the entries of the map that pass the filter, in key order, each once;
//! - a piece weighs at most [`Recipe::full`], or is one entry;
//! - two neighbours together weigh more than [`Recipe::small`]: there are never many small pieces;
//! - what is encoded is at most five pieces for each changed key, and one piece for a change that moves no end.

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::ordmap::DiffItem;

use super::filter::Filter;
use crate::model::{Key, Update};
use crate::snapcache::Map;
use crate::syncproto::format::WireFormat;

/// What an entry weighs besides its texts: numbers, lengths.
const ENTRY_BYTES: usize = 24;

/// A piece, encoded.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    /// Size before compression.
    pub(super) raw: usize,
    pub(super) first: Key,
    pub(super) last: Key,
    weight: usize,
}

/// What pieces are made of and how: the same for all pieces of a snapshot, and for all snapshots of a feed.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    format: Arc<dyn WireFormat>,
    filter: Filter,
    full: usize,
    /// What an entry weighs at least, so that a full piece has no more entries than it may.
    floor: usize,
}

impl Recipe {
    /// Pieces of entries that pass the filter, at most `most` (at least 1) in each, and about `full` bytes.
    pub(super) fn new(format: Arc<dyn WireFormat>, filter: Filter, most: usize, full: usize) -> Self {
        Self { format, filter, full, floor: full.div_ceil(most.max(1)) }
    }

    /// Most that a piece of several entries weighs.
    fn full(&self) -> usize {
        self.full
    }

    /// Where a range that has more than a full piece is cut: the rest is room to grow in without being cut again.
    fn fill(&self) -> usize {
        self.full / 8 * 7
    }

    /// Neighbours become one when they weigh this or less together.
    fn small(&self) -> usize {
        self.full / 2
    }

    pub(super) fn format(&self) -> &dyn WireFormat {
        &*self.format
    }

    /// The piece that begins after a key, made for itself, with nothing beyond another key. `None`: nothing is left there.
    pub(super) fn encode_between(&self, map: &Map, after: Option<&Key>, upto: Option<&Key>) -> Option<Encoded> {
        self.encode(self.gather(map, bounds(after, upto)).0)
    }

    fn weight(&self, entry: &Update) -> usize {
        let value = entry.value.as_ref().map_or(0, |value| value.bytes.len());
        let texts = entry.key.len() + value + entry.revision.len() + entry.v3_resource_version.len();
        (ENTRY_BYTES + texts).max(self.floor)
    }

    /// The first entries of a range: all, if a piece has room for them, or else enough to leave some room. Says whether
    /// these are all.
    fn gather(&self, map: &Map, range: (Bound<&Key>, Bound<&Key>)) -> (Batch, bool) {
        let mut batch = Batch::default();
        let mut fill = 0;
        for (key, entry) in map.range::<_, Key>(range) {
            if !self.filter.admits(key) {
                continue;
            }
            let weight = self.weight(entry);
            if !batch.entries.is_empty() && batch.weight + weight > self.full() {
                batch.entries.truncate(fill);
                batch.weight = batch.entries.iter().map(|entry| self.weight(entry)).sum();
                return (batch, false);
            }
            batch.entries.push(entry.clone());
            batch.weight += weight;
            if fill == 0 || batch.weight <= self.fill() {
                fill = batch.entries.len();
            }
        }
        (batch, true)
    }

    fn encode(&self, batch: Batch) -> Option<Encoded> {
        let (first, last) = (batch.entries.first()?.key.clone(), batch.entries.last()?.key.clone());
        let (bytes, raw) = self.format.snapshot_chunk(&batch.entries);
        Some(Encoded { bytes, raw, first, last, weight: batch.weight })
    }
}

/// Entries that are going to be a piece.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<Arc<Update>>,
    weight: usize,
}

/// An older snapshot: what it shows, and the pieces of it that there are, in order from the first.
#[derive(Debug, Default)]
pub(super) struct Base {
    pub(super) map: Map,
    pub(super) pieces: Vec<Encoded>,
    /// Whether the pieces are all.
    pub(super) complete: bool,
}

/// A piece that is next, and whether it was made for this snapshot.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) piece: Encoded,
    pub(super) fresh: bool,
}

/// A piece that may still be joined with the one after it.
#[derive(Debug)]
enum Pending {
    Reused(Encoded),
    Fresh(Batch),
}

impl Pending {
    fn weight(&self) -> usize {
        match self {
            Self::Reused(piece) => piece.weight,
            Self::Fresh(batch) => batch.weight,
        }
    }
}

/// What lies after a key, up to and including another.
fn bounds<'a>(after: Option<&'a Key>, upto: Option<&'a Key>) -> (Bound<&'a Key>, Bound<&'a Key>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), upto.map_or(Bound::Unbounded, Bound::Included))
}

/// A range that is being cut: what lies after a key, up to and including another.
#[derive(Debug)]
struct Range {
    after: Option<Key>,
    upto: Option<Key>,
}

impl Range {
    fn bounds(&self) -> (Bound<&Key>, Bound<&Key>) {
        bounds(self.after.as_ref(), self.upto.as_ref())
    }
}

type Changes<'a> = Box<dyn Iterator<Item = &'a Key> + Send + 'a>;

/// The pieces of a snapshot, in order. Holds of the older snapshot only what is still ahead.
pub(super) struct Pieces<'a> {
    map: &'a Map,
    recipe: &'a Recipe,
    old: std::vec::IntoIter<Encoded>,
    old_complete: bool,
    changes: Peekable<Changes<'a>>,
    /// The end of the range before.
    after: Option<Key>,
    range: Option<Range>,
    ended: bool,
    pending: Option<Pending>,
}

impl std::fmt::Debug for Pieces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("after", &self.after).finish_non_exhaustive()
    }
}

impl<'a> Pieces<'a> {
    /// The pieces of what is in `map`, given an older map and its pieces, made by the same recipe, and whether these are all.
    pub(super) fn new(
        map: &'a Map,
        recipe: &'a Recipe,
        old_map: &'a Map,
        old: Vec<Encoded>,
        old_complete: bool,
    ) -> Self {
        let changes: Changes<'a> = if old.is_empty() {
            Box::new(std::iter::empty())
        } else {
            Box::new(changed_keys(old_map, map).filter(|key| recipe.filter.admits(key)))
        };
        let old_complete = old_complete && !old.is_empty();
        let (old, changes) = (old.into_iter(), changes.peekable());
        Self { map, recipe, old, old_complete, changes, after: None, range: None, ended: false, pending: None }
    }

    /// The next piece as it comes, not yet joined with its neighbour.
    fn advance(&mut self) -> Option<Pending> {
        loop {
            if let Some(range) = &mut self.range {
                let (batch, all) = self.recipe.gather(self.map, range.bounds());
                if all {
                    self.range = None;
                } else {
                    range.after = batch.entries.last().map(|entry| entry.key.clone());
                }
                if batch.entries.is_empty() {
                    continue;
                }
                return Some(Pending::Fresh(batch));
            }
            if self.ended {
                return None;
            }
            let Some(piece) = self.old.next() else {
                self.ended = true;
                if !self.old_complete {
                    self.range = Some(Range { after: self.after.take(), upto: None });
                }
                continue;
            };
            // What comes after the last of all pieces belongs to it.
            let open = self.old_complete && self.old.len() == 0;
            let mut touched = false;
            while self.changes.next_if(|key| open || **key <= piece.last).is_some() {
                touched = true;
            }
            let after = self.after.replace(piece.last.clone());
            if !touched {
                return Some(Pending::Reused(piece));
            }
            self.range = Some(Range { after, upto: (!open).then_some(piece.last) });
        }
    }

    fn finish(&self, pending: Pending) -> Option<Next> {
        match pending {
            Pending::Reused(piece) => Some(Next { piece, fresh: false }),
            Pending::Fresh(batch) => self.recipe.encode(batch).map(|piece| Next { piece, fresh: true }),
        }
    }

    fn join(&self, left: Pending, right: Pending) -> Pending {
        let (mut batch, right) = (self.open(left), self.open(right));
        batch.entries.extend(right.entries);
        batch.weight += right.weight;
        Pending::Fresh(batch)
    }

    /// The entries of a piece. Those of an old one have not changed, or it would not be here.
    fn open(&self, pending: Pending) -> Batch {
        match pending {
            Pending::Fresh(batch) => batch,
            Pending::Reused(piece) => {
                let range = (Bound::Included(&piece.first), Bound::Included(&piece.last));
                let admitted = self.map.range::<_, Key>(range).filter(|(key, _)| self.recipe.filter.admits(key));
                Batch { entries: admitted.map(|(_, entry)| entry.clone()).collect(), weight: piece.weight }
            }
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        loop {
            let Some(next) = self.advance() else {
                return self.pending.take().and_then(|last| self.finish(last));
            };
            match self.pending.take() {
                None => self.pending = Some(next),
                Some(last) if last.weight() + next.weight() <= self.recipe.small() => {
                    self.pending = Some(self.join(last, next));
                }
                Some(last) => {
                    self.pending = Some(next);
                    return self.finish(last);
                }
            }
        }
    }
}

/// The keys whose entries are not the same in both maps, in order. Everything that is encoded counts, revisions too.
fn changed_keys<'a>(old: &'a Map, new: &'a Map) -> impl Iterator<Item = &'a Key> + Send {
    old.diff(new).map(|item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => key,
    })
}

#[cfg(test)]
mod tests;
