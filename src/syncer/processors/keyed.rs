//! The processor of kinds whose keys depend on their objects' content, without anybody else claiming the same key.
//!
//! Remembers which key each object has, because what is left of a deleted object may be its name alone.

use std::collections::HashMap;

use super::conflict::ConvertKeyed;
use super::{ConvertError, ObjectEvent, Processor};
use crate::datastore::ObjectId;
use crate::model::{Key, KvPair, no_revision};

/// A [`Processor`] of a [`ConvertKeyed`].
#[derive(Debug)]
pub struct Keyed<C> {
    convert: C,
    keys: HashMap<ObjectId, Key>,
}

impl<C> Keyed<C> {
    /// Nothing is known yet.
    pub fn new(convert: C) -> Self {
        Self { convert, keys: HashMap::new() }
    }

    fn forget(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        if let Some(key) = self.keys.remove(id) {
            out.push(KvPair { key, value: None, revision: no_revision(), v3_resource_version: no_revision() });
        }
    }
}

impl<C: ConvertKeyed> Processor for Keyed<C> {
    fn on_resync(&mut self) {
        self.keys.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let object = match event {
            ObjectEvent::Put(object) => object,
            ObjectEvent::Delete(id, _) => {
                self.forget(id, out);
                return Ok(());
            }
        };
        let (key, value) = match self.convert.convert(object) {
            Ok(converted) => converted,
            Err(error) => {
                self.forget(&object.id, out);
                return Err(error);
            }
        };
        if self.keys.get(&object.id).is_none_or(|old| *old != key) {
            self.forget(&object.id, out);
            self.keys.insert(object.id.clone(), key.clone());
        }
        out.push(KvPair {
            key,
            value: Some(value),
            revision: object.revision.clone(),
            v3_resource_version: no_revision(),
        });
        Ok(())
    }
}
