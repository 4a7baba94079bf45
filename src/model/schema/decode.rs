//! Reads JSON into a tree as Go would: `null` is zero, unknown fields vanish, a wrong type is an error with its path.
//! One difference: `metadata.managedFields` of Kubernetes' objects is skipped without being looked at.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Fields, IntOrString, Node, Struct, Type};
use crate::model::duration::GoDuration;
use crate::model::gojson;
use crate::model::strict;
use crate::model::timestamp::Timestamp;

/// How field names are matched, and whether the API server's bookkeeping is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// As written: Kubernetes' reader. Without bookkeeping, which is up to half of an object.
    Exact,
    /// Whatever their case, an exact match first: Go's own reader, used for etcd. With everything.
    Folded,
    /// As [`Self::Folded`], without bookkeeping: JSON in annotations of Kubernetes' objects.
    FoldedLean,
}

impl Case {
    fn keeps_bookkeeping(self) -> bool {
        self == Self::Folded
    }
}

/// JSON does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct SchemaError {
    /// Where, for example `spec.ports[0].port`; `.` for the whole.
    pub path: String,
    /// What is there and what is accepted.
    pub reason: String,
}

/// Reads JSON text under a struct's declaration.
///
/// # Errors
/// When the text is not JSON or something in it does not fit.
pub fn decode(schema: &'static Struct, json: &[u8], case: Case) -> Result<Fields, SchemaError> {
    gojson::parse_with(json, |json| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let fields = decode_from(schema, &mut deserializer, case)?;
        deserializer.end().map_err(|error| SchemaError { path: ".".to_owned(), reason: error.to_string() })?;
        Ok(fields)
    })
}

/// Reads a JSON value under a struct's declaration.
///
/// # Errors
/// When something in it does not fit.
pub fn decode_value(schema: &'static Struct, json: &serde_json::Value, case: Case) -> Result<Fields, SchemaError> {
    decode_from(schema, json, case)
}

fn decode_from<'de, D: Deserializer<'de>>(
    schema: &'static Struct,
    deserializer: D,
    case: Case,
) -> Result<Fields, SchemaError> {
    let path = Path::default();
    let seed = StructSeed { schema, context: Context { case, path: &path } };
    seed.deserialize(deserializer)
        .map_err(|error| SchemaError { path: path.to_string(), reason: strict::without_place(error.to_string()) })
}

#[derive(Default)]
struct Path(RefCell<Vec<Segment>>);

enum Segment {
    Field(&'static str),
    Key(String),
    Index(usize),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = self.0.borrow();
        if segments.is_empty() {
            return f.write_str(".");
        }
        for (index, segment) in segments.iter().enumerate() {
            match segment {
                Segment::Index(at) => write!(f, "[{at}]")?,
                Segment::Key(key) => write!(f, "[{key:?}]")?,
                Segment::Field(name) => {
                    if index > 0 {
                        f.write_char('.')?;
                    }
                    f.write_str(name)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Context<'p> {
    case: Case,
    path: &'p Path,
}

impl Context<'_> {
    /// Runs `read` one step further down. The step stays in the path when it fails.
    fn within<T, E>(self, segment: Segment, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.path.0.borrow_mut().push(segment);
        let value = read()?;
        self.path.0.borrow_mut().pop();
        Ok(value)
    }
}

/// Reads a value that may be `null`.
#[derive(Clone, Copy)]
struct Nullable<'p> {
    ty: &'static Type,
    context: Context<'p>,
}

impl<'de> DeserializeSeed<'de> for Nullable<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Nullable<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(self.ty.zero())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(self.ty.zero())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let mut ty = self.ty;
        while let Type::Pointer(inner) = ty {
            ty = inner;
        }
        read(ty, self.context, deserializer)
    }
}

fn read<'de, D: Deserializer<'de>>(ty: &'static Type, context: Context<'_>, json: D) -> Result<Node, D::Error> {
    Ok(match ty {
        Type::Bool => Node::Bool(bool::deserialize(json)?),
        Type::Int { min, max } => {
            let number = i64::deserialize(json)?;
            if !(*min..=*max).contains(&number) {
                return Err(de::Error::custom(format!("{number} is not a number from {min} to {max}")));
            }
            Node::Int(number)
        }
        Type::Text => Node::Text(String::deserialize(json)?),
        Type::Time => {
            let text = String::deserialize(json)?;
            Node::Time(Timestamp::parse(&text).ok_or_else(|| not(&text, "a time (RFC 3339)"))?)
        }
        Type::Duration => {
            let text = String::deserialize(json)?;
            Node::Duration(GoDuration::parse(&text).ok_or_else(|| not(&text, "a duration such as 1m30s"))?)
        }
        Type::IntOrString => Node::IntOrString(Deserialize::deserialize(json)?),
        Type::Port => Node::Port(Deserialize::deserialize(json)?),
        Type::Protocol => Node::Protocol(Deserialize::deserialize(json)?),
        Type::AsNumber => Node::AsNumber(Deserialize::deserialize(json)?),
        Type::Raw => Node::Raw(Box::<RawValue>::deserialize(json)?.get().to_owned()),
        Type::List(element) => json.deserialize_seq(ListVisitor { element, context })?,
        Type::Map(element) => json.deserialize_map(MapVisitor { element, context })?,
        Type::Struct(index) => {
            let schema = super::table::at(*index);
            Node::Struct(StructSeed { schema, context }.deserialize(json)?)
        }
        Type::Pointer(inner) => read(inner, context, json)?,
    })
}

fn not<E: de::Error>(value: &str, expected: &str) -> E {
    E::custom(format!("{value:?} is not {expected}"))
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntOrStringVisitor)
    }
}

struct IntOrStringVisitor;

impl Visitor<'_> for IntOrStringVisitor {
    type Value = IntOrString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 32-bit number or text")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrString, E> {
        i32::try_from(number).map(IntOrString::Int).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrString, E> {
        i32::try_from(number)
            .map(IntOrString::Int)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
        Ok(IntOrString::Text(text.to_owned()))
    }
}

struct ListVisitor<'p> {
    element: &'static Type,
    context: Context<'p>,
}

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        let seed = Nullable { ty: self.element, context: self.context };
        while let Some(node) = self.context.within(Segment::Index(list.len()), || items.next_element_seed(seed))? {
            list.push(node);
        }
        Ok(Node::List(list))
    }
}

struct MapVisitor<'p> {
    element: &'static Type,
    context: Context<'p>,
}

impl<'de> Visitor<'de> for MapVisitor<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = BTreeMap::new();
        let seed = Nullable { ty: self.element, context: self.context };
        while let Some(key) = entries.next_key::<String>()? {
            let node = self.context.within(Segment::Key(key.clone()), || entries.next_value_seed(seed))?;
            map.insert(key, node);
        }
        Ok(Node::Map(map))
    }
}

struct StructSeed<'p> {
    schema: &'static Struct,
    context: Context<'p>,
}

impl<'de> DeserializeSeed<'de> for StructSeed<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StructSeed<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::zero(self.schema);
        let names = FieldName { schema: self.schema, case: self.context.case };
        while let Some(index) = entries.next_key_seed(&names)? {
            let Some(index) = index else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = &self.schema.fields[index];
            if field.bookkeeping && !self.context.case.keeps_bookkeeping() {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            let seed = Nullable { ty: &field.ty, context: self.context };
            fields.values[index] =
                self.context.within(Segment::Field(&field.json), || entries.next_value_seed(seed))?;
        }
        Ok(fields)
    }
}

/// Finds the field that a name in JSON means, without copying the name.
struct FieldName {
    schema: &'static Struct,
    case: Case,
}

impl<'de> DeserializeSeed<'de> for &FieldName {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for &FieldName {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.schema.index_of(name).or_else(|| match self.case {
            Case::Exact => None,
            Case::Folded | Case::FoldedLean => {
                self.schema.fields.iter().position(|field| field.json.eq_ignore_ascii_case(name))
            }
        }))
    }
}
