//! How a client's own task and the pump take turns with it.
//!
//! The pump waits for nobody. What it finds locked, or can do in part only, it leaves to the task, and calls it. What comes for
//! a client is put where both find it *before* the pump comes by, and the task looks there *before* it lets the client rest, each
//! under the client's lock: so either the pump finds the client at rest, or the task finds what has come.
//!
//! Model-checked by `tests/models`.

use std::sync::{PoisonError, TryLockError};

use super::calls::Calls;
use crate::sync::{Mutex, MutexGuard};

/// What came of the pump's visit to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// It has all there is, or its task is on its way to what there is.
    Done,
    /// Its task is at work on what is queued, and has to look for more after that.
    Busy,
    /// Something was left that only its task can do.
    Left,
}

/// Somebody who rests when there is nothing more to be had.
pub(super) trait Rests {
    /// There may be more: no rest before another look.
    fn look_again(&mut self);
}

/// A client that streams, until its task takes it away.
#[derive(Debug)]
pub(super) struct Turns<T>(Mutex<Option<T>>);

impl<T: Rests> Turns<T> {
    pub(super) fn new(client: T) -> Self {
        Self(Mutex::new(Some(client)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the client, unless it has been taken away. Waits for whoever is at work on it.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().as_mut().map(act)
    }

    /// The same without waiting. `None`: somebody is at work on it, or it has been taken away.
    pub(super) fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_lock().ok()?.as_mut().map(act)
    }

    /// Takes the client away for good.
    pub(super) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    /// Does for the client what can be done at once, and calls its task for the rest.
    pub(super) fn visit(&self, calls: &Calls, visit: impl FnOnce(&mut T) -> Visit) {
        let visit = match self.0.try_lock() {
            Ok(mut client) => client.as_mut().map_or(Visit::Done, |client| {
                let visit = visit(client);
                if visit != Visit::Done {
                    client.look_again();
                }
                visit
            }),
            Err(TryLockError::WouldBlock) => Visit::Left,
            Err(TryLockError::Poisoned(_)) => Visit::Done,
        };
        if visit == Visit::Left {
            calls.nudge();
        }
    }
}
