//! Schemas from files and folders, with all mistakes of all files.
//!
//! The only file of this room that does I/O, blocking.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::library::Library;
use super::text::{self, Position};

/// Largest file that is read, in bytes. The Gateway API's CRDs have 1 MB together.
pub const MAX_FILE: u64 = 32 * 1024 * 1024;
/// Most files of all folders.
const MAX_FILES: usize = 50_000;
/// Deepest folder below a given one.
const MAX_FOLDER_DEPTH: usize = 32;
/// Most mistakes that are gathered.
const MAX_MISTAKES: usize = 1000;
/// Files of kustomize, which lie beside objects and hold none.
const NO_OBJECTS: [&str; 2] = ["kustomization.yaml", "kustomization.yml"];
/// Deepest nesting of lists in lists.
const MAX_LIST_DEPTH: usize = 4;

/// A mistake in a file of schemas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SchemaError {
    /// The file or folder.
    pub path: PathBuf,
    /// The place in the file, if known.
    pub position: Option<Position>,
    /// JSON pointer into the document; empty for the whole.
    pub pointer: String,
    /// The fault, and what to check.
    pub reason: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(position) = self.position {
            write!(f, ":{position}")?;
        }
        let place = if self.pointer.is_empty() { String::new() } else { format!("{}: ", self.pointer) };
        write!(f, ": {place}{}", self.reason)
    }
}

impl Library {
    /// Reads and compiles all schemas of files and folders: CRDs and JSON Schemas in YAML and JSON, several in a file, lists unrolled. Other objects are passed over.
    ///
    /// # Errors
    /// All mistakes: files that cannot be read, schemas that do not compile, kinds that are defined twice.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Vec<SchemaError>> {
        let (mut library, mut errors) = (Self::empty(), Vec::new());
        for file in files(paths, &mut errors) {
            match read(&file) {
                Ok(bytes) => {
                    errors.extend(library.add_text(&file, &bytes));
                }
                Err(error) => errors.push(error),
            }
            errors.truncate(MAX_MISTAKES);
        }
        if errors.is_empty() { Ok(library) } else { Err(errors) }
    }

    /// Adds the schemas of one file's text. Gives its mistakes.
    pub fn add_text(&mut self, path: &Path, bytes: &[u8]) -> Vec<SchemaError> {
        let wrong = |position, pointer, reason| SchemaError { path: path.to_owned(), position, pointer, reason };
        let documents = match text::read(bytes, is_json(path)) {
            Ok(documents) => documents,
            Err(error) => return vec![wrong(error.position, String::new(), error.reason)],
        };
        let mut errors = Vec::new();
        for document in &documents {
            let mut add = |pointer: &str, object: &Value| {
                let Err(mistakes) = self.add(object, &path.display().to_string()) else { return };
                errors.extend(mistakes.into_iter().map(|(place, reason)| {
                    let pointer = format!("{pointer}{place}");
                    wrong(Some(document.position(&pointer)), pointer, reason)
                }));
            };
            unroll(&document.value, &mut String::new(), 0, &mut add);
        }
        errors
    }
}

/// Calls `each` with the objects of a document and their places in it: of a list its items.
pub fn unroll(object: &Value, pointer: &mut String, depth: usize, each: &mut impl FnMut(&str, &Value)) {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match object.get("items").and_then(Value::as_array) {
        Some(items) if is_list && depth < MAX_LIST_DEPTH => {
            for (index, item) in items.iter().enumerate() {
                let length = pointer.len();
                pointer.push_str(&format!("/items/{index}"));
                unroll(item, pointer, depth + 1, each);
                pointer.truncate(length);
            }
        }
        _ => each(pointer, object),
    }
}

/// Whether a file of this name is JSON; all others are YAML.
#[must_use]
pub fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// The files of files and folders, sorted: of folders those with YAML and JSON, without hidden ones and those of kustomize.
pub fn files(paths: &[PathBuf], errors: &mut Vec<SchemaError>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            folder(path, 0, &mut found, errors);
            found[before..].sort();
        } else {
            found.push(path.clone());
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn folder(path: &Path, depth: usize, found: &mut Vec<PathBuf>, errors: &mut Vec<SchemaError>) {
    let mut wrong = |reason: String| {
        errors.push(SchemaError { path: path.to_owned(), position: None, pointer: String::new(), reason });
    };
    if depth > MAX_FOLDER_DEPTH {
        return wrong(format!(
            "folders are nested more than {MAX_FOLDER_DEPTH} deep: is there a symlink to a folder around it?"
        ));
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return wrong(format!("the folder cannot be read: {error}")),
    };
    let mut inner: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    inner.sort();
    for path in inner {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if name.starts_with('.') || NO_OBJECTS.contains(&name) {
            continue;
        }
        if path.is_dir() {
            folder(&path, depth + 1, found, errors);
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            if found.len() >= MAX_FILES {
                let reason = format!("there are more than {MAX_FILES} files");
                return errors.push(SchemaError { path, position: None, pointer: String::new(), reason });
            }
            found.push(path);
        }
    }
}

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is larger than [`MAX_FILE`].
pub fn read(path: &Path) -> Result<Vec<u8>, SchemaError> {
    let wrong = |reason: String| SchemaError { path: path.to_owned(), position: None, pointer: String::new(), reason };
    let file = fs::File::open(path).map_err(|error| wrong(format!("the file cannot be read: {error}")))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(format!("the file cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(wrong(format!("the file is larger than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: as.b.c}
  spec:
    group: b.c
    names: {kind: A, plural: as}
    scope: Cluster
    versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
- {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}
";

    #[test]
    fn schemas_are_read_from_folders_and_all_mistakes_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
        fs::create_dir(folder.path().join("inner")).expect("a folder");
        write("inner/good.yaml", GOOD);
        write("kustomization.yaml", "resources: []\n");
        write(".hidden.yaml", "[");
        write("readme.md", "[");
        let paths = [folder.path().to_owned()];
        let library = Library::load(&paths).expect("the schemas compile");
        assert_eq!(library.kinds().map(|known| known.kind.to_owned()).collect::<Vec<_>>(), ["A"]);
        write("again.yaml", GOOD);
        write("broken.yaml", "a: [1\n");
        write("typo.yaml", &GOOD.replace("scope: Cluster", "scope: Everywhere").replace("as.b.c", "as.c"));
        let missing = folder.path().join("missing");
        let errors = Library::load(&[paths[0].clone(), missing]).expect_err("there are mistakes");
        let prefix = format!("{}/", folder.path().display());
        let lines: Vec<String> = errors.iter().map(|error| error.to_string().replace(&prefix, "")).collect();
        for expected in [
            "broken.yaml:",
            "inner/good.yaml:6:14: /items/0/metadata/name: A of b.c has a schema already, from again.yaml",
            "typo.yaml:10:5: /items/0/spec/scope: it is Namespaced or Cluster",
            "typo.yaml:6:14: /items/0/metadata/name: the name of a definition is",
            "missing: the file cannot be read: ",
        ] {
            assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}\nis not in\n{}", lines.join("\n"));
        }
        assert_eq!(lines.len(), 5, "{}", lines.join("\n"));
    }
}
