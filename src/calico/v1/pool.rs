//! IP pools.

use serde::Serialize;

use super::Net;
use super::text::Text;

/// A range of addresses for workloads, and the transport of packets to it.
#[derive(Clone, Debug, Serialize)]
pub struct IpPool<'a> {
    /// The range, masked.
    pub cidr: Net,
    /// Name of the tunnel device when IP-in-IP is on, else empty.
    pub ipip: &'static str,
    /// See [`Encapsulation`].
    pub ipip_mode: Encapsulation,
    /// See [`Encapsulation`].
    pub vxlan_mode: Encapsulation,
    /// Whether packets to destinations outside all pools get the node's address.
    pub masquerade: bool,
    /// Whether addresses are assigned from it.
    pub ipam: bool,
    /// The opposite of `ipam`.
    pub disabled: bool,
    /// Whether BGP leaves out its routes.
    #[serde(rename = "disableBGPExport")]
    pub disable_bgp_export: bool,
    /// `Automatic` or `Manual`.
    pub assignment_mode: Text<'a>,
    /// Allowed uses of the addresses; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_uses: Vec<Text<'a>>,
}

/// The packets that are encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Encapsulation {
    /// None.
    #[serde(rename = "")]
    Never,
    /// All.
    #[serde(rename = "always")]
    Always,
    /// Those that leave the subnet.
    #[serde(rename = "cross-subnet")]
    CrossSubnet,
}

impl Encapsulation {
    /// From the v3 spelling; anything unknown counts as never.
    #[must_use]
    pub fn from_v3(mode: &str) -> Self {
        match mode {
            "Always" => Self::Always,
            "CrossSubnet" => Self::CrossSubnet,
            _ => Self::Never,
        }
    }
}
