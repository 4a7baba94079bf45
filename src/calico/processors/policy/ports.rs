//! Ports of Kubernetes' policies, grouped by protocol and merged into ranges.

use std::collections::BTreeMap;

use crate::calico::numorstring::{Port, Protocol};
use crate::calico::v3::rule::{EntityRule, Rule, RuleMetadata};

/// Ports by protocol, protocols in the order of their text.
#[derive(Debug, Default)]
pub(super) struct PortGroups {
    groups: BTreeMap<String, Group>,
}

#[derive(Debug)]
enum Group {
    /// All ports of the protocol.
    All,
    Some(Vec<Port>),
}

impl PortGroups {
    /// Any traffic, of any protocol.
    pub(super) fn any() -> Self {
        Self { groups: BTreeMap::from([(String::new(), Group::All)]) }
    }

    /// Adds a port of a protocol, or all its ports; empty protocol: any protocol.
    pub(super) fn add(&mut self, protocol: &str, port: Option<Port>) {
        let group = self.groups.entry(protocol.to_owned()).or_insert_with(|| Group::Some(Vec::new()));
        match (port, group) {
            (None, group) => *group = Group::All,
            (Some(port), Group::Some(ports)) => ports.push(port),
            (Some(_), Group::All) => {}
        }
    }

    /// One rule for each protocol and peer, for traffic from the peers or to them. The ports are the destination's.
    pub(super) fn rules(
        self,
        action: &str,
        peers: &[EntityRule],
        ingress: bool,
        metadata: Option<&RuleMetadata>,
    ) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (protocol, ports) in self.protocols() {
            for peer in peers {
                let mut peer = peer.clone();
                let (source, destination) = if ingress {
                    (peer, EntityRule { ports: ports.clone(), ..EntityRule::default() })
                } else {
                    peer.ports.clone_from(&ports);
                    (EntityRule::default(), peer)
                };
                let (action, protocol, metadata) = (action.to_owned(), protocol.clone(), metadata.cloned());
                rules.push(Rule { action, protocol, source, destination, metadata, ..Rule::default() });
            }
        }
        rules
    }

    /// The protocols, each with its ports; no ports means all.
    fn protocols(self) -> impl Iterator<Item = (Option<Protocol>, Vec<Port>)> {
        self.groups.into_iter().map(|(protocol, group)| {
            let protocol = (!protocol.is_empty()).then(|| Protocol::protocol_from_text(&protocol));
            match group {
                Group::All => (protocol, Vec::new()),
                Group::Some(ports) => (protocol, simplify(ports)),
            }
        })
    }
}

/// Merges numbers into ranges, and puts them after the named ports; a list with at most one number stays as it is.
fn simplify(ports: Vec<Port>) -> Vec<Port> {
    let mut ranges: Vec<(u16, u16)> = ports
        .iter()
        .filter_map(|port| if let Port::Numeric(first, last) = port { Some((*first, *last)) } else { None })
        .collect();
    let numbers: u32 = ranges.iter().map(|(first, last)| u32::from(*last) - u32::from(*first) + 1).sum();
    if ports.len() <= 1 || numbers <= 1 {
        return ports;
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(range) if u32::from(first) <= u32::from(range.1) + 1 => range.1 = range.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let named = ports.into_iter().filter(|port| matches!(port, Port::Named(_)));
    named.chain(merged.into_iter().map(|(first, last)| Port::Numeric(first, last))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_numbers_stay_where_they_are() {
        let named = Port::Named("x".to_owned());
        assert_eq!(simplify(vec![Port::single(80), named.clone()]), [Port::single(80), named.clone()]);
        assert_eq!(
            simplify(vec![Port::Numeric(80, 81), named.clone(), Port::single(82)]),
            [named, Port::Numeric(80, 82)]
        );
        assert_eq!(simplify(vec![Port::single(80), Port::single(80)]), [Port::single(80)]);
        assert_eq!(simplify(vec![Port::single(65535), Port::Numeric(0, 65535)]), [Port::Numeric(0, 65535)]);
    }

    proptest! {
        #[test]
        fn merging_keeps_the_set_and_leaves_gaps(ranges in proptest::collection::vec((1_u16..60, 0_u16..9), 0..8)) {
            let ports: Vec<Port> = ranges.iter().map(|(first, more)| Port::Numeric(*first, first + more)).collect();
            let numbers = |ports: &[Port]| -> BTreeSet<u16> {
                ports.iter().flat_map(|port| match port {
                    Port::Numeric(first, last) => (*first..=*last).collect(),
                    Port::Named(_) => Vec::new(),
                }).collect()
            };
            let merged = simplify(ports.clone());
            prop_assert_eq!(numbers(&merged), numbers(&ports));
            for pair in merged.windows(2) {
                if let [Port::Numeric(_, last), Port::Numeric(first, _)] = pair {
                    prop_assert!(first > &(last + 1));
                }
            }
        }
    }
}
