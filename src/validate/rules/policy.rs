//! Rules for policies and the rules of profiles.

use crate::model::numorstring::{Port, Protocol};
use crate::model::selector::Selector;
use crate::model::v1::policy::{Policy, ProfileRules, Rule};
use crate::validate::resource::formats;
use crate::validate::{Invalid, Validate, invalid};

/// The one hint there is.
const PERFORMANCE_HINT: &str = "AssumeNeededOnEveryNode";
/// Names of protocols, as v1 values spell them.
const PROTOCOLS: [&str; 6] = ["tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"];
/// Largest ICMP type; 255 is what agents keep for "any".
const MAX_ICMP_TYPE: i64 = 254;
const MAX_ICMP_CODE: i64 = 255;

/// Checks a policy.
///
/// # Errors
/// The first rule of section "Policy" or "Rule" that it breaks.
pub fn check(policy: &Policy) -> Result<(), Invalid> {
    check_selector("selector", &policy.selector)?;
    for (index, hint) in policy.performance_hints.iter().enumerate() {
        if hint != PERFORMANCE_HINT || policy.performance_hints[..index].contains(hint) {
            return Err(invalid("performance_hints", hint, "AssumeNeededOnEveryNode, once"));
        }
    }
    check_rules("inbound_rules", &policy.inbound_rules)?;
    check_rules("outbound_rules", &policy.outbound_rules)
}

/// Checks the rules of a profile.
///
/// # Errors
/// The first rule that breaks a rule.
pub fn check_profile(rules: &ProfileRules) -> Result<(), Invalid> {
    check_rules("inbound_rules", &rules.inbound_rules)?;
    check_rules("outbound_rules", &rules.outbound_rules)
}

fn check_rules(field: &str, rules: &[Rule]) -> Result<(), Invalid> {
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule).map_err(|inner| Invalid { field: format!("{field}[{index}].{}", inner.field), ..inner })?;
    }
    Ok(())
}

fn check_rule(rule: &Rule) -> Result<(), Invalid> {
    check_range("ip_version", rule.ip_version, "4 or 6", |version| matches!(version, 4 | 6))?;
    let icmp_type = |number| (0..=MAX_ICMP_TYPE).contains(&number);
    let icmp_code = |number| (0..=MAX_ICMP_CODE).contains(&number);
    check_range("icmp_type", rule.icmp_type, "0 to 254", icmp_type)?;
    check_range("icmp_code", rule.icmp_code, "0 to 255", icmp_code)?;
    check_range("!icmp_type", rule.not_icmp_type, "0 to 254", icmp_type)?;
    check_range("!icmp_code", rule.not_icmp_code, "0 to 255", icmp_code)?;
    check_protocol("protocol", rule.protocol.as_ref())?;
    check_protocol("!protocol", rule.not_protocol.as_ref())?;
    for (field, ports) in [
        ("src_ports", &rule.src_ports),
        ("dst_ports", &rule.dst_ports),
        ("!src_ports", &rule.not_src_ports),
        ("!dst_ports", &rule.not_dst_ports),
    ] {
        check_ports(field, ports, rule.protocol.as_ref())?;
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
        check_selector(field, selector)?;
    }
    Ok(())
}

fn check_selector(field: &str, selector: &str) -> Result<(), Invalid> {
    if selector.is_empty() {
        return Ok(());
    }
    Selector::parse(selector).map(drop).map_err(|error| invalid(field, selector, error.to_string()))
}

fn check_range(
    field: &str,
    number: Option<i64>,
    expected: &str,
    accepts: impl FnOnce(i64) -> bool,
) -> Result<(), Invalid> {
    match number {
        Some(number) if !accepts(number) => Err(invalid(field, &number.to_string(), expected)),
        _ => Ok(()),
    }
}

fn check_protocol(field: &str, protocol: Option<&Protocol>) -> Result<(), Invalid> {
    match protocol {
        Some(Protocol::Number(0)) => Err(invalid(field, "0", "1 to 255")),
        Some(Protocol::Name(name)) if !PROTOCOLS.contains(&name.as_str()) => {
            Err(invalid(field, name, "1 to 255, TCP, UDP, ICMP, ICMPv6, SCTP or UDPLite"))
        }
        _ => Ok(()),
    }
}

/// Whether a protocol has ports.
fn has_ports(protocol: &Protocol) -> bool {
    match protocol {
        Protocol::Number(number) => matches!(number, 6 | 17 | 132),
        Protocol::Name(name) => matches!(name.as_str(), "tcp" | "udp" | "sctp"),
    }
}

fn check_ports(field: &str, ports: &[Port], protocol: Option<&Protocol>) -> Result<(), Invalid> {
    for port in ports {
        let named = matches!(port, Port::Named(_));
        if !protocol.map_or(named, has_ports) {
            return Err(invalid(field, &port.to_string(), "ports only with protocol TCP, UDP or SCTP"));
        }
        if let Port::Numeric(first, last) = port
            && (*first == 0 || first > last)
        {
            return Err(invalid(field, &port.to_string(), "1 to 65535, ranges from low to high"));
        }
        if let Port::Named(name) = port
            && !formats::is_port_name(name)
        {
            return Err(invalid(field, name, formats::A_PORT_NAME));
        }
    }
    Ok(())
}

impl Validate for Policy {
    fn validate(&self) -> Result<(), Invalid> {
        check(self)
    }
}

impl Validate for ProfileRules {
    fn validate(&self) -> Result<(), Invalid> {
        check_profile(self)
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
            assert_eq!(check(&policy).err().map(|invalid| invalid.field), expected, "{policy:?}");
        }
    }

    #[test]
    fn hints_may_not_repeat() {
        let hints = |hints: &[&str]| Policy {
            performance_hints: hints.iter().map(ToString::to_string).collect(),
            ..Policy::default()
        };
        assert!(check(&hints(&[PERFORMANCE_HINT])).is_ok());
        assert!(check(&hints(&[PERFORMANCE_HINT, PERFORMANCE_HINT])).is_err());
        assert!(check(&hints(&["Other"])).is_err());
    }
}
