//! The names of Calico's syncers.

use std::fmt;

/// The consumers that Calico has a syncer for. The text is that of the wire protocol and of metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncerType {
    /// Felix: policy, endpoints, configuration.
    Felix,
    /// confd: BGP configuration.
    Bgp,
    /// The tunnel address allocator of a node.
    TunnelIpAllocation,
    /// The node status reporter.
    NodeStatus,
}

impl SyncerType {
    /// All types, in the order in which Typha starts their pipelines.
    pub const ALL: [Self; 4] = [Self::Felix, Self::Bgp, Self::TunnelIpAllocation, Self::NodeStatus];

    /// Calico's name for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Felix => "felix",
            Self::Bgp => "bgp",
            Self::TunnelIpAllocation => "tunnel-ip-allocation",
            Self::NodeStatus => "node-status",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|syncer| syncer.as_str() == name)
    }
}

impl fmt::Display for SyncerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
