//! One list-and-watch per kind and process, shared by every syncer that uses the kind.
//!
//! Fed by a [`Datastore`]; feeds watcher caches with [`KindEvent`]s. [`machine`] decides what to do next, without I/O and
//! clock; [`driver`] does it; [`hub`] owns one driver per kind.
//!
//! Invariants:
//! - every subscriber gets the same events in the same order, beginning with a whole list;
//! - a watch that merely ends is reopened where it was; a list is made again only when the position is gone, when the
//!   datastore was away for [`machine::LOST_AFTER`], or when a subscriber joins later;
//! - nothing is ever reported as deleted because a datastore, a kind or a connection is away: deletes that happened
//!   unseen are found by the caches, by comparison with the next whole list;
//! - a subscriber that is slow slows the reading from the datastore; nothing is buffered beyond its bounded channel;
//! - while no subscriber can make use of changes yet ([`Demand`]), they are gathered, and handed on together.

mod driver;
mod hub;
mod machine;

use std::future::pending;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::datastore::{Datastore, Kind, Malformed, Object, WatchBatch};
use crate::demand::Demand;
use crate::model::kinds;
use crate::model::release::Release;
use crate::model::{AsOf, Revision};

pub use hub::{Joiner, KindHub};
pub use machine::LOST_AFTER;

/// An event of a kind, as every subscriber sees it. Cheap to clone: content is shared.
#[derive(Clone, Debug)]
pub enum KindEvent {
    /// The first page of a list has arrived: what was known before is now in question. A list that fails half-way is
    /// followed by another `ListStart`.
    ListStart,
    /// Objects of the current list.
    Objects(Arc<Vec<Object>>),
    /// Objects of the current list that cannot be read.
    Malformed(Arc<Vec<Malformed>>),
    /// The list is complete: what it did not contain is gone.
    ListEnd {
        /// The list's revision.
        revision: Revision,
        /// The moment that the list vouches for.
        as_of: Option<AsOf>,
    },
    /// Changes, in order. No events: only the position advanced (a bookmark).
    Changes(Arc<WatchBatch>),
    /// The datastore does not know the kind. Objects that were known stay known.
    Absent,
    /// The datastore has not answered for long. Objects that were known stay known; a list will follow.
    Lost,
}

/// Where a kind's events go: the tag says which of the receiver's kinds it is.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// Handed back with every event.
    pub tag: usize,
    /// Where to.
    pub events: mpsc::Sender<(usize, KindEvent)>,
    /// When that is of use. Changes of a watch may be put off until shortly before.
    pub demand: Demand,
}

impl Subscriber {
    /// A subscriber that wants everything at once, and does not mind what others want.
    #[must_use]
    pub fn new(tag: usize, events: mpsc::Sender<(usize, KindEvent)>) -> Self {
        Self { tag, events, demand: Demand::default() }
    }
}

/// State of the watch of a kind, for the status endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// The kind, as text.
    pub kind: String,
    /// Its phase.
    pub phase: Phase,
    /// Since when.
    pub since: Instant,
    /// The last revision seen; empty before the first list.
    pub revision: Revision,
    /// Its last failure, while it has not gone well again.
    pub error: Option<String>,
}

/// See [`KindStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the whole list, or waiting for the datastore to answer.
    Listing,
    /// In step with the datastore.
    Watching,
    /// Pausing after a failure.
    Retrying,
    /// The datastore does not know the kind; looking again now and then.
    Absent,
    /// The datastore has not answered for long; trying on.
    Lost,
}

/// Shared by all kind watches.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) datastore: Arc<dyn Datastore>,
    /// Decides the jitter of pauses.
    pub(crate) seed: u64,
    /// The release of the cluster's own Calico, if anybody finds out: a kind that it does not read is not missed where it is not permitted.
    pub(crate) cluster: Option<watch::Receiver<Option<Release>>>,
}

impl Shared {
    /// Why a kind that is not permitted is not missed, if it is not.
    fn spares(&self, kind: &Kind) -> Option<String> {
        self.cluster.as_ref()?;
        let release = self.cluster_release();
        let reads = kinds::read_by(kind).contain(release.unwrap_or(Release::Master));
        (!reads).then(|| match release {
            Some(release) => format!("Calico {release}, which this cluster runs, does not read it"),
            None => "only agents of old releases are told of it".to_owned(),
        })
    }

    /// The release of the cluster's own Calico.
    fn cluster_release(&self) -> Option<Release> {
        self.cluster.as_ref().and_then(|cluster| *cluster.borrow())
    }

    /// Waits until it is another one.
    async fn cluster_leaves(&self, release: Option<Release>) {
        let Some(mut cluster) = self.cluster.clone() else { return pending().await };
        if cluster.wait_for(|now| *now != release).await.is_err() {
            // Nobody will ever say so.
            pending().await
        }
    }
}

#[cfg(test)]
mod tests;
