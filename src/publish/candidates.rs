//! The values of each key in all datastores of a syncer, by rank: the first one counts.
//!
//! No I/O. Invariants: agents see the value of the datastore that counts most among those that have one; when that goes, the next one
//! follows as a change of the key, not as a deletion and a new key; a key is deleted when no datastore has it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;

use crate::model::{Key, Origin, Update, UpdateType};

/// A key that several datastores have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key.
    pub key: Key,
    /// The origin of the value that agents see.
    pub shown: Arc<Origin>,
    /// The origins of the others, in the order of precedence.
    pub hidden: Vec<Arc<Origin>>,
}

/// The conflicts of one syncer, for the status endpoint. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Conflicts(Arc<Mutex<BTreeMap<Key, Vec<Arc<Origin>>>>>);

impl Conflicts {
    /// The first `limit` conflicts, in the order of their keys.
    #[must_use]
    pub fn snapshot(&self, limit: usize) -> Vec<Conflict> {
        let of = |(key, origins): (&Key, &Vec<Arc<Origin>>)| {
            let (shown, hidden) = origins.split_first()?;
            Some(Conflict { key: key.clone(), shown: shown.clone(), hidden: hidden.to_vec() })
        };
        self.lock().iter().filter_map(of).take(limit).collect()
    }

    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<Arc<Origin>>>> {
        // A panic cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Candidates {
    keys: HashMap<Key, Held>,
    conflicts: Conflicts,
    gauge: IntGauge,
}

#[derive(Debug)]
enum Held {
    One(Arc<Update>),
    /// By rank; two at least.
    Several(BTreeMap<u8, Arc<Update>>),
}

impl Candidates {
    /// No values are known. `gauge` shows the number of conflicts.
    #[must_use]
    pub fn new(gauge: IntGauge) -> Self {
        Self { keys: HashMap::new(), conflicts: Conflicts::default(), gauge }
    }

    /// The conflicts, which go on changing.
    #[must_use]
    pub fn conflicts(&self) -> Conflicts {
        self.conflicts.clone()
    }

    /// A datastore's value of a key changed. Returns the change that agents see, if they see one.
    pub fn take(&mut self, update: Update) -> Option<Arc<Update>> {
        let (key, from) = (update.key.clone(), update.rank());
        let update = Arc::new(update);
        let present = update.value.is_some();
        let (before, now) = match self.keys.remove(&key) {
            None => (None, present.then(|| Held::One(update))),
            Some(Held::One(old)) if old.rank() == from => (Some(old), present.then(|| Held::One(update))),
            Some(Held::One(old)) if !present => (Some(old.clone()), Some(Held::One(old))),
            Some(Held::One(old)) => {
                let several = BTreeMap::from([(old.rank(), old.clone()), (from, update)]);
                (Some(old), Some(Held::Several(several)))
            }
            Some(Held::Several(mut several)) => {
                let before = several.first_key_value().map(|(_, first)| first.clone());
                if present {
                    several.insert(from, update);
                } else {
                    several.remove(&from);
                }
                let now = match several.len() {
                    1 => several.pop_first().map(|(_, only)| Held::One(only)),
                    _ => Some(Held::Several(several)),
                };
                (before, now)
            }
        };
        self.note(&key, now.as_ref());
        let shown = now.as_ref().and_then(|held| match held {
            Held::One(only) => Some(only.clone()),
            Held::Several(several) => several.first_key_value().map(|(_, first)| first.clone()),
        });
        if let Some(held) = now {
            self.keys.insert(key.clone(), held);
        }
        match (before, shown) {
            (None, None) => None,
            (Some(before), Some(shown)) if Arc::ptr_eq(&before, &shown) => None,
            (Some(_), None) => Some(Arc::new(Update::deletion(key))),
            (before, Some(shown)) => {
                let update_type = if before.is_some() { UpdateType::Updated } else { UpdateType::New };
                Some(shown.with_type(update_type))
            }
        }
    }

    fn note(&mut self, key: &Key, held: Option<&Held>) {
        let mut conflicts = self.conflicts.lock();
        match held {
            Some(Held::Several(several)) => {
                let origins = several.values().filter_map(|update| update.origin.clone()).collect();
                conflicts.insert(key.clone(), origins);
            }
            _ if conflicts.is_empty() => return,
            _ => drop(conflicts.remove(key)),
        }
        self.gauge.set(i64::try_from(conflicts.len()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests;
