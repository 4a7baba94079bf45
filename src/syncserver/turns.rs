//! How a client's own task and the pump take turns with it.
//!
//! The pump waits for nobody. A client that it finds locked, or can serve in part only, it leaves to the task, and calls it. A change for
//! a client is put where both find it *before* the pump comes by, and the task looks there *before* it lets the client rest, each
//! under the client's lock: so either the pump finds the client at rest, or the task finds the change.
//!
//! Model-checked by `tests/models`.

use std::sync::{PoisonError, TryLockError};

use super::calls::Calls;
use crate::sync::Mutex;

/// The outcome of the pump's visit to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// It has all there is, or its task is on its way to what there is.
    Done,
    /// Its task is at work on queued bytes, and has to look for more after that.
    Busy,
    /// Something was left that only its task can do.
    Left,
}

/// Why nothing was done with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Somebody is at work on it.
    Busy,
    /// Somebody panicked at work on it: nobody knows what it was sent.
    Poisoned,
}

/// A client that rests when there is nothing more for it.
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

    /// Does something with the client, unless it has been taken away. Waits for the pump or the task that is at work on it.
    ///
    /// # Errors
    /// [`NotNow::Poisoned`].
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<Option<R>, NotNow> {
        let mut client = self.0.lock().map_err(|_| NotNow::Poisoned)?;
        Ok(client.as_mut().map(act))
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// Why nothing was done with it.
    pub(super) fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<Option<R>, NotNow> {
        let mut client = self.0.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => NotNow::Busy,
            TryLockError::Poisoned(_) => NotNow::Poisoned,
        })?;
        Ok(client.as_mut().map(act))
    }

    /// Takes the client away for good, whatever happened to it.
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does for the client what can be done at once, and calls its task for the rest.
    pub(super) fn visit(&self, calls: &Calls, visit: impl FnOnce(&mut T) -> Visit) {
        let visited = self.try_with(|client| {
            let visit = visit(client);
            if visit != Visit::Done {
                client.look_again();
            }
            visit
        });
        let visit = match visited {
            Ok(visit) => visit.unwrap_or(Visit::Done),
            // The task looks for itself, and ends a client that is poisoned.
            Err(NotNow::Busy | NotNow::Poisoned) => Visit::Left,
        };
        if visit == Visit::Left {
            calls.nudge();
        }
    }
}
