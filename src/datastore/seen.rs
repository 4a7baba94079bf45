//! The kinds that meet patterns, for datastores that know of a kind only by its objects: folders and memory.
//!
//! Pure. Fed with the kinds of the objects that are there, feeds [`Datastore::kinds`](super::Datastore::kinds).

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::builtin;
use super::catalog::Catalog;
use super::pattern::{KindsNow, MAX_KINDS, Pattern, Unknown, too_many, with_hint};
use crate::model::object::Kind;

/// The version of a kind whose objects may be in any version. An object has the version that its `apiVersion` names.
pub(super) const ANY_VERSION: &str = "*";

/// The kinds among `seen` that meet the patterns, each once. A pattern that names a kind stands for it with or without objects, unless
/// it is a typing error among Kubernetes' own kinds: an object may come later. A pattern for a group stands for objects in any
/// version, for each object is there in one version only; so do two patterns with two versions of a kind.
pub(super) fn kinds(patterns: &[Pattern], seen: &BTreeSet<Kind>, catalog: &Catalog) -> KindsNow {
    let (mut kinds, mut unknown) = (BTreeMap::<_, Kind>::new(), Vec::new());
    let mut add = |kind: Kind| match kinds.entry((kind.group.clone(), kind.name.clone())) {
        Entry::Vacant(place) => drop(place.insert(kind)),
        Entry::Occupied(place) if place.get().version == kind.version => {}
        Entry::Occupied(mut place) => place.get_mut().version = ANY_VERSION.into(),
    };
    for pattern in patterns {
        let found: BTreeMap<&str, &Kind> =
            seen.iter().filter(|kind| pattern.names(&kind.group, &kind.name)).map(|kind| (&*kind.name, kind)).collect();
        if found.is_empty() {
            match expected(pattern, catalog) {
                Ok(kind) => add(kind),
                Err(reason) => unknown.push(Unknown { pattern: pattern.clone(), reason }),
            }
        }
        unknown.extend(too_many(pattern, found.len()));
        let version = pattern.kind.as_ref().map_or(ANY_VERSION, |(version, _)| version);
        for kind in found.into_values().take(MAX_KINDS) {
            add(Kind { version: version.to_owned().into(), ..kind.clone() });
        }
    }
    KindsNow { kinds: kinds.into_values().collect(), unknown }
}

/// The plural of one of Kubernetes' own kinds; empty for others.
pub(super) fn plural(group: &str, name: &str) -> &'static str {
    builtin::find(group, name).map_or("", |kind| kind.plural)
}

/// The kind that a pattern names, of which there is no object yet; or the reason why there will be none, or none that is known.
fn expected(pattern: &Pattern, catalog: &Catalog) -> Result<Kind, String> {
    let own = || builtin::all().map(|kind| (kind.group, kind.name));
    let Some((version, name)) = &pattern.kind else {
        let known = builtin::is_own_group(&pattern.group).then(|| builtin::suggestion(pattern, own())).flatten();
        return Err(with_hint("no object of this group is there yet", known.as_ref()));
    };
    let own_kind = builtin::find(&pattern.group, name);
    if own_kind.is_none() && builtin::is_own_group(&pattern.group) {
        let meant = builtin::suggestion(pattern, own());
        return Err(with_hint("Kubernetes has no such kind, and there is no object of it", meant.as_ref()));
    }
    let known = catalog.is_namespaced(&pattern.group, name).or(own_kind.map(|kind| kind.namespaced));
    Ok(Kind {
        group: Cow::Owned(pattern.group.clone()),
        version: Cow::Owned(version.clone()),
        name: Cow::Owned(name.clone()),
        plural: Cow::Borrowed(own_kind.map_or("", |kind| kind.plural)),
        // Most kinds are; if this one is not, its first object tells.
        namespaced: known.unwrap_or(true),
        etcd_prefix: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, version: &str, name: &str) -> Kind {
        Kind {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            name: name.to_owned().into(),
            plural: "".into(),
            namespaced: false,
            etcd_prefix: None,
        }
    }

    /// The kinds for patterns in words, and the reasons of the unknown ones.
    fn said(patterns: &[&str], seen: &[Kind]) -> (Vec<String>, Vec<String>) {
        let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        let seen = seen.iter().cloned().collect();
        let KindsNow { kinds, unknown } = kinds(&patterns, &seen, &Catalog::of_kubernetes());
        let scope = |kind: &Kind| if kind.namespaced { "namespaced" } else { "cluster" };
        let kinds = kinds.iter().map(|kind| format!("{kind} {:?} {}", kind.plural, scope(kind)));
        (kinds.collect(), unknown.iter().map(|unknown| format!("{}: {}", unknown.pattern, unknown.reason)).collect())
    }

    #[test]
    fn patterns_are_met_by_the_objects_that_are_there() {
        let mesh = [kind("mesh.io", "v1", "Route"), kind("mesh.io", "v1beta1", "Route"), kind("other.io", "v1", "X")];
        for (patterns, kinds, unknown) in [
            (&["mesh.io/*"][..], &["mesh.io/*/Route \"\" cluster"][..], &[][..]),
            (&["mesh.io/*", "mesh.io/v1/Route"], &["mesh.io/*/Route \"\" cluster"], &[]),
            (&["mesh.io/v1/Route", "mesh.io/v2/Route"], &["mesh.io/*/Route \"\" cluster"], &[]),
            (&["mesh.io/v1/Route", "mesh.io/v1/Route"], &["mesh.io/v1/Route \"\" cluster"], &[]),
            (&["mesh.io/v2/Route"], &["mesh.io/v2/Route \"\" cluster"], &[]),
            (&["none.io/v1/Late"], &["none.io/v1/Late \"\" namespaced"], &[]),
            (&["v1/Node"], &["v1/Node \"nodes\" cluster"], &[]),
            (&["none.io/*"], &[], &["none.io/*: no object of this group is there yet"]),
            (
                &["v1/Servcie", "apps/v1/Deploymnt"],
                &[],
                &[
                    "v1/Servcie: Kubernetes has no such kind, and there is no object of it; did you mean \"v1/Service\"?",
                    "apps/v1/Deploymnt: Kubernetes has no such kind, and there is no object of it; did you mean \"apps/v1/Deployment\"?",
                ],
            ),
            (&["app/*"], &[], &["app/*: no object of this group is there yet; did you mean \"apps/*\"?"]),
            (&[], &[], &[]),
        ] {
            let found = said(patterns, &mesh);
            assert_eq!((&found.0[..], &found.1[..]), (&own(kinds)[..], &own(unknown)[..]), "{patterns:?}");
        }
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_kind_with_objects_is_there_whatever_its_name() {
        let odd = kind("", "v1", "Servcie");
        assert_eq!(said(&["v1/Servcie"], &[odd]), (vec!["v1/Servcie \"\" cluster".to_owned()], vec![]));
    }

    #[test]
    fn one_pattern_stands_for_so_many_kinds_at_most() {
        let many: Vec<Kind> = (0..=MAX_KINDS).map(|n| kind("many.io", "v1", &format!("K{n}"))).collect();
        let (kinds, unknown) = said(&["many.io/*"], &many);
        assert_eq!(kinds.len(), MAX_KINDS);
        assert!(unknown[0].starts_with("many.io/*: 1001 kinds meet it"), "{unknown:?}");
    }
}
