//! From a structural schema (`openAPIV3Schema` of a CRD) to nodes, with all of its mistakes.
//!
//! Pure. Fed by [`definition`](super::definition). The rules are those of the API server for structural schemas, as far as they
//! decide about objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::cel;
use super::formats::Format;
use super::keywords::{Mistake, Mistakes, Reader};
use super::node::{Additional, Limits, ListType, Node, Type};
use super::regexes;
use crate::model::finding::escaped;
use crate::model::nearest::nearest;

/// Deepest nesting of a schema. Istio's and the Gateway API's stay below 25.
pub(super) const MAX_DEPTH: usize = 64;
/// Most nodes of a schema. The largest of the Gateway API's has 3,000; a node takes some 500 bytes.
const MAX_NODES: usize = 50_000;
/// Most rules in CEL of a schema; each takes some 10 kB.
const MAX_RULES: usize = 5_000;

/// Keywords that a structural schema may have.
const KEYWORDS: [&str; 31] = [
    "type",
    "properties",
    "additionalProperties",
    "items",
    "required",
    "enum",
    "default",
    "nullable",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "description",
    "title",
    "example",
    "externalDocs",
    "id",
];

/// Compiles the schema of an object.
pub(super) fn compile(schema: &Value) -> Result<Node, Vec<Mistake>> {
    let mut compiler = Compiler { mistakes: Mistakes::default(), nodes: 0, rules: 0 };
    let place = Place { pointer: String::new(), depth: 0, branch: false, correlates: true };
    let mut root = compiler.node(schema, &place);
    // The API server reads these fields by itself, and rules may name them.
    root.embedded = true;
    if root.kind != Some(Type::Object) {
        compiler.mistake("", "the schema of an object begins with type: object".to_owned());
    }
    if compiler.mistakes.0.is_empty() { Ok(root) } else { Err(compiler.mistakes.0) }
}

/// A place in the schema.
struct Place {
    pointer: String,
    depth: usize,
    /// Within `allOf`, `anyOf`, `oneOf` or `not`: no types are needed.
    branch: bool,
    /// Whether the old value of the place can be known.
    correlates: bool,
}

impl Place {
    fn inner(&self, step: &str) -> Self {
        let pointer = format!("{}/{step}", self.pointer);
        Self { pointer, depth: self.depth + 1, branch: self.branch, correlates: self.correlates }
    }
}

struct Compiler {
    mistakes: Mistakes,
    nodes: usize,
    rules: usize,
}

impl Compiler {
    fn mistake(&mut self, pointer: &str, reason: String) {
        self.mistakes.note(pointer, reason);
    }

    fn node(&mut self, schema: &Value, place: &Place) -> Node {
        self.nodes += 1;
        if place.depth > MAX_DEPTH || self.nodes > MAX_NODES {
            let limit = if place.depth > MAX_DEPTH {
                format!("the schema is nested more than {MAX_DEPTH} deep")
            } else {
                format!("the schema has more than {MAX_NODES} places")
            };
            // Said once: every further place has the same fault.
            if !self.mistakes.0.iter().any(|mistake| mistake.reason == limit) {
                self.mistake(&place.pointer, limit);
            }
            return Node::default();
        }
        let Value::Object(schema) = schema else {
            self.mistake(&place.pointer, format!("a schema is a mapping, not {schema}"));
            return Node::default();
        };
        self.keywords(schema, place);
        let mut read = Reader { schema, pointer: &place.pointer, mistakes: &mut self.mistakes };
        let mut node = Node {
            kind: read.kind(),
            nullable: read.flag("nullable"),
            int_or_string: read.flag("x-kubernetes-int-or-string"),
            preserve: read.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: read.flag("x-kubernetes-embedded-resource"),
            default: schema.get("default").cloned(),
            list: read.list_type(),
            atomic: read.text("x-kubernetes-map-type").is_some_and(|kind| kind == "atomic"),
            description: read.text("description").unwrap_or_default(),
            ..Node::default()
        };
        if node.kind.is_none() && !place.branch && !node.int_or_string && !node.preserve {
            let reason = "the type is missing: a structural schema says it at every place";
            self.mistake(&place.pointer, reason.to_owned());
        }
        self.children(schema, place, &mut node);
        let limits = self.limits(schema, place);
        node.limits = limits.map(Box::new);
        if let ListType::Map(keys) = &node.list {
            let items = node.items.as_deref();
            let missing = keys.iter().find(|key| items.is_none_or(|items| items.field(key).is_none()));
            if let Some(key) = missing {
                self.mistake(
                    &place.pointer,
                    format!("x-kubernetes-list-map-keys names {key:?}, which items do not have"),
                );
            }
        }
        node.fills = node.default.is_some()
            || node.properties.values().any(|inner| inner.fills || !inner.nullable)
            || matches!(&node.additional, Additional::Schema(inner) if inner.fills)
            || node.items.as_ref().is_some_and(|inner| inner.fills);
        self.rules(schema, place, &mut node);
        node
    }

    fn keywords(&mut self, schema: &Map<String, Value>, place: &Place) {
        for name in schema.keys() {
            if KEYWORDS.contains(&name.as_str()) || name.starts_with("x-") {
                continue;
            }
            let near = nearest(name, KEYWORDS).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            let reason = format!("{name:?} has no place in a structural schema{near}");
            self.mistake(&format!("{}/{}", place.pointer, escaped(name)), reason);
        }
    }

    fn children(&mut self, schema: &Map<String, Value>, place: &Place, node: &mut Node) {
        match schema.get("properties") {
            None => {}
            Some(Value::Object(properties)) => {
                let mut inner = place.inner("properties");
                inner.correlates &= !node.atomic;
                node.properties = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.node(schema, &inner.inner(&escaped(name)))))
                    .collect::<BTreeMap<_, _>>();
            }
            Some(_) => self.mistake(&format!("{}/properties", place.pointer), "it must be a mapping".to_owned()),
        }
        node.additional = match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => Additional::Unsaid,
            Some(Value::Bool(true)) => Additional::Any,
            Some(schema) => {
                let mut inner = place.inner("additionalProperties");
                inner.correlates &= !node.atomic;
                Additional::Schema(Box::new(self.node(schema, &inner)))
            }
        };
        if let Some(items) = schema.get("items") {
            let mut inner = place.inner("items");
            inner.correlates &= matches!(node.list, ListType::Map(_));
            node.items = Some(Box::new(self.node(items, &inner)));
        }
    }

    fn limits(&mut self, schema: &Map<String, Value>, place: &Place) -> Option<Limits> {
        const TRIVIAL: [&str; 9] = [
            "type",
            "properties",
            "additionalProperties",
            "items",
            "nullable",
            "default",
            "description",
            "title",
            "example",
        ];
        if schema.keys().all(|name| TRIVIAL.contains(&name.as_str()) || name.starts_with("x-")) {
            return None;
        }
        let mut read = Reader { schema, pointer: &place.pointer, mistakes: &mut self.mistakes };
        let mut limits = Limits {
            required: read.texts("required"),
            values: read.list("enum"),
            minimum: read.number("minimum"),
            maximum: read.number("maximum"),
            above_minimum: read.flag("exclusiveMinimum"),
            below_maximum: read.flag("exclusiveMaximum"),
            multiple_of: read.number("multipleOf"),
            min_length: read.count("minLength"),
            max_length: read.count("maxLength"),
            min_items: read.count("minItems"),
            max_items: read.count("maxItems"),
            unique: read.flag("uniqueItems"),
            min_properties: read.count("minProperties"),
            max_properties: read.count("maxProperties"),
            format: read.text("format").and_then(|name| Format::named(&name)),
            ..Limits::default()
        };
        if let Some(pattern) = read.text("pattern") {
            match regexes::compile(&pattern) {
                Ok(regex) => limits.pattern = Some((pattern, regex)),
                Err(reason) => {
                    self.mistake(&format!("{}/pattern", place.pointer), format!("the pattern {pattern:?}: {reason}"));
                }
            }
        }
        limits.all_of = self.branches(schema, place, "allOf");
        limits.any_of = self.branches(schema, place, "anyOf");
        limits.one_of = self.branches(schema, place, "oneOf");
        limits.not = schema.get("not").map(|schema| {
            let inner = Place { branch: true, ..place.inner("not") };
            self.node(schema, &inner)
        });
        Some(limits)
    }

    fn branches(&mut self, schema: &Map<String, Value>, place: &Place, keyword: &'static str) -> Vec<Node> {
        let list = Reader { schema, pointer: &place.pointer, mistakes: &mut self.mistakes }.list(keyword);
        let inner = Place { branch: true, ..place.inner(keyword) };
        list.iter().enumerate().map(|(index, schema)| self.node(schema, &inner.inner(&index.to_string()))).collect()
    }

    fn rules(&mut self, schema: &Map<String, Value>, place: &Place, node: &mut Node) {
        const KEYWORD: &str = "x-kubernetes-validations";
        let list = Reader { schema, pointer: &place.pointer, mistakes: &mut self.mistakes }.list(KEYWORD);
        if list.is_empty() {
            return;
        }
        if place.branch {
            let reason = "rules in CEL have no place within allOf, anyOf, oneOf and not";
            return self.mistake(&format!("{}/{KEYWORD}", place.pointer), reason.to_owned());
        }
        // A rule of the whole object sees its apiVersion, kind and metadata.
        node.embedded |= place.depth == 0;
        for (index, written) in list.iter().enumerate() {
            self.rules += 1;
            let compiled = if self.rules > MAX_RULES {
                Err(format!("the schema has more than {MAX_RULES} rules"))
            } else {
                cel::compile(written, node, place.correlates)
            };
            match compiled {
                Ok(rule) => node.rules.push(rule),
                Err(reason) => {
                    let text = written["rule"]
                        .as_str()
                        .map(|rule| format!("the rule {:?}: ", rule.trim()))
                        .unwrap_or_default();
                    self.mistake(&format!("{}/{KEYWORD}/{index}", place.pointer), format!("{text}{reason}"));
                }
            }
        }
    }
}
