//! Kubernetes' AdminNetworkPolicy and BaselineAdminNetworkPolicy, which Calico 3.29 to 3.31 read. They are carried
//! aside, under the keys of those releases.
//!
//! Source of the rules: v3.31.7's conversion and its answers. Its Typha withholds the whole policy when one rule cannot
//! be converted; so does this, and reports it.

use serde::Deserialize;

use super::super::simple::{Convert, Converted};
use super::super::{body, check_uid};
use super::cluster::{Traffic, subject};
use super::kubernetes_types::ClusterPolicyPeer;
use super::ports::PortGroups;
use super::{calico, converted, directions};
use crate::calico::numorstring::Port;
use crate::calico::release::Releases;
use crate::calico::v3::policy::PolicySpec;
use crate::calico::v3::rule::Rule;
use crate::calico::{aside, keys};
use crate::datastore::{Object, ObjectId};
use crate::model::Key;
use crate::syncer::processor::ConvertError;

/// Protocol of ports that name none.
const DEFAULT_PROTOCOL: &str = "TCP";
/// Position of the one baseline policy in its tier.
const BASELINE_ORDER: f64 = 1000.0;

/// The differences between the two kinds.
#[derive(Debug)]
pub(super) struct AdminPolicies {
    lines: Releases,
    key: fn(&str) -> Key,
    /// The position of every policy; `None`: from the policy's priority.
    order: Option<f64>,
    actions: &'static [&'static str],
}

impl AdminPolicies {
    pub(super) const ADMIN: Self = Self {
        lines: aside::ADMIN_POLICIES,
        key: keys::old_admin_policy,
        order: None,
        actions: &["Allow", "Deny", "Pass"],
    };
    pub(super) const BASELINE: Self = Self {
        lines: aside::BASELINE_ADMIN_POLICIES,
        key: keys::old_baseline_admin_policy,
        order: Some(BASELINE_ORDER),
        actions: &["Allow", "Deny"],
    };
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    priority: i32,
    subject: ClusterPolicyPeer,
    ingress: Vec<AdminRule>,
    egress: Vec<AdminRule>,
}

/// A rule of either direction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AdminRule {
    name: String,
    action: String,
    /// Of ingress rules.
    from: Vec<ClusterPolicyPeer>,
    /// Of egress rules.
    to: Vec<ClusterPolicyPeer>,
    ports: Vec<AdminPort>,
}

/// One of these. Named ports are not supported.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AdminPort {
    port_number: Option<Number>,
    port_range: Option<Range>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Number {
    protocol: String,
    port: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    protocol: String,
    start: i32,
    end: i32,
}

impl Convert for AdminPolicies {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(aside::key(self.lines, &(self.key)(&id.name)))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let (metadata, spec) = body::<Spec>(object)?;
        check_uid(metadata.as_ref())?;
        let Some((selector, namespace_selector)) = subject(&spec.subject) else {
            return Err(ConvertError::new("spec.subject is neither namespaces nor pods"));
        };
        let ingress = self.rules(&spec.ingress, true)?;
        let egress = self.rules(&spec.egress, false)?;
        let mut policy = calico::global(PolicySpec {
            order: Some(self.order.unwrap_or_else(|| spec.priority.into())),
            selector,
            namespace_selector,
            types: directions(&ingress, &egress),
            ingress,
            egress,
            ..PolicySpec::default()
        });
        // The tier is in the key.
        policy.tier.clear();
        Ok(Some(converted(policy, &[])))
    }
}

impl AdminPolicies {
    fn rules(&self, rules: &[AdminRule], ingress: bool) -> Result<Vec<Rule>, ConvertError> {
        let direction = if ingress { "ingress" } else { "egress" };
        let mut converted = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let refuse = |reason: String| {
                ConvertError::new(format!(
                    "spec.{direction}[{index}]: {reason}; the whole policy is withheld, as by Calico"
                ))
            };
            converted.extend(self.expand(rule, ingress).map_err(refuse)?);
        }
        Ok(converted)
    }

    fn expand(&self, rule: &AdminRule, ingress: bool) -> Result<Vec<Rule>, String> {
        if !self.actions.contains(&rule.action.as_str()) {
            return Err(format!("action {:?} is none of {}", rule.action, self.actions.join(", ")));
        }
        let (groups, peers) = (groups(&rule.ports)?, if ingress { &rule.from } else { &rule.to });
        Traffic { action: &rule.action, name: &rule.name, groups, peers, ingress }.into_rules()
    }
}

/// Ports by protocol. An entry without number and range means any traffic and overrides the others.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "this is what Calico does")]
fn groups(ports: &[AdminPort]) -> Result<PortGroups, String> {
    let mut groups = PortGroups::default();
    for entry in ports {
        let (protocol, port) = match entry {
            AdminPort { port_number: Some(number), .. } => (&number.protocol, Port::single(number.port as u16)),
            AdminPort { port_range: Some(range), .. } => {
                let (first, last) = (range.start as u16, range.end as u16);
                if first > last {
                    return Err(format!("portRange {first}:{last} is not a range from low to high"));
                }
                (&range.protocol, Port::Numeric(first, last))
            }
            _ => return Ok(PortGroups::any()),
        };
        groups.add(if protocol.is_empty() { DEFAULT_PROTOCOL } else { protocol }, Some(port));
    }
    Ok(if ports.is_empty() { PortGroups::any() } else { groups })
}
