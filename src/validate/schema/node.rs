//! A compiled structural schema: a tree of nodes, one for each place of an object.
//!
//! Data only. Made by [`compile`](super::compile), followed by [`walk`](super::walk), [`defaults`](super::defaults) and `explain`.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Number, Value};

use super::cel::Rule;
use super::formats::Format;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A mapping.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl Type {
    /// The type that OpenAPI calls so.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// OpenAPI's name for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type with its article, for messages.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Object => "a mapping",
            Self::Array => "a list",
            Self::String => "a text",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "true or false",
        }
    }

    /// Whether the value is of this type. As for the API server, `3.0` is a whole number.
    pub(super) fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Object, Value::Object(_))
            | (Self::Array, Value::Array(_))
            | (Self::String, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Boolean, Value::Bool(_)) => true,
            (Self::Integer, Value::Number(number)) => {
                !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            _ => false,
        }
    }
}

/// Fields without a schema of their own.
#[derive(Debug, Default)]
pub enum Additional {
    /// Nothing is said about them.
    #[default]
    Unsaid,
    /// Any value is accepted.
    Any,
    /// All of them follow this schema: the mapping is a map.
    Schema(Box<Node>),
}

/// The semantics of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// A whole: its items have no identity.
    #[default]
    Atomic,
    /// No item twice.
    Set,
    /// No two items with the same values of these keys.
    Map(Vec<String>),
}

/// Rules for values, beside their type.
#[derive(Debug, Default)]
pub struct Limits {
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The accepted values.
    pub values: Vec<Value>,
    /// Smallest number.
    pub minimum: Option<Number>,
    /// Largest number.
    pub maximum: Option<Number>,
    /// The smallest number itself is too small.
    pub above_minimum: bool,
    /// The largest number itself is too large.
    pub below_maximum: bool,
    /// The number is a multiple of this one.
    pub multiple_of: Option<Number>,
    /// Shortest text, in characters.
    pub min_length: Option<u64>,
    /// Longest text, in characters.
    pub max_length: Option<u64>,
    /// The pattern as written, and compiled.
    pub pattern: Option<(String, Regex)>,
    /// The form of a text or number.
    pub format: Option<Format>,
    /// Fewest items.
    pub min_items: Option<u64>,
    /// Most items.
    pub max_items: Option<u64>,
    /// No item twice.
    pub unique: bool,
    /// Fewest fields.
    pub min_properties: Option<u64>,
    /// Most fields.
    pub max_properties: Option<u64>,
    /// All of these hold.
    pub all_of: Vec<Node>,
    /// At least one of these holds.
    pub any_of: Vec<Node>,
    /// Exactly one of these holds.
    pub one_of: Vec<Node>,
    /// This does not hold.
    pub not: Option<Node>,
}

/// A place of an object, and what is accepted there.
#[derive(Debug, Default)]
pub struct Node {
    /// The type, if one is prescribed.
    pub kind: Option<Type>,
    /// `null` is a value.
    pub nullable: bool,
    /// A whole number or a text.
    pub int_or_string: bool,
    /// Unknown fields are accepted and kept.
    pub preserve: bool,
    /// The value is an object with apiVersion, kind and metadata.
    pub embedded: bool,
    /// The known fields.
    pub properties: BTreeMap<String, Node>,
    /// All other fields.
    pub additional: Additional,
    /// The items of a list.
    pub items: Option<Box<Node>>,
    /// The value of a field that is not there.
    pub default: Option<Value>,
    /// Whether here or below there is a default, or a place where `null` is dropped.
    pub(super) fills: bool,
    /// The semantics of a list.
    pub list: ListType,
    /// A mapping that counts as a whole.
    pub(super) atomic: bool,
    /// Rules for the value. `None`: there are none.
    pub limits: Option<Box<Limits>>,
    /// Rules in CEL.
    pub rules: Vec<Rule>,
    /// For people.
    pub description: String,
}

impl Node {
    /// Whether a field without a schema is a mistake.
    pub(super) fn is_closed(&self) -> bool {
        !self.preserve && !self.int_or_string && matches!(self.additional, Additional::Unsaid)
    }

    /// The schema of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(node), _) => Some(node),
            (None, Additional::Schema(node)) => Some(node),
            (None, _) => None,
        }
    }
}
