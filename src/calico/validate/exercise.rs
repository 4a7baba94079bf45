//! The work of the fuzz target on one input, for tests that replay its corpus.

use std::time::Duration;

use crate::calico::pipelines::RULES;
use crate::calico::processors::exercise::pairs_of;
use crate::calico::syncers::FELIX;
use crate::metrics::SyncerMetrics;
use crate::model::{KvPair, SyncerEvent, Update, UpdateType};
use crate::problems::{MAX_PROBLEMS, ProblemBook};
use crate::validate::filter::ValidationFilter;

/// Converts the input as [`crate::calico::processors::exercise::object`] does, and runs the validation stage on the
/// result, twice. Panics when the verdict on a value changes, when a value without its typed form is refused, or when a
/// problem stays noted for a deleted key.
pub fn object(input: &[u8]) {
    let (metrics, problems) = (SyncerMetrics::unregistered(), ProblemBook::new(FELIX));
    let mut filter = ValidationFilter::new(RULES, metrics, problems.clone(), None);
    let first = checked(&mut filter, pairs_of(input).into_iter().map(update));
    let second = checked(&mut filter, pairs_of(input).into_iter().map(update));
    assert_eq!(verdicts(&first), verdicts(&second), "the same value fares the same");
    let passed = first.iter().filter(|update| update.value.is_some()).cloned();
    let again = checked(&mut filter, passed.collect::<Vec<_>>().into_iter());
    assert!(again.iter().all(|update| update.value.is_some()), "a value that passed passes");
    assert!(problems.len() <= MAX_PROBLEMS);
    let gone = first.into_iter().map(|update| Update { value: None, ..update });
    checked(&mut filter, gone);
    assert_eq!(problems.len(), 0, "a key that is gone has no problem");
}

fn update(pair: KvPair) -> Update {
    let KvPair { key, value, revision, v3_resource_version, origin } = pair;
    let update_type = UpdateType::New;
    Update { key, value, revision, v3_resource_version, ttl: Duration::ZERO, update_type, origin }
}

fn checked(filter: &mut ValidationFilter, updates: impl Iterator<Item = Update>) -> Vec<Update> {
    let mut event = SyncerEvent::Updates(updates.collect());
    filter.check(&mut event);
    let SyncerEvent::Updates(updates) = event else { unreachable!("updates stay updates") };
    for update in &updates {
        assert!(update.value.as_ref().is_none_or(|value| value.subject.is_none()), "typed forms end here");
    }
    updates
}

fn verdicts(updates: &[Update]) -> Vec<(&str, bool)> {
    updates.iter().map(|update| (update.key.as_str(), update.value.is_some())).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_objects_does_no_harm() {
        crate::fuzzing::replay("validation", super::object);
    }
}
