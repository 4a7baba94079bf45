//! Rules for whole Nodes.

use super::formats::{is_ipv4, is_ipv6, is_mac, is_network_v4, is_network_v6, is_wireguard_key};
use super::tree::At;

const PLAIN_V4: &str = "an IPv4 address without a prefix length";
const PLAIN_V6: &str = "an IPv6 address without a prefix length";

/// Checks spec and status of a Node.
pub(super) fn check(node: &At<'_>) {
    if let Some(spec) = node.get("spec") {
        if let Some(bgp) = spec.get("bgp") {
            if bgp.value().as_object().is_some_and(serde_json::Map::is_empty) {
                bgp.bad("at least one field, or no bgp at all");
            }
            bgp.field_is("ipv4Address", |text| is_network_v4(text, false), "an IPv4 address or CIDR");
            bgp.field_is("ipv6Address", |text| is_network_v6(text, false), "an IPv6 address or CIDR");
            bgp.field_is("ipv4IPIPTunnelAddr", is_ipv4, PLAIN_V4);
            bgp.field_is("routeReflectorClusterID", is_ipv4, "a cluster id in the form of an IPv4 address");
        }
        spec.field_is("ipv4VXLANTunnelAddr", is_ipv4, PLAIN_V4);
        spec.field_is("vxlanTunnelMACAddr", is_mac, "a MAC address");
        spec.field_is("ipv6VXLANTunnelAddr", is_ipv6, PLAIN_V6);
        spec.field_is("vxlanTunnelMACAddrV6", is_mac, "a MAC address");
        if let Some(wireguard) = spec.get("wireguard") {
            wireguard.field_is("interfaceIPv4Address", is_ipv4, PLAIN_V4);
            wireguard.field_is("interfaceIPv6Address", is_ipv6, PLAIN_V6);
        }
    }
    if let Some(status) = node.get("status") {
        const KEY: &str = "32 bytes in Base64";
        status.field_is("wireguardPublicKey", is_wireguard_key, KEY);
        status.field_is("wireguardPublicKeyV6", is_wireguard_key, KEY);
    }
}
