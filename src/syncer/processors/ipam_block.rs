//! IPAM blocks: from etcd's own form and from custom resources.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;

use super::conflict::ConvertKeyed;
use super::keyed::Keyed;
use super::{Context, ConvertError, Processor, unreadable};
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::v1::Net;
use crate::model::v1::ipam::{AllocationAttribute, AllocationBlock, Time};
use crate::model::v1::meta::Resource;
use crate::model::v1::text::Text;
use crate::model::{Key, Value, gojson, keys, net, strict};

/// The processor of `IPAMBlock`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Keyed::new(IpamBlocks))
}

/// Where a block lives.
pub(super) fn key(cidr: &IpNet) -> Key {
    format!("/calico/ipam/v2/assignment/{}", element(cidr)).into()
}

/// The end of the path of everything about a block.
pub(super) fn element(cidr: &IpNet) -> String {
    let version = if cidr.addr().is_ipv4() { 4 } else { 6 };
    format!("ipv{version}/block/{}", keys::net_element(cidr))
}

/// The block that a path of [`element`]'s form names.
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

/// The fields of a block, which in etcd are those of the whole value and else those of the spec.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(borrow, default)]
    cidr: Text<'a>,
    #[serde(borrow)]
    affinity: Option<Text<'a>>,
    #[serde(alias = "affinity_claim_time")]
    affinity_claim_time: Option<Time>,
    allocations: Option<Vec<Option<i64>>>,
    unallocated: Option<Vec<Option<i64>>>,
    #[serde(borrow)]
    attributes: Option<Vec<AllocationAttribute<'a>>>,
    sequence_number: Option<u64>,
    #[serde(borrow)]
    sequence_number_for_allocation: Option<BTreeMap<Text<'a>, u64>>,
    deleted: Option<bool>,
    #[serde(borrow)]
    host_affinity: Option<Text<'a>>,
}

impl ConvertKeyed for IpamBlocks {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            if object.dialect == Dialect::Etcd {
                let block: Block<'_> = strict::from_str(body).map_err(unreadable)?;
                let cidr = cidr("cidr", &block.cidr)?;
                return Ok((etcd_key(&object.id)?, value(cidr, block)));
            }
            let resource: Resource<'_, Block<'_>> = strict::from_str(body).map_err(unreadable)?;
            resource.metadata.unwrap_or_default().settle(object.dialect).map_err(ConvertError::new)?;
            let mut block = resource.spec.unwrap_or_default();
            let cidr = cidr("spec.cidr", &block.cidr)?;
            block.host_affinity = None;
            block.attributes.get_or_insert_default();
            Ok((key(&cidr.trunc()), value(cidr, block)))
        })
    }
}

fn etcd_key(id: &ObjectId) -> Result<Key, ConvertError> {
    let cidr = parse_element(&id.name)
        .ok_or_else(|| ConvertError::new(format!("key: {:?} is not ipv4/block/address-length", &*id.name)))?;
    Ok(key(&cidr))
}

fn cidr(field: &str, text: &str) -> Result<IpNet, ConvertError> {
    net::parse_cidr(text)
        .map(|net| net.trunc())
        .ok_or_else(|| ConvertError::new(format!("{field}: {text:?} is not a network (address/length)")))
}

fn value(cidr: IpNet, block: Block<'_>) -> Value {
    Value::raw(gojson::to_bytes(&AllocationBlock {
        cidr: Net(cidr),
        affinity: block.affinity,
        affinity_claim_time: block.affinity_claim_time,
        allocations: block.allocations,
        unallocated: block.unallocated.map(|ordinals| ordinals.into_iter().map(Option::unwrap_or_default).collect()),
        attributes: block.attributes,
        sequence_number: block.sequence_number.unwrap_or_default(),
        sequence_number_for_allocation: block.sequence_number_for_allocation,
        deleted: block.deleted.unwrap_or_default(),
        host_affinity: block.host_affinity,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::model::kinds;

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
