//! The processor of kinds where several objects may claim one key: the object with the smallest name owns it.
//!
//! Used for IP pools (key: range), global network sets (key: name) and host endpoints (key: node and name). Invariant:
//! a key is sent with its owner's value, or blank without claimants.

use std::collections::{BTreeMap, HashMap};

use super::{blank, pair};
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Value};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// Conversion of objects whose keys may depend on their content.
pub trait ConvertKeyed: Send {
    /// The key and value of an object.
    ///
    /// # Errors
    /// When the object cannot be understood; it then claims no key.
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError>;
}

/// A [`Processor`] of a [`ConvertKeyed`].
#[derive(Debug)]
pub struct Resolving<C> {
    convert: C,
    /// The key that each object claims.
    claims: HashMap<ObjectId, Key>,
    /// The claimants of each key, by name; the first owns it. Never empty.
    claimants: HashMap<Key, BTreeMap<ObjectId, KvPair>>,
}

impl<C> Resolving<C> {
    /// Starts without objects.
    pub fn new(convert: C) -> Self {
        Self { convert, claims: HashMap::new(), claimants: HashMap::new() }
    }

    /// Takes an object's key away; the next claimant gets it.
    fn release(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        let Some(key) = self.claims.remove(id) else { return };
        let Some(claimants) = self.claimants.get_mut(&key) else { return };
        let owned = claimants.first_key_value().is_some_and(|(owner, _)| owner == id);
        claimants.remove(id);
        match claimants.first_key_value() {
            Some((_, heir)) if owned => out.push(heir.clone()),
            Some(_) => {}
            None => {
                self.claimants.remove(&key);
                out.push(blank(key));
            }
        }
    }

    fn claim(&mut self, object: &Object, key: Key, value: Value, out: &mut Vec<KvPair>) {
        if self.claims.get(&object.id).is_some_and(|old| *old != key) {
            self.release(&object.id, out);
        }
        let pair = pair(key.clone(), Some(value), &object.revision);
        self.claims.insert(object.id.clone(), key.clone());
        let claimants = self.claimants.entry(key).or_default();
        claimants.insert(object.id.clone(), pair.clone());
        if claimants.first_key_value().is_some_and(|(owner, _)| *owner == object.id) {
            out.push(pair);
        }
    }
}

impl<C: ConvertKeyed> Processor for Resolving<C> {
    fn on_resync(&mut self) {
        self.claims.clear();
        self.claimants.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) => match self.convert.convert(object) {
                Ok((key, value)) => {
                    self.claim(object, key, value, out);
                    Ok(())
                }
                Err(error) => {
                    self.release(&object.id, out);
                    Err(error)
                }
            },
            ObjectEvent::Delete(id, _) => {
                self.release(id, out);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datastore::Dialect;

    /// The body is the key; an empty one cannot be converted.
    #[derive(Debug)]
    struct BodyIsKey;

    impl ConvertKeyed for BodyIsKey {
        fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
            let key = String::from_utf8_lossy(&object.body).into_owned();
            if key.is_empty() {
                return Err(ConvertError { reason: "empty".to_owned() });
            }
            Ok((key.into(), Value::raw(object.id.name.as_bytes().to_vec())))
        }
    }

    fn object(name: &str, key: &str) -> Object {
        Object {
            id: ObjectId { namespace: "".into(), name: name.into() },
            revision: "1".into(),
            dialect: Dialect::V3,
            body: key.to_owned().into(),
            place: None,
        }
    }

    proptest! {
        #[test]
        fn keys_always_have_the_value_of_the_smallest_claimant(
            steps in proptest::collection::vec(("[a-d]", "[x-z]?", any::<bool>()), 0..60)
        ) {
            let mut processor = Resolving::new(BodyIsKey);
            let mut claims = BTreeMap::new();
            let mut sent: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            for (name, key, delete) in steps {
                let object = object(&name, &key);
                let mut out = Vec::new();
                let event =
                    if delete { ObjectEvent::Delete(&object.id, None) } else { ObjectEvent::Put(&object) };
                let failed = processor.process(event, &mut out).is_err();
                prop_assert_eq!(failed, !delete && key.is_empty());
                if delete || key.is_empty() {
                    claims.remove(&name);
                } else {
                    claims.insert(name, key);
                }
                for pair in out {
                    match pair.value {
                        Some(value) => sent.insert(pair.key.to_string(), value.bytes.to_vec()),
                        None => sent.remove(pair.key.as_str()),
                    };
                }
                let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
                for (name, key) in &claims {
                    expected.entry(key.clone()).or_insert_with(|| name.clone().into_bytes());
                }
                prop_assert_eq!(&sent, &expected);
            }
        }
    }
}
