//! Rules for endpoints and network sets.
//!
//! As in Calico, what endpoints carry as labels, networks and addresses is not checked: it cannot be wrong any more.

use super::super::Invalid;
use crate::model::numorstring::{Protocol, Uint8OrString};
use crate::model::v1::endpoint::{EndpointPort, HostEndpoint, WorkloadEndpoint};
use crate::model::v1::sets::NetworkSet;
use crate::model::v1::text::Text;

/// Longest name of a port or profile.
const MAX_NAME: usize = 128;
/// Longest name of a network interface.
const MAX_INTERFACE: usize = 15;
/// Protocols whose packets have ports. Their numbers are not accepted: so in Calico, here but not in rules.
const PROTOCOLS_WITH_PORTS: [&str; 3] = ["tcp", "udp", "sctp"];
/// Longest part of a value that an error repeats.
const MAX_SHOWN: usize = 64;

/// An interface of a workload has a name, and its ports are ports.
///
/// # Errors
/// The first rule broken.
pub fn workload_endpoint(endpoint: &WorkloadEndpoint<'_>) -> Result<(), Invalid> {
    if endpoint.name.is_empty() {
        return Err(invalid("name", "", "the name of an interface"));
    }
    ports(&endpoint.ports)
}

/// An interface of a host: its name can be one, so can its profiles', and its ports are ports.
///
/// # Errors
/// The first rule broken.
pub fn host_endpoint(endpoint: &HostEndpoint<'_>) -> Result<(), Invalid> {
    let name = &*endpoint.name;
    if !(name.is_empty() || name == "*" || is_name(name, MAX_INTERFACE)) {
        return Err(invalid("name", name, "an interface name (up to 15 letters, digits, _ . -) or *"));
    }
    profile_ids(&endpoint.profile_ids)?;
    ports(&endpoint.ports)
}

/// A network set's profiles can be profiles.
///
/// # Errors
/// The first rule broken.
pub fn network_set(set: &NetworkSet<'_>) -> Result<(), Invalid> {
    profile_ids(&set.profile_ids)
}

fn profile_ids(ids: &[Text<'_>]) -> Result<(), Invalid> {
    match ids.iter().enumerate().find(|(_, id)| !is_name(id, MAX_NAME)) {
        None => Ok(()),
        Some((at, id)) => {
            Err(invalid(&format!("profile_ids[{at}]"), id, "a profile name (up to 128 letters, digits, _ . -)"))
        }
    }
}

fn ports(ports: &[EndpointPort<'_>]) -> Result<(), Invalid> {
    for (at, port) in ports.iter().enumerate() {
        if !is_name(&port.name, MAX_NAME) {
            let expected = "a port name (up to 128 letters, digits, _ . -)";
            return Err(invalid(&format!("ports[{at}].name"), &port.name, expected));
        }
        if port.port == 0 {
            return Err(invalid(&format!("ports[{at}].port"), "0", "1 to 65535"));
        }
        if !has_ports(&port.protocol) {
            let value = port.protocol.to_string();
            return Err(invalid(&format!("ports[{at}].protocol"), &value, "tcp, udp or sctp"));
        }
    }
    Ok(())
}

fn has_ports(protocol: &Protocol) -> bool {
    matches!(protocol, Uint8OrString::Name(name) if PROTOCOLS_WITH_PORTS.contains(&name.as_str()))
}

fn is_name(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

fn invalid(field: &str, value: &str, expected: &str) -> Invalid {
    let shown = value.chars().take(MAX_SHOWN).collect();
    Invalid { field: field.to_owned(), value: shown, expected: expected.to_owned() }
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
            assert_eq!(ports(&[candidate]).err().map(|invalid| invalid.field).as_deref(), broken);
        }
    }
}
