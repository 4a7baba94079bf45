//! YAML, read with the limits and the meaning that folders of files have, and with positions.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

use super::positions::{Inner, Mark, Position};
use super::{AMBIGUOUS, DUPLICATE_KEY, Document, KEY_NOT_TEXT, MAX_REMARKS, Malformed, Places};
use crate::model::finding::{Finding, escaped};
use crate::model::yaml;

/// Words that are truth values in YAML 1.1, which kubectl and Bulrush read, and texts in YAML 1.2.
const OLD_TRUTH: [&str; 16] =
    ["y", "Y", "n", "N", "yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"];

/// The documents of a text.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Malformed> {
    let mut options = yaml::options();
    // Every pair is seen, so that each key that is there twice is named.
    options.duplicate_keys = serde_saphyr::options::DuplicateKeyPolicy::LastWins;
    let trees: Vec<Spanned<Tree>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Malformed {
            position: error.location().filter(|at| at.line() > 0).map(|at| position(&at)),
            reason: plain(&error.to_string()),
        })?;
    let documents = trees.into_iter().map(|tree| document(tree, text));
    Ok(documents.filter(|document| !document.value.is_null()).collect())
}

/// The reader's message without the place, which is told apart.
fn plain(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let behind = first.strip_prefix("error: ").unwrap_or(first);
    let text = behind.split_once(": ").filter(|(head, _)| head.starts_with("line ")).map_or(behind, |(_, rest)| rest);
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn position(location: &Location) -> Position {
    Position { line: location.line(), column: location.column() }
}

/// A value with the places of its parts.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            list.push(entry);
        }
        Ok(Tree::Map(list))
    }
}

/// Takes a tree apart into its value, its places and its remarks.
struct Split<'a> {
    text: &'a str,
    path: Vec<String>,
    remarks: Vec<Finding>,
}

fn document(tree: Spanned<Tree>, text: &str) -> Document {
    let mut split = Split { text, path: Vec::new(), remarks: Vec::new() };
    let at = tree.referenced;
    let (value, inner) = split.take(tree);
    Document { value, remarks: split.remarks, places: Places::Marks(mark(&at, inner)) }
}

fn mark(at: &Location, inner: Inner) -> Mark {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Mark { line: small(at.line()), column: small(at.column()), inner }
}

impl Split<'_> {
    fn remark(&mut self, finding: Finding) {
        if self.remarks.len() < MAX_REMARKS {
            let path = self.path.iter().map(|step| format!("/{}", escaped(step))).collect();
            self.remarks.push(Finding { path, ..finding });
        }
    }

    fn take(&mut self, tree: Spanned<Tree>) -> (Value, Inner) {
        match tree.value {
            Tree::Scalar(value) => {
                if let Some(fault) = ambiguity(&value, self.source(&tree.defined)) {
                    self.remark(Finding::of_field(AMBIGUOUS, "", fault).as_warning());
                }
                (value, Inner::None)
            }
            Tree::List(items) => {
                let (mut values, mut marks) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
                for (index, item) in items.into_iter().enumerate() {
                    let at = item.referenced;
                    self.path.push(index.to_string());
                    let (value, inner) = self.take(item);
                    self.path.pop();
                    values.push(value);
                    marks.push(mark(&at, inner));
                }
                (Value::Array(values), Inner::Items(marks))
            }
            Tree::Map(entries) => {
                let (mut map, mut marks) = (Map::new(), Vec::with_capacity(entries.len()));
                for (key, tree) in entries {
                    let at = key.referenced;
                    let name = key.value;
                    self.path.push(name.clone());
                    if let Some((id, fault)) = odd_key(&name, self.source(&key.defined)) {
                        self.remark(Finding::of_field(id, "", fault).as_warning());
                    }
                    let (value, inner) = self.take(tree);
                    if map.insert(name.clone(), value).is_some() {
                        let fault = "the mapping has this key twice: readers take one or the other";
                        self.remark(Finding::of_field(DUPLICATE_KEY, "", fault));
                    }
                    self.path.pop();
                    marks.push((name.into_boxed_str(), mark(&at, inner)));
                }
                (Value::Object(map), Inner::Fields(marks))
            }
        }
    }

    /// The text from a place on. Empty if the place is not known.
    fn source(&self, at: &Location) -> &str {
        let start = at.span().byte_offset().and_then(|offset| usize::try_from(offset).ok());
        start.and_then(|start| self.text.get(start..)).unwrap_or_default()
    }
}

/// Whether a scalar stands in a text as it is, without quotes, tag or anchor.
fn is_plain(source: &str) -> bool {
    !source.is_empty() && !source.starts_with(['"', '\'', '|', '>', '&', '!', '*'])
}

/// Why other readers may take another key.
fn odd_key(name: &str, source: &str) -> Option<(&'static str, String)> {
    if !is_plain(source) {
        return None;
    }
    if OLD_TRUTH.contains(&name) {
        return Some((
            AMBIGUOUS,
            format!("the key {name} is true or false for kubectl, and a text here: put it in quotes"),
        ));
    }
    let kind = match name {
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => "a truth value",
        "null" | "Null" | "NULL" | "~" => "null",
        _ if name.parse::<f64>().is_ok() && name.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            "a number"
        }
        _ => return None,
    };
    Some((KEY_NOT_TEXT, format!("the key is {kind}, which counts as a text: put it in quotes")))
}

/// Why other readers may take another value from a scalar that is written so.
fn ambiguity(value: &Value, source: &str) -> Option<String> {
    if !is_plain(source) {
        return None;
    }
    match value {
        Value::Bool(truth) => {
            let word: String = source.chars().take_while(char::is_ascii_alphabetic).collect();
            OLD_TRUTH.contains(&word.as_str()).then(|| {
                format!("{word} counts as {truth}, as for kubectl, and is a text for others: write {truth}, or put it in quotes")
            })
        }
        Value::Number(number) => {
            let digits = source.trim_start_matches(['-', '+']);
            let octal = digits.starts_with('0') && digits[1..].starts_with(|c: char| c.is_ascii_digit());
            octal.then(|| {
                format!("the number begins with 0 and counts as octal, {number}: put it in quotes, or write {number}")
            })
        }
        _ => None,
    }
}
