//! Rules of policies and profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::gojson::null_is_zero;
use crate::model::numorstring::{Port, Protocol};

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// `Allow`, `Deny`, `Log` or `Pass`.
    #[serde(deserialize_with = "null_is_zero")]
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
    /// Where traffic comes from.
    #[serde(deserialize_with = "null_is_zero")]
    pub source: EntityRule,
    /// Where traffic goes to.
    #[serde(deserialize_with = "null_is_zero")]
    pub destination: EntityRule,
    /// Matches these HTTP requests.
    pub http: Option<HttpMatch>,
    /// What the rule carries along.
    pub metadata: Option<RuleMetadata>,
}

/// One side of a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EntityRule {
    /// Networks or addresses.
    #[serde(deserialize_with = "null_is_zero")]
    pub nets: Vec<String>,
    /// Endpoints and network sets by label.
    #[serde(deserialize_with = "null_is_zero")]
    pub selector: String,
    /// Namespaces by label.
    #[serde(deserialize_with = "null_is_zero")]
    pub namespace_selector: String,
    /// A Kubernetes service.
    pub services: Option<ServiceMatch>,
    /// Ports.
    #[serde(deserialize_with = "null_is_zero")]
    pub ports: Vec<Port>,
    /// Networks that do not match.
    #[serde(deserialize_with = "null_is_zero")]
    pub not_nets: Vec<String>,
    /// Endpoints that do not match.
    #[serde(deserialize_with = "null_is_zero")]
    pub not_selector: String,
    /// Ports that do not match.
    #[serde(deserialize_with = "null_is_zero")]
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
    #[serde(deserialize_with = "null_is_zero")]
    pub name: String,
    /// Its namespace; empty: that of the policy.
    #[serde(deserialize_with = "null_is_zero")]
    pub namespace: String,
}

/// Service accounts by name and label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceAccountMatch {
    /// One of these.
    #[serde(deserialize_with = "null_is_zero")]
    pub names: Vec<String>,
    /// By label.
    #[serde(deserialize_with = "null_is_zero")]
    pub selector: String,
}

/// HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HttpMatch {
    /// One of these methods.
    #[serde(deserialize_with = "null_is_zero")]
    pub methods: Vec<String>,
    /// One of these paths.
    #[serde(deserialize_with = "null_is_zero")]
    pub paths: Vec<HttpPath>,
}

/// A path of HTTP requests; agents receive it in the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HttpPath {
    /// This path.
    #[serde(deserialize_with = "null_is_zero", skip_serializing_if = "String::is_empty")]
    pub exact: String,
    /// Paths that begin with this.
    #[serde(deserialize_with = "null_is_zero", skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// What a rule carries for people and other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RuleMetadata {
    /// Free annotations; absent and empty differ.
    pub annotations: Option<BTreeMap<String, String>>,
}
