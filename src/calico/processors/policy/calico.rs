//! Calico's own policies, staged ones too.

use super::super::body;
use super::super::rules::{self, NAMESPACE_LABEL, NAMESPACE_PREFIX, SERVICE_ACCOUNT_LABEL, SERVICE_ACCOUNT_PREFIX};
use super::super::simple::{Convert, Converted};
use super::{STAGED_DELETE, converted};
use crate::calico::v1::policy::Policy;
use crate::calico::v3::policy::PolicySpec;
use crate::calico::{keys, resource};
use crate::datastore::{Dialect, Kind, Object, ObjectId};
use crate::model::Key;
use crate::syncer::processor::ConvertError;

/// Tier of policies that name none.
const DEFAULT_TIER: &str = "default";

/// Converts (Staged)GlobalNetworkPolicy and (Staged)NetworkPolicy.
#[derive(Debug)]
pub(super) struct CalicoPolicies {
    kind: String,
    namespaced: bool,
    staged: bool,
}

impl CalicoPolicies {
    pub(super) fn new(kind: &Kind) -> Self {
        Self { kind: kind.name.to_string(), namespaced: kind.namespaced, staged: kind.name.starts_with("Staged") }
    }
}

impl Convert for CalicoPolicies {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::policy(&self.kind, id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let (metadata, spec) = body::<PolicySpec>(object)?;
        if let Some(metadata) = metadata.filter(|_| object.dialect == Dialect::Etcd) {
            resource::check_metadata_annotation(&metadata)?;
        }
        if self.staged && spec.staged_action == STAGED_DELETE {
            return Ok(None);
        }
        let staged = self.staged.then(|| spec.staged_action.clone());
        let mut policy = if self.namespaced { namespaced(spec, &object.id.namespace) } else { global(spec) };
        policy.staged_action = staged.filter(|action| !action.is_empty());
        Ok(Some(converted(policy, &[])))
    }
}

/// The fields that global and namespaced policies share.
fn common(spec: PolicySpec, namespace: &str, selector: String) -> Policy {
    Policy {
        namespace: namespace.to_owned(),
        tier: if spec.tier.is_empty() { DEFAULT_TIER.to_owned() } else { spec.tier },
        order: spec.order,
        inbound_rules: rules::all_to_v1(spec.ingress, namespace),
        outbound_rules: rules::all_to_v1(spec.egress, namespace),
        selector,
        types: spec.types.iter().map(|direction| direction.to_lowercase()).collect(),
        performance_hints: spec.performance_hints,
        ..Policy::default()
    }
}

/// A policy over all namespaces and host endpoints.
pub(super) fn global(mut spec: PolicySpec) -> Policy {
    let mut selector = std::mem::take(&mut spec.selector);
    for (part, prefix, label) in [
        (&spec.namespace_selector, NAMESPACE_PREFIX, NAMESPACE_LABEL),
        (&spec.service_account_selector, SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNT_LABEL),
    ] {
        if !part.is_empty() {
            // In the whole text, the endpoints' selector included, as in Calico: `all()` then means any value of the
            // label.
            selector = and(selector, &rules::prefixed(part, prefix)).replace("all()", &format!("has({label})"));
        }
    }
    let (untracked, pre_dnat, apply_on_forward) = (spec.do_not_track, spec.pre_dnat, spec.apply_on_forward);
    Policy { untracked, pre_dnat, apply_on_forward, ..common(spec, "", selector) }
}

/// A policy over one namespace.
pub(super) fn namespaced(mut spec: PolicySpec, namespace: &str) -> Policy {
    let selector = and(std::mem::take(&mut spec.selector), &rules::in_namespace(namespace));
    let accounts = if spec.service_account_selector.is_empty() {
        String::new()
    } else {
        rules::prefixed(&spec.service_account_selector, SERVICE_ACCOUNT_PREFIX)
    };
    common(spec, namespace, and(selector, &accounts))
}

/// Narrows a selector; an empty side selects everything.
fn and(selector: String, part: &str) -> String {
    match (selector.is_empty(), part.is_empty()) {
        (_, true) => selector,
        (true, false) => part.to_owned(),
        (false, false) => format!("({selector}) && {part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds;

    /// As in the answers of all Typhas from 3.29.7 on; 3.26 to 3.28 do not read the annotation.
    #[test]
    fn a_policy_in_etcd_whose_annotation_cannot_be_read_is_none() {
        let policy = |annotation: &str| {
            let annotation = serde_json::Value::from(annotation);
            let id = ObjectId { namespace: "".into(), name: "default.a".into() };
            let metadata =
                format!(r#"{{"name":"default.a","annotations":{{"projectcalico.org/metadata":{annotation}}}}}"#);
            let body = format!(r#"{{"metadata":{metadata},"spec":{{"selector":"all()"}}}}"#).into();
            let object = Object { id, revision: "5".into(), dialect: Dialect::Etcd, body, place: None };
            CalicoPolicies::new(&kinds::GLOBAL_NETWORK_POLICY).value(&object)
        };
        assert!(policy("").is_ok_and(|value| value.is_some()));
        assert!(policy(r#"{"name":"a"}"#).is_ok_and(|value| value.is_some()));
        let error = policy("{bad").unwrap_err().to_string();
        assert!(error.contains("projectcalico.org/metadata"), "{error}");
    }
}
