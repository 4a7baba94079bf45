//! Nodes: whole for every syncer that has them, and for Felix also in pieces.
//!
//! Calico's own nodes are taken as they are; Kubernetes' nodes are converted first ([`kubernetes`]). The pieces are
//! made from the whole ([`pieces`]).

use std::collections::HashMap;

use super::{Context, blank};
use crate::calico::keys;
use crate::calico::resource::Resource;
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, KvPair};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

mod kubernetes;
mod pieces;

const KIND: &str = "Node";
const PLURAL: &str = "nodes";

/// The processor of `Node` for syncers that want nodes whole.
#[must_use]
pub fn whole(ctx: &Context) -> Box<dyn Processor> {
    Box::new(Nodes { use_pod_cidr: ctx.use_pod_cidr, in_pieces: false, blocks: HashMap::new() })
}

/// The processor of `Node` for Felix.
#[must_use]
pub fn felix(ctx: &Context) -> Box<dyn Processor> {
    Box::new(Nodes { use_pod_cidr: ctx.use_pod_cidr, in_pieces: true, blocks: HashMap::new() })
}

#[derive(Debug)]
struct Nodes {
    use_pod_cidr: bool,
    in_pieces: bool,
    /// Per node, the keys of the blocks for its pod ranges.
    blocks: HashMap<ObjectId, Vec<Key>>,
}

impl Nodes {
    fn put(&mut self, object: &Object, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let node = if object.dialect == Dialect::Kubernetes {
            kubernetes::convert(object, self.use_pod_cidr)?
        } else {
            Resource::decode(KIND, object)?
        };
        if self.in_pieces {
            pieces::append(&object.id.name, &node, &object.revision, out);
            if self.use_pod_cidr && object.dialect != Dialect::Etcd {
                self.put_blocks(object, &node, out);
            }
        }
        out.push(super::whole(whole_key(&object.id), node, &object.revision));
        Ok(())
    }

    fn put_blocks(&mut self, object: &Object, node: &Resource, out: &mut Vec<KvPair>) {
        let blocks = pieces::blocks(&object.id.name, node, &object.revision);
        let keys: Vec<Key> = blocks.iter().map(|pair| pair.key.clone()).collect();
        let old = self.blocks.insert(object.id.clone(), keys.clone());
        out.extend(old.into_iter().flatten().filter(|key| !keys.contains(key)).map(blank));
        out.extend(blocks);
    }

    fn delete(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        out.push(blank(whole_key(id)));
        if self.in_pieces {
            out.extend(pieces::keys(&id.name).map(blank));
            out.extend(self.blocks.remove(id).into_iter().flatten().map(blank));
        }
    }
}

impl Processor for Nodes {
    fn on_resync(&mut self) {
        self.blocks.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) => self.put(object, out).inspect_err(|_| self.delete(&object.id, out)),
            ObjectEvent::Delete(id, _) => {
                self.delete(id, out);
                Ok(())
            }
        }
    }
}

fn whole_key(id: &ObjectId) -> Key {
    keys::resource(PLURAL, id)
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;

    fn object(dialect: Dialect, body: &str) -> Object {
        Object {
            id: ObjectId { namespace: "".into(), name: "n".into() },
            revision: "5".into(),
            dialect,
            body: body.to_owned().into(),
            place: None,
        }
    }

    #[test]
    fn any_text_of_a_hardware_address_is_a_setting() {
        let node = object(Dialect::Etcd, r#"{"metadata":{"name":"n"},"spec":{"vxlanTunnelMACAddr":"zz"}}"#);
        let mut out = Vec::new();
        felix(&Context::default()).process(ObjectEvent::Put(&node), &mut out).unwrap();
        let value = |key: &str| out.iter().find(|pair| pair.key.as_str() == key)?.value.clone();
        assert_eq!(value("/calico/v1/host/n/config/VXLANTunnelMACAddr").unwrap().bytes, "zz");
        assert!(value("/calico/v1/host/n/config/VXLANTunnelMACAddrV6").is_none());
    }

    #[test]
    fn a_malformed_pod_range_costs_the_node_where_it_is_used() {
        let node = object(Dialect::Kubernetes, r#"{"spec":{"podCIDR":"junk","podCIDRs":["junk"]}}"#);
        for use_pod_cidr in [false, true] {
            let mut out = Vec::new();
            let ctx = Context { use_pod_cidr, ..Context::default() };
            let result = felix(&ctx).process(ObjectEvent::Put(&node), &mut out);
            assert_eq!(result.is_err(), use_pod_cidr);
            assert_eq!(out.iter().all(|pair| pair.value.is_none()), use_pod_cidr);
        }
    }

    /// The addresses of v3.32.1's answers for the same nodes.
    #[test]
    fn released_felixes_receive_the_address_of_a_node() {
        let both = r#""addresses":[{"type":"CalicoNodeIP","address":"9.9.9.9"},{"type":"InternalIP","address":"fd00::1"},{"type":"InternalIP","address":"junk"},{"type":"InternalIP","address":"10.0.0.1/24"},{"type":"InternalIP","address":"10.0.0.2"},{"type":"ExternalIP","address":"1.2.3.4"}]"#;
        let external =
            r#""addresses":[{"type":"InternalIP","address":"fd00::1"},{"type":"ExternalIP","address":"1.2.3.4"}]"#;
        for (spec, expected) in [
            (r#""bgp":{"ipv4Address":"192.168.0.7/24"}"#.to_owned(), Some("192.168.0.7")),
            (format!(r#""bgp":{{"ipv4Address":"192.168.0.7"}},{both}"#), Some("192.168.0.7")),
            (r#""bgp":{"ipv4Address":"fd00::7/64"}"#.to_owned(), Some("fd00::7")),
            (r#""bgp":{"ipv4Address":"::ffff:1.2.3.4"}"#.to_owned(), Some("1.2.3.4")),
            (format!(r#""bgp":{{"ipv4Address":"10.0.0.300"}},{both}"#), Some("10.0.0.1")),
            (format!(r#""bgp":{{}},{both}"#), Some("10.0.0.1")),
            (both.to_owned(), Some("10.0.0.1")),
            (external.to_owned(), Some("1.2.3.4")),
            (r#""addresses":[{"type":"CalicoNodeIP","address":"9.9.9.9"}]"#.to_owned(), None),
            (String::new(), None),
        ] {
            let node = object(Dialect::Etcd, &format!(r#"{{"metadata":{{"name":"n"}},"spec":{{{spec}}}}}"#));
            let (mut out, mut whole_out) = (Vec::new(), Vec::new());
            felix(&Context::default()).process(ObjectEvent::Put(&node), &mut out).unwrap();
            let pair = out.iter().find(|pair| pair.key.as_str() == "~3.26-3.32/calico/v1/host/n/bird_ip").unwrap();
            assert_eq!(pair.value.as_ref().map(|value| &value.bytes[..]), expected.map(str::as_bytes), "{spec}");
            assert_eq!(&*pair.revision, if expected.is_some() { "5" } else { "" });
            whole(&Context::default()).process(ObjectEvent::Put(&node), &mut whole_out).unwrap();
            assert_eq!(whole_out.len(), 1, "only Felix has it");
        }
    }

    #[test]
    fn nodes_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::CALICO_NODE, kinds::K8S_NODE], felix(ctx))],
            |key| key.contains("/nodes/") || key.starts_with("/calico/v1/host/") || key.starts_with("/calico/ipam/"),
            5,
        );
        for syncer in ["bgp", "tunnel-ip-allocation"] {
            run(
                syncer,
                |ctx| vec![source([kinds::CALICO_NODE, kinds::K8S_NODE], whole(ctx))],
                |key| key.contains("/nodes/"),
                1,
            );
        }
    }
}
