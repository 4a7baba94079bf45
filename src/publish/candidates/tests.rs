use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{Value, no_revision};

fn update(rank: u8, value: Option<&str>) -> Update {
    Update {
        key: "/k".into(),
        value: value.map(|value| Value::raw(value.to_owned())),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: if value.is_some() { UpdateType::New } else { UpdateType::Deleted },
        origin: Some(Arc::new(Origin { rank, place: format!("place {rank}").into() })),
    }
}

fn candidates() -> Candidates {
    Candidates::new(IntGauge::new("conflicts", "for a test").unwrap())
}

fn words(change: Option<Arc<Update>>) -> String {
    match change {
        None => "-".to_owned(),
        Some(update) => {
            let value = update.value.as_ref().map(|value| String::from_utf8(value.bytes.to_vec()).unwrap());
            format!("{:?} {}", update.update_type, value.unwrap_or_default()).trim().to_owned()
        }
    }
}

#[test]
fn the_first_datastore_that_has_a_key_counts() {
    // Rank and value (none: gone), and the change that agents see.
    let steps = [
        (1, Some("b1"), "New b1"),
        (2, Some("c1"), "-"),
        (1, Some("b2"), "Updated b2"),
        (0, Some("a1"), "Updated a1"),
        (1, Some("b3"), "-"),
        (0, None, "Updated b3"),
        (1, None, "Updated c1"),
        (1, None, "-"),
        (2, None, "Deleted"),
        (2, None, "-"),
        (0, Some("a2"), "New a2"),
    ];
    let mut candidates = candidates();
    for (index, (rank, value, expected)) in steps.into_iter().enumerate() {
        assert_eq!(words(candidates.take(update(rank, value))), expected, "step {index}");
    }
}

#[test]
fn conflicts_are_told_with_both_origins() {
    let mut candidates = candidates();
    let conflicts = candidates.conflicts();
    candidates.take(update(1, Some("b")));
    assert!(conflicts.is_empty());
    candidates.take(update(0, Some("a")));
    let told = conflicts.snapshot(10);
    let [conflict] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&*conflict.shown.place, &*conflict.hidden[0].place), ("place 0", "place 1"));
    assert_eq!((conflicts.len(), candidates.gauge.get()), (1, 1));
    candidates.take(update(1, None));
    assert_eq!((conflicts.len(), candidates.gauge.get()), (0, 0));
}

proptest! {
    /// The changes that agents see build up the value of the first datastore that has one, and keys come and go properly.
    #[test]
    fn agents_hold_the_value_that_counts(steps in proptest::collection::vec((0_u8..4, 0_u8..4), 0..60)) {
        let (mut candidates, mut model, mut held) = (candidates(), BTreeMap::new(), None::<String>);
        for (rank, value) in steps {
            let text = (value > 0).then(|| format!("{rank}{value}"));
            match &text {
                Some(text) => drop(model.insert(rank, text.clone())),
                None => drop(model.remove(&rank)),
            }
            if let Some(change) = candidates.take(update(rank, text.as_deref())) {
                let now = change.value.as_ref().map(|value| String::from_utf8(value.bytes.to_vec()).unwrap());
                let expected = match (&held, &now) {
                    (None, Some(_)) => UpdateType::New,
                    (Some(_), Some(_)) => UpdateType::Updated,
                    (_, None) => UpdateType::Deleted,
                };
                prop_assert_eq!(change.update_type, expected);
                prop_assert!(held.is_some() || now.is_some());
                held = now;
            }
            prop_assert_eq!(held.as_ref(), model.values().next());
            prop_assert_eq!(candidates.conflicts.len(), usize::from(model.len() > 1));
        }
    }
}
