//! IPAM blocks: from etcd's own form and from custom resources.

use ipnet::IpNet;

use super::conflict::ConvertKeyed;
use super::keyed::Keyed;
use super::{Context, network};
use crate::calico::v1::ipam::AllocationBlock;
use crate::calico::v1::meta::Body;
use crate::calico::{keys, net};
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::{ConvertError, Processor};

/// The processor of `IPAMBlock`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Keyed::new(IpamBlocks))
}

/// The key of a block.
pub(super) fn key(cidr: &IpNet) -> Key {
    format!("/calico/ipam/v2/assignment/{}", element(cidr)).into()
}

/// The end of all paths about a block.
pub(super) fn element(cidr: &IpNet) -> String {
    let version = if cidr.addr().is_ipv4() { 4 } else { 6 };
    format!("ipv{version}/block/{}", keys::net_element(cidr))
}

/// The block in a path of [`element`]'s form.
pub(super) fn parse_element(path: &str) -> Option<IpNet> {
    let (family, block) = path.split_once("/block/")?;
    if !matches!(family, "ipv4" | "ipv6") {
        return None;
    }
    let (address, length) = block.rsplit_once('-')?;
    net::parse_cidr(&format!("{address}/{length}")).map(|net| net.trunc())
}

#[derive(Debug)]
struct IpamBlocks;

impl ConvertKeyed for IpamBlocks {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            if object.dialect == Dialect::Etcd {
                let block: AllocationBlock<'_> = gojson::from_str(body)?;
                let cidr = network("cidr", &block.cidr)?;
                return Ok((etcd_key(&object.id)?, value(&cidr, block)));
            }
            let body: Body<'_, AllocationBlock<'_>> = gojson::from_str(body)?;
            body.meta(object.dialect)?;
            let mut block = body.spec;
            let cidr = network("spec.cidr", &block.cidr)?;
            block.host_affinity = None;
            block.attributes.get_or_insert_default();
            Ok((key(&cidr), value(&cidr, block)))
        })
    }
}

fn etcd_key(id: &ObjectId) -> Result<Key, ConvertError> {
    let cidr = parse_element(&id.name)
        .ok_or_else(|| ConvertError::new(format!("key: {:?} is not ipv4/block/address-length", &*id.name)))?;
    Ok(key(&cidr))
}

fn value(cidr: &IpNet, block: AllocationBlock<'_>) -> Value {
    Value::raw(gojson::to_bytes(&AllocationBlock { cidr: cidr.to_string().into(), ..block }))
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;

    #[test]
    fn ipam_blocks_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::IPAM_BLOCK], new(ctx))],
            |key| key.starts_with("/calico/ipam/v2/assignment/"),
            1,
        );
    }

    #[test]
    fn paths_name_blocks() {
        for (path, expected) in [
            ("ipv4/block/10.65.0.0-26", Some("10.65.0.0/26")),
            ("ipv6/block/fd00::-122", Some("fd00::/122")),
            ("ipv4/block/10.65.0.0", None),
            ("ipv5/block/10.65.0.0-26", None),
            ("ipv4/handle/x", None),
            ("", None),
        ] {
            assert_eq!(parse_element(path).map(|net| net.to_string()).as_deref(), expected, "{path}");
        }
    }
}
