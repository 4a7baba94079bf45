//! WireGuard data of a node, for its peers.

use std::net::IpAddr;

use serde::Serialize;

/// Addresses and keys of a node's WireGuard interfaces. A value has at least one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wireguard<'a> {
    /// Address of the IPv4 interface.
    #[serde(rename = "interfaceIPv4Addr", skip_serializing_if = "Option::is_none")]
    pub interface_ipv4_addr: Option<IpAddr>,
    /// Key of the IPv4 interface, unchecked.
    #[serde(rename = "publicKey", skip_serializing_if = "str::is_empty")]
    pub public_key: &'a str,
    /// Address of the IPv6 interface.
    #[serde(rename = "interfaceIPv6Addr", skip_serializing_if = "Option::is_none")]
    pub interface_ipv6_addr: Option<IpAddr>,
    /// Key of the IPv6 interface, unchecked.
    #[serde(rename = "publicKeyV6", skip_serializing_if = "str::is_empty")]
    pub public_key_v6: &'a str,
}
