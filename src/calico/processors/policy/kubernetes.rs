//! Kubernetes' NetworkPolicy, and Calico's staged form of it.

use super::super::simple::{Convert, Converted};
use super::super::{body, check_uid};
use super::kubernetes_types::{IpBlock, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicyRule, NetworkPolicySpec};
use super::ports::PortGroups;
use super::{STAGED_DELETE, calico, converted, labels};
use crate::calico::keys;
use crate::calico::net::parse_cidr;
use crate::calico::numorstring::{IntOrString, Port, Protocol};
use crate::calico::v3::policy::PolicySpec;
use crate::calico::v3::rule::{EntityRule, Rule};
use crate::datastore::{Object, ObjectId};
use crate::model::Key;
use crate::syncer::processor::ConvertError;

/// Position of all policies from Kubernetes.
const ORDER: f64 = 1000.0;
/// Protocol of a port without one.
const DEFAULT_PROTOCOL: &str = "TCP";

/// Converts NetworkPolicy, or StagedKubernetesNetworkPolicy.
#[derive(Debug)]
pub(super) struct KubernetesPolicies {
    kind: &'static str,
    staged: bool,
}

impl KubernetesPolicies {
    pub(super) const NATIVE: Self = Self { kind: "KubernetesNetworkPolicy", staged: false };
    pub(super) const STAGED: Self = Self { kind: "StagedKubernetesNetworkPolicy", staged: true };
}

impl Convert for KubernetesPolicies {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::policy(self.kind, id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let (metadata, spec) = body::<NetworkPolicySpec>(object)?;
        check_uid(metadata.as_ref())?;
        if self.staged && spec.staged_action == STAGED_DELETE {
            return Ok(None);
        }
        let mut left_out = LeftOut::default();
        let v3 = PolicySpec {
            order: Some(ORDER),
            selector: labels::pods(Some(&spec.pod_selector)),
            ingress: rules(&spec.ingress, true, &mut left_out),
            egress: rules(&spec.egress, false, &mut left_out),
            types: types(&spec.policy_types),
            ..PolicySpec::default()
        };
        if self.staged && left_out.bad_ports {
            return Err(ConvertError::new(left_out.reasons.join("; ")));
        }
        let mut policy = calico::namespaced(v3, &object.id.namespace);
        policy.staged_action = Some(spec.staged_action).filter(|action| self.staged && !action.is_empty());
        Ok(Some(converted(policy, &left_out.reasons)))
    }
}

/// Directions in a fixed order; none listed: ingress.
fn types(listed: &[String]) -> Vec<String> {
    let mut types: Vec<String> = ["Ingress", "Egress"]
        .into_iter()
        .filter(|direction| listed.iter().any(|listed| listed == direction))
        .map(str::to_owned)
        .collect();
    if types.is_empty() {
        types.push("Ingress".to_owned());
    }
    types
}

/// Rules that could not be converted.
#[derive(Debug, Default)]
struct LeftOut {
    reasons: Vec<String>,
    /// A rule was left out for its ports. Calico then withholds a staged policy; other policies lose only the rule.
    bad_ports: bool,
}

/// The reason why a rule cannot be converted.
enum Fault {
    Ports(String),
    Peer(String),
}

/// All rules of a direction. A rule that cannot be converted is left out: rules only allow, so this narrows the policy.
fn rules(rules: &[NetworkPolicyRule], ingress: bool, left_out: &mut LeftOut) -> Vec<Rule> {
    let direction = if ingress { "ingress" } else { "egress" };
    let mut converted = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        match expand(rule, ingress) {
            Ok(rules) => converted.extend(rules),
            Err(fault) => {
                left_out.bad_ports |= matches!(fault, Fault::Ports(_));
                let (Fault::Ports(reason) | Fault::Peer(reason)) = fault;
                left_out.reasons.push(format!("spec.{direction}[{index}] left out: {reason}"));
            }
        }
    }
    converted
}

/// One rule per protocol and peer.
fn expand(rule: &NetworkPolicyRule, ingress: bool) -> Result<Vec<Rule>, Fault> {
    let groups = groups(&rule.ports).map_err(Fault::Ports)?;
    let peers = if ingress { &rule.from } else { &rule.to };
    let entities = if peers.is_empty() {
        vec![EntityRule::default()]
    } else {
        peers.iter().map(entity).collect::<Result<_, _>>().map_err(Fault::Peer)?
    };
    Ok(groups.rules("Allow", &entities, ingress, None))
}

fn groups(ports: &[NetworkPolicyPort]) -> Result<PortGroups, String> {
    if ports.is_empty() {
        return Ok(PortGroups::any());
    }
    let mut groups = PortGroups::default();
    for entry in ports {
        // The canonical spelling makes one group per protocol.
        let protocol = Protocol::protocol_from_text(entry.protocol.as_deref().unwrap_or(DEFAULT_PROTOCOL)).to_string();
        groups.add(&protocol, entry.port.as_ref().map(|port| numbered(port, entry.end_port)).transpose()?);
    }
    Ok(groups)
}

fn numbered(port: &IntOrString, end: Option<i32>) -> Result<Port, String> {
    let text = match end {
        Some(end) => format!("{port}:{end}"),
        None => port.to_string(),
    };
    text.parse().map_err(|error| format!("ports: {error}"))
}

fn entity(peer: &NetworkPolicyPeer) -> Result<EntityRule, String> {
    if let Some(IpBlock { cidr, except }) = &peer.ip_block {
        return Ok(EntityRule {
            nets: vec![network(cidr)?],
            not_nets: except.iter().map(|cidr| network(cidr)).collect::<Result<_, _>>()?,
            ..EntityRule::default()
        });
    }
    Ok(EntityRule {
        selector: labels::pods(peer.pod_selector.as_ref()),
        namespace_selector: labels::namespaces(peer.namespace_selector.as_ref()),
        ..EntityRule::default()
    })
}

/// A network, checked and masked.
pub(super) fn network(cidr: &str) -> Result<String, String> {
    parse_cidr(cidr)
        .map(|net| net.trunc().to_string())
        .ok_or_else(|| format!("{cidr:?} is not a network (address/prefix length)"))
}
