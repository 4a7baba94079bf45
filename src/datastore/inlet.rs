//! The seam between Bulrush and the datastores that it reads: lists, watches, and errors by what the caller does next.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::pattern::{KindsNow, Pattern};
use super::selection::Selection;
use crate::model::object::{Object, ObjectId};
use crate::model::{AsOf, Revision};

/// A part of a list. All pages of one list show the datastore at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The objects of this page.
    pub objects: Vec<Object>,
    /// Objects of this page that count as absent.
    pub malformed: Vec<Malformed>,
    /// The revision of the whole list: where a watch continues from.
    pub revision: Revision,
    /// The moment that the list vouches for; on the last page.
    pub as_of: Option<AsOf>,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Created or changed.
    Put(Object),
    /// Gone. `last` is the object as it was, where the datastore still knows it.
    Delete {
        /// Which object.
        id: ObjectId,
        /// Its last form.
        last: Option<Object>,
    },
    /// It counts as absent.
    Malformed(Malformed),
}

/// The datastore holds something under this name that cannot be read, and is not even JSON perhaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which object.
    pub id: ObjectId,
    /// Why it cannot be read, for the log.
    pub reason: String,
}

/// Changes that belong together, in order. May be empty: then only the position advanced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// The changes.
    pub events: Vec<Event>,
    /// Where to continue from after this batch.
    pub revision: Revision,
    /// The moment up to which everything has been delivered, when the datastore vouches for one.
    pub as_of: Option<AsOf>,
}

/// Why listing or watching failed, by what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The datastore is away or overloaded: try the same again after a pause.
    #[error("{doing}: {reason}")]
    Retry {
        /// The attempt, with address and kind.
        doing: String,
        /// Why it failed, and where to look.
        reason: String,
    },
    /// The position is gone (compacted, expired): list again, then watch from there.
    #[error("{doing}: position {revision} is gone: {reason}")]
    Relist {
        /// The attempt.
        doing: String,
        /// The position that is gone.
        revision: Revision,
        /// The datastore's own words.
        reason: String,
    },
    /// The datastore does not know the kind (now), which is confirmed: it counts as in sync and empty; look again later. A
    /// single answer that may have another reason is [`Self::Retry`].
    #[error("{kind} is not known to the datastore")]
    KindAbsent {
        /// The kind.
        kind: String,
        /// Whether the datastore vouches that objects of the kind are gone, should there have been any. Otherwise objects
        /// that were known stay known.
        gone: bool,
    },
    /// Not allowed: retry slowly, and tell the operator what is missing.
    #[error("{doing}: not permitted: {reason}")]
    Forbidden {
        /// The attempt.
        doing: String,
        /// Which permission is missing.
        reason: String,
    },
}

/// A source of objects.
///
/// # Cancel safety
/// Both streams may be dropped at any time; a later call starts afresh from the revision that it is given.
pub trait Datastore: Send + Sync + fmt::Debug + 'static {
    /// All objects of a selection at one revision, in pages. The stream ends after the last page or the first error.
    /// An empty selection yields one empty page. An entry that cannot be an object by its looks is among the malformed; whether
    /// a body is good JSON shows when it is read.
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>>;

    /// All changes of a selection after `from`, which is the revision of a list or batch. The stream ends without an error
    /// when the datastore closed it in an orderly way: watch again from the last revision seen. An object that no longer belongs
    /// to the selection is deleted; a deletion of an object that never did may be told as well.
    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>>;

    /// The kinds that meet the patterns, now and after every change of them. An error is a look that failed: the kinds stay as they
    /// were, and the stream goes on by itself. It does not end, unless the datastore is shut down.
    ///
    /// Unless a datastore knows better, the kinds that patterns name are there, with names as in the pattern and of any scope.
    fn kinds(&self, patterns: &[Pattern]) -> BoxStream<'static, Result<KindsNow, Error>> {
        let kinds = patterns.iter().filter_map(Pattern::named).collect();
        let now = KindsNow { kinds, unknown: Vec::new() };
        stream::iter([Ok(now)]).chain(stream::pending()).boxed()
    }

    /// After [`Error::KindAbsent`]: comes back when it is worthwhile to look for the kind again. `None`: the datastore cannot
    /// tell, and the caller looks now and then.
    fn arrival(&self, _selection: &Selection) -> Option<BoxFuture<'static, ()>> {
        None
    }
}
