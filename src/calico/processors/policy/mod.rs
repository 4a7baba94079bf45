//! Policies of all kinds. Kinds differ in the source of endpoints' namespaces and in the form of rules; all become one
//! type, [`crate::calico::v1::policy::Policy`].

use std::sync::Arc;

use super::Context;
use super::simple::{Converted, Simple};
use crate::calico::v1::policy::Policy;
use crate::calico::v3::rule::Rule;
use crate::datastore::Kind;
use crate::model::{Value, gojson, no_revision};
use crate::syncer::processor::{ConvertError, Processor};

mod admin;
mod calico;
mod cluster;
mod kubernetes;
mod kubernetes_types;
mod labels;
mod ports;

/// The directions for which a policy has rules.
fn directions(ingress: &[Rule], egress: &[Rule]) -> Vec<String> {
    let all = [("Ingress", ingress), ("Egress", egress)];
    all.into_iter().filter(|(_, rules)| !rules.is_empty()).map(|(direction, _)| direction.to_owned()).collect()
}

/// The staged action that means: do not send the policy.
const STAGED_DELETE: &str = "Delete";

/// The processor of a Calico policy kind: (Staged)GlobalNetworkPolicy, (Staged)NetworkPolicy,
/// StagedKubernetesNetworkPolicy.
#[must_use]
pub fn calico(kind: &Kind, _context: &Context) -> Box<dyn Processor> {
    if kind.name == "StagedKubernetesNetworkPolicy" {
        Box::new(Simple(kubernetes::KubernetesPolicies::STAGED))
    } else {
        Box::new(Simple(calico::CalicoPolicies::new(kind)))
    }
}

/// The processor of Kubernetes' NetworkPolicy.
#[must_use]
pub fn kubernetes(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(kubernetes::KubernetesPolicies::NATIVE))
}

/// The processor of Kubernetes' ClusterNetworkPolicy.
#[must_use]
pub fn cluster(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(cluster::ClusterPolicies))
}

/// The processor of Kubernetes' AdminNetworkPolicy.
#[must_use]
pub fn admin(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(admin::AdminPolicies::ADMIN))
}

/// The processor of Kubernetes' BaselineAdminNetworkPolicy.
#[must_use]
pub fn baseline_admin(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(admin::AdminPolicies::BASELINE))
}

/// A policy, and the reasons for rules left out of it.
fn converted(policy: Policy, left_out: &[String]) -> Converted {
    let left_out = (!left_out.is_empty()).then(|| ConvertError { reason: left_out.join("; ") });
    let bytes = gojson::to_bytes(&policy);
    Converted { value: Value::checked(bytes, Arc::new(policy)), v3_resource_version: no_revision(), left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds;
    use crate::calico::processors::vectors_tests::{run, source};
    use crate::datastore::{Dialect, Object, ObjectId};
    use crate::syncer::processor::ObjectEvent;
    use crate::syncer::spec::Source;

    #[test]
    fn vectors_of_policies() {
        let sources = |context: &Context| {
            let calico = [
                kinds::GLOBAL_NETWORK_POLICY,
                kinds::STAGED_GLOBAL_NETWORK_POLICY,
                kinds::NETWORK_POLICY,
                kinds::STAGED_NETWORK_POLICY,
                kinds::STAGED_KUBERNETES_NETWORK_POLICY,
            ];
            let mut sources: Vec<Source> =
                calico.into_iter().map(|kind| source([kind.clone()], super::calico(&kind, context))).collect();
            sources.push(source([kinds::K8S_NETWORK_POLICY], kubernetes(context)));
            sources.push(source([kinds::K8S_CLUSTER_NETWORK_POLICY], cluster(context)));
            sources
        };
        let owns = |key: &str| {
            key.starts_with("/calico/v1/policy/")
                && !key.starts_with("/calico/v1/policy/profile/")
                && !key.ends_with("/metadata")
        };
        run("felix", sources, owns, 33);
    }

    fn convert(mut processor: Box<dyn Processor>, dialect: Dialect, body: &str) -> (Option<String>, Option<String>) {
        let object = Object {
            id: ObjectId { namespace: "ns".into(), name: "p".into() },
            revision: "7".into(),
            dialect,
            body: body.to_owned().into(),
            place: None,
        };
        let mut pairs = Vec::new();
        let error = processor.process(ObjectEvent::Put(&object), &mut pairs).err().map(|error| error.reason);
        let [pair] = pairs.as_slice() else { panic!("one pair, not {pairs:?}") };
        let text = |value: &Value| String::from_utf8(value.bytes.to_vec()).unwrap();
        (pair.value.as_ref().map(text), error)
    }

    /// As in v3.31.7's answers.
    #[test]
    fn admin_policies_are_for_the_releases_that_read_them() {
        let body = r#"{"metadata":{"name":"p"},"spec":{
            "priority":30,
            "subject":{"namespaces":{"matchLabels":{"team":"a"}}},
            "ingress":[
                {"name":"first","action":"Allow","from":[{"namespaces":{}},{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"b":"c"}}}}],
                 "ports":[{"portNumber":{"protocol":"UDP","port":53}},{"portNumber":{"port":80}},{"portRange":{"start":81,"end":90}}]},
                {"action":"Pass","from":[{"namespaces":{}}],"ports":[{"namedPort":"http"}]}],
            "egress":[{"action":"Deny","to":[{"networks":["10.1.2.3/8"]}]}]}}"#;
        let (value, error) = convert(admin(&Context::default()), Dialect::Kubernetes, body);
        assert_eq!(error, None);
        insta::assert_snapshot!(value.unwrap());
        let (value, error) = convert(baseline_admin(&Context::default()), Dialect::Kubernetes, body);
        assert_eq!(value, None);
        assert!(error.unwrap().contains(r#"spec.ingress[1]: action "Pass" is none of Allow, Deny"#));
        let nodes = r#"{"spec":{"subject":{"namespaces":{}},"egress":[{"action":"Deny","to":[{"nodes":{}}]}]}}"#;
        let (value, error) = convert(admin(&Context::default()), Dialect::Kubernetes, nodes);
        assert_eq!(value, None);
        assert!(error.unwrap().contains("the whole policy is withheld"));
    }

    #[test]
    fn unreadable_objects_blank_their_keys() {
        let context = Context::default();
        for (dialect, body, part) in [
            (Dialect::Etcd, "[]", "invalid type"),
            (Dialect::Etcd, r#"{"spec":{"order":"high"}}"#, "invalid type"),
            (Dialect::Etcd, r#"{"spec":{"ingress":[{"source":{"ports":["9:1"]}}]}}"#, "9:1"),
            (Dialect::V3, r#"{"metadata":{"labels":{"a":1}}}"#, "metadata: labels.a"),
            (Dialect::CrdV1, r#"{"metadata":{"uid":"none"}}"#, "not a UUID"),
            (
                Dialect::CrdV1,
                r#"{"metadata":{"annotations":{"projectcalico.org/metadata":"{bad"}}}"#,
                "metadata.annotations",
            ),
        ] {
            let (value, error) = convert(calico(&kinds::NETWORK_POLICY, &context), dialect, body);
            assert_eq!(value, None, "{body}");
            assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{body}: {error:?}");
        }
    }

    #[test]
    fn a_policy_of_kubernetes_has_a_uuid_or_no_uid() {
        let context = Context::default();
        for (uid, expected) in [("", true), ("30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6a", true), ("none", false)] {
            let body = format!(
                r#"{{"metadata":{{"name":"p","uid":"{uid}"}},"spec":{{"podSelector":{{}},"tier":"Admin","priority":1,"subject":{{"namespaces":{{}}}}}}}}"#
            );
            for (processor, dialect) in [
                (kubernetes(&context), Dialect::V3),
                (cluster(&context), Dialect::V3),
                (calico(&kinds::STAGED_KUBERNETES_NETWORK_POLICY, &context), Dialect::Etcd),
            ] {
                let (value, error) = convert(processor, dialect, &body);
                assert_eq!((value.is_some(), error.is_none()), (expected, expected), "{uid} {error:?}");
                assert!(expected || error.unwrap().contains("metadata.uid"));
            }
        }
    }

    #[test]
    fn a_rule_of_kubernetes_that_cannot_be_converted_never_widens_the_policy() {
        let context = Context::default();
        let body = r#"{"spec":{"podSelector":{},"ingress":[
            {"from":[{"ipBlock":{"cidr":"10.0.0.0/33"}}]},
            {"ports":[{"port":90,"endPort":80}]},
            {"from":[{"ipBlock":{"cidr":"10.1.2.3/8","except":["10.1.2.3/16"]}}],"ports":[{"protocol":"UDP"}]}]}}"#;
        let (value, error) = convert(kubernetes(&context), Dialect::Kubernetes, body);
        let value = value.unwrap();
        assert!(
            value.contains(concat!(
                r#""inbound_rules":[{"action":"allow","protocol":"udp","src_nets":["10.0.0.0/8"],"#,
                r#""!src_nets":["10.1.0.0/16"]}],"#
            )),
            "{value}"
        );
        let error = error.unwrap();
        assert!(error.contains("spec.ingress[0]") && error.contains("spec.ingress[1]"), "{error}");

        let body = r#"{"spec":{"tier":"Admin","subject":{"pods":{}},"egress":[
            {"action":"Deny","to":[{}]},
            {"action":"Accept","to":[{"networks":["10.0.0.0/33"]}]},
            {"action":"Pass","to":[{"namespaces":{}}],"protocols":[{"tcp":{}},{"tcp":{"destinationPort":{"number":1}}}]}]}}"#;
        let (value, error) = convert(cluster(&context), Dialect::Kubernetes, body);
        let value = value.unwrap();
        assert!(
            value.contains(concat!(
                r#""outbound_rules":[{"action":"deny"},{"action":"next-tier","protocol":"tcp","#,
                r#""dst_selector":"has(projectcalico.org/namespace)","orig_dst_namespace_selector":"all()"}],"#
            )),
            "{value}"
        );
        assert!(error.is_some_and(|error| error.contains("denies everything") && error.contains("left out")));
    }

    /// The outbound rules of a ClusterNetworkPolicy with this one rule, and the reported error.
    fn cluster_rule(rule: &str) -> (String, Option<String>) {
        let body = format!(r#"{{"spec":{{"tier":"Admin","subject":{{"pods":{{}}}},"egress":[{rule}]}}}}"#);
        let (value, error) = convert(cluster(&Context::default()), Dialect::Kubernetes, &body);
        let value: serde_json::Value = serde_json::from_str(&value.unwrap()).unwrap();
        let mut rules = value["outbound_rules"].clone();
        for rule in rules.as_array_mut().into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
            rule.retain(|field, _| ["action", "protocol", "dst_ports", "dst_nets"].contains(&field.as_str()));
        }
        (if rules.is_null() { String::new() } else { rules.to_string() }, error)
    }

    #[test]
    fn edges_of_rules_of_cluster_network_policies() {
        for (rule, expected, reported) in [
            (r#"{"action":"Allow","to":[{"namespaces":{}}]}"#, "", true),
            (r#"{"action":"Deny","to":[]}"#, "", false),
            (r#"{"action":"Pass"}"#, "", false),
            (r#"{"action":"Deny","to":[{}]}"#, r#"[{"action":"deny"}]"#, true),
            (
                r#"{"action":"Accept","to":[{"namespaces":{}}],"protocols":[{"tcp":{}},{}]}"#,
                r#"[{"action":"allow"}]"#,
                false,
            ),
            (
                r#"{"action":"Accept","to":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{}}}]}"#,
                r#"[{"action":"allow","protocol":"tcp"}]"#,
                false,
            ),
            (
                r#"{"action":"Deny","to":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{"number":0}}}]}"#,
                r#"[{"action":"deny","protocol":"tcp"}]"#,
                false,
            ),
            (
                r#"{"action":"Deny","to":[{"namespaces":{}}],"protocols":[{"udp":{"destinationPort":{"number":53,"range":{"start":1,"end":2}}}}]}"#,
                r#"[{"action":"deny","dst_ports":[53],"protocol":"udp"}]"#,
                false,
            ),
            (
                r#"{"action":"Accept","to":[{"namespaces":{}}],"protocols":[{"udp":{"destinationPort":{"range":{"start":2,"end":1}}}}]}"#,
                "",
                true,
            ),
            (
                r#"{"action":"Accept","to":[{"namespaces":{}}],"protocols":[{"destinationNamedPort":"80"}]}"#,
                r#"[{"action":"allow","dst_ports":["80"]}]"#,
                false,
            ),
            (
                r#"{"action":"Accept","to":[{"namespaces":{},"networks":["10.1.2.3/8"]}]}"#,
                r#"[{"action":"allow","dst_nets":["10.0.0.0/8"]}]"#,
                false,
            ),
        ] {
            let (rules, error) = cluster_rule(rule);
            assert_eq!((rules.as_str(), error.is_some()), (expected, reported), "{rule}: {error:?}");
        }
    }

    #[test]
    fn a_protocol_is_one_rule_however_it_is_spelt() {
        let body = r#"{"spec":{"podSelector":{},"ingress":[
            {"ports":[{"protocol":"tcp","port":80},{"protocol":"TCP","port":443}]}]}}"#;
        let (value, _) = convert(kubernetes(&Context::default()), Dialect::Kubernetes, body);
        let value = value.unwrap();
        assert!(
            value.contains(r#""inbound_rules":[{"action":"allow","protocol":"tcp","dst_ports":[80,443]}]"#),
            "{value}"
        );
    }

    #[test]
    fn a_staged_policy_with_malformed_ports_is_not_sent() {
        let context = Context::default();
        let ports = r#"{"spec":{"podSelector":{},"ingress":[
            {"ports":[{"port":"not valid!"}]},{"ports":[{"port":80}]}]}}"#;
        let peer = r#"{"spec":{"podSelector":{},"ingress":[
            {"from":[{"ipBlock":{"cidr":"10.0.0.0/33"}}]},{"ports":[{"port":80}]}]}}"#;
        for (body, is_sent) in [(ports, false), (peer, true)] {
            let (value, error) = convert(calico(&kinds::STAGED_KUBERNETES_NETWORK_POLICY, &context), Dialect::V3, body);
            assert_eq!(value.is_some(), is_sent, "{body}");
            assert!(error.is_some_and(|error| error.contains("spec.ingress[0]")), "{body}");
            assert!(convert(kubernetes(&context), Dialect::Kubernetes, body).0.is_some(), "{body}");
        }
    }

    #[test]
    fn a_policy_that_is_staged_for_deletion_is_not_sent() {
        let context = Context::default();
        let body = r#"{"spec":{"stagedAction":"Delete","selector":"all()"}}"#;
        for kind in [kinds::STAGED_NETWORK_POLICY, kinds::STAGED_KUBERNETES_NETWORK_POLICY] {
            assert_eq!(convert(calico(&kind, &context), Dialect::V3, body), (None, None));
        }
        assert!(convert(calico(&kinds::NETWORK_POLICY, &context), Dialect::V3, body).0.is_some());
    }
}
