//! From the rules that users write to the rules that agents read, for policies and profiles.

use crate::calico::net::parse_net;
use crate::calico::selector::Selector;
use crate::calico::v1::policy::{Net, Rule, RuleMetadata};
use crate::calico::v3::rule::{EntityRule, Rule as V3Rule, ServiceAccountMatch};

/// Prefix of namespace labels on endpoints.
pub(super) const NAMESPACE_PREFIX: &str = "pcns.";
/// Prefix of service account labels on endpoints.
pub(super) const SERVICE_ACCOUNT_PREFIX: &str = "pcsa.";
/// An endpoint's label that holds its namespace.
pub(super) const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";
/// An endpoint's label that holds its service account.
pub(super) const SERVICE_ACCOUNT_LABEL: &str = "projectcalico.org/serviceaccount";

/// Converts rules. `namespace` is the policy's; empty for global policies and profiles.
#[must_use]
pub fn all_to_v1(rules: Vec<V3Rule>, namespace: &str) -> Vec<Rule> {
    rules.into_iter().map(|rule| to_v1(rule, namespace)).collect()
}

/// Converts one rule; see [`all_to_v1`].
#[must_use]
pub fn to_v1(rule: V3Rule, namespace: &str) -> Rule {
    let V3Rule { action, ip_version, protocol, icmp, not_protocol, not_icmp, source, destination, http, metadata } =
        rule;
    let icmp = icmp.unwrap_or_default();
    let not_icmp = not_icmp.unwrap_or_default();
    let src_nets = source_nets(&source.nets);
    let not_src_nets = source_nets(&source.not_nets);
    let dst_nets = destination_nets(&destination.nets);
    let not_dst_nets = destination_nets(&destination.not_nets);
    let source = Side::new(source, namespace);
    let destination = Side::new(destination, namespace);
    Rule {
        action: if action == "Pass" { "next-tier".to_owned() } else { action.to_lowercase() },
        ip_version,
        protocol: protocol.map(|protocol| protocol.to_v1()),
        not_protocol: not_protocol.map(|protocol| protocol.to_v1()),
        icmp_type: icmp.icmp_type,
        icmp_code: icmp.code,
        not_icmp_type: not_icmp.icmp_type,
        not_icmp_code: not_icmp.code,
        src_nets,
        src_selector: source.selector,
        src_ports: source.entity.ports,
        src_service: source.service.0,
        src_service_ns: source.service.1,
        dst_selector: destination.selector,
        dst_nets,
        dst_ports: destination.entity.ports,
        dst_service: destination.service.0,
        dst_service_ns: destination.service.1,
        not_src_nets,
        not_src_selector: source.entity.not_selector.clone(),
        not_src_ports: source.entity.not_ports,
        not_dst_selector: destination.entity.not_selector.clone(),
        not_dst_nets,
        not_dst_ports: destination.entity.not_ports,
        orig_src_selector: source.entity.selector,
        orig_src_namespace_selector: source.entity.namespace_selector,
        orig_dst_selector: destination.entity.selector,
        orig_dst_namespace_selector: destination.entity.namespace_selector,
        not_orig_src_selector: source.entity.not_selector,
        not_orig_dst_selector: destination.entity.not_selector,
        orig_src_service_acct_names: source.accounts.names,
        orig_src_service_acct_selector: source.accounts.selector,
        orig_dst_service_acct_names: destination.accounts.names,
        orig_dst_service_acct_selector: destination.accounts.selector,
        http,
        metadata: metadata.and_then(|metadata| metadata.annotations).map(|annotations| RuleMetadata { annotations }),
    }
}

/// One side of a rule, with the values combined from several fields.
struct Side {
    entity: EntityRule,
    selector: String,
    accounts: ServiceAccountMatch,
    /// Name and namespace.
    service: (String, String),
}

impl Side {
    fn new(mut entity: EntityRule, namespace: &str) -> Self {
        let accounts = entity.service_accounts.take().unwrap_or_default();
        let service = entity.services.take().unwrap_or_default();
        let selector = selector(&entity, &accounts, namespace);
        Self { entity, selector, accounts, service: (service.name, service.namespace) }
    }
}

fn selector(entity: &EntityRule, accounts: &ServiceAccountMatch, namespace: &str) -> String {
    let accounts = account_selector(accounts);
    let endpoints = match (accounts.is_empty(), entity.selector.is_empty()) {
        (false, false) => format!("({accounts}) && ({})", entity.selector),
        (false, true) => accounts,
        (true, _) => entity.selector.clone(),
    };
    let namespaces = if !entity.namespace_selector.is_empty() {
        prefixed(&entity.namespace_selector, NAMESPACE_PREFIX)
            .replace("all()", &format!("has({NAMESPACE_LABEL})"))
            .replace("global()", &format!("!has({NAMESPACE_LABEL})"))
    } else if !namespace.is_empty() {
        in_namespace(namespace)
    } else {
        String::new()
    };
    let selects = !endpoints.is_empty() || !entity.not_selector.is_empty() || !entity.namespace_selector.is_empty();
    match (!namespaces.is_empty() && selects, endpoints.is_empty()) {
        (true, true) => namespaces,
        (true, false) => format!("({namespaces}) && ({endpoints})"),
        (false, _) => endpoints,
    }
}

/// Selects endpoints of one namespace.
pub(super) fn in_namespace(namespace: &str) -> String {
    format!("{NAMESPACE_LABEL} == '{namespace}'")
}

/// The selector over labels with the prefix; empty when it cannot be read.
pub(super) fn prefixed(selector: &str, prefix: &str) -> String {
    Selector::parse(selector).map(|selector| selector.with_prefix(prefix).to_string()).unwrap_or_default()
}

fn account_selector(accounts: &ServiceAccountMatch) -> String {
    let by_label =
        if accounts.selector.is_empty() { String::new() } else { prefixed(&accounts.selector, SERVICE_ACCOUNT_PREFIX) };
    if accounts.names.is_empty() {
        return by_label;
    }
    let names = format!("{SERVICE_ACCOUNT_LABEL} in {{ '{}' }}", accounts.names.join("', '"));
    match Selector::parse(&names) {
        // For a name with a quote, Calico drops the whole condition.
        Err(_) => String::new(),
        Ok(names) if by_label.is_empty() => names.to_string(),
        Ok(names) => format!("({by_label}) && ({names})"),
    }
}

fn source_nets(texts: &[String]) -> Vec<Net> {
    texts.iter().filter_map(|text| Net::read(text)).collect()
}

fn destination_nets(texts: &[String]) -> Vec<Net> {
    texts.iter().filter_map(|text| parse_net(text).map(Net::Net)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_selector(json: &str, namespace: &str) -> String {
        let source = serde_json::from_str(json).unwrap();
        to_v1(V3Rule { source, ..V3Rule::default() }, namespace).src_selector
    }

    #[test]
    fn selectors_are_put_together() {
        for (json, namespace, expected) in [
            ("{}", "", ""),
            ("{}", "ns", ""),
            (r#"{"selector":"a"}"#, "", "a"),
            (r#"{"selector":"a"}"#, "ns", "(projectcalico.org/namespace == 'ns') && (a)"),
            (r#"{"notSelector":"a"}"#, "ns", "projectcalico.org/namespace == 'ns'"),
            (r#"{"notSelector":"a"}"#, "", ""),
            (r#"{"namespaceSelector":"has(a)"}"#, "ns", "has(pcns.a)"),
            (r#"{"namespaceSelector":"a =","selector":"b"}"#, "ns", "b"),
            (
                r#"{"namespaceSelector":"global()","selector":"all()"}"#,
                "",
                "(!has(projectcalico.org/namespace)) && (all())",
            ),
            (r#"{"serviceAccounts":{"selector":"has(a)"}}"#, "", "has(pcsa.a)"),
            (
                r#"{"serviceAccounts":{"names":["b","a"]},"selector":"s"}"#,
                "",
                "(projectcalico.org/serviceaccount in {\"a\", \"b\"}) && (s)",
            ),
            (r#"{"serviceAccounts":{"names":["b","a'"]},"selector":"s"}"#, "", "s"),
        ] {
            assert_eq!(source_selector(json, namespace), expected, "{json} in {namespace:?}");
        }
    }
}
