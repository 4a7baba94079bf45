//! Calico's kinds as datastores have to know them: scopes, the two API groups that are one, empty values.

use std::borrow::Cow;
use std::sync::Arc;

use super::kinds;
use crate::datastore::Kind;
use crate::datastore::catalog::{Catalog, Family, Place, ValueForm};
use crate::model::object::Dialect;

/// The group that Calico's kinds carry.
pub const GROUP: &str = "projectcalico.org";

/// The API group in which a cluster keeps Calico's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalicoGroup {
    /// `crd.projectcalico.org/v1`.
    CrdV1,
    /// `projectcalico.org/v3`.
    V3,
}

impl CalicoGroup {
    /// The group of this name, as `CALICO_API_GROUP` has it.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        [Self::CrdV1, Self::V3].into_iter().find(|group| {
            let Place { group, version, .. } = group.place();
            text.split_once('/') == Some((&*group, &*version))
        })
    }

    fn place(self) -> Place {
        let (group, version, dialect, kept_metadata) = match self {
            Self::CrdV1 => ("crd.projectcalico.org", "v1", Dialect::CrdV1, Some("projectcalico.org/metadata")),
            Self::V3 => (GROUP, "v3", Dialect::V3, None),
        };
        Place {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            dialect,
            kept_metadata: kept_metadata.map(Cow::Borrowed),
        }
    }
}

/// The kinds that syncers watch, beside [`kinds::RESOURCES`].
const WATCHED: &[Kind] = &[
    kinds::IPAM_BLOCK,
    kinds::BLOCK_AFFINITY,
    kinds::K8S_NODE,
    kinds::POD,
    kinds::NAMESPACE,
    kinds::SERVICE_ACCOUNT,
    kinds::SERVICE,
    kinds::ENDPOINT_SLICE,
    kinds::K8S_NETWORK_POLICY,
    kinds::K8S_CLUSTER_NETWORK_POLICY,
    kinds::VM_INSTANCE_MIGRATION,
];

/// Calico's kinds that no syncer watches but that exports contain; all are cluster-scoped.
const UNWATCHED: [&str; 6] = [
    "ClusterNetworkPolicy",
    "IPAMConfig",
    "IPAMConfiguration",
    "IPAMHandle",
    "IPReservation",
    "KubeControllersConfiguration",
];

/// The catalog for all datastores. With a group the API server is not asked which one it has.
///
/// Without one the rule is Calico's: `projectcalico.org/v3` counts if that group is served and `crd.projectcalico.org` is not.
#[must_use]
pub fn catalog(group: Option<CalicoGroup>) -> Arc<Catalog> {
    let groups = group.map_or_else(|| vec![CalicoGroup::CrdV1, CalicoGroup::V3], |group| vec![group]);
    let places = groups.into_iter().map(CalicoGroup::place).collect();
    let watched =
        kinds::RESOURCES.iter().chain(WATCHED).map(|kind| ((kind.group.clone(), kind.name.clone()), kind.namespaced));
    let unwatched = UNWATCHED.into_iter().map(|name| ((Cow::Borrowed(GROUP), Cow::Borrowed(name)), false));
    Arc::new(Catalog {
        families: vec![Family { group: Cow::Borrowed(GROUP), places }],
        scopes: watched.chain(unwatched).collect(),
        values: [(kinds::BLOCK_AFFINITY, ValueForm::JsonOrEmpty)].into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        let catalog = catalog(None);
        assert_eq!(catalog.is_namespaced("", "Pod"), Some(true));
        assert_eq!(catalog.is_namespaced("", "Node"), Some(false));
        assert_eq!(catalog.is_namespaced(GROUP, "NetworkSet"), Some(true));
        assert_eq!(catalog.is_namespaced(GROUP, "IPReservation"), Some(false));
        assert_eq!(catalog.is_namespaced("apps", "Deployment"), None);
        assert!(catalog.is_unknown(GROUP, "IPPol"));
        assert!(!catalog.is_unknown("apps", "Deployment"));
    }

    #[test]
    fn places() {
        let (all, one) = (catalog(None), catalog(Some(CalicoGroup::V3)));
        assert_eq!(all.place("crd.projectcalico.org", "v1"), Ok((GROUP, Dialect::CrdV1)));
        assert_eq!(all.place(GROUP, "v3"), Ok((GROUP, Dialect::V3)));
        assert_eq!(all.place("apps", "v7"), Ok(("apps", Dialect::Kubernetes)));
        let family = all.place(GROUP, "v1").expect_err("no such version");
        assert_eq!(family.places_in_words(), "crd.projectcalico.org/v1 and projectcalico.org/v3");
        assert_eq!(one.families[0].places_in_words(), "projectcalico.org/v3");
    }

    #[test]
    fn a_group_is_read_as_it_is_written() {
        assert_eq!(CalicoGroup::of("crd.projectcalico.org/v1"), Some(CalicoGroup::CrdV1));
        assert_eq!(CalicoGroup::of("projectcalico.org/v3"), Some(CalicoGroup::V3));
        for wrong in ["", "v3", "projectcalico.org", "projectcalico.org/v1", "projectcalico.org/v3/"] {
            assert_eq!(CalicoGroup::of(wrong), None, "{wrong}");
        }
    }
}
