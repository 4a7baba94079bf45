//! The chart's values: every one of them has a default, a description and a row in the chart's README.
//!
//! The table is made here, from the defaults in values.yaml and the descriptions in values.schema.json. If the README's table differs, the
//! test names the file with the new one: copy that between the marks.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{project, read};

const CHART: &str = "deploy/helm/bulrush";
const BEGIN: &str = "<!-- values: generated, a test holds them against values.yaml and values.schema.json -->\n\n";
const END: &str = "\n<!-- end of values -->";
/// Longest default that the table shows; longer ones stand in values.yaml.
const LONGEST: usize = 60;

/// A value of the chart: its path, its default, its description.
struct Row {
    path: String,
    default: Value,
    description: String,
}

/// Collects all leaves of the schema with their defaults.
fn rows(schema: &Value, defaults: &Value, above: &str, into: &mut Vec<Row>) -> anyhow::Result<()> {
    for (name, schema) in schema["properties"].as_object().context("properties")? {
        let path = format!("{above}{name}");
        // Helm's own value, for charts within charts.
        if path == "global" {
            continue;
        }
        let default = defaults.get(name).with_context(|| format!("values.yaml does not have {path}"))?;
        if schema["properties"].is_object() {
            rows(schema, default, &format!("{path}."), into)?;
            continue;
        }
        let description = schema["description"].as_str().with_context(|| format!("{path} has no description"))?;
        ensure!(description.ends_with('.') && !description.contains('|'), "{path}: {description}");
        into.push(Row { path, default: default.clone(), description: description.to_owned() });
    }
    Ok(())
}

/// The paths of values.yaml, in the file's order.
fn order(text: &str) -> Vec<String> {
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut paths = Vec::new();
    for line in text.lines() {
        let indented = line.len() - line.trim_start().len();
        let Some((name, _)) = line.trim_start().split_once(':') else { continue };
        if !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            continue;
        }
        above.retain(|(indentation, _)| *indentation < indented);
        above.push((indented, name));
        paths.push(above.iter().map(|(_, name)| *name).collect::<Vec<_>>().join("."));
    }
    paths
}

fn shown(default: &Value) -> String {
    let text = match default {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match text.len() {
        0 => String::new(),
        1..=LONGEST => format!("`{text}`"),
        _ => "see values.yaml".to_owned(),
    }
}

fn table() -> anyhow::Result<String> {
    let text = read(&format!("{CHART}/values.yaml"))?;
    let defaults: Value = serde_saphyr::from_str(&text)?;
    let schema: Value = serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))?)?;
    let mut found = Vec::new();
    rows(&schema, &defaults, "", &mut found)?;
    let order = order(&text);
    found.sort_by_key(|row| order.iter().position(|path| *path == row.path));
    let mut table = String::from("| value | default | what it is |\n|---|---|---|\n");
    for Row { path, default, description } in &found {
        table += &format!("| `{path}` | {} | {description} |\n", shown(default));
    }
    Ok(table)
}

#[test]
fn the_charts_readme_has_all_values() -> anyhow::Result<()> {
    let readme = read(&format!("{CHART}/README.md"))?;
    let held = readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
    let made = table()?;
    if held != Some(&*made) {
        let path = project("target").join("values.md");
        fs::write(&path, made)?;
        anyhow::bail!("{CHART}/README.md does not have the values as they are; the new table is in {}", path.display());
    }
    Ok(())
}

#[test]
fn values_come_in_the_order_of_their_file() {
    let text = "# a: comment\nimage:\n  tag: \"\"\n  # b: comment\n  digest: \"\"\nlist:\n  - key: x\n    operator: Exists\nlast: 1\n";
    let paths = order(text);
    assert_eq!(paths, ["image", "image.tag", "image.digest", "list", "list.operator", "last"]);
}
