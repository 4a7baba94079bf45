//! The keywords of one place of a schema, read with their types.
//!
//! Pure. Used by [`compile`](super::compile).

use serde_json::{Map, Number, Value};

use super::node::{ListType, Type};

/// Most mistakes that are listed for one schema.
const MAX_MISTAKES: usize = 100;

/// A mistake in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// JSON pointer to it, from the schema's root.
    pub(super) pointer: String,
    /// The fault.
    pub(super) reason: String,
}

/// The mistakes of a schema, [`MAX_MISTAKES`] at most.
#[derive(Debug, Default)]
pub(super) struct Mistakes(pub(super) Vec<Mistake>);

impl Mistakes {
    /// Notes a mistake.
    pub(super) fn note(&mut self, pointer: &str, reason: String) {
        if self.0.len() < MAX_MISTAKES {
            self.0.push(Mistake { pointer: pointer.to_owned(), reason });
        }
    }
}

/// Reads the keywords of one place, and notes those with values of another type.
pub(super) struct Reader<'a, 'b> {
    pub(super) schema: &'a Map<String, Value>,
    pub(super) pointer: &'a str,
    pub(super) mistakes: &'b mut Mistakes,
}

impl<'a> Reader<'a, '_> {
    fn wrong(&mut self, name: &str, expected: &str) {
        let reason = format!("{name} must be {expected}, not {}", self.schema[name]);
        self.mistakes.note(&format!("{}/{name}", self.pointer), reason);
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.schema.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn kind(&mut self) -> Option<Type> {
        let name = self.text("type").filter(|name| !name.is_empty())?;
        let kind = Type::named(&name);
        if kind.is_none() {
            self.wrong("type", "object, array, string, integer, number or boolean");
        }
        kind
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.get(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong(name, "true or false");
                false
            }
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.get(name)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(name, "a text");
                None
            }
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Option<Number> {
        match self.get(name)? {
            Value::Number(number) => Some(number.clone()),
            _ => {
                self.wrong(name, "a number");
                None
            }
        }
    }

    pub(super) fn count(&mut self, name: &str) -> Option<u64> {
        let value = self.get(name)?;
        let count = value.as_u64();
        if count.is_none() {
            self.wrong(name, "a whole number from 0 on");
        }
        count
    }

    pub(super) fn list(&mut self, name: &str) -> Vec<Value> {
        match self.get(name) {
            None => Vec::new(),
            Some(Value::Array(list)) => list.clone(),
            Some(_) => {
                self.wrong(name, "a list");
                Vec::new()
            }
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let list = self.list(name);
        let texts: Vec<String> = list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        if texts.len() < list.len() {
            self.wrong(name, "a list of texts");
        }
        texts
    }

    pub(super) fn list_type(&mut self) -> ListType {
        const KEYWORD: &str = "x-kubernetes-list-type";
        match self.text(KEYWORD).as_deref() {
            None | Some("atomic") => ListType::Atomic,
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = self.texts("x-kubernetes-list-map-keys");
                if keys.is_empty() {
                    self.wrong(KEYWORD, "accompanied by x-kubernetes-list-map-keys");
                }
                ListType::Map(keys)
            }
            Some(_) => {
                self.wrong(KEYWORD, "atomic, set or map");
                ListType::Atomic
            }
        }
    }
}
