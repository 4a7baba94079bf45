//! From Kubernetes' nodes to Calico's, with Calico's own data from annotations.

use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::KIND;
use crate::calico::net;
use crate::calico::numorstring::AsNumber;
use crate::calico::resource::Resource;
use crate::calico::schema::Case;
use crate::calico::v1::meta::{Meta, Native};
use crate::calico::v1::text::{Text, TextMap};
use crate::calico::validate::resource::formats;
use crate::datastore::Object;
use crate::model::gojson;
use crate::syncer::processor::ConvertError;

/// Prefix of the names of Calico's annotations.
const PREFIX: &str = "projectcalico.org/";

type KubernetesNode<'a> = Native<'a, Spec<'a>, Status<'a>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Spec<'a> {
    #[serde(rename = "podCIDR")]
    pod_cidr: Text<'a>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Status<'a> {
    addresses: Vec<Address<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Address<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    address: Text<'a>,
}

/// A network interface of the node, as Calico's agent reports it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    name: String,
    addresses: Vec<String>,
}

/// Annotations of a node by their short names; an absent one reads as empty.
struct Annotations<'m>(&'m TextMap<'m>);

impl<'m> Annotations<'m> {
    fn get(&self, name: &str) -> &'m str {
        self.0.get(&format!("{PREFIX}{name}")).unwrap_or_default()
    }

    /// The annotation; empty unless it is valid.
    fn get_if(&self, name: &str, valid: impl FnOnce(&str) -> bool) -> &'m str {
        let text = self.get(name);
        if valid(text) { text } else { "" }
    }

    /// The map in the annotation; empty if it cannot be read.
    fn map(&self, name: &str) -> TextMap<'static> {
        let map: TextMap<'_> = gojson::from_str(self.get(name)).unwrap_or_default();
        map.iter().map(|(key, value)| (key.to_owned().into(), value.to_owned().into())).collect()
    }
}

/// Calico's node.
pub(super) fn convert(object: &Object, use_pod_cidr: bool) -> Result<Resource, ConvertError> {
    let node =
        gojson::parse_with(&object.body, |body| calico_node(&object.id.name, &gojson::from_str(body)?, use_pod_cidr))?;
    Ok(Resource::decode_json(KIND, node.to_string().as_bytes(), Case::Exact)?)
}

fn calico_node(name: &str, node: &KubernetesNode<'_>, use_pod_cidr: bool) -> Result<Json, ConvertError> {
    let Native { metadata: meta, spec, status } = node;
    let annotations = Annotations(&meta.annotations);

    let (tunnel, wireguard_v4, wireguard_v6) = if use_pod_cidr && !spec.pod_cidr.is_empty() {
        let first = tunnel_address(&spec.pod_cidr)
            .ok_or_else(|| ConvertError::new(format!("spec.podCIDR: {:?} is not a network", &*spec.pod_cidr)))?;
        let has_key = !annotations.get("WireguardPublicKey").is_empty();
        (first.clone(), if has_key { first } else { String::new() }, String::new())
    } else {
        (
            annotations.get_if("IPv4IPIPTunnelAddr", is_strict_v4).to_owned(),
            annotations.get_if("IPv4WireguardInterfaceAddr", is_strict_v4).to_owned(),
            annotations.get_if("IPv6WireguardInterfaceAddr", is_strict_v6).to_owned(),
        )
    };
    let bgp_v4 = annotations.get_if("IPv4Address", |text| formats::is_network_v4(text, false));
    let bgp_v6 = annotations.get_if("IPv6Address", |text| formats::is_network_v6(text, false));
    let bgp = object([
        ("asNumber", annotations.get("ASNumber").parse::<AsNumber>().map_or(Json::Null, |number| number.0.into())),
        ("ipv4Address", bgp_v4.into()),
        ("ipv6Address", bgp_v6.into()),
        ("ipv4IPIPTunnelAddr", tunnel.into()),
        // A prefix length passes here, and invalidates the whole node later: as in Calico.
        ("routeReflectorClusterID", annotations.get_if("RouteReflectorClusterID", is_strict_v4).into()),
    ]);
    let spec_json = object([
        ("bgp", bgp),
        ("ipv4VXLANTunnelAddr", annotations.get_if("IPv4VXLANTunnelAddr", is_strict_v4).into()),
        ("vxlanTunnelMACAddr", annotations.get_if("VXLANTunnelMACAddr", formats::is_mac).into()),
        ("ipv6VXLANTunnelAddr", annotations.get_if("IPv6VXLANTunnelAddr", is_strict_v6).into()),
        ("vxlanTunnelMACAddrV6", annotations.get_if("VXLANTunnelMACAddrV6", formats::is_mac).into()),
        ("orchRefs", json!([{"nodeName": name, "orchestrator": "k8s"}])),
        (
            "wireguard",
            object([("interfaceIPv4Address", wireguard_v4.into()), ("interfaceIPv6Address", wireguard_v6.into())]),
        ),
        ("addresses", addresses([bgp_v4, bgp_v6], status)),
        ("interfaces", interfaces(annotations.get("Interfaces"))),
    ]);
    let status_json = object([
        ("wireguardPublicKey", annotations.get("WireguardPublicKey").into()),
        ("wireguardPublicKeyV6", annotations.get("WireguardPublicKeyV6").into()),
        ("podCIDRs", spec.pod_cidrs.iter().map(ToString::to_string).collect()),
    ]);
    Ok(object([("metadata", metadata(name, meta, &annotations)), ("spec", spec_json), ("status", status_json)]))
}

fn metadata(name: &str, meta: &Meta<'_>, annotations: &Annotations<'_>) -> Json {
    let mut labels = annotations.map("labels");
    labels.overlay(meta.labels.iter().map(|(key, value)| (key.to_owned().into(), value.to_owned().into())).collect());
    let mut own = annotations.map("annotations");
    own.set(format!("{PREFIX}kube-labels"), gojson::to_string(&meta.labels));
    object([
        ("name", name.into()),
        ("uid", (*meta.uid).into()),
        ("resourceVersion", (*meta.resource_version).into()),
        ("creationTimestamp", (*meta.creation_timestamp).into()),
        ("labels", json!(labels)),
        ("annotations", json!(own)),
    ])
}

/// A JSON object of the fields that are not empty.
fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    let is_empty = |value: &Json| match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(list) => list.is_empty(),
        Json::Object(fields) => fields.is_empty(),
        Json::Bool(_) | Json::Number(_) => false,
    };
    fields
        .into_iter()
        .filter(|(_, value)| !is_empty(value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Map<String, Json>>()
        .into()
}

/// Addresses of the node: BGP's, then Kubernetes'.
fn addresses(bgp: [&str; 2], status: &Status<'_>) -> Json {
    let of_bgp =
        bgp.into_iter().filter(|text| !text.is_empty()).map(|text| json!({"address": text, "type": "CalicoNodeIP"}));
    let of_kubernetes = status
        .addresses
        .iter()
        .filter(|address| matches!(&*address.kind, "InternalIP" | "ExternalIP"))
        .map(|address| json!({"address": &*address.address, "type": &*address.kind}));
    of_bgp.chain(of_kubernetes).collect()
}

/// The interfaces that the annotation lists, without malformed addresses; nothing when it is no such list.
fn interfaces(text: &str) -> Json {
    let interfaces: Option<Vec<Interface>> = gojson::parse(text.as_bytes()).ok().flatten();
    let is_address = |text: &String| net::parse_ip(text).is_some();
    interfaces
        .into_iter()
        .flatten()
        .map(|interface| {
            let addresses = interface.addresses.into_iter().filter(is_address);
            object([("name", interface.name.into()), ("addresses", addresses.collect())])
        })
        .collect()
}

/// Whether the text is an IPv4 address, or an IPv4 network without host bits.
fn is_strict_v4(text: &str) -> bool {
    formats::is_network_v4(text, true)
}

/// The same for IPv6.
fn is_strict_v6(text: &str) -> bool {
    formats::is_network_v6(text, true)
}

/// The tunnel's address in a range of IPv4 addresses: the range's own address as written, with 1 added to its last byte
/// without carry. Empty for an IPv6 range; `None`: the text is no range.
fn tunnel_address(range: &str) -> Option<String> {
    Some(match net::parse_cidr(range)?.addr() {
        IpAddr::V4(address) => {
            let [a, b, c, last] = address.octets();
            Ipv4Addr::new(a, b, c, last.wrapping_add(1)).to_string()
        }
        IpAddr::V6(_) => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datastore::{Dialect, ObjectId};

    #[test]
    fn malformed_annotations_are_left_out() {
        let node = |annotations: &Json| {
            let annotations: Map<String, Json> = annotations
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (format!("{PREFIX}{name}"), value.clone()))
                .collect();
            let object = Object {
                id: ObjectId { namespace: "".into(), name: "n".into() },
                revision: "5".into(),
                dialect: Dialect::Kubernetes,
                body: json!({"metadata": {"annotations": annotations}}).to_string().into(),
                place: None,
            };
            let (value, _) = convert(&object, false).unwrap().into_value();
            String::from_utf8(value.bytes.to_vec()).unwrap()
        };
        let bare = node(&json!({}));
        for (name, text) in [
            ("IPv4VXLANTunnelAddr", "junk"),
            ("IPv4VXLANTunnelAddr", "10.65.0.2/24"),
            ("IPv6VXLANTunnelAddr", "10.65.0.2"),
            ("IPv4WireguardInterfaceAddr", "fd00::1"),
            ("IPv6WireguardInterfaceAddr", "fd00::1/64"),
            ("VXLANTunnelMACAddr", "66:aa"),
            ("VXLANTunnelMACAddrV6", "zz"),
            ("RouteReflectorClusterID", "one"),
            ("labels", "{"),
            ("labels", "{\"a\":1}"),
            ("annotations", "7"),
        ] {
            assert_eq!(node(&json!({name: text})), bare, "{name}: {text}");
        }
        let cluster = node(&json!({"RouteReflectorClusterID": "1.0.0.1/32"}));
        assert!(cluster.contains("\"routeReflectorClusterID\":\"1.0.0.1/32\""), "{cluster}");
        let interfaces = json!([{"name": "eth0", "addresses": ["10.0.0.1/24", "10.0.0.2"]}]).to_string();
        let interfaces = node(&json!({"Interfaces": interfaces}));
        assert!(interfaces.contains("\"addresses\":[\"10.0.0.2\"]"), "{interfaces}");
    }

    #[test]
    fn tunnels_want_addresses_without_host_bits() {
        for (text, valid) in [
            ("10.65.0.1", true),
            ("10.65.0.1/32", true),
            ("10.65.0.0/24", true),
            ("10.65.0.1/24", false),
            ("fd00::1", false),
            ("", false),
        ] {
            assert_eq!(is_strict_v4(text), valid, "{text}");
        }
    }

    #[test]
    fn the_address_of_a_tunnel_follows_that_of_the_range() {
        for (range, expected) in [
            ("10.244.1.0/24", Some("10.244.1.1")),
            ("10.244.1.7/24", Some("10.244.1.8")),
            ("10.244.1.255/24", Some("10.244.1.0")),
            ("fd00::/64", Some("")),
            ("junk", None),
        ] {
            assert_eq!(tunnel_address(range).as_deref(), expected, "{range}");
        }
    }
}
