//! A history as a linked list, oldest to newest, and how to follow it.
//!
//! Model-checked by `tests/models`.

use std::sync::Arc;

use crate::sync::{OnceLock, watch};

/// An element of a history.
pub trait Linked: Sized {
    /// The link to the next element.
    fn link(&self) -> &Link<Self>;

    /// The same.
    fn link_mut(&mut self) -> &mut Link<Self>;
}

/// The link from one element to the next.
#[derive(Debug)]
pub struct Link<P: Linked>(OnceLock<Arc<P>>);

impl<P: Linked> Link<P> {
    /// Without a next element.
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The next element, if there is one.
    pub(super) fn next(&self) -> Option<&Arc<P>> {
        self.0.get()
    }
}

impl<P: Linked> Drop for Link<P> {
    /// Unlinks an otherwise unused chain in a loop: dropping it link by link would recurse once per element.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(place) = next {
            next = Arc::into_inner(place).and_then(|mut place| place.link_mut().0.take());
        }
    }
}

/// Appends an element. Only the writer of the history calls this.
pub(super) fn append<P: Linked>(newest: &watch::Sender<Arc<P>>, place: Arc<P>) {
    let last = newest.borrow().clone();
    // Linked first, announced second: a follower that is woken finds the link in place.
    let linked = last.link().0.set(place.clone());
    debug_assert!(linked.is_ok(), "a place has one successor");
    newest.send_replace(place);
}

/// Follows a history from one element on, at its own pace. Sees every element exactly once, in order.
///
/// A follower keeps alive all elements from its position to the newest; a follower that may fall behind has to bound
/// that.
#[derive(Debug)]
pub struct Follower<P: Linked> {
    position: Arc<P>,
    newest: watch::Receiver<Arc<P>>,
}

impl<P: Linked> Clone for Follower<P> {
    fn clone(&self) -> Self {
        Self { position: self.position.clone(), newest: self.newest.clone() }
    }
}

impl<P: Linked> Follower<P> {
    /// A follower at the newest element.
    pub(super) fn new(newest: watch::Receiver<Arc<P>>) -> Self {
        let position = newest.borrow().clone();
        Self { position, newest }
    }

    /// The element at which it stands.
    #[must_use]
    pub fn position(&self) -> &Arc<P> {
        &self.position
    }

    /// The newest element.
    #[must_use]
    pub fn newest(&self) -> Arc<P> {
        self.newest.borrow().clone()
    }

    /// Moves to the newest element, past those between, and returns it.
    pub fn skip_to_newest(&mut self) -> Arc<P> {
        self.position = self.newest.borrow_and_update().clone();
        self.position.clone()
    }

    /// Moves to the next element if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<P>> {
        let next = self.position.link().next()?.clone();
        self.position = next.clone();
        Some(next)
    }

    /// Moves to the next element, and waits for it if need be. `None`: the writer is gone and there will be no more.
    ///
    /// # Cancel safety
    /// Cancel safe: the position moves only when the call returns.
    pub async fn next(&mut self) -> Option<Arc<P>> {
        loop {
            // Mark the newest as seen *before* looking at the link: an element that is announced after this line wakes
            // `changed`.
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
