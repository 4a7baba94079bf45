//! What Kubernetes' policies look like as objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::gojson::null_is_zero;
use crate::model::schema::IntOrString;

/// Objects by their labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSelector {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) match_expressions: Vec<LabelRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct LabelRequirement {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) key: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) operator: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) values: Vec<String>,
}

/// `spec` of NetworkPolicy and StagedKubernetesNetworkPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NetworkPolicySpec {
    /// Of staged policies only.
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) staged_action: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) pod_selector: LabelSelector,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) ingress: Vec<NetworkPolicyRule>,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) egress: Vec<NetworkPolicyRule>,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) policy_types: Vec<String>,
}

/// A rule of either direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NetworkPolicyRule {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) ports: Vec<NetworkPolicyPort>,
    /// Of ingress rules.
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) from: Vec<NetworkPolicyPeer>,
    /// Of egress rules.
    #[serde(deserialize_with = "null_is_zero")]
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
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) cidr: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) except: Vec<String>,
}

/// `spec` of ClusterNetworkPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicySpec {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) tier: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) priority: i32,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) subject: ClusterPolicyPeer,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) ingress: Vec<ClusterPolicyRule>,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) egress: Vec<ClusterPolicyRule>,
}

/// A rule of either direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyRule {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) name: String,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) action: String,
    /// Of ingress rules.
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) from: Vec<ClusterPolicyPeer>,
    /// Of egress rules.
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) to: Vec<ClusterPolicyPeer>,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) protocols: Vec<ClusterPolicyProtocol>,
}

/// A subject or peer: exactly one of these. Other fields that the API has are not known and leave all of them empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyPeer {
    pub(super) namespaces: Option<LabelSelector>,
    pub(super) pods: Option<NamespacedPods>,
    /// Of egress peers.
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) networks: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamespacedPods {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) namespace_selector: LabelSelector,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) pod_selector: LabelSelector,
}

/// Exactly one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClusterPolicyProtocol {
    pub(super) tcp: Option<ClusterPolicyPorts>,
    pub(super) udp: Option<ClusterPolicyPorts>,
    pub(super) sctp: Option<ClusterPolicyPorts>,
    #[serde(deserialize_with = "null_is_zero")]
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
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) number: i32,
    pub(super) range: Option<ClusterPolicyRange>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicyRange {
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) start: i32,
    #[serde(deserialize_with = "null_is_zero")]
    pub(super) end: i32,
}
