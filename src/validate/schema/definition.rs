//! CustomResourceDefinitions: from the object to the kind and the compiled schemas of its versions, with all mistakes.
//!
//! Pure. Fed by [`library`](super::library).

use std::collections::BTreeMap;

use serde_json::Value;

use super::compile::compile;
use super::keywords::Mistake;
use super::node::Node;
use crate::model::finding::escaped;

/// Group of the objects that define kinds.
pub(super) const GROUP: &str = "apiextensions.k8s.io";
/// Their kind.
pub(super) const KIND: &str = "CustomResourceDefinition";

/// A kind as its definition has it.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// By name; `None`: the version takes any object.
    pub(super) versions: BTreeMap<String, Version>,
}

/// A version of a kind.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) schema: Option<Node>,
    /// Whether objects of this version are served.
    pub(super) served: bool,
    /// The text of the warning for users of a deprecated version.
    pub(super) deprecated: Option<String>,
}

/// Reads a definition and compiles its schemas.
pub(super) fn read(object: &Value) -> Result<Definition, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut wrong =
        |pointer: &str, reason: &str| mistakes.push(Mistake { pointer: pointer.to_owned(), reason: reason.to_owned() });
    if object["apiVersion"].as_str() != Some("apiextensions.k8s.io/v1") {
        wrong(
            "/apiVersion",
            "definitions are read in apiextensions.k8s.io/v1, the only version that API servers have had since 1.22",
        );
    }
    let mut text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        if text.is_none() {
            wrong(pointer, "it has to be set, to a text");
        }
        text.unwrap_or_default().to_owned()
    };
    let (group, kind, plural) = (text("/spec/group"), text("/spec/names/kind"), text("/spec/names/plural"));
    let scope = text("/spec/scope");
    if !["", "Namespaced", "Cluster"].contains(&scope.as_str()) {
        wrong("/spec/scope", "it is Namespaced or Cluster");
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if !group.is_empty() && !plural.is_empty() && name != format!("{plural}.{group}") {
        wrong(
            "/metadata/name",
            &format!("the name of a definition is spec.names.plural and spec.group: {plural}.{group}"),
        );
    }
    let mut versions = BTreeMap::new();
    match object.pointer("/spec/versions") {
        Some(Value::Array(list)) if !list.is_empty() => {
            for (index, version) in list.iter().enumerate() {
                let place = format!("/spec/versions/{index}");
                let Some(name) = version["name"].as_str() else {
                    mistakes.push(Mistake { pointer: format!("{place}/name"), reason: "it has to be set".to_owned() });
                    continue;
                };
                let schema = match version.pointer("/schema/openAPIV3Schema") {
                    None => None,
                    Some(schema) => match compile(schema) {
                        Ok(node) => Some(node),
                        Err(found) => {
                            let inner = format!("{place}/schema/openAPIV3Schema");
                            mistakes.extend(found.into_iter().map(|mistake| Mistake {
                                pointer: format!("{inner}{}", mistake.pointer),
                                reason: mistake.reason,
                            }));
                            None
                        }
                    },
                };
                let deprecated = version["deprecated"].as_bool().unwrap_or_default().then(|| {
                    let warning = version["deprecationWarning"].as_str();
                    warning.map_or_else(|| format!("{group}/{name} {kind} is deprecated"), str::to_owned)
                });
                let served = version["served"].as_bool().unwrap_or(true);
                if versions.insert(name.to_owned(), Version { schema, served, deprecated }).is_some() {
                    mistakes.push(Mistake {
                        pointer: format!("{place}/{}", escaped("name")),
                        reason: format!("the version {name} is there twice"),
                    });
                }
            }
        }
        _ => mistakes
            .push(Mistake { pointer: "/spec/versions".to_owned(), reason: "it has to be set, to a list".to_owned() }),
    }
    if mistakes.is_empty() {
        Ok(Definition { group, kind, plural, namespaced: scope == "Namespaced", versions })
    } else {
        Err(mistakes)
    }
}
