//! Where truth lives: the seam between Bulrush and what it reads.
//!
//! A datastore lists and watches *kinds* and knows nothing of syncers, keys or agents. A [`Kind`] is data, so that any
//! resource can be one. Errors are named by what the caller does next. Every further datastore is one more file here.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use crate::model::object::{Dialect, Kind, Object, ObjectId};
use crate::model::{AsOf, Revision};

pub mod address;
pub mod backoff;
pub mod etcd;
pub mod file;
pub mod init;
pub mod kubernetes;
pub mod memory;

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
        /// What was tried, on which address and kind.
        doing: String,
        /// Why it failed and what to check.
        reason: String,
    },
    /// The position is gone (compacted, expired): list again, then watch from there.
    #[error("{doing}: position {revision} is gone: {reason}")]
    Relist {
        /// What was tried.
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
        /// Whether the datastore vouches that objects of the kind are gone, should there have been any. Otherwise what
        /// was known stays known.
        gone: bool,
    },
    /// Not allowed: retry slowly, and tell the operator what is missing.
    #[error("{doing}: not permitted: {reason}")]
    Forbidden {
        /// What was tried.
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
    /// All objects of a kind at one revision, in pages. The stream ends after the last page or the first error.
    /// An empty kind yields one empty page. What cannot be an object by its looks is among the malformed; whether a body is
    /// good JSON is for whoever reads it.
    fn list(&self, kind: &Kind) -> BoxStream<'static, Result<ListPage, Error>>;

    /// All changes of a kind after `from`, which is the revision of a list or batch. The stream ends without an error
    /// when the datastore closed it in an orderly way: watch again from the last revision seen.
    fn watch(&self, kind: &Kind, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>>;

    /// After [`Error::KindAbsent`]: comes back when it is worthwhile to look for the kind again. `None`: the datastore cannot
    /// tell, and whoever asks looks now and then.
    fn arrival(&self, _kind: &Kind) -> Option<BoxFuture<'static, ()>> {
        None
    }
}
