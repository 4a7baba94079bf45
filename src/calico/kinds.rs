//! The kinds that Calico's syncers watch, as data.

use std::borrow::Cow;

use crate::calico::aside;
use crate::calico::release::{Release, Releases};
use crate::model::object::Kind;

const fn calico(name: &'static str, plural: &'static str, namespaced: bool, etcd_prefix: &'static str) -> Kind {
    Kind {
        group: Cow::Borrowed("projectcalico.org"),
        version: Cow::Borrowed("v3"),
        name: Cow::Borrowed(name),
        plural: Cow::Borrowed(plural),
        namespaced,
        etcd_prefix: Some(Cow::Borrowed(etcd_prefix)),
    }
}

const fn kubernetes(
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        name: Cow::Borrowed(name),
        plural: Cow::Borrowed(plural),
        namespaced,
        etcd_prefix: None,
    }
}

/// The releases of Calico whose Typhas read a kind. Their roles permit no others, and the API server says of a kind that is not installed
/// that it is not permitted.
#[must_use]
pub fn read_by(kind: &Kind) -> Releases {
    let from = |first| Releases { first, last: Release::Master };
    match &*kind.name {
        "Tier" => from(Release::V3_29),
        "StagedGlobalNetworkPolicy" | "StagedNetworkPolicy" | "StagedKubernetesNetworkPolicy" => from(Release::V3_30),
        "ClusterNetworkPolicy" | "LiveMigration" | "VirtualMachineInstanceMigration" => from(Release::V3_32),
        "AdminNetworkPolicy" => aside::ADMIN_POLICIES,
        "BaselineAdminNetworkPolicy" => aside::BASELINE_ADMIN_POLICIES,
        _ => from(Release::V3_26),
    }
}

macro_rules! calico_kinds {
    ($($konst:ident $name:literal $plural:literal $namespaced:literal;)*) => {
        $(#[doc = concat!("Calico's `", $name, "`.")]
        pub const $konst: Kind = calico($name, $plural, $namespaced, concat!("/calico/resources/v3/projectcalico.org/", $plural, "/"));)*

        /// Calico's kinds that etcd keeps as whole resources.
        pub const RESOURCES: &[Kind] = &[$($konst),*];
    };
}

calico_kinds! {
    CLUSTER_INFORMATION "ClusterInformation" "clusterinformations" false;
    FELIX_CONFIGURATION "FelixConfiguration" "felixconfigurations" false;
    GLOBAL_NETWORK_POLICY "GlobalNetworkPolicy" "globalnetworkpolicies" false;
    STAGED_GLOBAL_NETWORK_POLICY "StagedGlobalNetworkPolicy" "stagedglobalnetworkpolicies" false;
    GLOBAL_NETWORK_SET "GlobalNetworkSet" "globalnetworksets" false;
    IP_POOL "IPPool" "ippools" false;
    CALICO_NODE "Node" "nodes" false;
    PROFILE "Profile" "profiles" false;
    WORKLOAD_ENDPOINT "WorkloadEndpoint" "workloadendpoints" true;
    NETWORK_POLICY "NetworkPolicy" "networkpolicies" true;
    STAGED_NETWORK_POLICY "StagedNetworkPolicy" "stagednetworkpolicies" true;
    STAGED_KUBERNETES_NETWORK_POLICY "StagedKubernetesNetworkPolicy" "stagedkubernetesnetworkpolicies" true;
    NETWORK_SET "NetworkSet" "networksets" true;
    TIER "Tier" "tiers" false;
    HOST_ENDPOINT "HostEndpoint" "hostendpoints" false;
    BGP_CONFIGURATION "BGPConfiguration" "bgpconfigurations" false;
    BGP_PEER "BGPPeer" "bgppeers" false;
    BGP_FILTER "BGPFilter" "bgpfilters" false;
    LIVE_MIGRATION "LiveMigration" "livemigrations" true;
    CALICO_NODE_STATUS "CalicoNodeStatus" "caliconodestatuses" false;
}

/// IPAM blocks; in etcd both address families below one prefix.
pub const IPAM_BLOCK: Kind = calico("IPAMBlock", "ipamblocks", false, "/calico/ipam/v2/assignment/");
/// Block affinities; in etcd only those of hosts.
pub const BLOCK_AFFINITY: Kind = calico("BlockAffinity", "blockaffinities", false, "/calico/ipam/v2/host/");

/// Kubernetes' `Node`.
pub const K8S_NODE: Kind = kubernetes("", "v1", "Node", "nodes", false);
/// Kubernetes' `Pod`.
pub const POD: Kind = kubernetes("", "v1", "Pod", "pods", true);
/// Kubernetes' `Namespace`.
pub const NAMESPACE: Kind = kubernetes("", "v1", "Namespace", "namespaces", false);
/// Kubernetes' `ServiceAccount`.
pub const SERVICE_ACCOUNT: Kind = kubernetes("", "v1", "ServiceAccount", "serviceaccounts", true);
/// Kubernetes' `Service`.
pub const SERVICE: Kind = kubernetes("", "v1", "Service", "services", true);
/// Kubernetes' `EndpointSlice`.
pub const ENDPOINT_SLICE: Kind = kubernetes("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true);
/// Kubernetes' own `NetworkPolicy`.
pub const K8S_NETWORK_POLICY: Kind = kubernetes("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true);
/// Kubernetes' `ClusterNetworkPolicy`.
pub const K8S_CLUSTER_NETWORK_POLICY: Kind =
    kubernetes("policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "clusternetworkpolicies", false);
/// Kubernetes' `AdminNetworkPolicy`, which Calico 3.29 to 3.31 read.
pub const K8S_ADMIN_NETWORK_POLICY: Kind =
    kubernetes("policy.networking.k8s.io", "v1alpha1", "AdminNetworkPolicy", "adminnetworkpolicies", false);
/// Kubernetes' `BaselineAdminNetworkPolicy`, which Calico 3.30 and 3.31 read.
pub const K8S_BASELINE_ADMIN_NETWORK_POLICY: Kind = kubernetes(
    "policy.networking.k8s.io",
    "v1alpha1",
    "BaselineAdminNetworkPolicy",
    "baselineadminnetworkpolicies",
    false,
);
/// KubeVirt's `VirtualMachineInstanceMigration`.
pub const VM_INSTANCE_MIGRATION: Kind =
    kubernetes("kubevirt.io", "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations", true);
