//! The processor of kinds that agents receive whole: same key, the object as Calico's Go types print it.

use super::simple::{Convert, Converted, Simple};
use super::{Context, ConvertError, Processor};
use crate::datastore::{Kind, Object, ObjectId};
use crate::model::resource::Resource;
use crate::model::{Key, keys};

/// Passes whole objects of one kind on.
#[derive(Debug)]
pub struct PassThrough {
    kind: Kind,
}

impl PassThrough {
    /// For a kind that [`crate::model::resource::is_known`].
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind }
    }
}

/// The processor for a pipeline.
#[must_use]
pub fn new(kind: Kind, _context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(PassThrough::new(kind)))
}

impl Convert for PassThrough {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::resource(keys::wire_plural(&self.kind), id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let resource =
            Resource::decode(&self.kind.name, object).map_err(|error| ConvertError { reason: error.to_string() })?;
        let (value, v3_resource_version) = resource.into_value();
        Ok(Some(Converted { value, v3_resource_version, left_out: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kinds;
    use crate::syncer::pipelines::Source;
    use crate::syncer::processors::vectors_tests::{run, source};

    fn sources(context: &Context) -> Vec<Source> {
        [
            kinds::BGP_PEER,
            kinds::BGP_CONFIGURATION,
            kinds::BGP_FILTER,
            kinds::CALICO_NODE_STATUS,
            kinds::SERVICE,
            kinds::ENDPOINT_SLICE,
        ]
        .into_iter()
        .map(|kind| source([kind.clone()], new(kind, context)))
        .collect()
    }

    #[test]
    fn vectors_of_whole_objects() {
        let owns = |key: &str| key.starts_with("/calico/resources/v3/");
        for (syncer, least) in [("bgp", 5), ("felix", 2), ("node-status", 2)] {
            run(syncer, sources, owns, least);
        }
    }
}
