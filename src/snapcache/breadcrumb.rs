//! Points in a cache's history.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use tokio::time::Instant;

use super::chain::{Follower, Link, Linked};
use crate::model::{AsOf, Key, SyncStatus, Update};

/// The content of a cache at one point: persistent, so a clone is free and shares all that did not change.
///
/// The update type of an entry is that of its last change; a snapshot sends every entry as new.
pub type Map = OrdMap<Key, Arc<Update>>;

/// Sequence numbers by kind.
pub type KindSequences = BTreeMap<Box<str>, u64>;

/// One point in a cache's history.
#[derive(Debug)]
pub struct Breadcrumb {
    /// Counts published crumbs; the first, empty one is 0. No gaps.
    pub sequence: u64,
    /// The whole content at this point.
    pub map: Map,
    /// Changes since the previous crumb, in order.
    pub deltas: Vec<Arc<Update>>,
    /// The same for keys that are carried aside ([`Key::is_aside`](crate::model::Key::is_aside)).
    pub aside: Aside,
    /// For each kind, the sequence number of the last crumb that changed it. Empty where the cache does not tell kinds apart.
    pub kinds: Arc<KindSequences>,
    /// The status at this point.
    pub status: SyncStatus,
    /// When the crumb was published.
    pub at: Instant,
    /// The last moment for which the datastore had vouched by then.
    pub as_of: Option<AsOf>,
    pub(super) link: Link<Breadcrumb>,
}

impl Breadcrumb {
    /// The first crumb of a cache that holds nothing.
    pub(super) fn empty() -> Arc<Self> {
        let (at, link) = (Instant::now(), Link::new());
        let (map, deltas, aside, kinds) = (Map::new(), Vec::new(), Aside::default(), Arc::default());
        let status = SyncStatus::WaitForDatastore;
        Arc::new(Self { sequence: 0, map, deltas, aside, kinds, status, at, as_of: None, link })
    }

    /// The next crumb, if it has been published.
    #[must_use]
    pub fn next(&self) -> Option<&Arc<Breadcrumb>> {
        self.link.next()
    }
}

/// Entries that a cache carries aside at one point.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// The whole content.
    pub map: Map,
    /// Changes since the previous crumb, in order.
    pub deltas: Vec<Arc<Update>>,
}

impl Linked for Breadcrumb {
    fn link(&self) -> &Link<Self> {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.link
    }
}

/// Follows a cache from some crumb on, at its own pace. Sees every crumb exactly once, in order.
pub type Trail = Follower<Breadcrumb>;
