//! Large publications, and the catch-ups that clients share.
//!
//! A publication of a generic syncer is one crumb, whatever its size. As a segment of the ring it would be one piece of
//! hundreds of megabytes, queued as a whole for each client, and no ping would get through beside it. So a feed
//! [skips](super::ring::Ring::skip) it in the ring. All clients that were up to date share one [`CatchUp`] with the
//! publication's own updates, in their order, and take it message by message at their own pace. Clients that lagged get
//! the difference of two maps, as always.
//!
//! Fed by [`rounds`](super::rounds), read through [`Feed::catch_up`](super::shared::Feed::catch_up).
//!
//! Invariants:
//! - a feed keeps the encoded messages of two catch-ups at most: the newest publication's, and the newest other one's.
//!   Each keeps a bounded number of bytes;
//! - the updates themselves are shared with the cache's map.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::catch_up::CatchUp;
use super::history::History;
use super::ring::Mark;
use crate::model::Update;

/// Keys and values from which on updates are a large publication: as much as the slowest honest client takes within the
/// time-out of a ping. A hundred of Calico's updates have a tenth of it.
const LARGE_BYTES: usize = 1 << 20;

/// Weight of an update besides its key and value: numbers, lengths, the revision.
const UPDATE_BYTES: usize = 32;

/// Time for which a publication is kept without readers: clients that finish something else first still share it.
const KEEP: Duration = Duration::from_secs(15);

/// About the bytes of some updates on the wire before compression.
pub(crate) fn weight(updates: &[Arc<Update>]) -> usize {
    let weight = |update: &Arc<Update>| {
        UPDATE_BYTES + update.key.len() + update.value.as_ref().map_or(0, |value| value.bytes.len())
    };
    updates.iter().map(weight).sum()
}

/// Whether updates of this weight are a large publication.
pub(crate) fn is_large(weight: usize) -> bool {
    weight > LARGE_BYTES
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct CatchUps {
    /// The newest difference of two maps, if a client reads it.
    difference: Weak<CatchUp>,
    /// The newest large publication, if a client reads it or it is still kept.
    publication: Weak<CatchUp>,
    kept: Option<(Arc<CatchUp>, Instant)>,
}

impl CatchUps {
    /// A catch-up from this mark to one from which the ring leads on, and that has at least the sequence number
    /// `at_least`.
    pub(crate) fn find(&self, mark: &Mark, at_least: u64, history: &History) -> Option<Arc<CatchUp>> {
        let fits = |shared: &Arc<CatchUp>| {
            let target = shared.target();
            shared.after() == mark.sequence && target.sequence >= at_least && history.leads_on_from(target)
        };
        [&self.publication, &self.difference].into_iter().filter_map(Weak::upgrade).find(fits)
    }

    /// Shares the difference of two maps from now on. Returns the last one, to be [given up](CatchUp::give_up).
    pub(crate) fn share(&mut self, difference: &Arc<CatchUp>) -> Option<Arc<CatchUp>> {
        std::mem::replace(&mut self.difference, Arc::downgrade(difference)).upgrade()
    }

    /// Shares a large publication from now on. Returns the last one, to be [given up](CatchUp::give_up).
    pub(crate) fn publish(&mut self, publication: Arc<CatchUp>, now: Instant) -> Option<Arc<CatchUp>> {
        let last = std::mem::replace(&mut self.publication, Arc::downgrade(&publication)).upgrade();
        self.kept = Some((publication, now));
        last
    }

    /// Returns a publication that need not be kept without readers any more.
    pub(crate) fn forget_unwanted(&mut self, now: Instant) -> Option<Arc<CatchUp>> {
        let old = |(_, since): &mut (Arc<CatchUp>, Instant)| now.saturating_duration_since(*since) > KEEP;
        self.kept.take_if(old).map(|(publication, _)| publication)
    }
}
