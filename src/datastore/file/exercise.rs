//! The fuzz target's work on one input, for tests that replay its corpus.

use std::path::Path;

use serde_json::Value;

use super::parse::parse;
use crate::datastore::catalog::Catalog;
use crate::model::Revision;

/// Reads the input as a file of a folder with kinds of this catalog: YAML, or JSON if its first byte is `{`. Panics when an object that comes out is
/// not what it says it is, or does not come out of its own JSON again.
pub fn file(input: &[u8], catalog: &Catalog) {
    let name = if input.first() == Some(&b'{') { "x.json" } else { "x.yaml" };
    let Ok(resources) = parse(Path::new(name), input, catalog) else { return };
    let revision = Revision::from("7");
    for resource in resources {
        let object = resource.object(&revision, Path::new(name));
        let body: Value = serde_json::from_slice(&object.body).expect("a body is JSON");
        assert_eq!(body["metadata"]["name"], &*object.id.name);
        assert_eq!(body["metadata"]["namespace"].as_str().unwrap_or_default(), &*object.id.namespace);
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        let again = parse(Path::new("x.json"), &object.body, catalog).expect("a body is a file");
        assert_eq!(again.len(), 1, "an object is one object");
        assert_eq!(
            (&again[0].identity, again[0].digest),
            (&resource.identity, resource.digest),
            "{}",
            resource.identity
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_files_does_no_harm() {
        let catalog = crate::calico::catalog::catalog(None);
        crate::fuzzing::replay("folder_file", |input| super::file(input, &catalog));
    }
}
