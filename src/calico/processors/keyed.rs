//! The processor of kinds whose keys depend on the objects' content, and are never claimed by two objects.
//!
//! Remembers the key of each object, because a deletion may give only its name.

use std::collections::HashMap;

use super::conflict::ConvertKeyed;
use super::{blank, pair};
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Value};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// The keys that were sent, by their objects.
#[derive(Debug, Default)]
pub(super) struct Sent(HashMap<ObjectId, Key>);

impl Sent {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Blanks the key of an object.
    pub(super) fn forget(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        out.extend(self.0.remove(id).map(blank));
    }

    /// Sends an object's value under its key, and blanks another one that it had before.
    pub(super) fn put(&mut self, object: &Object, key: Key, value: Option<Value>, out: &mut Vec<KvPair>) {
        if self.0.get(&object.id).is_none_or(|old| *old != key) {
            self.forget(&object.id, out);
            self.0.insert(object.id.clone(), key.clone());
        }
        out.push(pair(key, value, &object.revision));
    }
}

/// A [`Processor`] of a [`ConvertKeyed`].
#[derive(Debug)]
pub struct Keyed<C> {
    convert: C,
    sent: Sent,
}

impl<C> Keyed<C> {
    /// Starts without objects.
    pub fn new(convert: C) -> Self {
        Self { convert, sent: Sent::default() }
    }
}

impl<C: ConvertKeyed> Processor for Keyed<C> {
    fn on_resync(&mut self) {
        self.sent.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) => {
                let (key, value) = self.convert.convert(object).inspect_err(|_| self.sent.forget(&object.id, out))?;
                self.sent.put(object, key, Some(value), out);
            }
            ObjectEvent::Delete(id, _) => self.sent.forget(id, out),
        }
        Ok(())
    }
}
