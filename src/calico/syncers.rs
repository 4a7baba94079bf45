//! The names of Calico's syncers, as text in the wire protocol and in metric labels.

use crate::model::SyncerName;

/// Felix: policy, endpoints, configuration.
pub const FELIX: SyncerName = SyncerName::new("felix");
/// confd: BGP configuration.
pub const BGP: SyncerName = SyncerName::new("bgp");
/// The tunnel address allocator of a node.
pub const TUNNEL_IP_ALLOCATION: SyncerName = SyncerName::new("tunnel-ip-allocation");
/// The node status reporter.
pub const NODE_STATUS: SyncerName = SyncerName::new("node-status");

/// Whether a syncer is one of Calico's, whose data have a form for each of its releases. All others have one form.
#[must_use]
pub fn is_calicos(syncer: SyncerName) -> bool {
    ALL.contains(&syncer)
}

/// All syncers, in Typha's starting order.
pub const ALL: [SyncerName; 4] = [FELIX, BGP, TUNNEL_IP_ALLOCATION, NODE_STATUS];
