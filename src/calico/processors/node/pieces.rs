//! Data of a node that Felix reads under separate keys: tunnel addresses, WireGuard, and blocks in pod-CIDR mode.

use std::net::IpAddr;

use super::super::{ipam_block, pair};
use crate::calico::resource::Resource;
use crate::calico::schema::{Fields, Node};
use crate::calico::v1::ipam::AllocationBlock;
use crate::calico::v1::wireguard::Wireguard;
use crate::calico::{aside, net};
use crate::model::{Key, KvPair, Revision, Value, gojson};

/// The form of a node's setting.
#[derive(Clone, Copy)]
enum Form {
    Address,
    /// Any text: hardware addresses are not checked.
    AsWritten,
}

/// Settings of a node: name, path in `spec`, form.
const SETTINGS: [(&str, &[&str], Form); 5] = [
    ("IpInIpTunnelAddr", &["bgp", "ipv4IPIPTunnelAddr"], Form::Address),
    ("IPv4VXLANTunnelAddr", &["ipv4VXLANTunnelAddr"], Form::Address),
    ("VXLANTunnelMACAddr", &["vxlanTunnelMACAddr"], Form::AsWritten),
    ("IPv6VXLANTunnelAddr", &["ipv6VXLANTunnelAddr"], Form::Address),
    ("VXLANTunnelMACAddrV6", &["vxlanTunnelMACAddrV6"], Form::AsWritten),
];

/// Keys of all pieces that a node may have, without its blocks.
pub(super) fn keys(node: &str) -> impl Iterator<Item = Key> {
    SETTINGS.iter().map(move |(name, ..)| setting_key(node, name)).chain([wireguard_key(node), bird_ip_key(node)])
}

/// Appends the pieces of a node; absent and malformed ones are blanked.
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

/// The address by which released Felixes know the node: the BGP address of either family, else the first internal IPv4
/// address, else the first external one. Source of the rules: v3.32.1's answers.
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

/// The address in a text, with or without a prefix length.
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
                cidr: cidr.to_string().into(),
                affinity: Some(format!("host:{name}").into()),
                ..AllocationBlock::default()
            };
            pair(ipam_block::key(&cidr), Some(Value::raw(gojson::to_bytes(&block))), revision)
        })
        .collect()
}

fn setting_key(node: &str, setting: &str) -> Key {
    format!("/calico/v1/host/{node}/config/{setting}").into()
}

/// Not for agents of the development branch: they take addresses from the node itself.
fn bird_ip_key(node: &str) -> Key {
    aside::key(aside::RELEASED, &format!("/calico/v1/host/{node}/bird_ip"))
}

fn wireguard_key(node: &str) -> Key {
    format!("/calico/v1/host/{node}/wireguard").into()
}
