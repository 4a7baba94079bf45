//! Endpoints: interfaces of workloads and of hosts.

use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer};

use super::text::{Text, TextMap};
use super::{Net, is_zero};
use crate::calico::numorstring::{Protocol, Uint8OrString};

/// An interface of a workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkloadEndpoint<'a> {
    /// Always `active`.
    pub state: &'static str,
    /// Name of the interface on the host's side.
    pub name: Text<'a>,
    /// Not used; empty.
    pub active_instance_id: &'static str,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Profiles in the order in which they apply.
    pub profile_ids: Option<Vec<Text<'a>>>,
    /// IPv4 networks.
    pub ipv4_nets: Option<Vec<Net>>,
    /// IPv6 networks.
    pub ipv6_nets: Option<Vec<Net>>,
    /// Floating IPv4 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4_nat: Vec<IpNat>,
    /// Floating IPv6 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_nat: Vec<IpNat>,
    /// Labels, with Calico's own among them.
    pub labels: TextMap<'a>,
    /// IPv4 gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_gateway: Option<IpAddr>,
    /// IPv6 gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_gateway: Option<IpAddr>,
    /// Ports that policies may name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort<'a>>,
    /// Prefix from which the object's name was generated.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub generate_name: Text<'a>,
    /// Networks that the workload may claim to send from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_spoofed_source_ips: Vec<Net>,
    /// Annotations for agents.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub annotations: TextMap<'a>,
    /// Traffic limits and marks.
    #[serde(rename = "qosControls", skip_serializing_if = "Option::is_none")]
    pub qos_controls: Option<QosControls>,
}

/// An interface of a host.
#[derive(Clone, Debug, Serialize)]
pub struct HostEndpoint<'a> {
    /// Name of the interface, `*` for all; empty when the addresses identify it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Text<'a>,
    /// IPv4 addresses that identify the interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_ipv4_addrs: Vec<IpAddr>,
    /// IPv6 addresses that identify the interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_ipv6_addrs: Vec<IpAddr>,
    /// Labels.
    pub labels: TextMap<'a>,
    /// Profiles in the order in which they apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_ids: Vec<Text<'a>>,
    /// Ports that policies may name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<EndpointPort<'a>>,
    /// Traffic marks.
    #[serde(rename = "qosControls", skip_serializing_if = "Option::is_none")]
    pub qos_controls: Option<QosControls>,
}

/// A named port.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointPort<'a> {
    /// Its name.
    pub name: Text<'a>,
    /// Its protocol, in lower case.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// A floating address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IpNat {
    /// The workload's own address.
    pub int_ip: IpAddr,
    /// The address seen outside.
    pub ext_ip: IpAddr,
}

/// Traffic limits of an endpoint, in bits, packets and connections (rates: per second); 0: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are Calico's, direction and quantity are in their names")]
pub struct QosControls {
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_bandwidth: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_burst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_peakrate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_minburst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_bandwidth: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_burst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_peakrate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_minburst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_packet_rate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_packet_burst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_packet_rate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_packet_burst: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub ingress_max_connections: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_max_connections: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Uint8OrString>,
}

/// A hardware address of 6, 8 or 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac {
    bytes: [u8; 20],
    length: usize,
}

impl Mac {
    /// Reads the forms that Go's `net.ParseMAC` reads: pairs of digits between `:` or `-`, or fours between dots.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let separator = text.chars().find(|character| !character.is_ascii_hexdigit())?;
        let digits = match separator {
            ':' | '-' => 2,
            '.' => 4,
            _ => return None,
        };
        let mut mac = Self { bytes: [0; 20], length: 0 };
        for group in text.split(separator) {
            if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            for pair in group.as_bytes().chunks_exact(2) {
                let pair = std::str::from_utf8(pair).ok()?;
                *mac.bytes.get_mut(mac.length)? = u8::from_str_radix(pair, 16).ok()?;
                mac.length += 1;
            }
        }
        matches!(mac.length, 6 | 8 | 20).then_some(mac)
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.bytes[..self.length].iter().enumerate() {
            if at > 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_read_as_in_go() {
        for (text, expected) in [
            ("EE:ee:EE:ee:ee:01", Some("ee:ee:ee:ee:ee:01")),
            ("00-00-5e-00-53-01", Some("00:00:5e:00:53:01")),
            ("0000.5e00.5301", Some("00:00:5e:00:53:01")),
            ("02:00:5e:10:00:00:00:01", Some("02:00:5e:10:00:00:00:01")),
            ("02:00:5e:10:00", None),
            ("02:00:5e:10:00:0", None),
            ("02:00-5e:10:00:00", None),
            ("zz", None),
            ("", None),
            ("001122334455", None),
            ("+1:00:5e:10:00:00", None),
        ] {
            assert_eq!(Mac::parse(text).map(|mac| mac.to_string()).as_deref(), expected, "{text}");
        }
    }
}
