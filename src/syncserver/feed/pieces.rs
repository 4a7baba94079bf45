//! How a snapshot is cut into pieces, and which pieces of an older snapshot a newer one can reuse. No I/O, no clock.
//!
//! ```text
//!  old pieces   |  a  |  b  |  c  |  d  |          a range lies between the ends of two old pieces
//!  changed keys          ^     ^^                   (the last one has no end)
//!  new pieces   |  a  |  b' | c' | c"|  d  |       only ranges with changed keys are encoded, and cut if grown
//! ```
//!
//! Ends of pieces stay where they are until a piece gets too large or two neighbours too small, so a change moves no
//! other piece. The weight of a piece is about its size on the wire before compression. [`super::snapshot`] takes the
//! pieces from here as fast as it needs them.
//!
//! Invariants, whatever has changed since the first snapshot:
//! - the pieces hold exactly the entries of the map that pass the filter, in key order, each once;
//! - a piece weighs at most [`Recipe::full`], or is one entry;
//! - two neighbours together weigh more than [`Recipe::small`]: there are never many small pieces;
//! - at most five pieces are encoded for each changed key, and one for a change that moves no end.

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::ordmap::DiffItem;

use crate::model::{Key, Update};
use crate::outlet::filter::Filter;
use crate::snapcache::Map;
use crate::syncproto::format::WireFormat;

/// Weight of an entry besides its texts: numbers, lengths.
const ENTRY_BYTES: usize = 24;

/// A piece, encoded.
#[derive(Clone, Debug)]
pub(crate) struct EncodedPiece {
    pub(crate) bytes: Bytes,
    /// Size before compression.
    pub(crate) raw: usize,
    pub(crate) first: Key,
    pub(crate) last: Key,
    weight: usize,
}

/// How pieces are made: the same for all pieces of a snapshot, and for all snapshots of a feed.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    format: Arc<dyn WireFormat>,
    filter: Filter,
    full: usize,
    /// Least weight of an entry, so that a full piece has no more entries than allowed.
    floor: usize,
}

impl Recipe {
    /// Pieces of entries that pass the filter, at most `most` (at least 1) in each, and about `full` bytes.
    pub(crate) fn new(format: Arc<dyn WireFormat>, filter: Filter, most: usize, full: usize) -> Self {
        Self { format, filter, full, floor: full.div_ceil(most.max(1)) }
    }

    /// Most weight of a piece of several entries.
    fn full(&self) -> usize {
        self.full
    }

    /// Weight at which a range that is too large for one piece is cut: the rest is room to grow without another cut.
    fn fill(&self) -> usize {
        self.full / 8 * 7
    }

    /// Neighbours with this weight or less together become one.
    fn small(&self) -> usize {
        self.full / 2
    }

    pub(crate) fn format(&self) -> &dyn WireFormat {
        &*self.format
    }

    /// The piece after one key and up to another, encoded alone. `None`: there are no entries.
    pub(crate) fn encode_between(&self, map: &Map, after: Option<&Key>, upto: Option<&Key>) -> Option<EncodedPiece> {
        self.encode(self.gather(map, bounds(after, upto)).0)
    }

    fn weight(&self, entry: &Update) -> usize {
        let value = entry.value.as_ref().map_or(0, |value| value.bytes.len());
        let texts = entry.key.len() + value + entry.revision.len() + entry.v3_resource_version.len();
        (ENTRY_BYTES + texts).max(self.floor)
    }

    /// The first entries of a range: all, if they fit into a piece, or else a number that leaves some room. Says
    /// whether these are all.
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

    fn encode(&self, batch: Batch) -> Option<EncodedPiece> {
        let (first, last) = (batch.entries.first()?.key.clone(), batch.entries.last()?.key.clone());
        let (bytes, raw) = self.format.snapshot_chunk(&batch.entries);
        Some(EncodedPiece { bytes, raw, first, last, weight: batch.weight })
    }
}

/// The entries of a piece that is being made.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<Arc<Update>>,
    weight: usize,
}

/// An older snapshot: its map, and its pieces so far, in order from the first.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(crate) map: Map,
    pub(crate) pieces: Vec<EncodedPiece>,
    /// Whether these are all pieces.
    pub(crate) complete: bool,
}

/// The next piece, and whether it was encoded for this snapshot.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) piece: EncodedPiece,
    pub(crate) fresh: bool,
}

/// A piece that may still be joined with the one after it.
#[derive(Debug)]
enum Pending {
    Reused(EncodedPiece),
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

/// The range after one key, up to and including another.
fn bounds<'a>(after: Option<&'a Key>, upto: Option<&'a Key>) -> (Bound<&'a Key>, Bound<&'a Key>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), upto.map_or(Bound::Unbounded, Bound::Included))
}

/// A range that is being cut: after one key, up to and including another.
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

/// The pieces of a snapshot, in order. Drops each piece of the older snapshot when it has passed it.
pub(crate) struct Pieces<'a> {
    map: &'a Map,
    recipe: &'a Recipe,
    old: std::vec::IntoIter<EncodedPiece>,
    old_complete: bool,
    changes: Peekable<Changes<'a>>,
    /// The end of the last range.
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
    /// The pieces of `map`, given an older map and its pieces, made by the same recipe, and whether these are all.
    pub(crate) fn new(
        map: &'a Map,
        recipe: &'a Recipe,
        old_map: &'a Map,
        old: Vec<EncodedPiece>,
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

    /// The next piece, not yet joined with its neighbour.
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
            // Keys after the last of all pieces belong to it.
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

    /// The entries of a piece. A reused one has none that changed.
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

/// The keys whose entries differ between the maps, in order. All encoded fields count, revisions too.
fn changed_keys<'a>(old: &'a Map, new: &'a Map) -> impl Iterator<Item = &'a Key> + Send {
    old.diff(new).map(|item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => key,
    })
}

#[cfg(test)]
mod tests;
