//! The seam for writing to a datastore: single objects, each only if it is still as the writer has seen it.

use futures_util::future::BoxFuture;

use super::inlet::Error;
use crate::model::Revision;
use crate::model::object::{Kind, ObjectId};

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The object in the form of its datastore, mostly JSON.
    pub body: Vec<u8>,
    /// Its version.
    pub revision: Revision,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The object's kind.
    pub kind: &'a Kind,
    /// Its name; without a namespace where objects of the kind live in none.
    pub id: &'a ObjectId,
    /// The change, and its condition.
    pub change: Change<'a>,
    /// Nothing is stored: the datastore only says whether the write would succeed.
    pub dry_run: bool,
}

/// The change of an object, and how the object must be before.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// It is made; it must not exist.
    Create {
        /// All of it.
        body: Vec<u8>,
    },
    /// It is replaced.
    Update {
        /// All of it.
        body: Vec<u8>,
        /// The version that it must still have.
        before: &'a Revision,
    },
    /// It is removed.
    Delete {
        /// The version that it must still have.
        before: &'a Revision,
    },
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It has happened. The version is the object's from now on; after a deletion or a dry run it is the one that the datastore
    /// tells, and may be empty.
    Done(Revision),
    /// The object is not as it must be: somebody else was faster, or this write has happened before and the answer was lost.
    /// Read again.
    Conflict,
}

/// A datastore that can be written to.
///
/// # Cancel safety
/// A dropped write may have happened or not: read again.
pub trait Writable: Send + Sync {
    /// Reads an object; `None`: there is none of this name.
    ///
    /// # Errors
    /// As of lists. A kind that the datastore does not know may be told as an object that is not there.
    fn read<'a>(&'a self, kind: &'a Kind, id: &'a ObjectId) -> BoxFuture<'a, Result<Option<Stored>, Error>>;

    /// Changes an object if it is still as it was.
    ///
    /// # Errors
    /// As of lists. An object that the datastore does not take is [`Error::Retry`], with its reason.
    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<Written, Error>>;
}
