//! Rules for endpoints and network sets.
//!
//! As in Calico, labels, networks and addresses of endpoints are not checked: conversion has left only valid ones.

use crate::calico::numorstring::{Protocol, Uint8OrString};
use crate::calico::v1::endpoint::{EndpointPort, HostEndpoint, WorkloadEndpoint};
use crate::calico::v1::sets::NetworkSet;
use crate::calico::v1::text::Text;
use crate::model::finding::{BAD_VALUE, Findings, MISSING_FIELD};

/// Longest name of a port or profile.
const MAX_NAME: usize = 128;
/// Longest name of a network interface.
const MAX_INTERFACE: usize = 15;
/// Protocols with ports. Their numbers are not accepted here, unlike in rules: as in Calico.
const PROTOCOLS_WITH_PORTS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Checks a workload's endpoint: name and ports.
#[must_use]
pub fn workload_endpoint(endpoint: &WorkloadEndpoint<'_>) -> Findings {
    let mut findings = Findings::none();
    if endpoint.name.is_empty() {
        findings.error(MISSING_FIELD, "name", "", "the name of an interface");
    }
    ports(&endpoint.ports, &mut findings);
    findings
}

/// Checks a host's endpoint: names of interface and profiles, and ports.
#[must_use]
pub fn host_endpoint(endpoint: &HostEndpoint<'_>) -> Findings {
    let mut findings = Findings::none();
    let name = &*endpoint.name;
    if !(name.is_empty() || name == "*" || is_name(name, MAX_INTERFACE)) {
        findings.error(BAD_VALUE, "name", name, "an interface name (up to 15 letters, digits, _ . -) or *");
    }
    profile_ids(&endpoint.profile_ids, &mut findings);
    ports(&endpoint.ports, &mut findings);
    findings
}

/// Checks a network set: names of profiles.
#[must_use]
pub fn network_set(set: &NetworkSet<'_>) -> Findings {
    let mut findings = Findings::none();
    profile_ids(&set.profile_ids, &mut findings);
    findings
}

fn profile_ids(ids: &[Text<'_>], findings: &mut Findings) {
    for (at, id) in ids.iter().enumerate().filter(|(_, id)| !is_name(id, MAX_NAME)) {
        let expected = "a profile name (up to 128 letters, digits, _ . -)";
        findings.error(BAD_VALUE, &format!("profile_ids[{at}]"), id, expected);
    }
}

fn ports(ports: &[EndpointPort<'_>], findings: &mut Findings) {
    for (at, port) in ports.iter().enumerate() {
        let mut bad = |field: &str, value: &str, expected: &str| {
            findings.error(BAD_VALUE, &format!("ports[{at}].{field}"), value, expected);
        };
        if !is_name(&port.name, MAX_NAME) {
            bad("name", &port.name, "a port name (up to 128 letters, digits, _ . -)");
        }
        if port.port == 0 {
            bad("port", "0", "1 to 65535");
        }
        if !has_ports(&port.protocol) {
            bad("protocol", &port.protocol.to_string(), "tcp, udp or sctp");
        }
    }
}

fn has_ports(protocol: &Protocol) -> bool {
    matches!(protocol, Uint8OrString::Name(name) if PROTOCOLS_WITH_PORTS.contains(&name.as_str()))
}

fn is_name(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, protocol: Protocol, port: u16) -> EndpointPort<'_> {
        EndpointPort { name: name.into(), protocol, port }
    }

    #[test]
    fn ports_are_checked() {
        let tcp = || Uint8OrString::Name("tcp".to_owned());
        let long = "x".repeat(129);
        for (broken, candidate) in [
            (None, port("http", tcp(), 80)),
            (Some("ports[0].protocol"), port("dns", Uint8OrString::Number(17), 53)),
            (Some("ports[0].port"), port("http", tcp(), 0)),
            (Some("ports[0].protocol"), port("http", Uint8OrString::Name("icmp".to_owned()), 80)),
            (Some("ports[0].protocol"), port("http", Uint8OrString::Number(1), 80)),
            (Some("ports[0].name"), port("a b", tcp(), 80)),
            (Some("ports[0].name"), port(&long, tcp(), 80)),
        ] {
            let mut findings = Findings::none();
            ports(&[candidate], &mut findings);
            assert_eq!(findings.as_slice().first().map(|finding| finding.path.as_str()), broken);
        }
    }
}
