//! The seam between objects and updates: makes any number of key-value pairs from an object of a datastore. Pure: no I/O, no clock.

use std::sync::Arc;

use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Origin};

/// An event of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectEvent<'a> {
    /// It was listed, created or changed.
    Put(&'a Object),
    /// It is gone. The second value is its last content, if the datastore still knows it.
    Delete(&'a ObjectId, Option<&'a Object>),
}

/// An object could not be converted. Those of its keys that are known were emitted without values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConvertError {
    /// The reason: field, value, and the values that are accepted.
    pub reason: String,
}

/// Converts the objects of one kind (or of kinds that produce the same keys) for one syncer.
///
/// The caller compares the pairs with the ones that it sent before. So a processor may emit an unchanged pair again, and a pair
/// without a value for a key that was never sent.
pub trait Processor: Send {
    /// A full list begins: forget all objects. Not called when one of several kinds is listed again while objects of another kind
    /// stay known.
    fn on_resync(&mut self) {}

    /// All lists are complete: appends the pairs that belong to no object (the same at every call). Until the next
    /// [`Self::on_resync`], events come from watches.
    fn on_list_end(&mut self, _out: &mut Vec<KvPair>) {}

    /// The datastore vouched for all changes up to this revision (a bookmark). Few processors use it.
    fn on_progress(&mut self, _kind_name: &str, _revision: &str) {}

    /// The origin of deletions, where a syncer has several datastores.
    fn origin(&self) -> Option<Arc<Origin>> {
        None
    }

    /// The key of an object that keeps its last good value when it cannot be read or converted any more. `None`: such an object
    /// counts as absent.
    fn keeps_last_good(&self, _id: &ObjectId) -> Option<Key> {
        None
    }

    /// Appends the pairs that follow from the event to `out`.
    ///
    /// # Errors
    /// When the object cannot be converted. Pairs that follow from that (blanked keys) are appended all the same.
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError>;
}
