//! Custom resources: our own minimal definitions of every kind that Calico's syncers watch.
//!
//! They have group, names and scope, and keep every field, so that tests can also store objects that Calico's own schemas forbid.

use std::collections::BTreeSet;
use std::time::Duration;

use bulrush::calico::kinds;
use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::datastore::Kind;
use serde_json::{Value, json};

use super::ApiServer;
use super::rest::Rest;
use crate::wait::eventually;

/// Longest time until the server serves a newly defined kind, or no longer serves a deleted one.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// Path of the definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The API group that holds Calico's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrdGroup {
    /// `crd.projectcalico.org/v1`.
    V1,
    /// `projectcalico.org/v3`.
    V3,
}

impl CrdGroup {
    /// Group and version.
    pub(crate) fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::V1 => ("crd.projectcalico.org", "v1"),
            Self::V3 => ("projectcalico.org", "v3"),
        }
    }

    /// Group and version as in an object's `apiVersion`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "crd.projectcalico.org/v1",
            Self::V3 => "projectcalico.org/v3",
        }
    }

    /// Group and version that serve a kind.
    fn home(self, kind: &Kind) -> (&str, &str) {
        if is_calico(kind) { self.group_version() } else { (&kind.group, &kind.version) }
    }

    /// `group/resource`, as in the counts of requests.
    pub(crate) fn resource(self, kind: &Kind) -> String {
        let (group, _) = self.home(kind);
        if group.is_empty() { kind.plural.to_string() } else { format!("{group}/{}", kind.plural) }
    }

    /// The path of a kind's collection; an empty namespace stands for all.
    pub(crate) fn collection(self, kind: &Kind, namespace: &str) -> String {
        let (group, version) = self.home(kind);
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if kind.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{namespace}/{}", kind.plural)
        } else {
            format!("{root}/{}", kind.plural)
        }
    }

    /// The path of one object.
    pub(crate) fn path(self, kind: &Kind, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(kind, namespace))
    }
}

/// Whether a kind is one of Calico's own.
pub(crate) fn is_calico(kind: &Kind) -> bool {
    kind.group == "projectcalico.org"
}

/// Every kind that the syncers watch where Kubernetes is the datastore, each once.
pub(crate) fn watched_kinds() -> Vec<Kind> {
    let specs = pipelines::calico(Flavour::Kubernetes, &Context::default());
    let kinds: BTreeSet<Kind> =
        specs.into_iter().flat_map(|spec| spec.sources).flat_map(|source| source.kinds).collect();
    kinds.into_iter().collect()
}

/// The watched kinds that have to be defined: Calico's, and third parties'.
pub(crate) fn custom_kinds() -> Vec<Kind> {
    let third_party = [
        kinds::K8S_CLUSTER_NETWORK_POLICY,
        kinds::K8S_ADMIN_NETWORK_POLICY,
        kinds::K8S_BASELINE_ADMIN_NETWORK_POLICY,
        kinds::VM_INSTANCE_MIGRATION,
    ];
    watched_kinds().into_iter().filter(|kind| is_calico(kind) || third_party.contains(kind)).collect()
}

/// The definition of a kind.
pub(crate) fn definition(kind: &Kind, group: CrdGroup) -> Value {
    let (group, version) = group.home(kind);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{group}", kind.plural),
            // Groups below k8s.io require it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
        },
        "spec": {
            "group": group,
            "names": {
                "kind": kind.name,
                "listKind": format!("{}List", kind.name),
                "plural": kind.plural,
                "singular": kind.name.to_lowercase(),
            },
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The path of a kind's definition.
pub(crate) fn definition_path(kind: &Kind, group: CrdGroup) -> String {
    format!("{DEFINITIONS}/{}.{}", kind.plural, group.home(kind).0)
}

/// Defines a kind and waits until it is served.
pub(crate) async fn install(rest: &Rest, kind: &Kind, group: CrdGroup) -> anyhow::Result<()> {
    rest.create(DEFINITIONS, &definition(kind, group)).await?;
    served(rest, kind, group).await
}

/// Deletes a kind's definition with its objects, and waits until it is gone entirely.
pub(crate) async fn uninstall(rest: &Rest, kind: &Kind, group: CrdGroup) -> anyhow::Result<()> {
    let path = definition_path(kind, group);
    rest.delete(&path).await?;
    eventually(&format!("{path} is gone"), SERVED_WITHIN, async || rest.get(&path).await.is_err().then_some(())).await
}

/// Waits until a kind is served.
pub(crate) async fn served(rest: &Rest, kind: &Kind, group: CrdGroup) -> anyhow::Result<()> {
    served_at(rest, &group.collection(kind, "")).await
}

/// Waits until a collection is served.
pub(crate) async fn served_at(rest: &Rest, collection: &str) -> anyhow::Result<()> {
    let path = format!("{collection}?limit=1");
    eventually(&format!("{collection} is served"), SERVED_WITHIN, async || rest.get(&path).await.ok().map(drop)).await
}

impl ApiServer {
    /// Defines every custom kind, third parties' included, and waits until all are served.
    pub(crate) async fn install_crds(&self, group: CrdGroup) -> anyhow::Result<()> {
        let rest = self.rest();
        let kinds = custom_kinds();
        let all = kinds.iter().map(|kind| (DEFINITIONS.to_owned(), definition(kind, group))).collect();
        rest.create_all(all).await?;
        for kind in &kinds {
            served(&rest, kind, group).await?;
        }
        Ok(())
    }
}
