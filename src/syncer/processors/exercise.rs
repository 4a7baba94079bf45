//! What the fuzz target does with an input, for tests that replay its corpus.

use crate::datastore::{Dialect, Object, ObjectId};
use crate::syncer::pipelines::{Flavour, calico};

use super::{Context, ObjectEvent};

/// Names of all the forms that kinds care for.
const NAMES: [(&str, &str); 6] = [
    ("ns", "n-k8s-p-eth0"),
    ("", "default"),
    ("", "node.x"),
    ("", "ipv4/block/10.0.0.0-26"),
    ("", "n/ipv6/block/fd00::-122"),
    ("ns", "-"),
];
const DIALECTS: [Dialect; 4] = [Dialect::Etcd, Dialect::CrdV1, Dialect::V3, Dialect::Kubernetes];

/// Gives the input, without its first byte, to every processor as an object's body: put, put again, deleted. The first byte
/// chooses name, dialect and surroundings. Panics when a pair has an empty value.
pub fn object(input: &[u8]) {
    let Some((choice, body)) = input.split_first() else { return };
    let choice = usize::from(*choice);
    let (namespace, name) = NAMES[choice % NAMES.len()];
    let object = Object {
        id: ObjectId { namespace: namespace.into(), name: name.into() },
        revision: "7".into(),
        dialect: DIALECTS[choice / NAMES.len() % DIALECTS.len()],
        body: body.to_vec().into(),
    };
    let ctx = Context { use_pod_cidr: choice >= 128, ..Context::default() };
    for source in calico(Flavour::Folder, &ctx).into_iter().flat_map(|spec| spec.sources) {
        let (mut processor, mut out) = (source.processor, Vec::new());
        processor.on_resync();
        let first = processor.process(ObjectEvent::Put(&object), &mut out);
        processor.on_list_end(&mut out);
        let second = processor.process(ObjectEvent::Put(&object), &mut out);
        assert_eq!(first, second, "{}: the same object fares the same", source.name);
        let _ = processor.process(ObjectEvent::Delete(&object.id, Some(&object)), &mut out);
        let _ = processor.process(ObjectEvent::Delete(&object.id, None), &mut out);
        for pair in &out {
            let has_bytes = pair.value.as_ref().is_none_or(|value| !value.bytes.is_empty());
            assert!(has_bytes, "{}: an empty value for {}", source.name, pair.key);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_objects_does_no_harm() {
        crate::fuzzing::replay("processors", super::object);
    }
}
