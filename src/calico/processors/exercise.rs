//! The fuzz target's work on an input, for tests that replay its corpus; and the names and dialects of its objects, for
//! tests with random objects.

use crate::calico::pipelines::{Flavour, calico};
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::KvPair;

use super::Context;
use crate::syncer::processor::ObjectEvent;

/// Names in all forms that some kind treats specially.
pub(crate) const NAMES: [(&str, &str); 6] = [
    ("ns", "n-k8s-p-eth0"),
    ("", "default"),
    ("", "node.x"),
    ("", "ipv4/block/10.0.0.0-26"),
    ("", "n/ipv6/block/fd00::-122"),
    ("ns", "-"),
];
/// Every dialect.
pub(crate) const DIALECTS: [Dialect; 4] = [Dialect::Etcd, Dialect::CrdV1, Dialect::V3, Dialect::Kubernetes];

/// An object with one of the names, in one of the dialects.
pub(crate) fn object_of(name: usize, dialect: usize, body: &[u8]) -> Object {
    let (namespace, name) = NAMES[name];
    Object {
        id: ObjectId { namespace: namespace.into(), name: name.into() },
        revision: "7".into(),
        dialect: DIALECTS[dialect],
        body: body.to_vec().into(),
        place: None,
    }
}

/// Gives the input, without its first byte, to every processor as an object's body: put, put again, deleted. The first
/// byte chooses name, dialect and settings. Returns the resulting pairs. Panics when the same object gives another
/// result the second time.
pub(crate) fn pairs_of(input: &[u8]) -> Vec<KvPair> {
    let mut pairs = Vec::new();
    let Some((choice, body)) = input.split_first() else { return pairs };
    let choice = usize::from(*choice);
    let object = object_of(choice % NAMES.len(), choice / NAMES.len() % DIALECTS.len(), body);
    let ctx = Context { use_pod_cidr: choice >= 128, ..Context::default() };
    for source in calico(Flavour::Folder, &ctx).into_iter().flat_map(|spec| spec.sources) {
        let mut processor = source.processor;
        processor.on_resync();
        let first = processor.process(ObjectEvent::Put(&object), &mut pairs);
        processor.on_list_end(&mut pairs);
        let second = processor.process(ObjectEvent::Put(&object), &mut pairs);
        assert_eq!(first, second, "{}: the same object fares the same", source.name);
        let _ = processor.process(ObjectEvent::Delete(&object.id, Some(&object)), &mut pairs);
        let _ = processor.process(ObjectEvent::Delete(&object.id, None), &mut pairs);
    }
    pairs
}

/// Converts the input with [`pairs_of`]. Panics when a pair has an empty value that is not a setting.
pub fn object(input: &[u8]) {
    for pair in pairs_of(input) {
        let has_bytes = pair.value.as_ref().is_none_or(|value| !value.bytes.is_empty());
        assert!(has_bytes || pair.key.as_str().contains("/config/"), "an empty value for {}", pair.key);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_objects_does_no_harm() {
        crate::fuzzing::replay("processors", super::object);
    }
}
