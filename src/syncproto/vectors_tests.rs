//! Reads the wire vectors; see the README of their folder.

use serde_json::Value;

pub(crate) use crate::vectors::files::text;

/// The categories of vectors. A vector of another category would not be tested by anything.
const CATEGORIES: &[&str] =
    &["single", "stream", "otherversion", "legal", "malformed", "snappy", "session", "primitive"];

/// All vectors of these categories.
///
/// # Panics
/// When they cannot be read, one is of an unknown category, or the repository has none.
pub(crate) fn vectors(categories: &[&str]) -> Vec<Value> {
    let mut vectors = Vec::new();
    let mut ours = 0;
    for mut file in crate::vectors::files::read("wire") {
        let category = text(&file.content, "category");
        assert!(
            CATEGORIES.contains(&category),
            "{}: unknown category {category:?}, known are {CATEGORIES:?}",
            file.path.display()
        );
        if categories.contains(&category) {
            ours += usize::from(file.is_ours);
            if !file.is_ours {
                // Failures have to tell vectors of the same name apart. The name's start tells its kind, so the path goes to the end.
                let name = format!("{} ({})", text(&file.content, "name"), file.path.display());
                file.content["name"] = name.into();
            }
            vectors.push(file.content);
        }
    }
    assert!(ours > 0, "no vectors of {categories:?} in tests/vectors/wire");
    vectors
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name:?} in {value}"))
}

/// The bytes of hexadecimal digits; white space is ignored.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    assert_eq!(digits.len() % 2, 0, "odd number of digits");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit");
    digits.chunks(2).map(|pair| u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).expect("two digits")).collect()
}
