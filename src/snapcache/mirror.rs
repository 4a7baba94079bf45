//! A cache made from another one: it has a crumb for each of the other's, with the same number, moment and status.

use std::sync::Arc;

use tokio::sync::watch;

use super::breadcrumb::{Aside, Breadcrumb, Map};
use super::cache::Reader;
use super::chain::{Link, append};
use crate::model::{AsOf, Update};

/// The writer of such a cache.
#[derive(Debug)]
pub struct Mirror {
    newest: watch::Sender<Arc<Breadcrumb>>,
    as_of: watch::Sender<Option<AsOf>>,
}

impl Mirror {
    /// A cache that begins where the other one is at `crumb`, with this content. Its followers'
    /// [demand](Reader::demand) goes to the other one.
    #[must_use]
    pub fn new(of: &Reader, crumb: &Breadcrumb, map: Map) -> (Self, Reader) {
        let (newest, _) = watch::channel(like(crumb, map, Vec::new()));
        let (as_of, _) = watch::channel(crumb.as_of.clone());
        let mirror = Self { newest, as_of };
        let reader = mirror.reader(of);
        (mirror, reader)
    }

    /// One more reader.
    #[must_use]
    pub fn reader(&self, of: &Reader) -> Reader {
        Reader { newest: self.newest.subscribe(), as_of: self.as_of.subscribe(), demand: of.demand().clone() }
    }

    /// Whether there is a reader, or a trail.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// The newest content.
    #[must_use]
    pub fn map(&self) -> Map {
        self.newest.borrow().map.clone()
    }

    /// Publishes the counterpart of a crumb of the other cache. Each of its crumbs has to be published, in order, even
    /// without changes.
    pub fn publish(&self, crumb: &Breadcrumb, map: Map, deltas: Vec<Arc<Update>>) {
        append(&self.newest, like(crumb, map, deltas));
        // After the crumb: everything up to the moment is in place.
        self.as_of.send_replace(crumb.as_of.clone());
    }
}

fn like(crumb: &Breadcrumb, map: Map, deltas: Vec<Arc<Update>>) -> Arc<Breadcrumb> {
    let Breadcrumb { sequence, status, at, ref as_of, ref kinds, .. } = *crumb;
    Arc::new(Breadcrumb {
        sequence,
        map,
        deltas,
        aside: Aside::default(),
        kinds: kinds.clone(),
        status,
        at,
        as_of: as_of.clone(),
        link: Link::new(),
    })
}
