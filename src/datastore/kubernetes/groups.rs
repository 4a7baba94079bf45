//! Which API group holds the kinds of a family in this cluster: asked once, and kept for the life of the process.
//!
//! It is the first of the family's places that the server serves. While it serves none, nothing is decided: the definitions may
//! be installed later.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::client::ApiClient;
use super::failure::{Failure, Resource};
use crate::datastore::catalog::{Catalog, Family, Place};
use crate::model::object::{Dialect, Kind};

/// Groups whose kinds every API server has, in the versions that we ask for: they are never missing and never defined by
/// anybody, whatever an answer says.
const NATIVE: [&str; 3] = ["", "discovery.k8s.io", "networking.k8s.io"];
/// How long an answer that decided nothing is believed: all kinds of a family ask at the same time.
const UNDECIDED_FOR: Duration = Duration::from_secs(1);

/// Whether every API server has the kind. Any other may have a `CustomResourceDefinition`.
pub(super) fn is_native(kind: &Kind) -> bool {
    NATIVE.contains(&&*kind.group)
}

/// The places of all families.
#[derive(Debug)]
pub(super) struct Groups {
    catalog: Arc<Catalog>,
    /// By the family's index in the catalog.
    decisions: Vec<Decision>,
}

/// Where a family is.
#[derive(Debug, Default)]
struct Decision {
    /// The index of its place.
    place: OnceLock<usize>,
    /// When the server last said that it serves none of them.
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
    /// Nothing is decided yet but for families with one place.
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        let decision = |family: &Family| match family.places.len() {
            1 => Decision { place: OnceLock::from(0), ..Decision::default() },
            _ => Decision::default(),
        };
        Self { decisions: catalog.families.iter().map(decision).collect(), catalog }
    }

    /// The family of a kind, and what is known of its place.
    fn family(&self, kind: &Kind) -> Option<(&Family, &Decision)> {
        let mut all = self.catalog.families.iter().zip(&self.decisions);
        all.find(|(family, _)| family.group == kind.group && !family.places.is_empty())
    }

    /// Whether the kind is probably just being installed if it is missing.
    pub(super) fn is_expected(&self, kind: &Kind) -> bool {
        self.family(kind).is_some()
    }

    /// The place of a kind that belongs to a family, as far as it is known.
    pub(super) fn place(&self, kind: &Kind) -> Option<&Place> {
        let (family, decision) = self.family(kind)?;
        family.places.get(*decision.place.get()?)
    }

    /// Where the kind is in this server's API, and the form of its objects there.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn locate(&self, kind: &Kind, client: &ApiClient) -> Result<(Resource, Dialect), Failure> {
        let Some((family, decision)) = self.family(kind) else {
            return Ok((Resource::new(kind, &kind.group, &kind.version), Dialect::Kubernetes));
        };
        let place = &family.places[decision.get(family, client).await?];
        Ok((Resource::new(kind, &place.group, &place.version), place.dialect))
    }

    /// The names that the kind's `CustomResourceDefinition` can have here.
    pub(super) fn crd_names(&self, kind: &Kind) -> Vec<String> {
        let name = |group: &str| format!("{}.{group}", kind.plural);
        match (self.place(kind), self.family(kind)) {
            (Some(place), _) => vec![name(&place.group)],
            (None, Some((family, _))) => family.places.iter().map(|place| name(&place.group)).collect(),
            (None, None) => vec![name(&kind.group)],
        }
    }
}

impl Decision {
    /// The index of the family's place; that of the first one while the server serves none.
    async fn get(&self, family: &Family, client: &ApiClient) -> Result<usize, Failure> {
        if let Some(place) = self.place.get() {
            return Ok(*place);
        }
        let mut undecided = self.undecided.lock().await;
        if let Some(place) = self.place.get() {
            return Ok(*place);
        }
        if undecided.is_some_and(|at| at.elapsed() < UNDECIDED_FOR) {
            return Ok(0);
        }
        let body = client.get("/apis").await.map_err(|failure| match failure {
            Failure::NotFound(said) => Failure::retry(format!(
                "{said} for the list of API groups, which every API server has: check the server's address and its path"
            )),
            other => other,
        })?;
        let served: ServedGroups = serde_json::from_slice(&body)
            .map_err(|error| Failure::retry(format!("the list of API groups cannot be read: {error}")))?;
        let is_served = |place: &Place| served.groups.iter().any(|group| *group.name == *place.group);
        let Some(first) = family.places.iter().position(is_served) else {
            *undecided = Some(Instant::now());
            return Ok(0);
        };
        let place = &family.places[first];
        info!(family = %family.group, group = %place.group, version = %place.version, "the kinds of a family are in this API group");
        Ok(*self.place.get_or_init(|| first))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;
    use crate::calico::catalog::{CalicoGroup, catalog};
    use crate::calico::kinds;
    use crate::datastore::kubernetes::KubernetesConfig;

    const CRD: &str = "crd.projectcalico.org";
    const V3: &str = "projectcalico.org";

    /// Where a server with these groups has tiers, and whether that is decided.
    async fn decided(served: &[&str]) -> (String, bool) {
        let groups: Vec<_> = served.iter().map(|name| serde_json::json!({ "name": name })).collect();
        let answer = serde_json::json!({ "groups": groups }).to_string();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(answer.clone().into_bytes()))))
        });
        let client = ApiClient::fixed(kube::Client::new(server, "default"), &KubernetesConfig::default());
        let groups = Groups::new(catalog(None));
        let (resource, _) = groups.locate(&kinds::TIER, &client).await.unwrap();
        (resource.group, groups.place(&kinds::TIER).is_some())
    }

    #[tokio::test]
    async fn the_newer_group_counts_only_alone() {
        assert_eq!(decided(&["apps", CRD, V3]).await, (CRD.to_owned(), true));
        assert_eq!(decided(&[CRD]).await, (CRD.to_owned(), true));
        assert_eq!(decided(&[V3, "apps"]).await, (V3.to_owned(), true));
        assert_eq!(decided(&["apps"]).await, (CRD.to_owned(), false));
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
        let names = |group, kind: &Kind| Groups::new(catalog(group)).crd_names(kind);
        assert_eq!(names(Some(CalicoGroup::V3), &kinds::TIER), ["tiers.projectcalico.org"]);
        assert_eq!(names(None, &kinds::TIER), ["tiers.crd.projectcalico.org", "tiers.projectcalico.org"]);
        assert_eq!(names(None, &kinds::VM_INSTANCE_MIGRATION), ["virtualmachineinstancemigrations.kubevirt.io"]);
    }
}
