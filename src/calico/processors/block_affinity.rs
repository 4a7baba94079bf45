//! Block affinities: the nodes that blocks of addresses belong to.

use serde::Deserialize;

use super::conflict::ConvertKeyed;
use super::keyed::Keyed;
use super::{Context, ipam_block, network};
use crate::calico::v1::ipam::BlockAffinity;
use crate::calico::v1::meta::Body;
use crate::calico::v1::text::Text;
use crate::datastore::{Dialect, Object};
use crate::model::{Key, KvPair, Value, gojson};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// Default owner of a block: a node.
const HOST: &str = "host";

/// The processor of `BlockAffinity`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(BlockAffinities { keyed: Keyed::new(Affinities), listing: true })
}

/// Leaves custom resources that are marked as deleted out of lists, and only of lists.
#[derive(Debug)]
struct BlockAffinities {
    keyed: Keyed<Affinities>,
    /// A list is being read.
    listing: bool,
}

impl Processor for BlockAffinities {
    fn on_resync(&mut self) {
        self.listing = true;
        self.keyed.on_resync();
    }

    fn on_list_end(&mut self, _out: &mut Vec<KvPair>) {
        self.listing = false;
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        if let ObjectEvent::Put(object) = event
            && self.listing
            && object.dialect != Dialect::Etcd
            && read(object).is_ok_and(|(_, affinity)| affinity.deleted)
        {
            return Ok(());
        }
        self.keyed.process(event, out)
    }
}

#[derive(Debug)]
struct Affinities;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Spec<'a> {
    state: Text<'a>,
    node: Text<'a>,
    #[serde(rename = "type")]
    kind: Text<'a>,
    cidr: Text<'a>,
    deleted: Option<Flag<'a>>,
}

/// Text in custom resources of the first version, a boolean in later ones.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Flag<'a> {
    Bool(bool),
    Text(#[serde(borrow)] Text<'a>),
}

impl Flag<'_> {
    fn is_set(&self) -> bool {
        match self {
            Self::Bool(flag) => *flag,
            Self::Text(text) => matches!(&**text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
    }
}

impl ConvertKeyed for Affinities {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        let (key, affinity) = read(object)?;
        Ok((key, Value::raw(gojson::to_bytes(&affinity))))
    }
}

/// An affinity and its key.
fn read(object: &Object) -> Result<(Key, BlockAffinity<'static>), ConvertError> {
    gojson::parse_with(&object.body, |body| {
        if object.dialect == Dialect::Etcd {
            let BlockAffinity { state, deleted } =
                if body.is_empty() { BlockAffinity::default() } else { gojson::from_str(body)? };
            return Ok((etcd_key(&object.id.name)?, BlockAffinity { state: state.into_owned(), deleted }));
        }
        let body: Body<'_, Spec<'_>> = gojson::from_str(body)?;
        body.meta(object.dialect)?;
        let spec = body.spec;
        let cidr = network("spec.cidr", &spec.cidr)?;
        let kind = if spec.kind.is_empty() { HOST } else { &spec.kind };
        let key = format!("/calico/ipam/v2/{kind}/{}/{}", spec.node, ipam_block::element(&cidr)).into();
        let deleted = spec.deleted.is_some_and(|flag| flag.is_set());
        Ok((key, BlockAffinity { state: spec.state.into_owned(), deleted }))
    })
}

fn etcd_key(name: &str) -> Result<Key, ConvertError> {
    name.split_once('/')
        .filter(|(host, _)| !host.is_empty())
        .and_then(|(host, rest)| Some((host, ipam_block::parse_element(rest)?)))
        .map(|(host, cidr)| format!("/calico/ipam/v2/{HOST}/{host}/{}", ipam_block::element(&cidr)).into())
        .ok_or_else(|| ConvertError::new(format!("key: {name:?} is not host/ipv4/block/address-length")))
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;
    use crate::datastore::ObjectId;

    #[test]
    fn block_affinities_match_the_vectors() {
        run("bgp", |ctx| vec![source([kinds::BLOCK_AFFINITY], new(ctx))], |key| key.starts_with("/calico/ipam/v2/"), 1);
    }

    #[test]
    fn an_empty_value_in_etcd_is_an_empty_affinity() {
        let object = Object {
            id: ObjectId { namespace: "".into(), name: "node-a/ipv4/block/10.0.0.0-26".into() },
            revision: "5".into(),
            dialect: Dialect::Etcd,
            body: bytes::Bytes::default(),
            place: None,
        };
        let (key, value) = Affinities.convert(&object).unwrap();
        assert_eq!(key.as_str(), "/calico/ipam/v2/host/node-a/ipv4/block/10.0.0.0-26");
        assert_eq!(value.bytes, r#"{"state":"","deleted":false}"#);
    }

    #[test]
    fn affinities_marked_as_deleted_are_kept_out_of_lists_only() {
        let object = Object {
            id: ObjectId { namespace: "".into(), name: "a".into() },
            revision: "5".into(),
            dialect: Dialect::V3,
            body: r#"{"spec":{"cidr":"10.0.0.0/26","node":"n","state":"confirmed","deleted":true}}"#.into(),
            place: None,
        };
        let mut processor = new(&Context::default());
        let mut out = Vec::new();
        processor.on_resync();
        processor.process(ObjectEvent::Put(&object), &mut out).unwrap();
        processor.on_list_end(&mut out);
        assert_eq!(out, []);
        processor.process(ObjectEvent::Put(&object), &mut out).unwrap();
        assert_eq!(out[0].value.as_ref().unwrap().bytes, r#"{"state":"confirmed","deleted":true}"#);
    }
}
