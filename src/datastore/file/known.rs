//! Which kinds there are, as far as files need to know: their scope, and whether a kind of Calico exists at all.

use crate::datastore::Kind;
use crate::model::kinds;

/// The group of Calico's resources.
pub(super) const CALICO_GROUP: &str = "projectcalico.org";

/// The kinds that syncers watch.
const WATCHED: [Kind; 31] = [
    kinds::CLUSTER_INFORMATION,
    kinds::FELIX_CONFIGURATION,
    kinds::GLOBAL_NETWORK_POLICY,
    kinds::STAGED_GLOBAL_NETWORK_POLICY,
    kinds::GLOBAL_NETWORK_SET,
    kinds::IP_POOL,
    kinds::CALICO_NODE,
    kinds::PROFILE,
    kinds::WORKLOAD_ENDPOINT,
    kinds::NETWORK_POLICY,
    kinds::STAGED_NETWORK_POLICY,
    kinds::STAGED_KUBERNETES_NETWORK_POLICY,
    kinds::NETWORK_SET,
    kinds::TIER,
    kinds::HOST_ENDPOINT,
    kinds::BGP_CONFIGURATION,
    kinds::BGP_PEER,
    kinds::BGP_FILTER,
    kinds::LIVE_MIGRATION,
    kinds::CALICO_NODE_STATUS,
    kinds::IPAM_BLOCK,
    kinds::BLOCK_AFFINITY,
    kinds::K8S_NODE,
    kinds::POD,
    kinds::NAMESPACE,
    kinds::SERVICE_ACCOUNT,
    kinds::SERVICE,
    kinds::ENDPOINT_SLICE,
    kinds::K8S_NETWORK_POLICY,
    kinds::K8S_CLUSTER_NETWORK_POLICY,
    kinds::VM_INSTANCE_MIGRATION,
];

/// Calico's kinds that no syncer watches but that exports contain; all are cluster-scoped.
const UNWATCHED: [&str; 6] = [
    "ClusterNetworkPolicy",
    "IPAMConfig",
    "IPAMConfiguration",
    "IPAMHandle",
    "IPReservation",
    "KubeControllersConfiguration",
];

/// Whether objects of the kind live in namespaces; `None` if the kind is not known.
pub(super) fn is_namespaced(group: &str, kind: &str) -> Option<bool> {
    if let Some(known) = WATCHED.iter().find(|known| known.group == group && known.name == kind) {
        return Some(known.namespaced);
    }
    (group == CALICO_GROUP && UNWATCHED.contains(&kind)).then_some(false)
}

/// Whether this claims to be Calico's but is no kind that we know: a typing error, or a newer Calico.
pub(super) fn is_unknown(group: &str, kind: &str) -> bool {
    group == CALICO_GROUP && is_namespaced(group, kind).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        assert_eq!(is_namespaced("", "Pod"), Some(true));
        assert_eq!(is_namespaced("", "Node"), Some(false));
        assert_eq!(is_namespaced(CALICO_GROUP, "NetworkSet"), Some(true));
        assert_eq!(is_namespaced(CALICO_GROUP, "IPReservation"), Some(false));
        assert_eq!(is_namespaced("apps", "Deployment"), None);
        assert!(is_unknown(CALICO_GROUP, "IPPol"));
        assert!(!is_unknown("apps", "Deployment"));
    }
}
