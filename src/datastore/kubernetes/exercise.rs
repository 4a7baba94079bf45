//! The work of the fuzz target on one input, for tests that replay its corpus.

use bytes::Bytes;

use super::events::{Read, read};
use super::lines::Lines;
use super::list::read_page;
use crate::datastore::inlet::Event;
use crate::model::object::{Dialect, Object};

/// Reads the input as an answer of the API server: as a page of a list, and, without its first byte, as the body of a watch,
/// whole and in pieces whose size the first byte chooses. Panics when the pieces matter, or when an object that comes out has
/// no name, no version, or is not the same once it is read again from its own bytes.
pub fn answer(input: &[u8]) {
    if let Ok((page, _next)) = read_page(&Bytes::copy_from_slice(input), Dialect::Kubernetes) {
        page.objects.iter().for_each(check);
    }
    let Some((size, body)) = input.split_first() else { return };
    let whole = lines(body, body.len().max(1));
    assert_eq!(whole, lines(body, usize::from(*size).max(1)), "the size of the pieces must not matter");
    for line in &whole {
        match read(line, Dialect::Kubernetes) {
            Ok(Read::Event(Event::Put(object) | Event::Delete { last: Some(object), .. })) => check(&object),
            Ok(Read::Event(Event::Delete { id, last: None })) => assert!(!id.name.is_empty(), "a deletion has a name"),
            Ok(Read::Event(Event::Malformed(object))) => assert!(!object.id.name.is_empty(), "it can be named"),
            Ok(Read::Bookmark(revision, _)) => assert!(!revision.is_empty(), "a bookmark tells a position"),
            Ok(Read::Nothing) | Err(_) => {}
        }
    }
}

fn lines(body: &[u8], size: usize) -> Vec<Bytes> {
    let (mut lines, mut out) = (Lines::default(), Vec::new());
    for piece in body.chunks(size) {
        lines.push(Bytes::copy_from_slice(piece), &mut out).expect("inputs of fuzzing are shorter than a line may be");
    }
    out
}

fn check(object: &Object) {
    assert!(!object.id.name.is_empty() && !object.revision.is_empty(), "{object:?}");
    let line = [&br#"{"type":"ADDED","object":"#[..], &object.body, b"}"].concat();
    let Ok(Read::Event(Event::Put(again))) = read(&line.into(), Dialect::Kubernetes) else {
        panic!("an object's bytes are an object: {:?}", object.body);
    };
    assert_eq!((&again.id, &again.revision, &again.body), (&object.id, &object.revision, &object.body));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_answers_does_no_harm() {
        crate::fuzzing::replay("kubernetes_json", super::answer);
    }
}
