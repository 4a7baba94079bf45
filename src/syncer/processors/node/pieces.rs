//! What Felix wants to know of a node under keys of their own: tunnel addresses, WireGuard, and in pod-CIDR mode blocks.

use std::net::IpAddr;
use std::sync::Arc;

use super::super::{blank, ipam_block};
use crate::model::resource::Resource;
use crate::model::schema::{Fields, Node};
use crate::model::v1::Net;
use crate::model::v1::ipam::AllocationBlock;
use crate::model::v1::wireguard::Wireguard;
use crate::model::{Key, KvPair, Revision, Value, aside, gojson, net, no_revision};

/// What a setting of a node must look like.
#[derive(Clone, Copy)]
enum Form {
    Address,
    /// Any text: hardware addresses are not looked at.
    AsWritten,
}

/// Settings of a node: name, where in `spec` they are, what they must look like.
const SETTINGS: [(&str, &[&str], Form); 5] = [
    ("IpInIpTunnelAddr", &["bgp", "ipv4IPIPTunnelAddr"], Form::Address),
    ("IPv4VXLANTunnelAddr", &["ipv4VXLANTunnelAddr"], Form::Address),
    ("VXLANTunnelMACAddr", &["vxlanTunnelMACAddr"], Form::AsWritten),
    ("IPv6VXLANTunnelAddr", &["ipv6VXLANTunnelAddr"], Form::Address),
    ("VXLANTunnelMACAddrV6", &["vxlanTunnelMACAddrV6"], Form::AsWritten),
];

/// Keys of all pieces that a node may have, but for its blocks.
pub(super) fn keys(node: &str) -> impl Iterator<Item = Key> {
    SETTINGS.iter().map(move |(name, ..)| setting_key(node, name)).chain([wireguard_key(node), bird_ip_key(node)])
}

/// Appends the pieces of a node; what it lacks, or has in a form that cannot be, is blanked.
pub(super) fn append(name: &str, node: &Resource, revision: &Revision, out: &mut Vec<KvPair>) {
    let spec = node.root.get("spec");
    for (setting, path, form) in SETTINGS {
        let text = spec.and_then(|spec| spec.at(path)).and_then(Node::as_text).unwrap_or_default();
        let text = match form {
            Form::Address => net::parse_ip(text).map(|address| address.to_string()),
            Form::AsWritten => Some(text.to_owned()).filter(|text| !text.is_empty()),
        };
        out.push(pair(setting_key(name, setting), text.map(Value::raw), revision));
    }
    out.push(pair(wireguard_key(name), wireguard(node).map(Value::raw), revision));
    let bird_ip = bird_ip(node).map(|address| Value::raw(address.to_string()));
    out.push(pair(bird_ip_key(name), bird_ip, revision));
}

/// The address by which released Felixes know the node: that of BGP, whatever its family is, or else the first IPv4 address inside of
/// the cluster, or else outside of it. Source of the rules: v3.32.1's answers.
fn bird_ip(node: &Resource) -> Option<IpAddr> {
    let spec = node.root.get("spec")?;
    let bgp = spec.at(&["bgp", "ipv4Address"]).and_then(Node::as_text).and_then(address);
    let addresses = || spec.at(&["addresses"]).map(Node::as_list).into_iter().flatten().filter_map(Node::as_struct);
    let of_type = |wanted: &str| {
        let texts = addresses().filter(|entry| entry.text("type") == wanted).map(|entry| entry.text("address"));
        texts.filter_map(address).find(IpAddr::is_ipv4)
    };
    bgp.or_else(|| of_type("InternalIP")).or_else(|| of_type("ExternalIP"))
}

/// The address that a text says, alone or with the length of a prefix.
fn address(text: &str) -> Option<IpAddr> {
    match text.split_once('/') {
        None => net::parse_ip(text),
        Some((address, _)) => net::parse_cidr(text).and_then(|_| net::parse_ip(address)),
    }
}

fn wireguard(node: &Resource) -> Option<bytes::Bytes> {
    let wireguard = node.root.get("spec").and_then(|spec| spec.at(&["wireguard"])).and_then(Node::as_struct);
    let address = |name: &str| wireguard.and_then(|fields| net::parse_ip(fields.text(name)));
    let status: Option<&Fields> = node.root.get("status").and_then(Node::as_struct);
    let key = |name: &str| status.map(|fields| fields.text(name)).unwrap_or_default();
    let value = Wireguard {
        interface_ipv4_addr: address("interfaceIPv4Address"),
        public_key: key("wireguardPublicKey"),
        interface_ipv6_addr: address("interfaceIPv6Address"),
        public_key_v6: key("wireguardPublicKeyV6"),
    };
    (value != Wireguard::default()).then(|| gojson::to_bytes(&value))
}

/// A block for each range of pod addresses that belongs to the node.
pub(super) fn blocks(name: &str, node: &Resource, revision: &Revision) -> Vec<KvPair> {
    let ranges = node.root.get("status").and_then(|status| status.at(&["podCIDRs"])).map(Node::as_list);
    ranges
        .into_iter()
        .flatten()
        .filter_map(|range| net::parse_cidr(range.as_text()?).map(|net| net.trunc()))
        .map(|cidr| {
            let block = AllocationBlock {
                cidr: Net(cidr),
                affinity: Some(format!("host:{name}").into()),
                affinity_claim_time: None,
                allocations: None,
                unallocated: None,
                attributes: None,
                sequence_number: 0,
                sequence_number_for_allocation: None,
                deleted: false,
                host_affinity: None,
            };
            pair(ipam_block::key(&cidr), Some(Value::raw(gojson::to_bytes(&block))), revision)
        })
        .collect()
}

fn pair(key: Key, value: Option<Value>, revision: &Revision) -> KvPair {
    match value {
        None => blank(key),
        value => KvPair { key, value, revision: Arc::clone(revision), v3_resource_version: no_revision() },
    }
}

fn setting_key(node: &str, setting: &str) -> Key {
    format!("/calico/v1/host/{node}/config/{setting}").into()
}

/// Agents of the development branch are not told of it: they take addresses from the node itself.
fn bird_ip_key(node: &str) -> Key {
    aside::key(aside::RELEASED, &format!("/calico/v1/host/{node}/bird_ip"))
}

fn wireguard_key(node: &str) -> Key {
    format!("/calico/v1/host/{node}/wireguard").into()
}
