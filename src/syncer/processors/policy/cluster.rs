//! Kubernetes' ClusterNetworkPolicy.

use std::collections::BTreeMap;

use super::super::simple::{Convert, Converted};
use super::super::{ConvertError, body, check_metadata};
use super::kubernetes::network;
use super::kubernetes_types::{
    ClusterPolicyPeer, ClusterPolicyPorts, ClusterPolicyProtocol, ClusterPolicyRule, ClusterPolicySpec,
};
use super::ports::PortGroups;
use super::{calico, converted, labels};
use crate::datastore::{Object, ObjectId};
use crate::model::numorstring::Port;
use crate::model::v3::policy::{Body, PolicySpec};
use crate::model::v3::rule::{EntityRule, Rule, RuleMetadata};
use crate::model::{Key, keys};

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
        let Body { metadata, spec } = body::<Body<ClusterPolicySpec>>(object)?;
        check_metadata(object, metadata.as_deref())?;
        let tier = match spec.tier.as_str() {
            "Admin" => "kube-admin",
            "Baseline" => "kube-baseline",
            _ => return Ok(None),
        };
        let (selector, namespace_selector) = match &spec.subject {
            ClusterPolicyPeer { pods: Some(pods), .. } => {
                (labels::pods(Some(&pods.pod_selector)), labels::namespaces(Some(&pods.namespace_selector)))
            }
            ClusterPolicyPeer { namespaces: Some(namespaces), .. } => {
                (labels::pods(None), labels::namespaces(Some(namespaces)))
            }
            _ => return Ok(None),
        };
        let mut left_out = Vec::new();
        let ingress = rules(&spec.ingress, true, &mut left_out);
        let egress = rules(&spec.egress, false, &mut left_out);
        let types = [("Ingress", ingress.is_empty()), ("Egress", egress.is_empty())];
        let v3 = PolicySpec {
            tier: tier.to_owned(),
            order: Some(spec.priority.into()),
            selector,
            namespace_selector,
            types: types.into_iter().filter(|(_, empty)| !empty).map(|(direction, _)| direction.to_owned()).collect(),
            ingress,
            egress,
            ..PolicySpec::default()
        };
        Ok(Some(converted(calico::global(v3), &left_out)))
    }
}

/// All rules of a direction. One that cannot be converted fails closed: it denies everything, unless it would have allowed.
fn rules(rules: &[ClusterPolicyRule], ingress: bool, left_out: &mut Vec<String>) -> Vec<Rule> {
    let direction = if ingress { "ingress" } else { "egress" };
    let mut converted = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        match expand(rule, ingress) {
            Ok(rules) => converted.extend(rules),
            Err(reason) if rule.action == "Accept" => {
                left_out.push(format!("spec.{direction}[{index}] left out: {reason}"));
            }
            Err(reason) => {
                left_out.push(format!("spec.{direction}[{index}] denies everything: {reason}"));
                converted.push(Rule { action: "Deny".to_owned(), ..Rule::default() });
            }
        }
    }
    converted
}

/// One rule per protocol and peer.
fn expand(rule: &ClusterPolicyRule, ingress: bool) -> Result<Vec<Rule>, String> {
    let action = match rule.action.as_str() {
        "Accept" => "Allow",
        action @ ("Deny" | "Pass") => action,
        other => return Err(format!("action {other:?} is none of Accept, Deny, Pass")),
    };
    let peers = if ingress { &rule.from } else { &rule.to };
    if peers.is_empty() {
        return Err("no peers".to_owned());
    }
    let entities: Vec<EntityRule> = peers.iter().map(|peer| entity(peer, ingress)).collect::<Result<_, _>>()?;
    let metadata = (!rule.name.is_empty())
        .then(|| RuleMetadata { annotations: Some(BTreeMap::from([("name".to_owned(), rule.name.clone())])) });
    let mut rules = Vec::new();
    for (protocol, ports) in groups(&rule.protocols)?.into_rules() {
        for entity in &entities {
            let mut peer = entity.clone();
            let (source, destination) = if ingress {
                (peer, EntityRule { ports: ports.clone(), ..EntityRule::default() })
            } else {
                peer.ports.clone_from(&ports);
                (EntityRule::default(), peer)
            };
            let (action, protocol, metadata) = (action.to_owned(), protocol.clone(), metadata.clone());
            rules.push(Rule { action, protocol, source, destination, metadata, ..Rule::default() });
        }
    }
    Ok(rules)
}

fn entity(peer: &ClusterPolicyPeer, ingress: bool) -> Result<EntityRule, String> {
    match peer {
        ClusterPolicyPeer { pods: Some(pods), .. } => Ok(EntityRule {
            selector: labels::pods(Some(&pods.pod_selector)),
            namespace_selector: labels::namespaces(Some(&pods.namespace_selector)),
            ..EntityRule::default()
        }),
        ClusterPolicyPeer { namespaces: Some(namespaces), .. } => {
            Ok(EntityRule { namespace_selector: labels::namespaces(Some(namespaces)), ..EntityRule::default() })
        }
        ClusterPolicyPeer { networks, .. } if !ingress && !networks.is_empty() => Ok(EntityRule {
            nets: networks.iter().map(|cidr| network(cidr)).collect::<Result<_, _>>()?,
            ..EntityRule::default()
        }),
        _ => Err("a peer is neither namespaces nor pods nor (egress) networks".to_owned()),
    }
}

fn groups(protocols: &[ClusterPolicyProtocol]) -> Result<PortGroups, String> {
    if protocols.is_empty() {
        return Ok(PortGroups::any());
    }
    let mut groups = PortGroups::default();
    for entry in protocols {
        let numbered = [("TCP", &entry.tcp), ("UDP", &entry.udp), ("SCTP", &entry.sctp)];
        match numbered.into_iter().find_map(|(name, ports)| ports.as_ref().map(|ports| (name, ports))) {
            Some((protocol, ports)) => groups.add(protocol, port(ports)?),
            None if entry.destination_named_port.is_empty() => {
                return Err("a protocol is neither tcp nor udp nor sctp nor destinationNamedPort".to_owned());
            }
            None => {
                let name =
                    entry.destination_named_port.parse().map_err(|error| format!("destinationNamedPort: {error}"))?;
                groups.add("", Some(name));
            }
        }
    }
    Ok(groups)
}

fn port(ports: &ClusterPolicyPorts) -> Result<Option<Port>, String> {
    let Some(port) = &ports.destination_port else { return Ok(None) };
    let text = match port.range {
        Some(range) => format!("{}:{}", range.start, range.end),
        None => port.number.to_string(),
    };
    match text.parse() {
        Ok(port @ Port::Numeric(first, _)) if first > 0 => Ok(Some(port)),
        _ => Err(format!("destinationPort {text} is not a port or range from low to high")),
    }
}
