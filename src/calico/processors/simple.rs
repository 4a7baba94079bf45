//! The processor of kinds with one datum per object: converts the object, or blanks its key.

use super::blank;
use crate::calico::resource::Resource;
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Revision, Value, no_revision};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// Conversion of one kind's objects.
pub trait Convert: Send {
    /// The key of an object, from its name alone. `None`: no object of this name is ever sent.
    fn key(&self, id: &ObjectId) -> Option<Key>;

    /// The value of an object. `Ok(None)`: the object is not sent, and not faulty.
    ///
    /// # Errors
    /// When the object cannot be understood; its key is blanked.
    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError>;
}

/// A converted object.
#[derive(Debug)]
pub struct Converted {
    /// The value.
    pub value: Value,
    /// `metadata.resourceVersion` of whole objects; else empty.
    pub v3_resource_version: Revision,
    /// The reason for a part that was left out.
    pub left_out: Option<ConvertError>,
}

impl From<Value> for Converted {
    fn from(value: Value) -> Self {
        Self { value, v3_resource_version: no_revision(), left_out: None }
    }
}

impl From<Resource> for Converted {
    fn from(resource: Resource) -> Self {
        let (value, v3_resource_version) = resource.into_value();
        Self { value, v3_resource_version, left_out: None }
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
            out.push(blank(key));
            return Ok(());
        };
        let converted = self.0.value(object).inspect_err(|_| out.push(blank(key.clone())))?;
        let Some(Converted { value, v3_resource_version, left_out }) = converted else {
            out.push(blank(key));
            return Ok(());
        };
        out.push(KvPair {
            key,
            value: Some(value),
            revision: object.revision.clone(),
            v3_resource_version,
            origin: None,
        });
        left_out.map_or(Ok(()), Err)
    }
}
