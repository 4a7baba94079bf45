//! The specs of Calico's own policies. All kinds share one type; fields that a kind lacks stay empty.

use serde::Deserialize;

use super::rule::Rule;

/// `spec` of (Staged)GlobalNetworkPolicy and (Staged)NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicySpec {
    /// Intended action of a staged policy.
    pub staged_action: String,
    /// Tier; empty: `default`.
    pub tier: String,
    /// Position within the tier.
    pub order: Option<f64>,
    /// Rules for traffic to the endpoint.
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoint.
    pub egress: Vec<Rule>,
    /// Endpoints by label.
    pub selector: String,
    /// `Ingress`, `Egress`.
    pub types: Vec<String>,
    /// Before connection tracking; global only.
    pub do_not_track: bool,
    /// Before destination NAT; global only.
    #[serde(rename = "preDNAT")]
    pub pre_dnat: bool,
    /// Forwarded traffic too; global only.
    pub apply_on_forward: bool,
    /// Endpoints by their service account's labels.
    pub service_account_selector: String,
    /// Endpoints by their namespace's labels; global only.
    pub namespace_selector: String,
    /// Hints to the data plane.
    pub performance_hints: Vec<String>,
}

/// `spec` of a Tier.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TierSpec {
    /// Position among the tiers.
    pub order: Option<f64>,
    /// `Pass` or `Deny`.
    pub default_action: Option<String>,
}
