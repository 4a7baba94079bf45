//! The chart's `datastores` and `syncers`: sections of `typha.cfg` that Bulrush accepts, and the role for their kinds.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::objects;
use super::pod::Pod;
use super::render::{SECTIONS, chart};

#[test]
fn the_charts_sections_are_those_of_the_pod() -> anyhow::Result<()> {
    let Some(rendered) = chart("bulrush", "kube-system", &SECTIONS)? else { return Ok(()) };
    objects::check(&rendered)?;
    let page = Pod::new(&rendered, &BTreeMap::new())?.config()?;
    ensure!(page["mistakes"] == json!([]) && page["warnings"] == json!([]), "{page:#}");
    let option = |kind: &str, name: &str, option: &str| -> anyhow::Result<Value> {
        let sections = page["sections"].as_array().context("sections")?;
        let section = sections.iter().find(|section| section["kind"] == kind && section["name"] == name);
        let options = section.with_context(|| format!("a {kind} {name}"))?["options"].as_array().cloned();
        let found = options.into_iter().flatten().find(|found| found["name"] == option);
        Ok(found.with_context(|| format!("an option {option}"))?["value"].clone())
    };
    for (kind, name, of, expected) in [
        ("datastore", "git", "Type", json!("file")),
        ("datastore", "cluster", "Required", json!(false)),
        ("syncer", "mesh", "Sources", json!(["git", "cluster"])),
        ("syncer", "mesh", "Kinds", json!(["networking.istio.io/*", "v1/ConfigMap"])),
        ("syncer", "mesh", "Selector", json!("app in (web,shop)")),
        ("syncer", "other", "Folder", json!("a;b")),
        ("syncer", "other", "MaxDelaySecs", json!(1e8)),
        ("syncer", "other", "QuietSecs", json!(0.25)),
    ] {
        let found = option(kind, name, of)?;
        ensure!(found == expected, "{kind} {name} has {of} = {found}");
    }
    Ok(())
}

/// Without Calico's syncers the role has nothing of Calico in it.
#[test]
fn the_role_is_for_the_kinds_of_the_sections() -> anyhow::Result<()> {
    let Some(rendered) = chart("bulrush", "kube-system", &SECTIONS)? else { return Ok(()) };
    let role = rendered.of_kind("ClusterRole").next().context("a ClusterRole")?;
    let groups: Vec<&Value> = role["rules"].as_array().into_iter().flatten().map(|rule| &rule["apiGroups"]).collect();
    let expected = [json!(["discovery.k8s.io"]), json!(["apiextensions.k8s.io"]), json!(["networking.istio.io"])];
    ensure!(groups == expected.iter().collect::<Vec<_>>(), "{role:#}");
    Ok(())
}
