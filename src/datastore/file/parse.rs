//! From the bytes of one file to resources.
//!
//! Pure. Fed by [`scan`](super::scan), feeds [`folder`](super::folder). YAML and JSON, several documents, `List` kinds
//! unrolled. A file is taken whole or not at all: half of a file that is just being written must not count. Everything
//! that a file can make us hold is bounded by the constants below.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use sha2::{Digest as _, Sha256};

use crate::datastore::catalog::Catalog;
use crate::datastore::seen::ANY_VERSION;
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::model::object::{Dialect, Object, ObjectId};
use crate::model::yaml::{self, MAX_DOCUMENTS};

/// Deepest nesting of lists in lists.
const MAX_LIST_DEPTH: usize = 4;
/// The start of every canonical body; the version is put in right behind.
const BODY_START: &str = "{\"metadata\":{";

/// SHA-256 of a canonical value or of a file.
pub(super) type Digest = [u8; 32];

/// The identity of a resource, in any spelling: all groups of a family are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity {
    /// API group that the kind carries, whichever of its family the file names.
    pub(super) group: Arc<str>,
    /// Kind within the group.
    pub(super) kind: Arc<str>,
    /// Namespace and name.
    pub(super) id: ObjectId,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{} {}", self.kind, self.id)
        } else {
            write!(f, "{}.{} {}", self.kind, self.group, self.id)
        }
    }
}

/// A resource of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) identity: Identity,
    /// API version within the group.
    pub(super) version: Arc<str>,
    pub(super) dialect: Dialect,
    /// Canonical JSON without `metadata.resourceVersion`; starts with [`BODY_START`].
    body: Bytes,
    /// Of `body`.
    pub(super) digest: Digest,
    /// Line on which its document starts.
    pub(super) line: u64,
}

impl Resource {
    /// Whether it may belong to a selection, by its kind and name.
    pub(super) fn may_be_of(&self, selection: &Selection) -> bool {
        self.may_be_of_version(selection, &self.version)
    }

    /// Whether it may belong to a selection if it is in this version.
    pub(super) fn may_be_of_version(&self, selection: &Selection, version: &str) -> bool {
        let kind = selection.kind();
        selection.may_have(&self.identity.id)
            && *self.identity.group == *kind.group
            && *self.identity.kind == *kind.name
            && (self.dialect != Dialect::Kubernetes || kind.version == ANY_VERSION || *version == *kind.version)
    }

    /// File and line, as `reviews.yaml:14`.
    fn place(&self, file: &Path) -> Arc<str> {
        match self.line {
            0 => file.display().to_string().into(),
            line => format!("{}:{line}", file.display()).into(),
        }
    }

    /// The resource as an object of this revision, which is in this file.
    pub(super) fn object(&self, revision: &Revision, file: &Path) -> Object {
        let rest = &self.body[BODY_START.len()..];
        let mut body = Vec::with_capacity(self.body.len() + revision.len() + 24);
        body.extend_from_slice(BODY_START.as_bytes());
        body.extend_from_slice(b"\"resourceVersion\":\"");
        body.extend_from_slice(revision.as_bytes());
        body.extend_from_slice(b"\",");
        body.extend_from_slice(rest);
        Object {
            id: self.identity.id.clone(),
            revision: revision.clone(),
            dialect: self.dialect,
            body: Bytes::from(body),
            place: Some(self.place(file)),
        }
    }
}

/// Why a file cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseError {
    /// Line, from 1, where known.
    pub(super) line: Option<u64>,
    /// The fault there.
    pub(super) reason: String,
}

/// Whether a file of this name is read at all.
pub(super) fn is_resource_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// The resources of a file; `path` only decides between YAML and JSON.
pub(super) fn parse(path: &Path, bytes: &[u8], catalog: &Catalog) -> Result<Vec<Resource>, ParseError> {
    let json = path.extension().is_some_and(|extension| extension == "json");
    let documents = if json { json_documents(bytes)? } else { yaml_documents(bytes)? };
    let mut resources = Vec::with_capacity(documents.len());
    for (line, document) in documents {
        unroll(document, None, catalog, line, 0, &mut resources)
            .map_err(|reason| ParseError { line: (line > 0).then_some(line), reason })?;
    }
    Ok(resources)
}

fn json_documents(bytes: &[u8]) -> Result<Vec<(u64, Value)>, ParseError> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let (mut counted, mut line) = (0, 1);
    loop {
        let start = stream.byte_offset();
        match stream.next() {
            None => return Ok(documents),
            Some(Ok(Value::Null)) => {}
            Some(Ok(value)) => {
                let blank = bytes[start..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                let here = start + blank;
                line += bytes[counted..here].iter().filter(|byte| **byte == b'\n').count() as u64;
                counted = here;
                documents.push((line, value));
            }
            Some(Err(error)) => {
                return Err(ParseError { line: Some(error.line() as u64), reason: error.to_string() });
            }
        }
        if documents.len() > MAX_DOCUMENTS {
            return Err(ParseError { line: None, reason: format!("more than {MAX_DOCUMENTS} documents") });
        }
    }
}

fn yaml_documents(bytes: &[u8]) -> Result<Vec<(u64, Value)>, ParseError> {
    let documents: Vec<Spanned<Value>> = serde_saphyr::from_slice_multiple_with_options(bytes, yaml::options())
        .map_err(|error| ParseError {
            line: error.location().map(|location| location.line()).filter(|line| *line > 0),
            reason: error.to_string(),
        })?;
    Ok(documents.into_iter().map(|document| (document.referenced.line(), document.value)).collect())
}

/// Adds the resource, or those of the list. `outer`: apiVersion and kind for items that do not say it themselves.
fn unroll(
    document: Value,
    outer: Option<(&str, &str)>,
    catalog: &Catalog,
    line: u64,
    depth: usize,
    into: &mut Vec<Resource>,
) -> Result<(), String> {
    let Value::Object(mut top) = document else {
        return Err("the document is no mapping with apiVersion, kind and metadata".to_owned());
    };
    let text = |field: &str, fallback: Option<&str>| match top.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null) => fallback.map(str::to_owned).ok_or_else(|| format!("{field} is missing")),
        Some(_) => Err(format!("{field} is not a text")),
    };
    let api_version = text("apiVersion", outer.map(|outer| outer.0))?;
    let kind = text("kind", outer.map(|outer| outer.1).filter(|kind| !kind.is_empty()))?;
    if let (Some(of), Some(items)) = (kind.strip_suffix("List"), top.get_mut("items")) {
        if depth >= MAX_LIST_DEPTH {
            return Err(format!("lists are nested more than {MAX_LIST_DEPTH} deep"));
        }
        let items = match items.take() {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(format!("items of {kind} is no list")),
        };
        for (index, item) in items.into_iter().enumerate() {
            unroll(item, Some((&api_version, of)), catalog, line, depth + 1, into)
                .map_err(|reason| format!("item {} of {kind}: {reason}", index + 1))?;
        }
        Ok(())
    } else {
        into.push(resource(top, api_version, kind, catalog, line)?);
        Ok(())
    }
}

fn resource(
    mut top: Map<String, Value>,
    api_version: String,
    kind: String,
    catalog: &Catalog,
    line: u64,
) -> Result<Resource, String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (group, dialect) = catalog.place(group, version).map_err(|family| {
        let read = family.places_in_words();
        format!("apiVersion {api_version:?}: of the resources of {}, {read} are read", family.group)
    })?;
    let Some(Value::Object(mut metadata)) = top.remove("metadata") else {
        return Err(format!("{kind}: metadata is missing"));
    };
    let name = match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => Arc::from(name.as_str()),
        None | Some(Value::Null | Value::String(_)) => return Err(format!("{kind}: metadata.name is missing")),
        Some(other) => return Err(format!("{kind}: metadata.name {other} is not a text: put it in quotes")),
    };
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(namespace)) => namespace.clone(),
        Some(other) => {
            return Err(format!("{kind} {name}: metadata.namespace {other} is not a text: put it in quotes"));
        }
    };
    let namespace = catalog.namespace(group, &kind, &namespace).to_owned();
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.clone().into());
    }
    metadata.remove("resourceVersion");
    let identity = Identity {
        group: Arc::from(group),
        kind: Arc::from(kind.as_str()),
        id: ObjectId { namespace: Arc::from(namespace), name },
    };
    let version = Arc::from(version);
    top.insert("apiVersion".to_owned(), api_version.into());
    top.insert("kind".to_owned(), kind.into());
    let body = Bytes::from(canonical(&metadata, &top));
    let digest = Sha256::digest(&body).into();
    Ok(Resource { identity, version, dialect, body, digest, line })
}

/// The same text for the same value: metadata first, everything else sorted, no white space.
fn canonical(metadata: &Map<String, Value>, rest: &Map<String, Value>) -> String {
    let mut out = String::from("{\"metadata\":");
    write_object(&mut out, metadata);
    for (key, value) in sorted(rest) {
        out.push(',');
        write_text(&mut out, key);
        out.push(':');
        write_value(&mut out, value);
    }
    out.push('}');
    out
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

fn write_object(out: &mut String, map: &Map<String, Value>) {
    out.push('{');
    for (index, (key, value)) in sorted(map).into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(out, key);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_text(out: &mut String, text: &str) {
    out.push_str(&Value::from(text).to_string());
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) => write_object(out, map),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests;
