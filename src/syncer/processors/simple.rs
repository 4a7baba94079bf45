//! The processor of kinds whose objects are one datum each: convert, or blank the key.

use super::{ConvertError, ObjectEvent, Processor};
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Revision, Value, no_revision};

/// What one kind needs to become data.
pub trait Convert: Send {
    /// The key of an object, from its name alone. `None`: no object of this name is ever sent.
    fn key(&self, id: &ObjectId) -> Option<Key>;

    /// The value of an object. `Ok(None)`: the object is not to be sent, which is no fault.
    ///
    /// # Errors
    /// When the object cannot be understood; its key is blanked.
    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError>;
}

/// What an object became.
#[derive(Debug)]
pub struct Converted {
    /// The value.
    pub value: Value,
    /// `metadata.resourceVersion` of whole objects; else empty.
    pub v3_resource_version: Revision,
    /// A part that could not be understood and was left out.
    pub left_out: Option<ConvertError>,
}

impl From<Value> for Converted {
    fn from(value: Value) -> Self {
        Self { value, v3_resource_version: no_revision(), left_out: None }
    }
}

/// A [`Processor`] of a [`Convert`].
#[derive(Debug)]
pub struct Simple<C>(pub C);

impl<C: Convert> Processor for Simple<C> {
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let id = match event {
            ObjectEvent::Put(object) => &object.id,
            ObjectEvent::Delete(id, _) => id,
        };
        let Some(key) = self.0.key(id) else { return Ok(()) };
        let ObjectEvent::Put(object) = event else {
            out.push(KvPair { key, value: None, revision: no_revision(), v3_resource_version: no_revision() });
            return Ok(());
        };
        let (converted, result) = match self.0.value(object) {
            Ok(Some(Converted { left_out: Some(error), value, v3_resource_version })) => {
                (Some((value, v3_resource_version)), Err(error))
            }
            Ok(converted) => (converted.map(|converted| (converted.value, converted.v3_resource_version)), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let (value, v3_resource_version) = converted.unzip();
        out.push(KvPair {
            key,
            value,
            revision: object.revision.clone(),
            v3_resource_version: v3_resource_version.unwrap_or_else(no_revision),
        });
        result
    }
}
