//! `bulrush explain`: the fields of a kind from its schema: types, descriptions, defaults, rules.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::exit::ended;
use super::screen::Screen;
use super::{EXIT_FAILURE, EXIT_USAGE};
use crate::model::nearest::nearest;
use crate::validate::schema::node::{Additional, Limits, ListType, Node, Type};
use crate::validate::schema::{KnownKind, Library, Schema};

/// Width of descriptions where the output is no terminal.
const WIDTH: usize = 100;
/// Least width of descriptions.
const MIN_WIDTH: usize = 20;
/// Longest description of a field in the list of fields, in characters.
const MAX_SUMMARY: usize = 60;

/// Arguments of `bulrush explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The kind, its plural, or a field of it: VirtualService, virtualservices, VirtualService.spec.http.match
    #[arg(value_name = "KIND[.FIELD]")]
    pub subject: String,
    /// Files and folders with CRDs and JSON Schemas
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    pub schemas: Vec<PathBuf>,
    /// The version, if the kind has several: v1, or networking.istio.io/v1
    #[arg(long, value_name = "VERSION")]
    pub api_version: Option<String>,
}

/// Prints the schema of a kind or of one of its fields. Mistakes go to `err`. Returns the exit status: 1 if schemas cannot be read, 64 if
/// there is no such kind or field.
///
/// # Errors
/// `out` or `err` cannot be written to.
pub fn run(args: &ExplainArgs, screen: Screen, out: &mut impl Write, err: &mut impl Write) -> io::Result<u8> {
    let library = match Library::load(&args.schemas) {
        Ok(library) => library,
        Err(errors) => {
            for error in errors {
                writeln!(err, "{error}")?;
            }
            return Ok(EXIT_FAILURE);
        }
    };
    match find(&library, args, screen.width.unwrap_or(WIDTH).max(MIN_WIDTH)) {
        Ok(text) => ended(out.write_all(text.as_bytes())),
        Err(mistake) => {
            writeln!(err, "bulrush: {mistake}")?;
            Ok(EXIT_USAGE)
        }
    }
}

/// The text about the subject, or the mistake in its name.
fn find(library: &Library, args: &ExplainArgs, width: usize) -> Result<String, String> {
    let (name, path) = args.subject.split_once('.').unwrap_or((&args.subject, ""));
    let known = kind(library, name)?;
    let version = version(&known, args.api_version.as_deref())?;
    let head = format!(
        "KIND:     {}\nVERSION:  {}{}{version}\nSCOPE:    {}\nSCHEMA:   {}\n",
        known.kind,
        known.group,
        if known.group.is_empty() { "" } else { "/" },
        match known.namespaced {
            Some(true) => "in namespaces",
            Some(false) => "of the cluster",
            None => "not said by the schema",
        },
        known.source
    );
    match library.schema(known.group, version, known.kind) {
        None => Ok(format!("{head}\nThe schema accepts any object.\n")),
        Some(Schema::Plain(schema)) => {
            let place = plain_field(schema, path)?;
            Ok(format!("{head}\nJSON Schema{}:\n{place:#}\n", at(path)))
        }
        Some(Schema::Structural(root)) => {
            let (node, required) = field(root, path)?;
            Ok(format!("{head}{}", describe(node, path, required, width)))
        }
    }
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" of {path}") }
}

/// The kind of this name: as written, in another case, or in the plural.
fn kind<'a>(library: &'a Library, name: &str) -> Result<KnownKind<'a>, String> {
    let is_named = |known: &KnownKind<'_>| {
        known.kind.eq_ignore_ascii_case(name) || known.plural.is_some_and(|plural| plural.eq_ignore_ascii_case(name))
    };
    if let Some(known) = library.kinds().find(is_named) {
        return Ok(known);
    }
    let kinds: Vec<&str> = library.kinds().map(|known| known.kind).collect();
    Err(match nearest(name, kinds.iter().copied()) {
        Some(near) => format!("no schema is for a kind {name:?}; did you mean {near:?}?"),
        None if kinds.is_empty() => format!("no schema is for a kind {name:?}: the files have no schemas at all"),
        None => format!("no schema is for a kind {name:?}; there are schemas for {}", kinds.join(", ")),
    })
}

/// The wanted version, or the newest stable one.
fn version<'a>(known: &KnownKind<'a>, wanted: Option<&str>) -> Result<&'a str, String> {
    match wanted {
        Some(wanted) => {
            let name = wanted.rsplit('/').next().unwrap_or_default();
            let found = known.versions.iter().find(|version| **version == name);
            found.copied().ok_or_else(|| {
                format!("{} has no version {wanted:?}; it has {}", known.kind, known.versions.join(", "))
            })
        }
        None => Ok(known.versions.iter().copied().max_by_key(|version| rank(version)).unwrap_or_default()),
    }
}

/// Kubernetes' order of versions: stable ones before betas and alphas, then by number.
fn rank(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or_default();
    for (word, stage) in [("beta", 1), ("alpha", 0)] {
        if let Some((_, behind)) = rest.split_once(word) {
            return (stage, number(rest), number(behind));
        }
    }
    (2, number(rest), 0)
}

/// The schema of a field, and whether the field is required. Lists are passed over: `spec.http.match` is a field of the items.
fn field<'a>(root: &'a Node, path: &str) -> Result<(&'a Node, bool), String> {
    let (mut node, mut required, mut walked) = (root, false, String::new());
    for step in path.split('.').filter(|step| !step.is_empty()) {
        while let (None, Some(items)) = (node.field(step), node.items.as_deref()) {
            node = items;
        }
        required = node.limits.as_ref().is_some_and(|limits| limits.required.iter().any(|name| name == step));
        node = node.field(step).ok_or_else(|| {
            let place = if walked.is_empty() { "the kind".to_owned() } else { walked.clone() };
            let hint = nearest(step, node.properties.keys().map(String::as_str));
            let hint = match hint {
                Some(near) => format!("; did you mean {near:?}?"),
                None if node.properties.is_empty() => "; its schema names no fields".to_owned(),
                None => format!("; it has {}", node.properties.keys().cloned().collect::<Vec<_>>().join(", ")),
            };
            format!("{place} has no field {step:?}{hint}")
        })?;
        walked = if walked.is_empty() { step.to_owned() } else { format!("{walked}.{step}") };
    }
    Ok((node, required))
}

/// The part of a JSON Schema for a field.
fn plain_field<'a>(schema: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut place = schema;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        while let (None, Some(items)) = (place.get("properties"), place.get("items")) {
            place = items;
        }
        let fields = place.get("properties").and_then(Value::as_object);
        place = fields.and_then(|fields| fields.get(step)).ok_or_else(|| {
            let near = fields.and_then(|fields| nearest(step, fields.keys().map(String::as_str)));
            let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            format!("the JSON Schema has no field {step:?} there{hint}")
        })?;
    }
    Ok(place)
}

fn describe(node: &Node, path: &str, required: bool, width: usize) -> String {
    let mut text = String::new();
    if !path.is_empty() {
        let required = if required { ", required" } else { "" };
        text.push_str(&format!("FIELD:    {path} <{}>{required}\n", type_name(node)));
    }
    if !node.description.is_empty() {
        text.push_str("\nDESCRIPTION:\n");
        wrapped(&node.description, "  ", width, &mut text);
    }
    let facts = facts(node);
    if !facts.is_empty() {
        text.push_str("\nVALUES:\n");
        for fact in &facts {
            wrapped(fact, "  ", width, &mut text);
        }
    }
    // The rules of a list's items are told with the list: the items have no name.
    let mut place = Some(node);
    let mut rules = Vec::new();
    while let Some(here) = place {
        rules.extend(&here.rules);
        place = here.items.as_deref();
    }
    if !rules.is_empty() {
        text.push_str("\nRULES:\n");
        for rule in rules {
            let transition = if rule.transition { " (on change)" } else { "" };
            if let Some(message) = &rule.message {
                wrapped(&format!("{message}{transition}"), "  ", width, &mut text);
                wrapped(&rule.text, "      ", width, &mut text);
            } else {
                wrapped(&format!("{}{transition}", rule.text), "  ", width, &mut text);
            }
        }
    }
    let mut owner = node;
    while let (true, Some(items)) = (owner.properties.is_empty(), owner.items.as_deref()) {
        owner = items;
    }
    if let (true, Additional::Schema(inner)) = (owner.properties.is_empty(), &owner.additional) {
        owner = inner;
    }
    fields(owner, &mut text);
    text
}

/// The list of the fields of a node.
fn fields(node: &Node, text: &mut String) {
    if node.properties.is_empty() {
        return;
    }
    let none = Vec::new();
    let required = node.limits.as_ref().map_or(&none, |limits| &limits.required);
    let rows: Vec<(String, String)> = node
        .properties
        .iter()
        .map(|(name, inner)| {
            let mark = if required.contains(name) { " required" } else { "" };
            (format!("  {name} <{}>{mark}", type_name(inner)), summary(&inner.description))
        })
        .collect();
    let longest = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or_default();
    text.push_str("\nFIELDS:\n");
    for (left, right) in rows {
        text.push_str(format!("{left:longest$}  {right}").trim_end());
        text.push('\n');
    }
}

/// The first sentence of a description, on one line.
fn summary(description: &str) -> String {
    let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = line.split_once(". ").map_or(line.as_str(), |(sentence, _)| sentence);
    match sentence.char_indices().nth(MAX_SUMMARY) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

/// The type as people say it: `[]object`, `map[string]string`.
fn type_name(node: &Node) -> String {
    match (node.kind, &node.items, &node.additional) {
        _ if node.int_or_string => "integer or string".to_owned(),
        (Some(Type::Array), Some(items), _) => format!("[]{}", type_name(items)),
        (Some(Type::Object), _, Additional::Schema(inner)) => format!("map[string]{}", type_name(inner)),
        (Some(kind), ..) => kind.as_str().to_owned(),
        (None, ..) => "any".to_owned(),
    }
}

/// The rules for values, one a line.
fn facts(node: &Node) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(default) = &node.default {
        facts.push(format!("default: {default}"));
    }
    if node.nullable {
        facts.push("null is accepted".to_owned());
    }
    if node.preserve {
        facts.push("unknown fields are accepted".to_owned());
    }
    match &node.list {
        ListType::Atomic => {}
        ListType::Set => facts.push("each item once".to_owned()),
        ListType::Map(keys) => facts.push(format!("each item once by {}", keys.join(" and "))),
    }
    let Some(limits) = &node.limits else { return facts };
    let list = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !limits.values.is_empty() {
        facts.push(format!("one of {}", list(&limits.values)));
    }
    if let Some((pattern, _)) = &limits.pattern {
        facts.push(format!("pattern: {pattern}"));
    }
    if let Some(format) = limits.format {
        facts.push(format.in_words().to_owned());
    }
    facts.extend(ranges(limits));
    facts
}

fn ranges(limits: &Limits) -> Vec<String> {
    let shown = |number: Option<&dyn std::fmt::Display>| number.map(ToString::to_string);
    let number = |number: &Option<serde_json::Number>| shown(number.as_ref().map(|number| number as _));
    let count = |count: &Option<u64>| shown(count.as_ref().map(|count| count as _));
    [
        ("numbers", number(&limits.minimum), number(&limits.maximum)),
        ("characters", count(&limits.min_length), count(&limits.max_length)),
        ("items", count(&limits.min_items), count(&limits.max_items)),
        ("fields", count(&limits.min_properties), count(&limits.max_properties)),
    ]
    .into_iter()
    .filter_map(|(of, least, most)| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{of} from {least} to {most}")),
        (Some(least), None) => Some(format!("{of} from {least} on")),
        (None, Some(most)) => Some(format!("{of} up to {most}")),
        (None, None) => None,
    })
    .collect()
}

/// Adds a text in lines of this width, each indented.
fn wrapped(text: &str, indent: &str, width: usize, out: &mut String) {
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > width {
                out.push_str(&format!("{indent}{line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(word.chars().filter(|c| !c.is_control()));
        }
        if !line.is_empty() {
            out.push_str(&format!("{indent}{line}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn explain(subject: &str) -> (u8, String) {
        let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh/schemas");
        let args = ExplainArgs { subject: subject.to_owned(), schemas: vec![schemas.clone()], api_version: None };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&args, Screen::default(), &mut out, &mut err).expect("memory can be written to");
        let text = [out, err].concat();
        (status, String::from_utf8(text).expect("UTF-8").replace(&*schemas.to_string_lossy(), "schemas"))
    }

    #[test]
    fn a_field_is_explained() {
        let (status, text) = explain("VirtualService.spec.http");
        assert_eq!(status, 0, "{text}");
        insta::assert_snapshot!(text);
        let (status, text) = explain("destinationrules.spec.trafficPolicy.loadBalancer.simple");
        assert_eq!(status, 0, "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn wrong_names_are_suggested() {
        for (subject, expected) in [
            ("VirtualServce", "did you mean \"VirtualService\"?"),
            ("Thing", "there are schemas for DestinationRule, VirtualService"),
            ("VirtualService.spec.http.mach", "spec.http has no field \"mach\"; did you mean \"match\"?"),
        ] {
            let (status, text) = explain(subject);
            assert!(status == EXIT_USAGE && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha3", "v1beta1", "v2alpha1", "v1", "v2", "v1beta2"];
        versions.sort_by_key(|version| rank(version));
        assert_eq!(versions, ["v1alpha3", "v2alpha1", "v1beta1", "v1beta2", "v1", "v2"]);
    }
}
