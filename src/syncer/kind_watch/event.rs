//! The events of a kind, and where they go.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::datastore::{Malformed, Object, WatchBatch};
use crate::demand::Demand;
use crate::model::{AsOf, Revision};

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
    /// A subscriber that wants everything at once, whatever others want.
    #[must_use]
    pub fn new(tag: usize, events: mpsc::Sender<(usize, KindEvent)>) -> Self {
        Self { tag, events, demand: Demand::default() }
    }
}
