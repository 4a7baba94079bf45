//! Tiers.

use super::Context;
use super::simple::{Convert, Converted, Simple};
use crate::calico::keys;
use crate::calico::v1::policy::Tier;
use crate::calico::v3::policy::TierSpec;
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::{ConvertError, Processor};

/// Order of a tier without one in Kubernetes. In etcd there is no default.
const DEFAULT_ORDER: f64 = 1_000_000.0;

/// Converts `Tier` objects.
#[derive(Debug)]
pub struct Tiers;

/// The processor for a pipeline.
#[must_use]
pub fn new(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(Tiers))
}

impl Convert for Tiers {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::tier(&id.name))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let (_, spec) = super::body::<TierSpec>(object)?;
        let default_order = (object.dialect != Dialect::Etcd).then_some(DEFAULT_ORDER);
        let pass = spec.default_action.as_deref() == Some("Pass");
        let tier = Tier { order: spec.order.or(default_order), default_action: if pass { "Pass" } else { "Deny" } };
        Ok(Some(Value::raw(gojson::to_bytes(&tier)).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds;
    use crate::calico::processors::vectors_tests::{run, source};

    #[test]
    fn vectors_of_tiers() {
        let sources = |context: &Context| vec![source([kinds::TIER], new(context))];
        run("felix", sources, |key| key.starts_with("/calico/v1/policy/tier/"), 3);
    }
}
