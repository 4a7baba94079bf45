//! The text that an object was read from, to name the line and the column of a field when something is wrong with it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::validate::schema::load::{self, unroll};
use crate::validate::schema::metadata::kind_of;
use crate::validate::schema::text::{self, Document};

/// Longest text that is searched, in bytes. The stage that asks waits meanwhile.
const MAX_TEXT: usize = 256 * 1024;

/// Where the text of an object is. Its place in there is that of the object's origin.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Nowhere: an API server keeps none.
    None,
    /// It is the value of an etcd key.
    Held(Bytes),
    /// In a file below the folder; the place is as in `reviews.yaml:14`.
    Below(Arc<Path>),
}

impl Text {
    /// The place of each field of an object, as in `reviews.yaml:14:7`. Empty: the text is gone, or has another object now.
    ///
    /// Reads a file. The caller bounds how often.
    pub(super) fn places(&self, place: &str, object: &Value, pointers: &[String]) -> Vec<String> {
        let Some((name, documents)) = self.documents(place) else { return Vec::new() };
        for document in &documents {
            let mut within = None;
            unroll(&document.value, &mut String::new(), 0, &mut |pointer, other| {
                if within.is_none() && is_same(object, other) {
                    within = Some(pointer.to_owned());
                }
            });
            if let Some(within) = within {
                let place = |pointer: &String| format!("{name}:{}", document.position(&format!("{within}{pointer}")));
                return pointers.iter().map(place).collect();
            }
        }
        Vec::new()
    }

    /// The documents of the text, and its name: the etcd key, or the file.
    fn documents<'a>(&self, place: &'a str) -> Option<(&'a str, Vec<Document>)> {
        let (name, bytes, is_json) = match self {
            Self::None => return None,
            Self::Held(bytes) => (place, bytes.clone(), bytes.trim_ascii_start().starts_with(b"{")),
            Self::Below(folder) => {
                let file = place.rsplit_once(':').map_or(place, |(file, _line)| file);
                let path = folder.join(file);
                if path.metadata().ok()?.len() > MAX_TEXT as u64 {
                    return None;
                }
                (file, load::read(&path).ok()?.into(), load::is_json(&path))
            }
        };
        let documents = (bytes.len() <= MAX_TEXT).then(|| text::read(&bytes, is_json).ok())??;
        Some((name, documents))
    }
}

/// Whether an object of a text is this one. A text may leave the namespace out.
fn is_same(object: &Value, other: &Value) -> bool {
    let (group, _, kind) = kind_of(object);
    let (other_group, _, other_kind) = kind_of(other);
    let name = |object: &Value, field: &str| object["metadata"][field].as_str().map(str::to_owned);
    let namespace = name(other, "namespace");
    (group, kind) == (other_group, other_kind)
        && name(object, "name") == name(other, "name")
        && (namespace.is_none() || namespace == name(object, "namespace"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TWO: &str = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: g/v1\n  kind: A\n  metadata: {name: x}\n\
                       - apiVersion: g/v1\n  kind: A\n  metadata: {name: east}\n  spec:\n    beds: 0\n";

    #[test]
    fn a_field_is_found_in_a_file_and_in_a_value() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), TWO).unwrap();
        let object = json!({"apiVersion": "g/v1", "kind": "A", "metadata": {"name": "east", "namespace": "default"}});
        let (file, held) = (Text::Below(folder.path().into()), Text::Held(Bytes::from_static(TWO.as_bytes())));
        let pointers = ["/spec/beds".to_owned(), "/spec/none".to_owned()];
        assert_eq!(file.places("a.yaml:1", &object, &pointers), ["a.yaml:11:5", "a.yaml:10:3"]);
        assert_eq!(held.places("/mesh/a", &object, &pointers), ["/mesh/a:11:5", "/mesh/a:10:3"]);
        // The file has changed meanwhile, or is gone.
        let other = json!({"apiVersion": "g/v1", "kind": "A", "metadata": {"name": "z"}});
        assert!(file.places("a.yaml:1", &other, &pointers).is_empty());
        std::fs::remove_file(folder.path().join("a.yaml")).unwrap();
        assert!(
            file.places("a.yaml:1", &object, &pointers).is_empty()
                && Text::None.places("", &object, &pointers).is_empty()
        );
    }
}
