//! Kubernetes' policies as objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::calico::numorstring::IntOrString;

/// Objects by their labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSelector {
    pub(super) match_labels: BTreeMap<String, String>,
    pub(super) match_expressions: Vec<LabelRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct LabelRequirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
}

/// `spec` of NetworkPolicy and StagedKubernetesNetworkPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NetworkPolicySpec {
    /// Of staged policies only.
    pub(super) staged_action: String,
    pub(super) pod_selector: LabelSelector,
    pub(super) ingress: Vec<NetworkPolicyRule>,
    pub(super) egress: Vec<NetworkPolicyRule>,
    pub(super) policy_types: Vec<String>,
}

/// A rule of either direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NetworkPolicyRule {
    pub(super) ports: Vec<NetworkPolicyPort>,
    /// Of ingress rules.
    pub(super) from: Vec<NetworkPolicyPeer>,
    /// Of egress rules.
    pub(super) to: Vec<NetworkPolicyPeer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NetworkPolicyPort {
    pub(super) protocol: Option<String>,
    pub(super) port: Option<IntOrString>,
    pub(super) end_port: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NetworkPolicyPeer {
    pub(super) pod_selector: Option<LabelSelector>,
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) ip_block: Option<IpBlock>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IpBlock {
    pub(super) cidr: String,
    pub(super) except: Vec<String>,
}

/// `spec` of ClusterNetworkPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicySpec {
    pub(super) tier: String,
    pub(super) priority: i32,
    pub(super) subject: ClusterPolicyPeer,
    pub(super) ingress: Vec<ClusterPolicyRule>,
    pub(super) egress: Vec<ClusterPolicyRule>,
}

/// A rule of either direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyRule {
    pub(super) name: String,
    pub(super) action: String,
    /// Of ingress rules.
    pub(super) from: Vec<ClusterPolicyPeer>,
    /// Of egress rules.
    pub(super) to: Vec<ClusterPolicyPeer>,
    pub(super) protocols: Vec<ClusterPolicyProtocol>,
}

/// A subject or peer: exactly one of these. All are empty if the API's other fields are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyPeer {
    pub(super) namespaces: Option<LabelSelector>,
    pub(super) pods: Option<NamespacedPods>,
    /// Of egress peers.
    pub(super) networks: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamespacedPods {
    pub(super) namespace_selector: LabelSelector,
    pub(super) pod_selector: LabelSelector,
}

/// Exactly one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClusterPolicyProtocol {
    pub(super) tcp: Option<ClusterPolicyPorts>,
    pub(super) udp: Option<ClusterPolicyPorts>,
    pub(super) sctp: Option<ClusterPolicyPorts>,
    pub(super) destination_named_port: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClusterPolicyPorts {
    pub(super) destination_port: Option<ClusterPolicyPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyPort {
    pub(super) number: i32,
    pub(super) range: Option<ClusterPolicyRange>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyRange {
    pub(super) start: i32,
    pub(super) end: i32,
}
