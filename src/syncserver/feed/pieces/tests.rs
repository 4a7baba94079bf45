//! Pieces over any sequence of changes: their content, their size, and how many are encoded anew.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::model::{AsOf, SyncStatus, UpdateType, Value};
use crate::syncproto::format::SeqRange;

/// Size of a piece here: a dozen small entries.
const FULL: usize = 600;
/// Most entries of a piece here.
const MOST: usize = 10;

/// A format that is easy to read back.
#[derive(Debug)]
struct Text;

impl WireFormat for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn prefix(&self) -> Bytes {
        Bytes::new()
    }

    fn snapshot_begin(&self, _sequence: u64, _entries: usize) -> Bytes {
        Bytes::new()
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        let text: String = entries.iter().map(|entry| line(entry)).collect();
        let raw = text.len();
        (text.into(), raw)
    }

    fn snapshot_end(&self, _sequence: u64, _as_of: Option<&AsOf>) -> Bytes {
        Bytes::new()
    }

    fn updates(&self, _range: SeqRange, _updates: &[Arc<Update>]) -> Bytes {
        Bytes::new()
    }

    fn status(&self, _sequence: u64, _status: SyncStatus) -> Bytes {
        Bytes::new()
    }

    fn ping(&self, _now: SystemTime, _as_of: Option<&AsOf>) -> Bytes {
        Bytes::new()
    }

    fn goodbye(&self, _reason: &str, _alternatives: &[String]) -> Option<Bytes> {
        None
    }
}

fn line(entry: &Update) -> String {
    format!("{} {} {:?}\n", entry.key, entry.revision, entry.value.as_ref().map(|value| &value.bytes))
}

fn recipe(filter: Filter) -> Recipe {
    Recipe::new(Arc::new(Text), filter, MOST, FULL)
}

fn set(map: &mut Map, key: u16, len: usize, revision: usize) {
    let key = Key::from(format!("/{}/{key:03}", key % 2));
    let update = Update {
        key: key.clone(),
        value: Some(Value::raw(vec![b'v'; len])),
        revision: Arc::from(format!("{revision:04}")),
        v3_resource_version: crate::model::no_revision(),
        ttl: Duration::ZERO,
        update_type: UpdateType::Updated,
        origin: None,
    };
    map.insert(key, Arc::new(update));
}

fn remove(map: &mut Map, key: u16) {
    map.remove(&*format!("/{}/{key:03}", key % 2));
}

/// All pieces, and the number of fresh ones.
fn build(map: &Map, recipe: &Recipe, base: Base) -> (Vec<EncodedPiece>, usize) {
    let pieces: Vec<Next> = Pieces::new(map, recipe, &base.map, base.pieces, base.complete).collect();
    let fresh = pieces.iter().filter(|next| next.fresh).count();
    (pieces.into_iter().map(|next| next.piece).collect(), fresh)
}

fn fresh(map: &Map, recipe: &Recipe) -> Vec<EncodedPiece> {
    build(map, recipe, Base::default()).0
}

/// Checks the module's invariants for any snapshot's pieces.
fn check(map: &Map, recipe: &Recipe, pieces: &[EncodedPiece]) {
    let text: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
    let admitted = map.values().filter(|entry| recipe.filter.admits(&entry.key));
    let expected: String = admitted.map(|entry| line(entry)).collect();
    assert_eq!(String::from_utf8(text).expect("text"), expected);
    for piece in pieces {
        let range = (Bound::Included(&piece.first), Bound::Included(&piece.last));
        let entries = map.range::<_, Key>(range).filter(|(key, _)| recipe.filter.admits(key));
        let weights: Vec<usize> = entries.map(|(_, entry)| recipe.weight(entry)).collect();
        assert_eq!(piece.weight, weights.iter().sum::<usize>());
        assert!(piece.weight <= recipe.full() || weights.len() == 1, "{} in {} entries", piece.weight, weights.len());
        assert!(weights.len() <= MOST);
        assert_eq!(piece.raw, piece.bytes.len());
    }
    for two in pieces.windows(2) {
        assert!(two[0].weight + two[1].weight > recipe.small(), "{} and {}", two[0].weight, two[1].weight);
    }
}

/// A change of a key: its new length, or nothing.
fn change() -> impl Strategy<Value = (u16, Option<usize>)> {
    let len = prop_oneof![6 => (0_usize..90).prop_map(Some), 1 => (500_usize..2000).prop_map(Some), 3 => Just(None)];
    (0_u16..150, len)
}

/// Rounds of changes: a few keys, or a stretch of keys, so that whole pieces come and go.
fn round() -> impl Strategy<Value = Vec<(u16, Option<usize>)>> {
    let stretch = (0_u16..150, 1_u16..60, proptest::option::weighted(0.5, 0_usize..90));
    prop_oneof![
        3 => proptest::collection::vec(change(), 0..8),
        1 => stretch.prop_map(|(from, count, len)| (from..from + count).map(|key| (key, len)).collect()),
    ]
}

proptest! {
    /// Keys change between snapshots at random, and the last snapshot may be unfinished.
    #[test]
    fn pieces_hold_the_map_within_their_limits_and_few_are_made_anew(
        rounds in proptest::collection::vec((round(), proptest::option::weighted(0.2, 0_usize..12)), 1..25),
        filtered in proptest::bool::weighted(0.3),
    ) {
        let recipe = recipe(if filtered { Filter::new(vec!["/1/".to_owned()]) } else { Filter::default() });
        let mut map = Map::new();
        for key in 0..100 {
            set(&mut map, key, 40, 0);
        }
        let mut base = Base { pieces: fresh(&map, &recipe), map: map.clone(), complete: true };
        check(&map, &recipe, &base.pieces);
        for (number, (changes, unfinished)) in rounds.into_iter().enumerate() {
            if let Some(left) = unfinished {
                base.complete = false;
                base.pieces.truncate(left);
            }
            for (key, len) in changes {
                match len {
                    Some(len) => set(&mut map, key, len, number + 1),
                    None => remove(&mut map, key),
                }
            }
            let changed = changed_keys(&base.map, &map).filter(|key| recipe.filter.admits(key)).count();
            let complete = base.complete;
            let (pieces, made) = build(&map, &recipe, base);
            check(&map, &recipe, &pieces);
            if complete {
                prop_assert!(made <= 5 * changed, "{made} for {changed}");
            }
            base = Base { pieces, map: map.clone(), complete: true };
        }
    }

    /// Changes that keep the sizes, such as a label: exactly their pieces are encoded.
    #[test]
    fn values_that_keep_their_size_cost_one_piece_each(keys in proptest::collection::btree_set(0_u16..150, 0..20)) {
        let recipe = recipe(Filter::default());
        let mut map = Map::new();
        for key in 0..150 {
            set(&mut map, key, 40, 0);
        }
        let base = Base { pieces: fresh(&map, &recipe), map: map.clone(), complete: true };
        for key in &keys {
            set(&mut map, *key, 40, 1);
        }
        let holds = |piece: &EncodedPiece| changed_keys(&base.map, &map).any(|key| *key >= piece.first && *key <= piece.last);
        let touched = base.pieces.iter().filter(|piece| holds(piece)).count();
        let ends: Vec<Key> = base.pieces.iter().map(|piece| piece.last.clone()).collect();
        let (pieces, made) = build(&map, &recipe, base);
        check(&map, &recipe, &pieces);
        prop_assert_eq!(made, touched);
        prop_assert_eq!(pieces.into_iter().map(|piece| piece.last).collect::<Vec<_>>(), ends);
    }

    /// A client that lost the shared pieces half-way encodes the rest for itself.
    #[test]
    fn the_pieces_after_any_key_can_be_encoded_alone(lens in proptest::collection::vec(0_usize..700, 0..60), from in 0_usize..60) {
        let recipe = recipe(Filter::default());
        let mut map = Map::new();
        for (key, len) in (0_u16..).zip(&lens) {
            set(&mut map, key, *len, 0);
        }
        let mut after = map.keys().take(from).next_back().cloned();
        let mut text = map.values().take(from).map(|entry| line(entry)).collect::<String>().into_bytes();
        while let Some(piece) = recipe.encode_between(&map, after.as_ref(), None) {
            text.extend_from_slice(&piece.bytes);
            after = Some(piece.last);
        }
        prop_assert_eq!(text, map.values().map(|entry| line(entry)).collect::<String>().into_bytes());
    }
}

#[test]
fn reused_pieces_are_the_same_memory() {
    let recipe = recipe(Filter::default());
    let mut map = Map::new();
    for key in 0..150 {
        set(&mut map, key, 40, 0);
    }
    let old = fresh(&map, &recipe);
    let addresses: BTreeSet<usize> = old.iter().map(|piece| piece.bytes.as_ptr().addr()).collect();
    let base = Base { pieces: old.clone(), map: map.clone(), complete: true };
    set(&mut map, 75, 40, 1);
    let (new, made) = build(&map, &recipe, base);
    assert_eq!(made, 1);
    assert_eq!(new.len(), old.len());
    let shared = new.iter().filter(|piece| addresses.contains(&piece.bytes.as_ptr().addr())).count();
    assert_eq!(shared, old.len() - 1);
}

#[test]
fn keys_beyond_the_last_piece_fill_it_up_before_there_is_a_further_one() {
    let recipe = recipe(Filter::default());
    let mut map = Map::new();
    let mut base = Base::default();
    for number in 0..200 {
        set(&mut map, number * 2, 40, 0);
        let (pieces, made) = build(&map, &recipe, base);
        check(&map, &recipe, &pieces);
        assert!(made <= 2, "{made}");
        base = Base { pieces, map: map.clone(), complete: true };
    }
    assert!(base.pieces.len() < 40, "{}", base.pieces.len());
}

#[test]
fn a_map_that_becomes_empty_has_no_pieces() {
    let recipe = recipe(Filter::default());
    let mut map = Map::new();
    for key in 0..50 {
        set(&mut map, key, 40, 0);
    }
    let base = Base { pieces: fresh(&map, &recipe), map, complete: true };
    let (pieces, made) = build(&Map::new(), &recipe, base);
    assert!(pieces.is_empty());
    assert_eq!(made, 0);
    let empty = Base { pieces, map: Map::new(), complete: true };
    let mut map = Map::new();
    set(&mut map, 1, 1, 0);
    assert_eq!(build(&map, &recipe, empty).1, 1);
}
