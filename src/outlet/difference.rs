//! The updates between two versions of a map: last values only, deletions included.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::filter::Filter;
use crate::model::{Update, UpdateType};
use crate::snapcache::Map;

/// The changes that turn `old` into `new`, in key order, as far as they pass the filter.
///
/// A key whose value and time to live are the same is left out, whatever happened to it in between.
pub(crate) fn difference(old: &Map, new: &Map, filter: &Filter) -> Vec<Arc<Update>> {
    old.diff(new)
        .filter_map(|item| match item {
            DiffItem::Add(key, entry) => filter.admits(key).then(|| entry.with_type(UpdateType::New)),
            DiffItem::Update { old: (key, old), new: (_, new) } => {
                let same = old.value == new.value && old.ttl == new.ttl;
                (!same && filter.admits(key)).then(|| new.with_type(UpdateType::Updated))
            }
            DiffItem::Remove(key, _) => filter.admits(key).then(|| Arc::new(Update::deletion(key.clone()))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{Key, Value, no_revision};

    fn map(entries: &[(u8, u8)]) -> Map {
        entries
            .iter()
            .map(|&(key, value)| {
                let key = Key::from(format!("/k/{key}"));
                let update = Update {
                    key: key.clone(),
                    value: Some(Value::raw(vec![value])),
                    revision: Arc::from(value.to_string()),
                    v3_resource_version: no_revision(),
                    ttl: Duration::ZERO,
                    update_type: UpdateType::New,
                    origin: None,
                };
                (key, Arc::new(update))
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_difference_turns_one_map_into_the_other_and_says_nothing_else(
            old in proptest::collection::vec((0_u8..40, 0_u8..3), 0..60),
            new in proptest::collection::vec((0_u8..40, 0_u8..3), 0..60),
        ) {
            let (old, new) = (map(&old), map(&new));
            let changes = difference(&old, &new, &Filter::default());
            let mut result = old.clone();
            for change in &changes {
                let before = old.get(&change.key);
                match change.update_type {
                    UpdateType::New => prop_assert!(before.is_none()),
                    UpdateType::Updated => prop_assert!(before.is_some_and(|before| before.value != change.value)),
                    UpdateType::Deleted => prop_assert!(before.is_some() && change.value.is_none()),
                    UpdateType::Unknown => prop_assert!(false),
                }
                if change.value.is_some() {
                    result.insert(change.key.clone(), change.clone());
                } else {
                    result.remove(&change.key);
                }
            }
            let content = |map: &Map| map.iter().map(|(k, v)| (k.clone(), v.value.clone())).collect::<Vec<_>>();
            prop_assert_eq!(content(&result), content(&new));
        }
    }

    #[test]
    fn a_filter_hides_changes_and_deletions_alike() {
        let (old, new) = (map(&[(1, 1), (2, 1)]), map(&[(1, 2), (3, 1)]));
        let filter = Filter::new(vec!["/k/1".to_owned()]);
        let keys: Vec<_> = difference(&old, &new, &filter).iter().map(|update| update.key.to_string()).collect();
        assert_eq!(keys, ["/k/1"]);
    }
}
