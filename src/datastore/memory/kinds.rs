//! Kinds of the datastore in memory: those that a test has put objects of, loaded, or otherwise spoken of, unless they are absent.

use std::collections::BTreeSet;

use futures_util::stream::{self, Stream};
use tokio::sync::watch;

use crate::datastore::inlet::Error;
use crate::datastore::pattern::{KindsNow, Pattern, Unknown};
use crate::model::object::Kind;

/// The kinds now, and again whenever they are others after a change.
pub(super) fn follow(
    changes: watch::Receiver<u64>,
    now: impl Fn() -> KindsNow,
) -> impl Stream<Item = Result<KindsNow, Error>> {
    stream::unfold((changes, now, None), |(mut changes, now, told)| async move {
        loop {
            changes.mark_unchanged();
            let kinds = now();
            if told.as_ref() != Some(&kinds) {
                return Some((Ok(kinds.clone()), (changes, now, Some(kinds))));
            }
            changes.changed().await.ok()?;
        }
    })
}

/// The kinds among those that are present which meet the patterns.
pub(super) fn meet<'a>(patterns: &[Pattern], present: impl Iterator<Item = &'a Kind> + Clone) -> KindsNow {
    let (mut kinds, mut unknown) = (BTreeSet::new(), Vec::new());
    for pattern in patterns {
        let matches = |kind: &&Kind| pattern.matches(&kind.group, &kind.version, &kind.name);
        let before = kinds.len();
        kinds.extend(present.clone().filter(matches).cloned());
        if kinds.len() == before && !present.clone().any(|kind| matches(&kind)) {
            let reason = "no test has put an object of this kind yet".to_owned();
            unknown.push(Unknown { pattern: pattern.clone(), reason });
        }
    }
    KindsNow { kinds: kinds.into_iter().collect(), unknown }
}
