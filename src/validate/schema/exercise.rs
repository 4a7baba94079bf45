//! The fuzz target's work on one input, for tests that replay its corpus.

use super::Library;
use super::load::unroll;
use super::text::{self, Position};
use crate::model::finding::Findings;

/// Most findings per object.
const LIMIT: usize = 50;

/// Reads the input as a text of schemas and objects: YAML, or JSON if its first byte is `{`. The schemas are compiled, and each object is checked by
/// itself and against the one before. Panics when a finding has no place in the text, or there are too many.
pub fn text(input: &[u8]) {
    let Ok(documents) = text::read(input, input.first() == Some(&b'{')) else { return };
    let mut library = Library::empty();
    for document in &documents {
        unroll(&document.value, &mut String::new(), 0, &mut |_, object| {
            for (pointer, _) in library.add(object, "x").err().into_iter().flatten() {
                assert!(document.position(&pointer) >= Position { line: 1, column: 1 }, "{pointer}");
            }
        });
    }
    let mut before = None;
    for document in &documents {
        assert!(document.remarks.iter().all(|remark| document.position(&remark.path).line > 0));
        for old in [None, before] {
            let mut findings = Findings::up_to(LIMIT);
            library.check_into(&document.value, old, &mut findings);
            assert!(findings.as_slice().len() <= LIMIT);
            for finding in findings.as_slice() {
                assert!(finding.path.is_empty() || finding.path.starts_with('/'), "{finding}");
                assert!(document.position(&finding.path).line > 0, "{finding}");
            }
        }
        before = Some(&document.value);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_schemas_does_no_harm() {
        crate::fuzzing::replay("schema", super::text);
    }
}
