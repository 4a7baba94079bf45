//! Rules for BGP peers, configurations and filters.

use std::net::IpAddr;

use super::formats::{
    community, ip, is_bgp_filter_interface, is_ignored_interface, is_ipv4, is_ipv6, is_name, is_network_v4,
    is_network_v6, is_strict_network, peer_address,
};
use super::tree::At;
use super::{NAME, SELECTOR, is_selector};

/// Route priorities that Calico accepts: positive, below the kernel's largest.
const PRIORITIES: std::ops::RangeInclusive<i64> = 1..=2_147_483_646;
const COMMUNITY: &str = "a community aa:nn (16 bits each) or aa:nn:mm (32 bits each)";

/// Checks the spec of a BGPPeer.
pub(super) fn check_peer(peer: &At<'_>) {
    let Some(spec) = peer.get("spec") else { return };
    spec.field_is("node", is_name, NAME);
    for selector in ["nodeSelector", "peerSelector", "localWorkloadSelector"] {
        spec.field_is(selector, is_selector, SELECTOR);
    }
    spec.field_is(
        "peerIP",
        |text| peer_address(text).is_some(),
        "an address, 1.2.3.4:port or [fd00::1]:port with a port from 1",
    );
    spec.field_is("reachableBy", |text| ip(text).is_some(), "an IP address");
    let address = |field: &str| spec.get(field).and_then(|field| peer_address(field.text()));
    if let (Some(gateway), Some(peer)) = (address("reachableBy"), address("peerIP"))
        && IpAddr::is_ipv4(&gateway) != peer.is_ipv4()
    {
        let field = spec.get("reachableBy").unwrap_or_else(|| spec.clone());
        field.bad("an address of the same family as peerIP");
    }
    for filter in spec.list("filters") {
        filter.text_is(|text| text.is_empty() || is_name(text), NAME);
    }
}

/// Checks the spec of a BGPConfiguration.
pub(super) fn check_configuration(configuration: &At<'_>) {
    let Some(spec) = configuration.get("spec") else { return };
    for blocks in ["serviceLoadBalancerIPs", "serviceExternalIPs", "serviceClusterIPs"] {
        for block in spec.list(blocks) {
            block.field_is("cidr", is_strict_network, "a CIDR without host bits");
        }
    }
    for interface in spec.list("ignoredInterfaces") {
        interface.text_is(
            is_ignored_interface,
            "an interface name of up to 15 characters, in which * may stand but not alone",
        );
    }
    spec.field_is("localWorkloadPeeringIPV4", is_ipv4, "an IPv4 address");
    spec.field_is("localWorkloadPeeringIPV6", is_ipv6, "an IPv6 address");
    spec.field_in("ipv4NormalRoutePriority", PRIORITIES);
    spec.field_in("ipv6NormalRoutePriority", PRIORITIES);
    let communities = spec.list("communities");
    for entry in &communities {
        if let Some(name) = required(entry, "name") {
            name.text_is(is_name, NAME);
        }
        if let Some(value) = required(entry, "value") {
            value.text_is(|text| community(text) == Some(true), COMMUNITY);
        }
    }
    let defined =
        |name: &str| communities.iter().any(|entry| entry.get("name").is_some_and(|field| field.text() == name));
    for advertisement in spec.list("prefixAdvertisements") {
        if let Some(cidr) = required(&advertisement, "cidr") {
            cidr.text_is(is_strict_network, "a CIDR without host bits");
        }
        // An absent list is not found here, since an empty list is not printed either: see `Printed::unset`.
        for used in advertisement.list("communities") {
            let good = |text: &str| community(text).unwrap_or_else(|| defined(text));
            used.text_is(good, &format!("{COMMUNITY}, or the name of one in spec.communities"));
        }
    }
}

/// Checks the spec of a BGPFilter.
pub(super) fn check_filter(filter: &At<'_>) {
    let Some(spec) = filter.get("spec") else { return };
    for list in ["exportV4", "importV4", "exportV6", "importV6"] {
        for rule in spec.list(list) {
            check_filter_rule(&rule, list.ends_with("V4"));
        }
    }
}

fn check_filter_rule(rule: &At<'_>, v4: bool) {
    if v4 {
        rule.field_is("cidr", |text| is_network_v4(text, true), "an IPv4 CIDR without host bits");
    } else {
        rule.field_is("cidr", |text| is_network_v6(text, true), "an IPv6 CIDR without host bits");
    }
    if let Some(length) = rule.get("prefixLength") {
        let longest = if v4 { 32 } else { 128 };
        length.field_in("min", 0..=longest);
        length.field_in("max", 0..=longest);
    }
    if rule.get("source").is_some_and(|source| !source.text().is_empty()) {
        rule.field_of("source", &["RemotePeers"]);
    }
    if rule.get("peerType").is_some_and(|kind| !kind.text().is_empty()) {
        rule.field_of("peerType", &["eBGP", "iBGP"]);
    }
    rule.field_is(
        "interface",
        is_bgp_filter_interface,
        "an interface name of up to 15 characters, in which * may stand",
    );
    rule.field_in("priority", PRIORITIES);
    if let Some(communities) = rule.get("communities") {
        present(&communities, "values");
    }
    for operation in rule.list("operations") {
        if let Some(add) = operation.get("addCommunity") {
            present(&add, "value");
        }
        if let Some(prepend) = operation.get("prependASPath") {
            present(&prepend, "prefix");
        }
        if let Some(set) = operation.get("setPriority") {
            present(&set, "value");
            set.field_in("value", PRIORITIES);
        }
    }
    let _noted = required(rule, "action");
}

/// The field of this name, which has to be present and not be empty text. Notes where it is not.
fn required<'a>(parent: &At<'a>, name: &str) -> Option<At<'a>> {
    let field = parent.get(name).filter(|field| field.value().as_str() != Some(""));
    if field.is_none() {
        parent.lacks(name);
    }
    field
}

/// Notes where a field is missing. It may be empty.
fn present(parent: &At<'_>, name: &str) {
    if parent.get(name).is_none() {
        parent.lacks(name);
    }
}
