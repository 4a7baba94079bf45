//! Policies, profile rules and tiers as agents receive them.
//!
//! Calico's types have a few more fields (tags, single nets, policy annotations). None of its syncers ever fills them,
//! so they are left out here.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::calico::net::parse_net;
use crate::calico::numorstring::{Port, Protocol};
use crate::calico::v3::rule::HttpMatch;

/// A policy of any kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Policy {
    /// Namespace of namespaced policies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The tier; never empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tier: String,
    /// Position within the tier; absent: last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// Rules for traffic to the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inbound_rules: Vec<Rule>,
    /// Rules for traffic from the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound_rules: Vec<Rule>,
    /// Selector of endpoints; the only field that is always printed.
    pub selector: String,
    /// Applies before connection tracking.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untracked: bool,
    /// Applies before destination NAT.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pre_dnat: bool,
    /// Applies to forwarded traffic too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apply_on_forward: bool,
    /// `ingress`, `egress`; not defaulted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Hints to the data plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance_hints: Vec<String>,
    /// Intended action of a staged policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged_action: Option<String>,
}

/// The rules of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProfileRules {
    /// Rules for traffic to the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inbound_rules: Vec<Rule>,
    /// Rules for traffic from the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound_rules: Vec<Rule>,
}

/// A network of a rule or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// A masked network.
    Net(IpNet),
    /// An empty text, which Calico prints as Go's nil.
    Nil,
}

impl Net {
    /// The network or address in a text; empty text is [`Self::Nil`].
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text.is_empty() { Some(Self::Nil) } else { parse_net(text).map(Self::Net) }
    }
}

impl Serialize for Net {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Net(net) => serializer.collect_str(net),
            Self::Nil => serializer.serialize_str("<nil>"),
        }
    }
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are Calico's and say what the rule matches")]
pub struct Rule {
    /// `allow`, `deny`, `log`, `next-tier`, or any other text in lower case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(rename = "!protocol", skip_serializing_if = "Option::is_none")]
    pub not_protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<i64>,
    #[serde(rename = "!icmp_type", skip_serializing_if = "Option::is_none")]
    pub not_icmp_type: Option<i64>,
    #[serde(rename = "!icmp_code", skip_serializing_if = "Option::is_none")]
    pub not_icmp_code: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub src_nets: Vec<Net>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub src_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_service: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_service_ns: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dst_nets: Vec<Net>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dst_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_service: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_service_ns: String,
    #[serde(rename = "!src_nets", skip_serializing_if = "Vec::is_empty")]
    pub not_src_nets: Vec<Net>,
    #[serde(rename = "!src_selector", skip_serializing_if = "String::is_empty")]
    pub not_src_selector: String,
    #[serde(rename = "!src_ports", skip_serializing_if = "Vec::is_empty")]
    pub not_src_ports: Vec<Port>,
    #[serde(rename = "!dst_selector", skip_serializing_if = "String::is_empty")]
    pub not_dst_selector: String,
    #[serde(rename = "!dst_nets", skip_serializing_if = "Vec::is_empty")]
    pub not_dst_nets: Vec<Net>,
    #[serde(rename = "!dst_ports", skip_serializing_if = "Vec::is_empty")]
    pub not_dst_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_namespace_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_namespace_selector: String,
    #[serde(rename = "!orig_src_selector", skip_serializing_if = "String::is_empty")]
    pub not_orig_src_selector: String,
    #[serde(rename = "!orig_dst_selector", skip_serializing_if = "String::is_empty")]
    pub not_orig_dst_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orig_src_service_acct_names: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_service_acct_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orig_dst_service_acct_names: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_service_acct_selector: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpMatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RuleMetadata>,
}

/// Metadata of a rule, for people and other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleMetadata {
    /// Free annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A tier of policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tier {
    /// Position among the tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// Action for traffic that matches no rule of the tier: `Pass` or `Deny`.
    #[serde(rename = "defaultAction")]
    pub default_action: &'static str,
}
