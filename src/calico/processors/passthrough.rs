//! The processor of kinds that agents receive whole, as Calico's Go types print them.

use super::Context;
use super::simple::{Convert, Converted, Simple};
use crate::calico::keys;
use crate::calico::resource::Resource;
use crate::datastore::{Kind, Object, ObjectId};
use crate::model::Key;
use crate::syncer::processor::{ConvertError, Processor};

/// Passes whole objects of one kind on.
#[derive(Debug)]
struct PassThrough(Kind);

/// The processor for a pipeline. The kind has to be known to [`crate::calico::resource::is_known`].
#[must_use]
pub fn new(kind: Kind, _context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(PassThrough(kind)))
}

impl Convert for PassThrough {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::resource(keys::wire_plural(&self.0), id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        Ok(Some(Resource::decode(&self.0.name, object)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds;
    use crate::calico::processors::vectors_tests::{run, source};
    use crate::syncer::spec::Source;

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
