//! Parts of the server that `benches/micro` measures alone. For that bench only, and not part of the interface.

use super::feed::pieces::{Base, Pieces, Recipe};
use super::wire::Wire;
use crate::outlet::filter::Filter;
use crate::snapcache::Map;

/// Updates in a message of plain gob by default.
const PLAIN_ENTRIES: usize = 100;

/// Number of updates that lead from one map to another.
#[must_use]
pub fn difference(old: &Map, new: &Map) -> usize {
    crate::outlet::difference::difference(old, new, &Filter::default()).len()
}

/// The pieces of a map's snapshot.
#[derive(Debug)]
pub struct Cut {
    recipe: Recipe,
    base: Base,
    /// Number of pieces that were encoded; the others were taken over.
    pub encoded: usize,
}

impl Cut {
    /// A snapshot from nothing.
    #[must_use]
    pub fn fresh(wire: Wire, map: &Map) -> Self {
        let recipe = Recipe::new(
            wire.format(),
            Filter::default(),
            wire.snapshot_entries(PLAIN_ENTRIES),
            wire.snapshot_piece_bytes(),
        );
        Self::build(recipe, Base::default(), map)
    }

    /// The snapshot after this one.
    #[must_use]
    pub fn next(&self, map: &Map) -> Self {
        let Base { map: old, pieces, complete } = &self.base;
        Self::build(self.recipe.clone(), Base { map: old.clone(), pieces: pieces.clone(), complete: *complete }, map)
    }

    /// Number of pieces.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.base.pieces.len()
    }

    fn build(recipe: Recipe, base: Base, map: &Map) -> Self {
        let mut encoded = 0;
        let count = |next: super::feed::pieces::Next| {
            encoded += usize::from(next.fresh);
            next.piece
        };
        let pieces = Pieces::new(map, &recipe, &base.map, base.pieces, base.complete).map(count).collect();
        Self { recipe, base: Base { map: map.clone(), pieces, complete: true }, encoded }
    }
}
