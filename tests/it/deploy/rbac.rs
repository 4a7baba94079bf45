//! The rendered role has every rule that Bulrush needs, and no other.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::render::Rendered;
use crate::apiserver::crds::{CrdGroup, is_calico, watched_kinds};

/// Group, resource, verb.
type Permission = (String, String, String);

/// Permissions that Bulrush needs: for the kinds that syncers watch, in both of Calico's groups; for the objects written at start;
/// for definitions of missing kinds. Our own replicas are counted by endpoint slices, which Felix's syncer watches too.
fn needed() -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    let mut add = |group: &str, resource: &str, verbs: &[&str]| {
        for verb in verbs {
            needed.insert((group.to_owned(), resource.to_owned(), (*verb).to_owned()));
        }
    };
    let calico = [CrdGroup::V1, CrdGroup::V3].map(|group| group.group_version().0);
    for kind in watched_kinds() {
        let groups = if is_calico(&kind) { calico.to_vec() } else { vec![&*kind.group] };
        for group in groups {
            add(group, &kind.plural, &["list", "watch"]);
        }
    }
    for group in calico {
        add(group, "clusterinformations", &["get", "create", "update"]);
        add(group, "tiers", &["get", "create"]);
    }
    add("apiextensions.k8s.io", "customresourcedefinitions", &["list", "watch"]);
    needed
}

pub(super) fn check(rendered: &Rendered) -> anyhow::Result<()> {
    let role = rendered.of_kind("ClusterRole").next().context("a ClusterRole")?;
    let mut permitted = BTreeSet::new();
    for rule in role["rules"].as_array().context("rules")? {
        let texts = |field: &str| -> Vec<String> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for group in texts("apiGroups") {
            for resource in texts("resources") {
                for verb in texts("verbs") {
                    let permission = (group.clone(), resource.clone(), verb);
                    ensure!(permitted.insert(permission.clone()), "{permission:?} is there twice");
                }
            }
        }
    }
    let needed = needed();
    let missing: Vec<_> = needed.difference(&permitted).collect();
    let more: Vec<_> = permitted.difference(&needed).collect();
    ensure!(missing.is_empty() && more.is_empty(), "the role lacks {missing:?} and has too much with {more:?}");
    Ok(())
}
