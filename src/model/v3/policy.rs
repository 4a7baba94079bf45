//! The bodies of Calico's own policies. One shape serves all kinds; what a kind lacks stays empty.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::rule::Rule;
use crate::model::gojson::null_is_zero;

/// An object: metadata as it was, and a specification.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "S: Default + Deserialize<'de>")]
pub struct Body<S> {
    /// `metadata`, not looked at yet.
    pub metadata: Option<Box<RawValue>>,
    /// `spec`.
    #[serde(deserialize_with = "null_is_zero")]
    pub spec: S,
}

/// `spec` of (Staged)GlobalNetworkPolicy and (Staged)NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicySpec {
    /// What a staged policy would do.
    #[serde(deserialize_with = "null_is_zero")]
    pub staged_action: String,
    /// Tier; empty: `default`.
    #[serde(deserialize_with = "null_is_zero")]
    pub tier: String,
    /// Position within the tier.
    pub order: Option<f64>,
    /// Rules for traffic to the endpoint.
    #[serde(deserialize_with = "null_is_zero")]
    pub ingress: Vec<Rule>,
    /// Rules for traffic from the endpoint.
    #[serde(deserialize_with = "null_is_zero")]
    pub egress: Vec<Rule>,
    /// Endpoints by label.
    #[serde(deserialize_with = "null_is_zero")]
    pub selector: String,
    /// `Ingress`, `Egress`.
    #[serde(deserialize_with = "null_is_zero")]
    pub types: Vec<String>,
    /// Before connection tracking; global only.
    #[serde(deserialize_with = "null_is_zero")]
    pub do_not_track: bool,
    /// Before destination NAT; global only.
    #[serde(rename = "preDNAT", deserialize_with = "null_is_zero")]
    pub pre_dnat: bool,
    /// Forwarded traffic too; global only.
    #[serde(deserialize_with = "null_is_zero")]
    pub apply_on_forward: bool,
    /// Endpoints by their service account's labels.
    #[serde(deserialize_with = "null_is_zero")]
    pub service_account_selector: String,
    /// Endpoints by their namespace's labels; global only.
    #[serde(deserialize_with = "null_is_zero")]
    pub namespace_selector: String,
    /// Hints to the data plane.
    #[serde(deserialize_with = "null_is_zero")]
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
