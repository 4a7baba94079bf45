//! A client between its own task and the pump: both work on it under one lock.
//!
//! The pump never waits. A client that it finds locked, or can serve only in part, it leaves to the client's task and
//! nudges that. A change is put into the ring *before* the pump comes by, and the task looks into the ring *before* it
//! lets the client rest, each under the client's lock: so either the pump finds the client at rest, or the task finds
//! the change.
//!
//! Model-checked by `tests/models`.

use std::sync::{PoisonError, TryLockError};

use crate::sync::Mutex;
use crate::syncserver::calls::Calls;

/// The result of the pump's visit to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The client has all there is, or its task is about to send it.
    Done,
    /// The client's task is writing queued bytes, and has to look for more after that.
    Busy,
    /// There is something left that only the client's task can do.
    Left,
}

/// The reason why a client could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// Another thread is at work on it.
    Busy,
    /// A panic happened while it was served: it is unknown what was sent.
    Poisoned,
}

/// A client that rests when there is nothing more for it.
pub(crate) trait Rests {
    /// There may be more: the client must look again before it rests.
    fn look_again(&mut self);
}

/// A client that streams, until its task takes it away.
#[derive(Debug)]
pub(crate) struct Guarded<T>(Mutex<Option<T>>);

impl<T: Rests> Guarded<T> {
    pub(crate) fn new(client: T) -> Self {
        Self(Mutex::new(Some(client)))
    }

    /// Accesses the client, unless it has been taken away. Waits while the pump or the task is at work on it.
    ///
    /// # Errors
    /// [`NotNow::Poisoned`].
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<Option<R>, NotNow> {
        let mut client = self.0.lock().map_err(|_| NotNow::Poisoned)?;
        Ok(client.as_mut().map(act))
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// The client is locked or poisoned.
    pub(crate) fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<Option<R>, NotNow> {
        let mut client = self.0.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => NotNow::Busy,
            TryLockError::Poisoned(_) => NotNow::Poisoned,
        })?;
        Ok(client.as_mut().map(act))
    }

    /// Takes the client away for good, even after a panic.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does for the client all that can be done at once, and nudges its task for the rest.
    pub(crate) fn visit(&self, calls: &Calls, visit: impl FnOnce(&mut T) -> Visit) {
        let visited = self.try_with(|client| {
            let visit = visit(client);
            if visit != Visit::Done {
                client.look_again();
            }
            visit
        });
        let visit = match visited {
            Ok(visit) => visit.unwrap_or(Visit::Done),
            // The task looks for itself, and ends a poisoned client.
            Err(NotNow::Busy | NotNow::Poisoned) => Visit::Left,
        };
        if visit == Visit::Left {
            calls.nudge();
        }
    }
}
