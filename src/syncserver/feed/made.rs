//! Something that one producer makes bit by bit, and many readers wait for.
//!
//! A reader that finds nothing yet is noted under the same lock under which it looked: no progress can come in between.
//! Model-checked by `tests/models`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::sync::{Mutex, MutexGuard};

/// A reader that waits for progress.
pub(crate) trait Awaits: std::fmt::Debug + Send + Sync {
    /// A unique number.
    fn id(&self) -> u64;

    /// There is progress.
    fn nudge(&self);
}

/// The part that has been made so far, and the readers that wait for more.
#[derive(Debug)]
pub(crate) struct Made<M, W: ?Sized>(Mutex<MadeAndWaiting<M, W>>);

#[derive(Debug)]
struct MadeAndWaiting<M, W: ?Sized> {
    made: M,
    /// By their numbers: a reader that looks in vain several times is noted once. Weak: a reader that leaves is not
    /// kept alive.
    waiting: BTreeMap<u64, Weak<W>>,
}

impl<M, W: Awaits + ?Sized> Made<M, W> {
    pub(crate) fn new(made: M) -> Self {
        Self(Mutex::new(MadeAndWaiting { made, waiting: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, MadeAndWaiting<M, W>> {
        // Half a change would give readers wrong data: every reader that takes the lock after a panic fails as well.
        self.0.lock().expect("an earlier panic interrupted a change of the parts")
    }

    /// Looks at the part that has been made.
    pub(crate) fn see<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        look(&self.lock().made)
    }

    /// Looks for something that may not have been made yet. `None`: the reader is nudged when there is progress.
    pub(crate) fn look_for<R>(&self, reader: &Arc<W>, look: impl FnOnce(&M) -> Option<R>) -> Option<R> {
        let mut state = self.lock();
        let found = look(&state.made);
        if found.is_none() {
            state.waiting.insert(reader.id(), Arc::downgrade(reader));
        }
        found
    }

    /// Makes progress, and nudges all readers that wait for it.
    pub(crate) fn progress<R>(&self, make: impl FnOnce(&mut M) -> R) -> R {
        let mut state = self.lock();
        let result = make(&mut state.made);
        let waiting = std::mem::take(&mut state.waiting);
        // All of them will want the lock.
        drop(state);
        waiting.values().filter_map(Weak::upgrade).for_each(|reader| reader.nudge());
        result
    }
}
