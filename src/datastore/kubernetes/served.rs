//! The kinds that an API server serves, as it says, and those of them that meet patterns. No I/O.
//!
//! Fed with answers to `/apis`, `/api/v1` and `/apis/GROUP/VERSION` by [`discovery`](super::discovery), feeds [`kinds`](super::kinds).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::failure::Failure;
use crate::datastore::builtin;
use crate::datastore::pattern::{KindsNow, Pattern, Unknown};
use crate::datastore::pattern::{MAX_KINDS, too_many, with_hint};
use crate::model::object::Kind;

/// Most versions of a group that are looked at, the preferred ones first. Kubernetes' own groups have at most four.
pub(super) const MAX_VERSIONS: usize = 32;
/// The words for a kind of somebody else's group that is not there.
const NOT_YET: &str = "there is no definition of this kind yet; it is read once there is one";

/// A kind in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) kind: Kind,
    /// Whether it can be listed and watched.
    pub(super) is_readable: bool,
}

/// A group: its versions, the preferred one first, with their kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group(pub(super) Vec<(String, Vec<Served>)>);

/// The groups that were asked for, by name. One that is not served has no versions.
pub(super) type Groups = BTreeMap<String, Group>;

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    groups: Vec<ListedGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedGroup {
    name: String,
    #[serde(default)]
    versions: Vec<ListedVersion>,
    #[serde(default)]
    preferred_version: Option<ListedVersion>,
}

#[derive(Deserialize)]
struct ListedVersion {
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
struct ListedResource {
    /// The plural; of a part of an object: `pods/status`.
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Reads the list of groups: the versions of those that are `wanted`, the preferred one first.
pub(super) fn read_groups(body: &[u8], wanted: &BTreeSet<String>) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let list: GroupList = serde_json::from_slice(body)
        .map_err(|error| Failure::retry(format!("the list of API groups cannot be read: {error}")))?;
    let mut groups = BTreeMap::new();
    for group in list.groups.into_iter().filter(|group| wanted.contains(&group.name)) {
        let mut versions: Vec<String> = Vec::new();
        for ListedVersion { version } in group.preferred_version.into_iter().chain(group.versions) {
            if is_path(&version) && !versions.contains(&version) && versions.len() < MAX_VERSIONS {
                versions.push(version);
            }
        }
        groups.insert(group.name, versions);
    }
    Ok(groups)
}

/// Reads the kinds of a version of a group. Parts of objects are left out, as are names that make no path.
pub(super) fn read_kinds(body: &[u8], group: &str, version: &str) -> Result<Vec<Served>, Failure> {
    let list: ResourceList = serde_json::from_slice(body)
        .map_err(|error| Failure::retry(format!("the list of kinds cannot be read: {error}")))?;
    let mut served: Vec<Served> = Vec::new();
    for resource in list.resources.into_iter().filter(|resource| is_path(&resource.name) && !resource.kind.is_empty()) {
        let is_readable = ["list", "watch"].iter().all(|verb| resource.verbs.iter().any(|has| has == verb));
        let kind = Kind {
            group: Cow::Owned(group.to_owned()),
            version: Cow::Owned(version.to_owned()),
            name: Cow::Owned(resource.kind),
            plural: Cow::Owned(resource.name),
            namespaced: resource.namespaced,
            etcd_prefix: None,
        };
        // Several resources may show objects of one kind: the first one that can be read counts.
        match served.iter_mut().find(|known| known.kind.name == kind.name) {
            Some(known) if is_readable && !known.is_readable => *known = Served { kind, is_readable },
            Some(_) => {}
            None => served.push(Served { kind, is_readable }),
        }
    }
    Ok(served)
}

/// Whether a name can be a part of a path as it is.
fn is_path(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}

/// The kinds of these groups that meet the patterns.
pub(super) fn meet(patterns: &[Pattern], groups: &Groups) -> KindsNow {
    let (mut kinds, mut unknown) = (BTreeSet::new(), Vec::new());
    for pattern in patterns {
        let versions = groups.get(&pattern.group).map_or(&[][..], |group| &group.0[..]);
        let found = match &pattern.kind {
            None => preferred(versions),
            Some((version, name)) => exactly(versions, version, name).into_iter().collect(),
        };
        if found.is_empty() {
            unknown.push(Unknown { pattern: pattern.clone(), reason: missing(pattern, versions, groups) });
        }
        unknown.extend(too_many(pattern, found.len()));
        kinds.extend(found.into_iter().take(MAX_KINDS).cloned());
    }
    KindsNow { kinds: kinds.into_iter().collect(), unknown }
}

/// Every kind that can be read, in the first version that has it, by name.
fn preferred(versions: &[(String, Vec<Served>)]) -> Vec<&Kind> {
    let mut kinds: BTreeMap<&str, &Kind> = BTreeMap::new();
    for served in versions.iter().flat_map(|(_, kinds)| kinds).filter(|served| served.is_readable) {
        kinds.entry(&served.kind.name).or_insert(&served.kind);
    }
    kinds.into_values().collect()
}

fn exactly<'a>(versions: &'a [(String, Vec<Served>)], version: &str, name: &str) -> Option<&'a Kind> {
    let (_, kinds) = versions.iter().find(|(known, _)| known == version)?;
    kinds.iter().find(|served| served.kind.name == name && served.is_readable).map(|served| &served.kind)
}

/// Why no kind meets the pattern.
fn missing(pattern: &Pattern, versions: &[(String, Vec<Served>)], groups: &Groups) -> String {
    let all = || versions.iter().flat_map(|(version, kinds)| kinds.iter().map(move |served| (version, served)));
    if let Some((version, name)) = &pattern.kind {
        let same: Vec<_> = all().filter(|(_, served)| served.kind.name == *name).collect();
        if same.iter().any(|(served_in, _)| *served_in == version) {
            return "the API server has this kind, but does not let it be listed and watched".to_owned();
        }
        if !same.is_empty() {
            let versions: Vec<&str> = same.iter().map(|(version, _)| version.as_str()).collect();
            return format!("the API server has this kind in version {} only", versions.join(" and "));
        }
    }
    let is_own = builtin::is_own_group(&pattern.group);
    let served = groups.values().flat_map(|group| group.0.iter().flat_map(|(_, kinds)| kinds));
    let served = served.map(|served| (&*served.kind.group, &*served.kind.name));
    let meant = builtin::suggestion(pattern, served.chain(builtin::all().map(|kind| (kind.group, kind.name))));
    let reason = match (is_own, &pattern.kind) {
        (true, _) if versions.is_empty() => "the API server has no such group",
        (true, Some(_)) => "the API server has no such kind",
        (true, None) => "no kind of this group can be listed and watched",
        (false, _) => NOT_YET,
    };
    with_hint(reason, meant.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(name: &str, kind: &str, verbs: &[&str]) -> serde_json::Value {
        json!({"name": name, "kind": kind, "namespaced": true, "verbs": verbs})
    }

    fn served(group: &str, version: &str, resources: &[serde_json::Value]) -> (String, Vec<Served>) {
        let body = json!({"kind": "APIResourceList", "resources": resources}).to_string();
        (version.to_owned(), read_kinds(body.as_bytes(), group, version).unwrap())
    }

    fn groups() -> Groups {
        let both = ["get", "list", "watch"];
        let core = served(
            "",
            "v1",
            &[
                resource("services", "Service", &both),
                resource("services/status", "Service", &["get"]),
                resource("bindings", "Binding", &["create"]),
            ],
        );
        let apps = served("apps", "v1", &[resource("deployments", "Deployment", &both)]);
        let v1 = served(
            "mesh.io",
            "v1",
            &[
                resource("routes", "Route", &both),
                resource("../x", "Strange", &both),
                resource("checks", "Check", &["create"]),
            ],
        );
        let beta = served(
            "mesh.io",
            "v1beta1",
            &[
                resource("routes", "Route", &both),
                resource("olds", "Old", &["watch"]),
                resource("oldies", "Old", &both),
            ],
        );
        [("", vec![core]), ("apps", vec![apps]), ("mesh.io", vec![v1, beta])]
            .map(|(name, versions)| (name.to_owned(), Group(versions)))
            .into()
    }

    #[test]
    fn patterns_are_met_exactly_or_by_the_preferred_version() {
        for (pattern, expected) in [
            ("v1/Service", "v1/Service services"),
            ("apps/v1/Deployment", "apps/v1/Deployment deployments"),
            ("mesh.io/v1beta1/Route", "mesh.io/v1beta1/Route routes"),
            ("mesh.io/*", "mesh.io/v1/Route routes, mesh.io/v1beta1/Old oldies"),
            ("v1/*", "v1/Service services"),
            ("v1/Servcie", "? the API server has no such kind; did you mean \"v1/Service\"?"),
            ("apps/v1/Deploymnt", "? the API server has no such kind; did you mean \"apps/v1/Deployment\"?"),
            ("app/v1/Deployment", "? the API server has no such group; did you mean \"apps/v1/Deployment\"?"),
            ("apps/v2/Deployment", "? the API server has this kind in version v1 only"),
            ("v1/Binding", "? the API server has this kind, but does not let it be listed and watched"),
            ("mesh.io/v1/Old", "? the API server has this kind in version v1beta1 only"),
            (
                "mesh.io/v1/Roote",
                "? there is no definition of this kind yet; it is read once there is one; did you mean \"mesh.io/v1/Route\"?",
            ),
            ("mesh.io/v1/Strange", "? there is no definition of this kind yet; it is read once there is one"),
            ("other.io/*", "? there is no definition of this kind yet; it is read once there is one"),
        ] {
            let KindsNow { kinds, unknown } = meet(&[pattern.parse().unwrap()], &groups());
            let kinds = kinds.iter().map(|kind| format!("{kind} {}", kind.plural));
            let all: Vec<String> = kinds.chain(unknown.iter().map(|unknown| format!("? {}", unknown.reason))).collect();
            assert_eq!(all.join(", "), expected, "{pattern}");
        }
    }

    #[test]
    fn of_groups_the_preferred_version_comes_first() {
        let body = json!({"groups": [
            {"name": "a.io", "versions": [{"version": "v2beta1"}, {"version": "v1"}, {"version": "../v3"}], "preferredVersion": {"version": "v1"}},
            {"name": "b.io", "versions": [{"version": "v1"}]},
        ]});
        let wanted = BTreeSet::from(["a.io".to_owned(), "c.io".to_owned()]);
        let read = read_groups(body.to_string().as_bytes(), &wanted).unwrap();
        assert_eq!(read, BTreeMap::from([("a.io".to_owned(), vec!["v1".to_owned(), "v2beta1".to_owned()])]));
        assert!(matches!(read_groups(b"<html>", &wanted), Err(Failure::Retry { .. })));
        assert!(matches!(read_kinds(b"{\"resources\": 1}", "", "v1"), Err(Failure::Retry { .. })));
    }
}
