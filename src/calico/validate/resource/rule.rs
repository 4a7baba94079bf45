//! Rules for profiles and their policy rules, as users write them.

use serde_json::Value;

use super::formats::network;
use super::metadata;
use super::tree::At;
use super::{NAME, SELECTOR, is_selector};
use crate::calico::validate::resource::formats::{A_PORT_NAME, is_name, is_port_name, is_strict_network};

/// Protocol names that Calico accepts.
const PROTOCOLS: [&str; 6] = ["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];
/// IANA numbers of TCP, UDP and SCTP: the protocols that have ports.
const WITH_PORTS: [i64; 3] = [6, 17, 132];
const NEEDS_PROTOCOL: &str = "a protocol of TCP, UDP or SCTP beside ports";
const WHOLE_V4: &str = "0.0.0.0/0";

/// Checks the spec of a Profile.
pub(super) fn check_profile(profile: &At<'_>) {
    let Some(spec) = profile.get("spec") else { return };
    for list in ["ingress", "egress"] {
        for rule in spec.list(list) {
            check_rule(&rule);
        }
    }
    if let Some(labels) = spec.get("labelsToApply") {
        metadata::check_labels(&labels);
    }
}

fn check_rule(rule: &At<'_>) {
    for name in ["protocol", "notProtocol"] {
        if let Some(protocol) = rule.get(name) {
            check_protocol(&protocol);
        }
    }
    for name in ["icmp", "notICMP"] {
        if let Some(icmp) = rule.get(name) {
            icmp.field_in("type", 0..=254);
            icmp.field_in("code", 0..=255);
        }
    }
    let (mut seen_v4, mut seen_v6) = (false, false);
    for name in ["source", "destination"] {
        let Some(entity) = rule.get(name) else { continue };
        check_entity(&entity, rule.get("protocol").as_ref());
        for list in ["nets", "notNets"] {
            check_nets(&entity, list, rule.get("ipVersion").as_ref(), &mut seen_v4, &mut seen_v6);
        }
    }
    if let Some(http) = rule.get("http") {
        check_http(&http);
    }
    if let Some(annotations) = rule.get("metadata").and_then(|metadata| metadata.get("annotations")) {
        metadata::check_annotations(&annotations);
    }
}

fn check_protocol(protocol: &At<'_>) {
    let good = match protocol.value() {
        Value::Number(number) => number.as_i64().is_some_and(|number| (1..=255).contains(&number)),
        Value::String(name) => PROTOCOLS.contains(&name.as_str()),
        _ => false,
    };
    if !good {
        protocol.bad(format!("a number from 1 to 255, or one of {}", PROTOCOLS.join(", ")));
    }
}

fn has_ports(protocol: &At<'_>) -> bool {
    match protocol.value() {
        Value::Number(number) => number.as_i64().is_some_and(|number| WITH_PORTS.contains(&number)),
        Value::String(name) => ["TCP", "UDP", "SCTP"].iter().any(|known| known.eq_ignore_ascii_case(name)),
        _ => false,
    }
}

/// Checks a port: a number from 1, a range `a:b`, or a name.
pub(super) fn check_port(port: &At<'_>) {
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number >= 1);
    let good = match port.value() {
        Value::Number(single) => single.as_i64().is_some_and(|number| (1..=65_535).contains(&number)),
        Value::String(text) => match text.split_once(':') {
            Some((low, high)) => matches!((number(low), number(high)), (Some(low), Some(high)) if low <= high),
            None => is_port_name(text),
        },
        _ => false,
    };
    if !good {
        port.bad(format!("a port from 1 to 65535, a range low:high, or {A_PORT_NAME}"));
    }
}

fn check_entity(entity: &At<'_>, protocol: Option<&At<'_>>) {
    for list in ["nets", "notNets"] {
        for net in entity.list(list) {
            net.text_is(is_strict_network, "a CIDR without host bits");
        }
    }
    for name in ["selector", "namespaceSelector", "notSelector"] {
        entity.field_is(name, is_selector, SELECTOR);
    }
    if let Some(accounts) = entity.get("serviceAccounts") {
        accounts.field_is("selector", is_selector, SELECTOR);
    }
    if let Some(services) = entity.get("services") {
        services.field_is("name", is_name, NAME);
        services.field_is("namespace", is_name, NAME);
    }
    for list in ["ports", "notPorts"] {
        for port in entity.list(list) {
            check_port(&port);
            let named = port.value().as_str().is_some_and(|text| !text.contains(':'));
            if protocol.map_or(!named, |protocol| !has_ports(protocol)) {
                port.bad(NEEDS_PROTOCOL);
            }
        }
    }
    let namespaces = entity.get("namespaceSelector");
    if let Some(selector) = namespaces.filter(|selector| selector.text().contains("global(")) {
        selector
            .text_is(|text| text.trim_matches([' ', '\t']) == "global()", "global() alone, without other selectors");
    }
}

fn check_nets(entity: &At<'_>, list: &str, version: Option<&At<'_>>, seen_v4: &mut bool, seen_v6: &mut bool) {
    let version = version.and_then(|version| version.value().as_i64());
    for net in entity.list(list) {
        let Some((address, parsed)) = network(net.text()).filter(|_| net.text().contains('/')) else {
            net.bad("a CIDR");
            continue;
        };
        if list == "notNets" && (net.text() == WHOLE_V4 || (address.is_ipv6() && parsed.prefix_len() == 0)) {
            net.bad("less than everything: without it the rule matches nothing");
        }
        *seen_v4 |= address.is_ipv4();
        *seen_v6 |= address.is_ipv6();
        if *seen_v4 && *seen_v6 {
            net.bad("networks of one family in a rule");
        }
        let family = if address.is_ipv4() { 4 } else { 6 };
        if version.is_some_and(|version| version != family) {
            net.bad("a network of the rule's ipVersion");
        }
    }
}

fn check_http(http: &At<'_>) {
    http.list_has_each_once("methods", "each method once");
    for path in http.list("paths") {
        let text = |name: &str| path.get(name).map_or("", |field| field.text());
        let (exact, prefix) = (text("exact"), text("prefix"));
        if exact.is_empty() == prefix.is_empty() {
            path.bad("either exact or prefix");
            continue;
        }
        let given = if exact.is_empty() { prefix } else { exact };
        if !given.starts_with('/') || given.contains(['?', ' ', '#']) {
            path.bad("a path that starts with / and contains neither ?, # nor blanks");
        }
    }
}
