//! The library of schemas: kinds and what is accepted of them.
//!
//! Made once of documents, then only read: it is shared behind an `Arc` by the command line and all pipelines. A schema is compiled once per version of its
//! kind. Fed by [`load`](super::load).

use std::collections::BTreeMap;

use serde_json::Value;

use super::definition::{self, Definition};
use super::keywords::Mistake;
use super::metadata::{self, kind_of};
use super::node::Node;
use super::plain::{self, Plain};
use super::stack::on_large_stack;
use super::{defaults, walk};
use crate::model::finding::{Finding, Findings};
use crate::model::nearest::nearest;

/// Rule: the kind has no such version.
pub const UNKNOWN_VERSION: &str = "unknown-version";
/// Rule: the version is deprecated.
pub const DEPRECATED: &str = "deprecated";

/// Schemas of kinds.
#[derive(Debug, Default)]
pub struct Library {
    kinds: BTreeMap<(String, String), Entry>,
}

/// A kind of the library.
#[derive(Debug)]
struct Entry {
    plural: Option<String>,
    namespaced: Option<bool>,
    versions: BTreeMap<String, Version>,
    /// The file that it is from, for messages.
    source: String,
}

#[derive(Debug)]
struct Version {
    schema: Body,
    served: bool,
    deprecated: Option<String>,
}

#[derive(Debug)]
enum Body {
    /// Any object is accepted.
    Any,
    Structural(Box<Node>),
    Plain(Plain),
}

/// A kind of a library, for suggestions, for `explain` and for catalogs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownKind<'a> {
    /// API group; empty for Kubernetes' core group.
    pub group: &'a str,
    /// Name of the kind.
    pub kind: &'a str,
    /// Its name in paths of the API server, where the schema says so.
    pub plural: Option<&'a str>,
    /// Whether its objects are in namespaces, where the schema says so.
    pub namespaced: Option<bool>,
    /// The versions, in the order of their names.
    pub versions: Vec<&'a str>,
    /// The file that the schema is from.
    pub source: &'a str,
}

/// A schema, for those who show it.
#[derive(Clone, Copy, Debug)]
pub enum Schema<'a> {
    /// Of a CRD.
    Structural(&'a Node),
    /// JSON Schema, as written.
    Plain(&'a Value),
}

/// The addition that a document made to a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The schemas of a kind.
    Kind,
    /// Nothing: it is an object, and no schema.
    Nothing,
}

impl Library {
    /// Without schemas: every object passes.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Whether there is no schema at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Adds the schemas of a document, which is from the file `source`.
    ///
    /// # Errors
    /// All mistakes of the schema, each with a JSON pointer into the document. The library is unchanged then.
    pub fn add(&mut self, document: &Value, source: &str) -> Result<Added, Vec<(String, String)>> {
        let told = |mistake: Mistake| (mistake.pointer, mistake.reason);
        let (group, _, kind) = kind_of(document);
        if group == definition::GROUP && kind == definition::KIND {
            let found =
                on_large_stack(|| definition::read(document)).map_err(|reason| vec![(String::new(), reason)])?;
            let found = found.map_err(|mistakes| mistakes.into_iter().map(told).collect::<Vec<_>>())?;
            return self.define(found, source).map(|()| Added::Kind);
        }
        if group == definition::GROUP && nearest(kind, [definition::KIND]).is_some() {
            return Err(vec![(
                "/kind".to_owned(),
                format!("there is no kind {kind:?}; did you mean {:?}?", definition::KIND),
            )]);
        }
        if !plain::is_schema(document) {
            return if document.get("apiVersion").is_some() && document.get("kind").is_some() {
                Ok(Added::Nothing)
            } else {
                Err(vec![(
                    String::new(),
                    "the document is neither a CustomResourceDefinition nor a JSON Schema".to_owned(),
                )])
            };
        }
        let kinds = plain::kinds(document);
        if kinds.is_empty() {
            let reason = "the JSON Schema does not say for which kind it is: give it x-kubernetes-group-version-kind with group, version and kind";
            return Err(vec![(String::new(), reason.to_owned())]);
        }
        for (group, version, kind) in kinds {
            let schema = plain::compile(document).map_err(|mistake| vec![mistake])?;
            let entry = self.kinds.entry((group, kind.clone())).or_insert_with(|| Entry {
                plural: None,
                namespaced: None,
                versions: BTreeMap::new(),
                source: source.to_owned(),
            });
            if entry.versions.contains_key(&version) {
                return Err(vec![(
                    String::new(),
                    format!("{kind} {version} has a schema already, from {}", entry.source),
                )]);
            }
            entry.versions.insert(version, Version { schema: Body::Plain(schema), served: true, deprecated: None });
        }
        Ok(Added::Kind)
    }

    fn define(&mut self, found: Definition, source: &str) -> Result<(), Vec<(String, String)>> {
        let key = (found.group, found.kind);
        if let Some(other) = self.kinds.get(&key) {
            let reason = format!("{} of {} has a schema already, from {}", key.1, key.0, other.source);
            return Err(vec![("/metadata/name".to_owned(), reason)]);
        }
        let versions = found.versions.into_iter().map(|(name, version)| {
            let schema = version.schema.map_or(Body::Any, |node| Body::Structural(Box::new(node)));
            (name, Version { schema, served: version.served, deprecated: version.deprecated })
        });
        let entry = Entry {
            plural: Some(found.plural),
            namespaced: Some(found.namespaced),
            versions: versions.collect(),
            source: source.to_owned(),
        };
        self.kinds.insert(key, entry);
        Ok(())
    }

    /// All that is wrong with an object, as many findings as a pipeline keeps. With the object that was there before: transition rules
    /// as well, and no findings about values that were invalid before and did not change. An object of a kind without a schema has none.
    #[must_use]
    pub fn check(&self, object: &Value, old: Option<&Value>) -> Findings {
        let mut findings = Findings::none();
        self.check_into(object, old, &mut findings);
        findings
    }

    /// As [`check`](Self::check), with room for as many findings as the caller gives. Returns whether there is a schema.
    pub fn check_into(&self, object: &Value, old: Option<&Value>, findings: &mut Findings) -> bool {
        let (group, version, kind) = kind_of(object);
        let Some(entry) = self.entry(group, kind) else { return false };
        metadata::check(object, entry.namespaced, findings);
        let Some(found) = entry.versions.get(version).filter(|version| version.served) else {
            let served: Vec<&str> =
                entry.versions.iter().filter(|(_, version)| version.served).map(|(name, _)| name.as_str()).collect();
            let expected = format!("one of {}: the kind has no other version", served.join(", "));
            findings.add(Finding::of_value(UNKNOWN_VERSION, "/apiVersion", version, expected));
            return true;
        };
        if let Some(warning) = &found.deprecated {
            findings.add(Finding::of_field(DEPRECATED, "/apiVersion", warning.as_str()).as_warning());
        }
        match &found.schema {
            Body::Any => {}
            Body::Structural(node) => {
                let filled = defaults::filled(object, node);
                let old = old.map(|old| defaults::filled(old, node));
                walk::check(&filled, old.as_deref(), node, findings);
            }
            Body::Plain(schema) => schema.check(object, findings),
        }
        true
    }

    /// Whether objects of a kind are in namespaces. `None`: no schema says so.
    #[must_use]
    pub fn scope(&self, group: &str, kind: &str) -> Option<bool> {
        self.entry(group, kind)?.namespaced
    }

    /// The kinds, by group and name.
    pub fn kinds(&self) -> impl Iterator<Item = KnownKind<'_>> {
        self.kinds.iter().map(|((group, kind), entry)| KnownKind {
            group,
            kind,
            plural: entry.plural.as_deref(),
            namespaced: entry.namespaced,
            versions: entry.versions.keys().map(String::as_str).collect(),
            source: &entry.source,
        })
    }

    /// The schema of a version of a kind. `None`: there is none, or it accepts any object.
    #[must_use]
    pub fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Schema<'_>> {
        match &self.entry(group, kind)?.versions.get(version)?.schema {
            Body::Any => None,
            Body::Structural(node) => Some(Schema::Structural(node)),
            Body::Plain(plain) => Some(Schema::Plain(&plain.written)),
        }
    }

    fn entry(&self, group: &str, kind: &str) -> Option<&Entry> {
        // The map's keys own their texts, so a search by borrowed ones goes along the range of the group.
        let start = (group.to_owned(), kind.to_owned());
        self.kinds.get(&start)
    }
}
