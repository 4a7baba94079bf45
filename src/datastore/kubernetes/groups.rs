//! Which API group holds Calico's kinds in this cluster: asked once, as Calico does, and kept for the life of the process.
//!
//! `projectcalico.org/v3` if that group is served and `crd.projectcalico.org` is not; else `crd.projectcalico.org/v1`. While
//! neither is served nothing is decided: the definitions may be installed later.

use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::super::{Dialect, Kind};
use super::client::ApiClient;
use super::config::CalicoGroup;
use super::failure::{Failure, Resource};

const V3: &str = "projectcalico.org";
/// The group of Calico's kinds as plain custom resources.
pub(super) const CRD: &str = "crd.projectcalico.org";
/// Groups whose kinds every API server has, in the versions that we ask for: they are never missing and never defined by
/// anybody, whatever an answer says.
const NATIVE: [&str; 3] = ["", "discovery.k8s.io", "networking.k8s.io"];
/// How long an answer that decided nothing is believed: all of Calico's kinds ask at the same time.
const UNDECIDED_FOR: Duration = Duration::from_secs(1);

impl CalicoGroup {
    fn group(self) -> &'static str {
        match self {
            Self::CrdV1 => CRD,
            Self::V3 => V3,
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::CrdV1 => "v1",
            Self::V3 => "v3",
        }
    }
}

/// Whether every API server has the kind. Any other may have a `CustomResourceDefinition`.
pub(super) fn is_native(kind: &Kind) -> bool {
    NATIVE.contains(&&*kind.group)
}

/// What the server is known to serve.
#[derive(Debug)]
pub(super) struct Groups {
    decided: OnceLock<CalicoGroup>,
    /// When the server last said that it serves neither group.
    undecided: Mutex<Option<Instant>>,
}

#[derive(Deserialize)]
struct ServedGroups {
    #[serde(default)]
    groups: Vec<ServedGroup>,
}

#[derive(Deserialize)]
struct ServedGroup {
    name: String,
}

impl Groups {
    pub(super) fn new(configured: Option<CalicoGroup>) -> Self {
        let decided = OnceLock::new();
        if let Some(group) = configured {
            decided.get_or_init(|| group);
        }
        Self { decided, undecided: Mutex::new(None) }
    }

    /// Where the kind is in this server's API, and the form of its objects there.
    pub(super) async fn locate(&self, kind: &Kind, client: &ApiClient) -> Result<(Resource, Dialect), Failure> {
        if kind.group != V3 {
            return Ok((Resource::new(kind, &kind.group, &kind.version), Dialect::Kubernetes));
        }
        let group = self.calico(client).await?;
        let dialect = match group {
            CalicoGroup::CrdV1 => Dialect::CrdV1,
            CalicoGroup::V3 => Dialect::V3,
        };
        Ok((Resource::new(kind, group.group(), group.version()), dialect))
    }

    /// The group of Calico's kinds; that of the older one while neither is served.
    async fn calico(&self, client: &ApiClient) -> Result<CalicoGroup, Failure> {
        if let Some(group) = self.decided.get() {
            return Ok(*group);
        }
        let mut undecided = self.undecided.lock().await;
        if let Some(group) = self.decided.get() {
            return Ok(*group);
        }
        if undecided.is_some_and(|at| at.elapsed() < UNDECIDED_FOR) {
            return Ok(CalicoGroup::CrdV1);
        }
        let body = client.get("/apis").await.map_err(|failure| match failure {
            Failure::NotFound(said) => Failure::retry(format!(
                "{said} for the list of API groups, which every API server has: check the server's address and its path"
            )),
            other => other,
        })?;
        let served: ServedGroups = serde_json::from_slice(&body)
            .map_err(|error| Failure::retry(format!("the list of API groups cannot be read: {error}")))?;
        let Some(group) = decide(served.groups.iter().map(|group| group.name.as_str())) else {
            *undecided = Some(Instant::now());
            return Ok(CalicoGroup::CrdV1);
        };
        let group = *self.decided.get_or_init(|| group);
        info!(group = group.group(), version = group.version(), "Calico's kinds are in this API group");
        Ok(group)
    }

    /// The names that the kind's `CustomResourceDefinition` can have here.
    pub(super) fn crd_names(&self, kind: &Kind) -> Vec<String> {
        let groups: Vec<&str> = match self.decided.get() {
            _ if kind.group != V3 => vec![&kind.group],
            Some(group) => vec![group.group()],
            None => vec![CRD, V3],
        };
        groups.into_iter().map(|group| format!("{}.{group}", kind.plural)).collect()
    }
}

/// Calico's rule.
fn decide<'a>(groups: impl IntoIterator<Item = &'a str>) -> Option<CalicoGroup> {
    let (mut crd, mut v3) = (false, false);
    for group in groups {
        crd |= group == CRD;
        v3 |= group == V3;
    }
    match (crd, v3) {
        (true, _) => Some(CalicoGroup::CrdV1),
        (false, true) => Some(CalicoGroup::V3),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kinds;

    #[test]
    fn the_newer_group_counts_only_alone() {
        assert_eq!(decide(["apps", CRD, V3]), Some(CalicoGroup::CrdV1));
        assert_eq!(decide([CRD]), Some(CalicoGroup::CrdV1));
        assert_eq!(decide([V3, "apps"]), Some(CalicoGroup::V3));
        assert_eq!(decide(["apps"]), None);
    }

    #[test]
    fn what_every_server_has_and_what_not() {
        for kind in [kinds::POD, kinds::K8S_NODE, kinds::ENDPOINT_SLICE, kinds::K8S_NETWORK_POLICY] {
            assert!(is_native(&kind), "{kind}");
        }
        for kind in [kinds::TIER, kinds::K8S_CLUSTER_NETWORK_POLICY, kinds::VM_INSTANCE_MIGRATION] {
            assert!(!is_native(&kind), "{kind}");
        }
    }

    #[test]
    fn names_of_definitions() {
        let names = |group, kind: &Kind| Groups::new(group).crd_names(kind);
        assert_eq!(names(Some(CalicoGroup::V3), &kinds::TIER), ["tiers.projectcalico.org"]);
        assert_eq!(names(None, &kinds::TIER), ["tiers.crd.projectcalico.org", "tiers.projectcalico.org"]);
        assert_eq!(names(None, &kinds::VM_INSTANCE_MIGRATION), ["virtualmachineinstancemigrations.kubevirt.io"]);
    }
}
