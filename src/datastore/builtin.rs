//! Kubernetes' own kinds: group, name, plural and scope, for places without an API server that could be asked, and for messages.
//!
//! The kinds that an API server of Kubernetes 1.36 lets be listed and watched, in any version. An API server knows its own kinds
//! better: this table is for folders and etcd, for completions of names, and for telling a typing error from a kind that comes later.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::catalog::Catalog;
use super::pattern::Pattern;
use crate::model::nearest::nearest;

/// One of Kubernetes' own kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Name, for example `ConfigMap`.
    pub name: &'static str,
    /// Lower-case plural.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// A group and its kinds: name, plural and scope of each.
type Group = (&'static str, &'static [(&'static str, &'static str, bool)]);

/// Whether objects of a kind live in namespaces.
const NAMESPACED: bool = true;
const CLUSTER: bool = false;

/// The groups. Those without a kind here have only kinds that nobody can list.
#[rustfmt::skip]
const GROUPS: [Group; 23] = [
    ("", &[
        ("ConfigMap", "configmaps", NAMESPACED),
        ("Endpoints", "endpoints", NAMESPACED),
        ("Event", "events", NAMESPACED),
        ("LimitRange", "limitranges", NAMESPACED),
        ("Namespace", "namespaces", CLUSTER),
        ("Node", "nodes", CLUSTER),
        ("PersistentVolume", "persistentvolumes", CLUSTER),
        ("PersistentVolumeClaim", "persistentvolumeclaims", NAMESPACED),
        ("Pod", "pods", NAMESPACED),
        ("PodTemplate", "podtemplates", NAMESPACED),
        ("ReplicationController", "replicationcontrollers", NAMESPACED),
        ("ResourceQuota", "resourcequotas", NAMESPACED),
        ("Secret", "secrets", NAMESPACED),
        ("Service", "services", NAMESPACED),
        ("ServiceAccount", "serviceaccounts", NAMESPACED),
    ]),
    ("admissionregistration.k8s.io", &[
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", CLUSTER),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", CLUSTER),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", CLUSTER),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", CLUSTER),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", CLUSTER),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", CLUSTER),
    ]),
    ("apiextensions.k8s.io", &[
        ("CustomResourceDefinition", "customresourcedefinitions", CLUSTER),
    ]),
    ("apiregistration.k8s.io", &[
        ("APIService", "apiservices", CLUSTER),
    ]),
    ("apps", &[
        ("ControllerRevision", "controllerrevisions", NAMESPACED),
        ("DaemonSet", "daemonsets", NAMESPACED),
        ("Deployment", "deployments", NAMESPACED),
        ("ReplicaSet", "replicasets", NAMESPACED),
        ("StatefulSet", "statefulsets", NAMESPACED),
    ]),
    ("authentication.k8s.io", &[]),
    ("authorization.k8s.io", &[]),
    ("autoscaling", &[
        ("HorizontalPodAutoscaler", "horizontalpodautoscalers", NAMESPACED),
    ]),
    ("batch", &[
        ("CronJob", "cronjobs", NAMESPACED),
        ("Job", "jobs", NAMESPACED),
    ]),
    ("certificates.k8s.io", &[
        ("CertificateSigningRequest", "certificatesigningrequests", CLUSTER),
        ("ClusterTrustBundle", "clustertrustbundles", CLUSTER),
        ("PodCertificateRequest", "podcertificaterequests", NAMESPACED),
    ]),
    ("coordination.k8s.io", &[
        ("Lease", "leases", NAMESPACED),
        ("LeaseCandidate", "leasecandidates", NAMESPACED),
    ]),
    ("discovery.k8s.io", &[
        ("EndpointSlice", "endpointslices", NAMESPACED),
    ]),
    ("events.k8s.io", &[
        ("Event", "events", NAMESPACED),
    ]),
    ("flowcontrol.apiserver.k8s.io", &[
        ("FlowSchema", "flowschemas", CLUSTER),
        ("PriorityLevelConfiguration", "prioritylevelconfigurations", CLUSTER),
    ]),
    ("internal.apiserver.k8s.io", &[
        ("StorageVersion", "storageversions", CLUSTER),
    ]),
    ("networking.k8s.io", &[
        ("IPAddress", "ipaddresses", CLUSTER),
        ("Ingress", "ingresses", NAMESPACED),
        ("IngressClass", "ingressclasses", CLUSTER),
        ("NetworkPolicy", "networkpolicies", NAMESPACED),
        ("ServiceCIDR", "servicecidrs", CLUSTER),
    ]),
    ("node.k8s.io", &[
        ("RuntimeClass", "runtimeclasses", CLUSTER),
    ]),
    ("policy", &[
        ("PodDisruptionBudget", "poddisruptionbudgets", NAMESPACED),
    ]),
    ("rbac.authorization.k8s.io", &[
        ("ClusterRole", "clusterroles", CLUSTER),
        ("ClusterRoleBinding", "clusterrolebindings", CLUSTER),
        ("Role", "roles", NAMESPACED),
        ("RoleBinding", "rolebindings", NAMESPACED),
    ]),
    ("resource.k8s.io", &[
        ("DeviceClass", "deviceclasses", CLUSTER),
        ("DeviceTaintRule", "devicetaintrules", CLUSTER),
        ("ResourceClaim", "resourceclaims", NAMESPACED),
        ("ResourceClaimTemplate", "resourceclaimtemplates", NAMESPACED),
        ("ResourcePoolStatusRequest", "resourcepoolstatusrequests", CLUSTER),
        ("ResourceSlice", "resourceslices", CLUSTER),
    ]),
    ("scheduling.k8s.io", &[
        ("PodGroup", "podgroups", NAMESPACED),
        ("PriorityClass", "priorityclasses", CLUSTER),
        ("Workload", "workloads", NAMESPACED),
    ]),
    ("storage.k8s.io", &[
        ("CSIDriver", "csidrivers", CLUSTER),
        ("CSINode", "csinodes", CLUSTER),
        ("CSIStorageCapacity", "csistoragecapacities", NAMESPACED),
        ("StorageClass", "storageclasses", CLUSTER),
        ("VolumeAttachment", "volumeattachments", CLUSTER),
        ("VolumeAttributesClass", "volumeattributesclasses", CLUSTER),
    ]),
    ("storagemigration.k8s.io", &[
        ("StorageVersionMigration", "storageversionmigrations", CLUSTER),
    ]),
];

/// All of Kubernetes' own kinds that can be listed and watched, by group and name.
pub fn all() -> impl Iterator<Item = Builtin> {
    GROUPS.iter().flat_map(|&(group, kinds)| {
        kinds.iter().map(move |&(name, plural, namespaced)| Builtin { group, name, plural, namespaced })
    })
}

/// The kind of this group and name.
#[must_use]
pub fn find(group: &str, name: &str) -> Option<Builtin> {
    all().find(|kind| kind.group == group && kind.name == name)
}

/// Whether a group is Kubernetes' own: nobody else can define kinds in it. Groups of others have a dot in their names, and
/// some groups below `k8s.io` are not in the API server either (`gateway.networking.k8s.io`).
#[must_use]
pub fn is_own_group(group: &str) -> bool {
    !group.contains('.') || GROUPS.iter().any(|(own, _)| *own == group)
}

/// The pattern that was probably meant by one that names no kind of these: another kind of its group, or the same in another group.
/// `kinds` are the group and name of each kind that is known.
#[must_use]
pub fn suggestion<'a>(pattern: &Pattern, kinds: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Pattern> {
    let kinds: Vec<(&str, &str)> = kinds.into_iter().collect();
    let has_group = |group: &str| kinds.iter().any(|(known, _)| *known == group);
    let named = |group: &str, name: Option<&str>| Pattern {
        group: group.to_owned(),
        kind: pattern.kind.as_ref().zip(name).map(|((version, _), name)| (version.clone(), name.to_owned())),
    };
    let Some((_, name)) = &pattern.kind else {
        let group = nearest(&pattern.group, kinds.iter().map(|(group, _)| *group));
        return group.filter(|group| *group != pattern.group).map(|group| named(group, None));
    };
    if has_group(&pattern.group) {
        let same_group = kinds.iter().filter(|(group, _)| *group == pattern.group).map(|(_, name)| *name);
        if let Some(near) = nearest(name, same_group).filter(|near| near != name) {
            return Some(named(&pattern.group, Some(near)));
        }
    }
    let others =
        kinds.iter().filter(|(group, known)| *group != pattern.group && known == name).map(|(group, _)| *group);
    let groups: Vec<&str> = others.collect();
    let group = match groups[..] {
        [only] => Some(only),
        _ => nearest(&pattern.group, groups.iter().copied()),
    };
    group.map(|group| named(group, Some(name)))
}

impl Catalog {
    /// The scopes of Kubernetes' own kinds: without them nobody can tell whether an object without a namespace is in `default`.
    #[must_use]
    pub fn of_kubernetes() -> Self {
        Self::default().and_kubernetes()
    }

    /// The same catalog, with the scopes of Kubernetes' own kinds where it does not know them.
    #[must_use]
    pub fn and_kubernetes(mut self) -> Self {
        let own: BTreeMap<_, _> =
            all().map(|kind| ((Cow::Borrowed(kind.group), Cow::Borrowed(kind.name)), kind.namespaced)).collect();
        for (kind, namespaced) in own {
            self.scopes.entry(kind).or_insert(namespaced);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_each_kind_once() {
        let kinds: BTreeSet<_> = all().map(|kind| (kind.group, kind.name)).collect();
        let plurals: BTreeSet<_> = all().map(|kind| (kind.group, kind.plural)).collect();
        assert_eq!((kinds.len(), plurals.len()), (all().count(), all().count()));
        assert!(GROUPS.is_sorted_by_key(|(group, _)| *group));
    }

    #[test]
    fn kinds_and_their_groups() {
        let ingress = find("networking.k8s.io", "Ingress").unwrap();
        assert_eq!((ingress.plural, ingress.namespaced), ("ingresses", true));
        assert!(!find("", "Node").unwrap().namespaced);
        assert_eq!(find("", "Servcie"), None);
        for (group, expected) in [
            ("", true),
            ("apps", true),
            ("app", true),
            ("networking.k8s.io", true),
            ("gateway.networking.k8s.io", false),
            ("networking.istio.io", false),
        ] {
            assert_eq!(is_own_group(group), expected, "{group}");
        }
        let catalog = Catalog::of_kubernetes();
        assert_eq!(catalog.is_namespaced("", "Namespace"), Some(false));
        assert_eq!(catalog.is_namespaced("apps", "Deployment"), Some(true));
        assert_eq!(catalog.is_namespaced("networking.istio.io", "Gateway"), None);
    }

    #[test]
    fn a_typing_error_is_recognised() {
        for (text, meant) in [
            ("v1/Servcie", Some("v1/Service")),
            ("v1/Configmap", Some("v1/ConfigMap")),
            ("apps/v1/Deploymnt", Some("apps/v1/Deployment")),
            ("app/v1/Deployment", Some("apps/v1/Deployment")),
            ("v1/Deployment", Some("apps/v1/Deployment")),
            ("networking.k8s.io/v1/NetworkPolicies", None),
            ("networkng.k8s.io/*", Some("networking.k8s.io/*")),
            ("networking.k8s.io/*", None),
            ("v1/VirtualService", None),
        ] {
            let pattern = text.parse().unwrap();
            let found = suggestion(&pattern, all().map(|kind| (kind.group, kind.name)));
            assert_eq!(found.map(|pattern| pattern.to_string()).as_deref(), meant, "{text}");
        }
    }
}
