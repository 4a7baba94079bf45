//! Something that is made bit by bit by one, and awaited by many.
//!
//! A reader that finds nothing yet is noted under the same lock under which it has looked: no progress can come in between.
//! Model-checked by `tests/models`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::sync::{Mutex, MutexGuard};

/// A reader that waits for progress.
pub(super) trait Awaits {
    /// A number that nobody else has.
    fn id(&self) -> u64;

    /// There is progress.
    fn nudge(&self);
}

/// The part that has been made so far, and the readers that wait for more.
#[derive(Debug)]
pub(super) struct Made<M, W>(Mutex<State<M, W>>);

#[derive(Debug)]
struct State<M, W> {
    made: M,
    /// By their numbers: a reader that looks in vain several times is noted once. Weakly: a reader that leaves is not held.
    waiting: BTreeMap<u64, Weak<W>>,
}

impl<M, W: Awaits> Made<M, W> {
    pub(super) fn new(made: M) -> Self {
        Self(Mutex::new(State { made, waiting: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State<M, W>> {
        // Half of a change would give readers wrong data: every one that comes to it fails as well.
        self.0.lock().expect("a panic in the middle of a change of what is made")
    }

    /// Looks at the part that has been made.
    pub(super) fn see<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        look(&self.lock().made)
    }

    /// Looks for something that may not have been made yet. `None`: the reader is nudged when there is progress.
    pub(super) fn look_for<R>(&self, who: &Arc<W>, look: impl FnOnce(&M) -> Option<R>) -> Option<R> {
        let mut state = self.lock();
        let found = look(&state.made);
        if found.is_none() {
            state.waiting.insert(who.id(), Arc::downgrade(who));
        }
        found
    }

    /// Makes progress, and nudges all readers that wait for it.
    pub(super) fn progress<R>(&self, make: impl FnOnce(&mut M) -> R) -> R {
        let mut state = self.lock();
        let result = make(&mut state.made);
        let waiting = std::mem::take(&mut state.waiting);
        // They will all want the lock.
        drop(state);
        waiting.values().filter_map(Weak::upgrade).for_each(|who| who.nudge());
        result
    }
}
