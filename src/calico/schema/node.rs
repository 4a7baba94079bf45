//! A decoded object: a tree in which every struct has all its fields.

use std::collections::BTreeMap;

use super::{Struct, Type};
use crate::calico::duration::GoDuration;
use crate::calico::numorstring::{AsNumber, IntOrString, Port, Protocol};
use crate::model::timestamp::Timestamp;

/// A value under a [`Type`]. A pointer is [`Node::Nil`] or its target.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A nil pointer, list or map.
    Nil,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Text.
    Text(String),
    /// A time; [`Timestamp::ZERO`] when not set.
    Time(Timestamp),
    /// A duration.
    Duration(GoDuration),
    /// A number or text.
    IntOrString(IntOrString),
    /// A port of a rule.
    Port(Port),
    /// A protocol.
    Protocol(Protocol),
    /// An AS number.
    AsNumber(AsNumber),
    /// JSON as it was; empty text when not set.
    Raw(String),
    /// A list.
    List(Vec<Node>),
    /// A map.
    Map(BTreeMap<String, Node>),
    /// A struct.
    Struct(Fields),
}

/// The fields of a struct: one node for each field of its declaration, in the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    /// The declaration.
    pub schema: &'static Struct,
    /// The values.
    pub values: Vec<Node>,
}

impl Fields {
    /// All fields zero.
    #[must_use]
    pub fn zero(schema: &'static Struct) -> Self {
        Self { schema, values: schema.fields.iter().map(|field| field.ty.zero()).collect() }
    }

    /// The field with this JSON name.
    #[must_use]
    pub fn get(&self, json: &str) -> Option<&Node> {
        self.schema.index_of(json).map(|index| &self.values[index])
    }

    /// The field with this JSON name, to change it.
    pub fn get_mut(&mut self, json: &str) -> Option<&mut Node> {
        self.schema.index_of(json).map(|index| &mut self.values[index])
    }

    /// The text field with this JSON name; empty when there is none or it is nil.
    #[must_use]
    pub fn text(&self, json: &str) -> &str {
        self.get(json).and_then(Node::as_text).unwrap_or_default()
    }

    /// Declarations and values, side by side.
    pub fn iter(&self) -> impl Iterator<Item = (&'static super::Field, &Node)> {
        self.schema.fields.iter().zip(&self.values)
    }
}

impl Node {
    /// The fields, if this is a struct (or a pointer to one).
    #[must_use]
    pub fn as_struct(&self) -> Option<&Fields> {
        if let Self::Struct(fields) = self { Some(fields) } else { None }
    }

    /// The text, if this is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The elements; none when this is nil or no list.
    #[must_use]
    pub fn as_list(&self) -> &[Node] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// The entries, if this is a map that is not nil.
    #[must_use]
    pub fn as_map(&self) -> Option<&BTreeMap<String, Node>> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// The node at the end of a path of JSON names.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, name| node.as_struct()?.get(name))
    }

    /// Empty in the sense of `omitempty`. A pointer is empty only when it is nil: see the field's type.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Nil => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::AsNumber(value) => value.0 == 0,
            Self::Text(value) => value.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Time(_)
            | Self::Duration(_)
            | Self::IntOrString(_)
            | Self::Port(_)
            | Self::Protocol(_)
            | Self::Raw(_)
            | Self::Struct(_) => false,
        }
    }

    /// Equal to the zero value of its type, which is no pointer.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Raw(value) => value.is_empty(),
            Self::Time(time) => *time == Timestamp::ZERO,
            Self::Duration(duration) => duration.0 == 0,
            Self::IntOrString(value) => *value == IntOrString::Int(0),
            Self::Port(port) => *port == Port::single(0),
            Self::Protocol(protocol) => *protocol == Protocol::Number(0),
            Self::List(_) | Self::Map(_) => false,
            Self::Struct(fields) => fields.iter().all(|(field, node)| match field.ty {
                Type::Pointer(_) => *node == Node::Nil,
                _ => node.is_zero(),
            }),
            _ => self.is_empty(),
        }
    }
}

impl Type {
    /// The value of a field that is not set.
    #[must_use]
    pub fn zero(&self) -> Node {
        match self {
            Self::Bool => Node::Bool(false),
            Self::Int { .. } => Node::Int(0),
            Self::Text => Node::Text(String::new()),
            Self::Time => Node::Time(Timestamp::ZERO),
            Self::Duration => Node::Duration(GoDuration::default()),
            Self::IntOrString => Node::IntOrString(IntOrString::Int(0)),
            Self::Port => Node::Port(Port::single(0)),
            Self::Protocol => Node::Protocol(Protocol::Number(0)),
            Self::AsNumber => Node::AsNumber(AsNumber(0)),
            Self::Raw => Node::Raw(String::new()),
            Self::Pointer(_) | Self::List(_) | Self::Map(_) => Node::Nil,
            Self::Struct(index) => Node::Struct(Fields::zero(super::table::at(*index))),
        }
    }
}
