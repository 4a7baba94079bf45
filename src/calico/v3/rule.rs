//! Rules of policies and profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::calico::numorstring::{Port, Protocol};

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// `Allow`, `Deny`, `Log` or `Pass`.
    pub action: String,
    /// 4 or 6.
    pub ip_version: Option<i64>,
    /// Matches this protocol.
    pub protocol: Option<Protocol>,
    /// Matches this kind of ICMP.
    pub icmp: Option<IcmpFields>,
    /// Matches every other protocol.
    pub not_protocol: Option<Protocol>,
    /// Matches every other kind of ICMP.
    #[serde(rename = "notICMP")]
    pub not_icmp: Option<IcmpFields>,
    /// Origin of the traffic.
    pub source: EntityRule,
    /// Target of the traffic.
    pub destination: EntityRule,
    /// Matches these HTTP requests.
    pub http: Option<HttpMatch>,
    /// Metadata of the rule.
    pub metadata: Option<RuleMetadata>,
}

/// One side of a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EntityRule {
    /// Networks or addresses.
    pub nets: Vec<String>,
    /// Endpoints and network sets by label.
    pub selector: String,
    /// Namespaces by label.
    pub namespace_selector: String,
    /// A Kubernetes service.
    pub services: Option<ServiceMatch>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Networks that do not match.
    pub not_nets: Vec<String>,
    /// Endpoints that do not match.
    pub not_selector: String,
    /// Ports that do not match.
    pub not_ports: Vec<Port>,
    /// Service accounts.
    pub service_accounts: Option<ServiceAccountMatch>,
}

/// A kind of ICMP message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IcmpFields {
    /// Type.
    #[serde(rename = "type")]
    pub icmp_type: Option<i64>,
    /// Code within the type.
    pub code: Option<i64>,
}

/// A Kubernetes service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceMatch {
    /// Its name.
    pub name: String,
    /// Its namespace; empty: the policy's.
    pub namespace: String,
}

/// Service accounts by name and label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceAccountMatch {
    /// One of these.
    pub names: Vec<String>,
    /// By label.
    pub selector: String,
}

/// HTTP requests; agents receive this in the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HttpMatch {
    /// One of these methods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// One of these paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<HttpPath>,
}

/// A path of HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HttpPath {
    /// This path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exact: String,
    /// Paths that begin with this.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// Metadata of a rule, for people and other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RuleMetadata {
    /// Free annotations; absent and empty differ.
    pub annotations: Option<BTreeMap<String, String>>,
}
