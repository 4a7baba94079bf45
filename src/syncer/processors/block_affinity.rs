//! Block affinities: which node a block of addresses belongs to.

use serde::Deserialize;

use super::conflict::ConvertKeyed;
use super::keyed::Keyed;
use super::{Context, ConvertError, ObjectEvent, Processor, ipam_block, unreadable};
use crate::datastore::{Dialect, Object};
use crate::model::v1::ipam::BlockAffinity;
use crate::model::v1::meta::Resource;
use crate::model::v1::text::Text;
use crate::model::{Key, KvPair, Value, gojson, net, strict};

/// What owns a block when nothing else is said: a node.
const HOST: &str = "host";

/// The processor of `BlockAffinity`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(BlockAffinities { keyed: Keyed::new(Affinities), listing: true })
}

/// Custom resources that are marked as deleted are left out of lists, and only of lists.
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
            && read(object).is_ok_and(|affinity| affinity.deleted)
        {
            return Ok(());
        }
        self.keyed.process(event, out)
    }
}

#[derive(Debug)]
struct Affinities;

/// An affinity and where it lives.
struct Affinity {
    key: Key,
    state: String,
    deleted: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Stored<'a> {
    #[serde(borrow, default)]
    state: Text<'a>,
    deleted: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default)]
    state: Text<'a>,
    #[serde(borrow, default)]
    node: Text<'a>,
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    cidr: Text<'a>,
    #[serde(borrow)]
    deleted: Option<Flag<'a>>,
}

/// Custom resources of the first version have text here, later ones a boolean.
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
        let Affinity { key, state, deleted } = read(object)?;
        Ok((key, Value::raw(gojson::to_bytes(&BlockAffinity { state: state.into(), deleted }))))
    }
}

fn read(object: &Object) -> Result<Affinity, ConvertError> {
    gojson::parse_with(&object.body, |body| {
        if object.dialect == Dialect::Etcd {
            let stored: Stored<'_> =
                if body.is_empty() { Stored::default() } else { strict::from_str(body).map_err(unreadable)? };
            return Ok(Affinity {
                key: etcd_key(&object.id.name)?,
                state: stored.state.to_string(),
                deleted: stored.deleted.unwrap_or_default(),
            });
        }
        let resource: Resource<'_, Spec<'_>> = strict::from_str(body).map_err(unreadable)?;
        resource.metadata.unwrap_or_default().settle(object.dialect).map_err(ConvertError::new)?;
        let spec = resource.spec.unwrap_or_default();
        let cidr = net::parse_cidr(&spec.cidr).map(|net| net.trunc()).ok_or_else(|| {
            ConvertError::new(format!("spec.cidr: {:?} is not a network (address/length)", &*spec.cidr))
        })?;
        let kind = if spec.kind.is_empty() { HOST } else { &spec.kind };
        Ok(Affinity {
            key: format!("/calico/ipam/v2/{kind}/{}/{}", spec.node, ipam_block::element(&cidr)).into(),
            state: spec.state.to_string(),
            deleted: spec.deleted.is_some_and(|flag| flag.is_set()),
        })
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
    use crate::datastore::ObjectId;
    use crate::model::kinds;

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
