//! Places in a history, linked oldest to newest, and how to follow them.
//!
//! Model-checked by `tests/models`.

use std::sync::Arc;

use crate::sync::{OnceLock, watch};

/// A place in a history.
pub trait Place: Sized {
    /// The link from it to the next one.
    fn link(&self) -> &Link<Self>;

    /// The same.
    fn link_mut(&mut self) -> &mut Link<Self>;
}

/// The link from one place to the next.
#[derive(Debug)]
pub struct Link<P: Place>(OnceLock<Arc<P>>);

impl<P: Place> Link<P> {
    /// To nowhere yet.
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The next place, if there is one.
    pub(super) fn next(&self) -> Option<&Arc<P>> {
        self.0.get()
    }
}

impl<P: Place> Drop for Link<P> {
    /// Unlinks a chain that nobody else holds in a loop: dropping it link by link would recurse once per place.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(place) = next {
            next = Arc::into_inner(place).and_then(|mut place| place.link_mut().0.take());
        }
    }
}

/// Makes a place the one that follows the newest. Only the writer of the history calls this.
pub(super) fn append<P: Place>(newest: &watch::Sender<Arc<P>>, place: Arc<P>) {
    let last = newest.borrow().clone();
    // Linked first, announced second: a follower that is woken finds the link in place.
    let linked = last.link().0.set(place.clone());
    debug_assert!(linked.is_ok(), "a place has one successor");
    newest.send_replace(place);
}

/// Follows a history from some place on, at its own pace. Sees every place exactly once, in order.
///
/// A follower keeps alive all places from its position to the newest; a follower that may fall behind has to bound how far.
#[derive(Debug)]
pub struct Follower<P: Place> {
    position: Arc<P>,
    newest: watch::Receiver<Arc<P>>,
}

impl<P: Place> Clone for Follower<P> {
    fn clone(&self) -> Self {
        Self { position: self.position.clone(), newest: self.newest.clone() }
    }
}

impl<P: Place> Follower<P> {
    /// A follower that stands at the newest place.
    pub(super) fn new(newest: watch::Receiver<Arc<P>>) -> Self {
        let position = newest.borrow().clone();
        Self { position, newest }
    }

    /// The place at which it stands.
    #[must_use]
    pub fn position(&self) -> &Arc<P> {
        &self.position
    }

    /// The newest place.
    #[must_use]
    pub fn newest(&self) -> Arc<P> {
        self.newest.borrow().clone()
    }

    /// Moves to the newest place without looking at those between, and returns it.
    pub fn skip_to_newest(&mut self) -> Arc<P> {
        self.position = self.newest.borrow_and_update().clone();
        self.position.clone()
    }

    /// Moves to the next place if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<P>> {
        let next = self.position.link().next()?.clone();
        self.position = next.clone();
        Some(next)
    }

    /// Moves to the next place, waiting for it if need be. `None`: the writer is gone and there will be no more.
    ///
    /// # Cancel safety
    /// Cancel safe: the position moves only when the call returns.
    pub async fn next(&mut self) -> Option<Arc<P>> {
        loop {
            // Mark what is newest as seen *before* looking at the link: a place announced after this line wakes `changed`.
            self.newest.mark_unchanged();
            if let Some(next) = self.try_next() {
                return Some(next);
            }
            if self.newest.changed().await.is_err() {
                return self.try_next();
            }
        }
    }
}
