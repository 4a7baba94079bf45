//! Kubernetes' ClusterNetworkPolicy.

use std::collections::BTreeMap;

use super::super::simple::{Convert, Converted};
use super::super::{body, check_uid};
use super::kubernetes::network;
use super::kubernetes_types::{
    ClusterPolicyPeer, ClusterPolicyPort, ClusterPolicyPorts, ClusterPolicyProtocol, ClusterPolicyRule,
    ClusterPolicySpec,
};
use super::ports::PortGroups;
use super::{calico, converted, directions, labels};
use crate::calico::keys;
use crate::calico::numorstring::{Port, is_port_name};
use crate::calico::v3::policy::PolicySpec;
use crate::calico::v3::rule::{EntityRule, Rule, RuleMetadata};
use crate::datastore::{Object, ObjectId};
use crate::model::Key;
use crate::syncer::processor::ConvertError;

/// Policy kind in keys.
const KIND: &str = "KubernetesClusterNetworkPolicy";

/// Converts ClusterNetworkPolicy.
#[derive(Debug)]
pub(super) struct ClusterPolicies;

impl Convert for ClusterPolicies {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::policy(KIND, id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let (metadata, spec) = body::<ClusterPolicySpec>(object)?;
        check_uid(metadata.as_ref())?;
        let tier = match spec.tier.as_str() {
            "Admin" => "kube-admin",
            "Baseline" => "kube-baseline",
            _ => return Ok(None),
        };
        let Some((selector, namespace_selector)) = subject(&spec.subject) else { return Ok(None) };
        let mut left_out = Vec::new();
        let ingress = rules(&spec.ingress, true, &mut left_out);
        let egress = rules(&spec.egress, false, &mut left_out);
        let v3 = PolicySpec {
            tier: tier.to_owned(),
            order: Some(spec.priority.into()),
            selector,
            namespace_selector,
            types: directions(&ingress, &egress),
            ingress,
            egress,
            ..PolicySpec::default()
        };
        Ok(Some(converted(calico::global(v3), &left_out)))
    }
}

/// Selectors of a policy's endpoints and of their namespaces.
pub(super) fn subject(subject: &ClusterPolicyPeer) -> Option<(String, String)> {
    match subject {
        ClusterPolicyPeer { namespaces: Some(namespaces), .. } => {
            Some((labels::pods(None), labels::namespaces(Some(namespaces))))
        }
        ClusterPolicyPeer { pods: Some(pods), .. } => {
            Some((labels::pods(Some(&pods.pod_selector)), labels::namespaces(Some(&pods.namespace_selector))))
        }
        _ => None,
    }
}

/// All rules of a direction. A rule that cannot be converted fails closed, as in Calico: it denies everything if its
/// action is to deny or pass, and is left out if its action is to accept or unknown.
fn rules(rules: &[ClusterPolicyRule], ingress: bool, left_out: &mut Vec<String>) -> Vec<Rule> {
    let direction = if ingress { "ingress" } else { "egress" };
    let mut converted = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        match expand(rule, ingress) {
            Ok(rules) => converted.extend(rules),
            Err(reason) if matches!(rule.action.as_str(), "Deny" | "Pass") => {
                left_out.push(format!("spec.{direction}[{index}] denies everything: {reason}"));
                converted.push(Rule { action: "Deny".to_owned(), ..Rule::default() });
            }
            Err(reason) => left_out.push(format!("spec.{direction}[{index}] left out: {reason}")),
        }
    }
    converted
}

/// One rule per protocol and peer; without peers none.
fn expand(rule: &ClusterPolicyRule, ingress: bool) -> Result<Vec<Rule>, String> {
    let action = match rule.action.as_str() {
        "Accept" => "Allow",
        action @ ("Deny" | "Pass") => action,
        other => return Err(format!("action {other:?} is none of Accept, Deny, Pass")),
    };
    let groups = groups(&rule.protocols)?;
    let peers = if ingress { &rule.from } else { &rule.to };
    Traffic { action, name: &rule.name, groups, peers, ingress }.into_rules()
}

/// The traffic that a rule of a cluster's policy matches.
pub(super) struct Traffic<'a> {
    /// In Calico's words.
    pub(super) action: &'a str,
    /// May be empty.
    pub(super) name: &'a str,
    pub(super) groups: PortGroups,
    pub(super) peers: &'a [ClusterPolicyPeer],
    pub(super) ingress: bool,
}

impl Traffic<'_> {
    /// One rule per protocol and peer; without peers none.
    pub(super) fn into_rules(self) -> Result<Vec<Rule>, String> {
        let Self { action, name, groups, peers, ingress } = self;
        let entities: Vec<EntityRule> = peers.iter().map(|peer| entity(peer, ingress)).collect::<Result<_, _>>()?;
        let metadata = (!name.is_empty())
            .then(|| RuleMetadata { annotations: Some(BTreeMap::from([("name".to_owned(), name.to_owned())])) });
        Ok(groups.rules(action, &entities, ingress, metadata.as_ref()))
    }
}

/// A peer. If both are set, pods win over namespaces; networks narrow either.
fn entity(peer: &ClusterPolicyPeer, ingress: bool) -> Result<EntityRule, String> {
    let networks = if ingress { &[][..] } else { &peer.networks };
    let nets = networks.iter().map(|cidr| network(cidr)).collect::<Result<_, _>>()?;
    let (selector, namespace_selector) = match peer {
        ClusterPolicyPeer { pods: Some(pods), .. } => {
            (labels::pods(Some(&pods.pod_selector)), labels::namespaces(Some(&pods.namespace_selector)))
        }
        ClusterPolicyPeer { namespaces, .. } if namespaces.is_some() || !networks.is_empty() => {
            (String::new(), labels::namespaces(namespaces.as_ref()))
        }
        _ => return Err("a peer is neither namespaces nor pods nor (egress) networks".to_owned()),
    };
    Ok(EntityRule { nets, selector, namespace_selector, ..EntityRule::default() })
}

/// Ports by protocol. An empty entry means any traffic and overrides the others.
fn groups(protocols: &[ClusterPolicyProtocol]) -> Result<PortGroups, String> {
    let mut groups = PortGroups::default();
    for entry in protocols {
        let numbered = [("TCP", &entry.tcp), ("UDP", &entry.udp), ("SCTP", &entry.sctp)];
        match numbered.into_iter().find_map(|(name, ports)| ports.as_ref().map(|ports| (name, ports))) {
            Some((protocol, ports)) => groups.add(protocol, port(ports)?),
            None if entry.destination_named_port.is_empty() => return Ok(PortGroups::any()),
            None => groups.add("", Some(named(&entry.destination_named_port)?)),
        }
    }
    Ok(if protocols.is_empty() { PortGroups::any() } else { groups })
}

/// A named port. A name of digits passes here, and validation refuses it.
fn named(name: &str) -> Result<Port, String> {
    if is_port_name(name) {
        Ok(Port::Named(name.to_owned()))
    } else {
        Err(format!("destinationNamedPort {name:?} is not the name of a port"))
    }
}

/// The port; `None`: all ports. Numbers are cut to 16 bits, as in Calico; the API server refuses larger ones.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "this is what Calico does")]
fn port(ports: &ClusterPolicyPorts) -> Result<Option<Port>, String> {
    match &ports.destination_port {
        Some(ClusterPolicyPort { number, .. }) if *number != 0 => Ok(Some(Port::single(*number as u16))),
        Some(ClusterPolicyPort { range: Some(range), .. }) => {
            let (first, last) = (range.start as u16, range.end as u16);
            if first > last {
                return Err(format!("destinationPort {first}:{last} is not a range from low to high"));
            }
            Ok(Some(Port::Numeric(first, last)))
        }
        _ => Ok(None),
    }
}
