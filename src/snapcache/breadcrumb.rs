//! Points in a cache's history, linked oldest to newest, and how to follow them.

use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::{AsOf, Key, SyncStatus, Update};

/// The content of a cache at one point: persistent, so a clone is free and shares all that did not change.
///
/// The update type of an entry is that of its last change; whoever sends a snapshot sends every entry as new.
pub type Map = OrdMap<Key, Arc<Update>>;

/// One point in a cache's history.
#[derive(Debug)]
pub struct Breadcrumb {
    /// Counts published crumbs; the first, empty one is 0. No gaps.
    pub sequence: u64,
    /// Everything there is at this point.
    pub map: Map,
    /// What changed since the previous crumb, in order.
    pub deltas: Vec<Arc<Update>>,
    /// The status at this point.
    pub status: SyncStatus,
    /// When the crumb was published.
    pub at: Instant,
    /// The freshest moment that the datastore had vouched for by then.
    pub as_of: Option<AsOf>,
    /// The next crumb, once there is one.
    next: OnceLock<Arc<Breadcrumb>>,
}

impl Breadcrumb {
    pub(super) fn new(
        sequence: u64,
        map: Map,
        deltas: Vec<Arc<Update>>,
        status: SyncStatus,
        as_of: Option<AsOf>,
    ) -> Arc<Self> {
        Arc::new(Self { sequence, map, deltas, status, at: Instant::now(), as_of, next: OnceLock::new() })
    }

    /// The next crumb, if it has been published.
    #[must_use]
    pub fn next(&self) -> Option<&Arc<Breadcrumb>> {
        self.next.get()
    }

    /// Links the next crumb. Only the cache's writer calls this, once per crumb.
    pub(super) fn link(&self, next: Arc<Breadcrumb>) {
        let linked = self.next.set(next);
        debug_assert!(linked.is_ok(), "a crumb has one successor");
    }
}

impl Drop for Breadcrumb {
    /// Unlinks a chain that nobody else holds in a loop: dropping it link by link would recurse once per crumb.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(crumb) = next {
            next = Arc::into_inner(crumb).and_then(|mut crumb| crumb.next.take());
        }
    }
}

/// Follows a cache from some crumb on, at its own pace. Sees every crumb exactly once, in order.
///
/// A trail keeps alive all crumbs from its position to the newest; whoever may fall behind bounds how far.
#[derive(Clone, Debug)]
pub struct Trail {
    position: Arc<Breadcrumb>,
    newest: watch::Receiver<Arc<Breadcrumb>>,
}

impl Trail {
    pub(super) fn new(newest: watch::Receiver<Arc<Breadcrumb>>) -> Self {
        let position = newest.borrow().clone();
        Self { position, newest }
    }

    /// The crumb at which this trail stands.
    #[must_use]
    pub fn position(&self) -> &Arc<Breadcrumb> {
        &self.position
    }

    /// The newest crumb of the cache.
    #[must_use]
    pub fn newest(&self) -> Arc<Breadcrumb> {
        self.newest.borrow().clone()
    }

    /// Moves to the newest crumb without looking at those between, and returns it.
    pub fn skip_to_newest(&mut self) -> Arc<Breadcrumb> {
        self.position = self.newest.borrow_and_update().clone();
        self.position.clone()
    }

    /// Moves to the next crumb if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<Breadcrumb>> {
        let next = self.position.next()?.clone();
        self.position = next.clone();
        Some(next)
    }

    /// Moves to the next crumb, waiting for it if need be. `None`: the cache is gone and there will be no more.
    ///
    /// # Cancel safety
    /// Cancel safe: the position moves only when the call returns.
    pub async fn next(&mut self) -> Option<Arc<Breadcrumb>> {
        loop {
            // Mark what is newest as seen *before* looking at the link: a crumb published after this line wakes `changed`.
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
