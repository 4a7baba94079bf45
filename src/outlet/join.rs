//! Joins several crumbs into one list of changes.

use std::collections::HashMap;
use std::sync::Arc;

use super::filter::Filter;
use crate::model::{Update, UpdateType};
use crate::snapcache::Breadcrumb;

/// The changes of some crumbs in order, as far as they pass the filter, and the number of those that were left out.
///
/// A value that a later one of the same key replaces is left out. Deletions never are: agents tear down and build up
/// again when a key goes and comes back, and may rely on seeing both. Order is kept, per key and over all.
pub(crate) fn join(crumbs: &[Arc<Breadcrumb>], filter: &Filter) -> (Vec<Arc<Update>>, usize) {
    let wanted = |update: &&Arc<Update>| filter.admits(&update.key);
    let all: Vec<&Arc<Update>> = crumbs.iter().flat_map(|crumb| &crumb.deltas).filter(wanted).collect();
    if crumbs.len() < 2 {
        return (all.into_iter().cloned().collect(), 0);
    }
    // From the newest to the oldest: the index in `kept` of the value that replaces older ones of the key.
    let mut replaced_by: HashMap<&str, usize> = HashMap::with_capacity(all.len());
    let mut kept: Vec<Arc<Update>> = Vec::with_capacity(all.len());
    let mut dropped = 0;
    for update in all.into_iter().rev() {
        if update.value.is_none() {
            replaced_by.remove(update.key.as_str());
            kept.push(update.clone());
        } else if let Some(&newer) = replaced_by.get(update.key.as_str()) {
            dropped += 1;
            if update.update_type == UpdateType::New {
                kept[newer] = kept[newer].with_type(UpdateType::New);
            }
        } else {
            replaced_by.insert(update.key.as_str(), kept.len());
            kept.push(update.clone());
        }
    }
    kept.reverse();
    (kept, dropped)
}
