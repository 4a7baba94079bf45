//! Policies of all kinds. What differs is where endpoints' namespaces come from and how rules are written; what comes
//! out is one shape, [`crate::model::v1::policy::Policy`].

use std::sync::Arc;

use super::simple::{Converted, Simple};
use super::{Context, ConvertError, Processor};
use crate::datastore::Kind;
use crate::model::v1::policy::Policy;
use crate::model::{Value, gojson, no_revision};

mod calico;
mod cluster;
mod kubernetes;
mod kubernetes_types;
mod labels;
mod ports;

/// The staged action that means: do not send the policy.
const STAGED_DELETE: &str = "Delete";

/// The processor of a Calico policy kind: (Staged)GlobalNetworkPolicy, (Staged)NetworkPolicy,
/// StagedKubernetesNetworkPolicy.
#[must_use]
pub fn calico(kind: &Kind, _context: &Context) -> Box<dyn Processor> {
    if kind.name == "StagedKubernetesNetworkPolicy" {
        Box::new(Simple(kubernetes::KubernetesPolicies::staged()))
    } else {
        Box::new(Simple(calico::CalicoPolicies::new(kind)))
    }
}

/// The processor of Kubernetes' NetworkPolicy.
#[must_use]
pub fn kubernetes(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(kubernetes::KubernetesPolicies::native()))
}

/// The processor of Kubernetes' ClusterNetworkPolicy.
#[must_use]
pub fn cluster(_context: &Context) -> Box<dyn Processor> {
    Box::new(Simple(cluster::ClusterPolicies))
}

/// A policy, and the rules that had to be left out of it.
fn converted(policy: Policy, left_out: &[String]) -> Converted {
    let left_out = (!left_out.is_empty()).then(|| ConvertError { reason: left_out.join("; ") });
    let bytes = gojson::to_bytes(&policy);
    Converted { value: Value::checked(bytes, Arc::new(policy)), v3_resource_version: no_revision(), left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syncer::kinds;
    use crate::syncer::processors::vectors_tests::{Feed, run};

    #[test]
    fn vectors_of_policies() {
        let feeds = |context: &Context| {
            let calico = [
                kinds::GLOBAL_NETWORK_POLICY,
                kinds::STAGED_GLOBAL_NETWORK_POLICY,
                kinds::NETWORK_POLICY,
                kinds::STAGED_NETWORK_POLICY,
                kinds::STAGED_KUBERNETES_NETWORK_POLICY,
            ];
            let mut feeds: Vec<Feed> =
                calico.into_iter().map(|kind| Feed::new([kind.clone()], super::calico(&kind, context))).collect();
            feeds.push(Feed::new([kinds::K8S_NETWORK_POLICY], kubernetes(context)));
            feeds.push(Feed::new([kinds::K8S_CLUSTER_NETWORK_POLICY], cluster(context)));
            feeds
        };
        let owns = |key: &str| {
            key.starts_with("/calico/v1/policy/")
                && !key.starts_with("/calico/v1/policy/profile/")
                && !key.ends_with("/metadata")
        };
        let ran = run("felix", feeds, owns);
        assert!(ran.len() >= 33, "only {}: {ran:?}", ran.len());
    }
}
