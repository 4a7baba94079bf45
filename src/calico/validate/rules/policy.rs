//! Rules for policies and the rules of profiles.

use std::ops::RangeInclusive;

use crate::calico::numorstring::{Port, Protocol};
use crate::calico::selector::Selector;
use crate::calico::v1::policy::{Policy, ProfileRules, Rule};
use crate::calico::validate::resource::formats;
use crate::model::finding::{BAD_VALUE, Findings, REPEATED, Validate};

/// The only hint.
const PERFORMANCE_HINT: &str = "AssumeNeededOnEveryNode";
/// Names of protocols, as v1 values spell them.
const PROTOCOLS: [&str; 6] = ["tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"];
/// Largest ICMP type; agents use 255 for "any".
const MAX_ICMP_TYPE: i64 = 254;
const MAX_ICMP_CODE: i64 = 255;

impl Validate for Policy {
    fn validate(&self) -> Findings {
        let mut findings = Findings::none();
        check_selector("selector", &self.selector, &mut findings);
        for (index, hint) in self.performance_hints.iter().enumerate() {
            if hint != PERFORMANCE_HINT || self.performance_hints[..index].contains(hint) {
                findings.error(REPEATED, "performance_hints", hint, "AssumeNeededOnEveryNode, once");
            }
        }
        check_rules("inbound_rules", &self.inbound_rules, &mut findings);
        check_rules("outbound_rules", &self.outbound_rules, &mut findings);
        findings
    }
}

impl Validate for ProfileRules {
    fn validate(&self) -> Findings {
        let mut findings = Findings::none();
        check_rules("inbound_rules", &self.inbound_rules, &mut findings);
        check_rules("outbound_rules", &self.outbound_rules, &mut findings);
        findings
    }
}

fn check_rules(field: &str, rules: &[Rule], findings: &mut Findings) {
    for (index, rule) in rules.iter().enumerate() {
        findings.within(&format!("{field}[{index}]"), |findings| check_rule(rule, findings));
    }
}

fn check_rule(rule: &Rule, findings: &mut Findings) {
    let mut number = |field: &str, number: Option<i64>, accepted: RangeInclusive<i64>, expected: &str| {
        if let Some(number) = number.filter(|number| !accepted.contains(number)) {
            findings.error(BAD_VALUE, field, &number.to_string(), expected);
        }
    };
    number("icmp_type", rule.icmp_type, 0..=MAX_ICMP_TYPE, "0 to 254");
    number("icmp_code", rule.icmp_code, 0..=MAX_ICMP_CODE, "0 to 255");
    number("!icmp_type", rule.not_icmp_type, 0..=MAX_ICMP_TYPE, "0 to 254");
    number("!icmp_code", rule.not_icmp_code, 0..=MAX_ICMP_CODE, "0 to 255");
    if let Some(version) = rule.ip_version.filter(|version| !matches!(version, 4 | 6)) {
        findings.error(BAD_VALUE, "ip_version", &version.to_string(), "4 or 6");
    }
    check_protocol("protocol", rule.protocol.as_ref(), findings);
    check_protocol("!protocol", rule.not_protocol.as_ref(), findings);
    for (field, ports) in [
        ("src_ports", &rule.src_ports),
        ("dst_ports", &rule.dst_ports),
        ("!src_ports", &rule.not_src_ports),
        ("!dst_ports", &rule.not_dst_ports),
    ] {
        check_ports(field, ports, rule.protocol.as_ref(), findings);
    }
    for (field, selector) in [
        ("src_selector", &rule.src_selector),
        ("dst_selector", &rule.dst_selector),
        ("!src_selector", &rule.not_src_selector),
        ("!dst_selector", &rule.not_dst_selector),
        ("orig_src_selector", &rule.orig_src_selector),
        ("orig_src_namespace_selector", &rule.orig_src_namespace_selector),
        ("orig_dst_selector", &rule.orig_dst_selector),
        ("orig_dst_namespace_selector", &rule.orig_dst_namespace_selector),
        ("!orig_src_selector", &rule.not_orig_src_selector),
        ("!orig_dst_selector", &rule.not_orig_dst_selector),
        ("orig_src_service_acct_selector", &rule.orig_src_service_acct_selector),
        ("orig_dst_service_acct_selector", &rule.orig_dst_service_acct_selector),
    ] {
        check_selector(field, selector, findings);
    }
}

fn check_selector(field: &str, selector: &str, findings: &mut Findings) {
    if !selector.is_empty()
        && let Err(error) = Selector::parse(selector)
    {
        findings.error(BAD_VALUE, field, selector, error.to_string());
    }
}

fn check_protocol(field: &str, protocol: Option<&Protocol>, findings: &mut Findings) {
    match protocol {
        Some(Protocol::Number(0)) => findings.error(BAD_VALUE, field, "0", "1 to 255"),
        Some(Protocol::Name(name)) if !PROTOCOLS.contains(&name.as_str()) => {
            findings.error(BAD_VALUE, field, name, "1 to 255, TCP, UDP, ICMP, ICMPv6, SCTP or UDPLite");
        }
        _ => {}
    }
}

/// Whether a protocol has ports.
fn has_ports(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Number(number) => matches!(number, 6 | 17 | 132),
        Protocol::Name(name) => matches!(name.as_str(), "tcp" | "udp" | "sctp"),
    }
}

fn check_ports(field: &str, ports: &[Port], protocol: Option<&Protocol>, findings: &mut Findings) {
    for port in ports {
        let named = matches!(port, Port::Named(_));
        if !protocol.map_or(named, has_ports) {
            findings.error(BAD_VALUE, field, &port.to_string(), "ports only with protocol TCP, UDP or SCTP");
        }
        match port {
            Port::Numeric(first, last) if *first == 0 || first > last => {
                findings.error(BAD_VALUE, field, &port.to_string(), "1 to 65535, ranges from low to high");
            }
            Port::Named(name) if !formats::is_port_name(name) => {
                findings.error(BAD_VALUE, field, name, formats::A_PORT_NAME);
            }
            Port::Numeric(..) | Port::Named(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> Protocol {
        Protocol::Name("tcp".to_owned())
    }

    #[test]
    fn rules_are_checked() {
        let base = Rule { action: "allow".to_owned(), ..Rule::default() };
        for (rule, field) in [
            (base.clone(), None),
            (Rule { ip_version: Some(5), ..base.clone() }, Some("ip_version")),
            (Rule { icmp_type: Some(254), icmp_code: Some(255), ..base.clone() }, None),
            (Rule { icmp_type: Some(255), ..base.clone() }, Some("icmp_type")),
            (Rule { not_icmp_code: Some(-1), ..base.clone() }, Some("!icmp_code")),
            (Rule { not_protocol: Some(Protocol::Number(0)), ..base.clone() }, Some("!protocol")),
            (Rule { protocol: Some(Protocol::Name("foo".to_owned())), ..base.clone() }, Some("protocol")),
            (Rule { dst_ports: vec![Port::single(80)], ..base.clone() }, Some("dst_ports")),
            (Rule { dst_ports: vec![Port::Named("x".to_owned())], ..base.clone() }, None),
            (Rule { dst_ports: vec![Port::Named("HTTP_ALT".to_owned())], ..base.clone() }, Some("dst_ports")),
            (Rule { not_src_ports: vec![Port::Named("80".to_owned())], ..base.clone() }, Some("!src_ports")),
            (Rule { not_src_ports: vec![Port::single(80)], protocol: Some(tcp()), ..base.clone() }, None),
            (Rule { src_ports: vec![Port::single(0)], protocol: Some(tcp()), ..base.clone() }, Some("src_ports")),
            (Rule { src_ports: vec![Port::Numeric(2, 1)], protocol: Some(tcp()), ..base.clone() }, Some("src_ports")),
            (
                Rule {
                    dst_ports: vec![Port::Named("x".to_owned())],
                    protocol: Some(Protocol::Number(1)),
                    ..base.clone()
                },
                Some("dst_ports"),
            ),
            (
                Rule { orig_dst_service_acct_selector: "a ==".to_owned(), ..base.clone() },
                Some("orig_dst_service_acct_selector"),
            ),
            (Rule { action: "explode".to_owned(), ..base }, None),
        ] {
            let policy = Policy { inbound_rules: vec![rule], ..Policy::default() };
            let expected = field.map(|field| format!("inbound_rules[0].{field}"));
            let findings = policy.validate();
            assert_eq!(findings.as_slice().first().map(|finding| finding.path.clone()), expected, "{policy:?}");
        }
    }

    #[test]
    fn hints_may_not_repeat() {
        let hints = |hints: &[&str]| Policy {
            performance_hints: hints.iter().map(ToString::to_string).collect(),
            ..Policy::default()
        };
        assert!(hints(&[PERFORMANCE_HINT]).validate().are_harmless());
        assert!(!hints(&[PERFORMANCE_HINT, PERFORMANCE_HINT]).validate().are_harmless());
        assert!(!hints(&["Other"]).validate().are_harmless());
    }
}
