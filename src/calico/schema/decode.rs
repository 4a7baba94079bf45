//! Reads JSON into a tree as Go would: `null` is zero, unknown fields vanish, a wrong type is an error with its path.
//! One difference: `metadata.managedFields` of Kubernetes' objects is skipped unread.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Fields, Node, Struct, Type};
use crate::calico::duration::GoDuration;
use crate::calico::numorstring::scalar;
use crate::model::gojson;
use crate::model::object::Dialect;
use crate::model::strict::{self, ReadError};
use crate::model::timestamp::Timestamp;

/// The way to match field names, and whether the API server's bookkeeping is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// As written, as Kubernetes' reader does. Without bookkeeping, which is up to half of an object.
    Exact,
    /// In any case, an exact match first, as Go's own reader does: for etcd. With bookkeeping.
    Folded,
    /// As [`Self::Folded`], without bookkeeping: for JSON in annotations of Kubernetes' objects.
    FoldedLean,
}

impl Case {
    /// The reader of objects in this dialect.
    #[must_use]
    pub fn of(dialect: Dialect) -> Self {
        if dialect == Dialect::Etcd { Self::Folded } else { Self::Exact }
    }

    fn keeps_bookkeeping(self) -> bool {
        self == Self::Folded
    }
}

/// Reads JSON text under a struct's declaration.
///
/// # Errors
/// When the text is not JSON or something in it does not fit.
pub fn decode(schema: &'static Struct, json: &[u8], case: Case) -> Result<Fields, ReadError> {
    gojson::parse_with(json, |json| strict::seeded(json, StructSeed { schema, case }))
}

/// Reads a value that may be `null`.
#[derive(Clone, Copy)]
struct Nullable {
    ty: &'static Type,
    case: Case,
}

impl<'de> DeserializeSeed<'de> for Nullable {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Nullable {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(self.ty.zero())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        read(self.ty, self.case, deserializer)
    }
}

fn read<'de, D: Deserializer<'de>>(ty: &'static Type, case: Case, json: D) -> Result<Node, D::Error> {
    Ok(match ty {
        Type::Bool => Node::Bool(bool::deserialize(json)?),
        Type::Int { min, max } => Node::Int(scalar(
            json,
            format_args!("a number from {min} to {max}"),
            |number| i64::try_from(number).ok().filter(|number| (*min..=*max).contains(number)),
            |_| None,
        )?),
        Type::Text => Node::Text(String::deserialize(json)?),
        Type::Time => Node::Time(scalar(json, "a time (RFC 3339)", |_| None, Timestamp::parse)?),
        Type::Duration => Node::Duration(scalar(json, "a duration such as 1m30s", |_| None, GoDuration::parse)?),
        Type::IntOrString => Node::IntOrString(Deserialize::deserialize(json)?),
        Type::Port => Node::Port(Deserialize::deserialize(json)?),
        Type::Protocol => Node::Protocol(Deserialize::deserialize(json)?),
        Type::AsNumber => Node::AsNumber(Deserialize::deserialize(json)?),
        Type::Raw => Node::Raw(Box::<RawValue>::deserialize(json)?.get().to_owned()),
        Type::List(element) => json.deserialize_seq(ListVisitor { element, case })?,
        Type::Map(element) => json.deserialize_map(MapVisitor { element, case })?,
        Type::Struct(index) => {
            let schema = super::table::at(*index);
            Node::Struct(StructSeed { schema, case }.deserialize(json)?)
        }
        Type::Pointer(inner) => read(inner, case, json)?,
    })
}

struct ListVisitor {
    element: &'static Type,
    case: Case,
}

impl<'de> Visitor<'de> for ListVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        let seed = Nullable { ty: self.element, case: self.case };
        while let Some(node) = items.next_element_seed(seed)? {
            list.push(node);
        }
        Ok(Node::List(list))
    }
}

struct MapVisitor {
    element: &'static Type,
    case: Case,
}

impl<'de> Visitor<'de> for MapVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = BTreeMap::new();
        let seed = Nullable { ty: self.element, case: self.case };
        while let Some(key) = entries.next_key()? {
            map.insert(key, entries.next_value_seed(seed)?);
        }
        Ok(Node::Map(map))
    }
}

#[derive(Clone, Copy)]
struct StructSeed {
    schema: &'static Struct,
    case: Case,
}

impl<'de> DeserializeSeed<'de> for StructSeed {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StructSeed {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::zero(self.schema);
        let names = FieldName(self);
        while let Some(index) = entries.next_key_seed(names)? {
            let Some(index) = index else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = &self.schema.fields[index];
            if field.bookkeeping && !self.case.keeps_bookkeeping() {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            fields.values[index] = entries.next_value_seed(Nullable { ty: &field.ty, case: self.case })?;
        }
        Ok(fields)
    }
}

/// Finds a struct's field by its name in JSON, without copying the name.
#[derive(Clone, Copy)]
struct FieldName(StructSeed);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        let StructSeed { schema, case } = self.0;
        Ok(schema.index_of(name).or_else(|| match case {
            Case::Exact => None,
            Case::Folded | Case::FoldedLean => {
                schema.fields.iter().position(|field| field.json.eq_ignore_ascii_case(name))
            }
        }))
    }
}
