//! Go's view of whole objects: the fields of each type in order, and how JSON is read into them and written again.
//!
//! Whole v3 and Kubernetes objects go to agents as Calico's Go structs would print them: unknown fields gone, fields in
//! declaration order, empty ones omitted as their tags say. `types.json` holds these declarations; [`mod@decode`] reads
//! JSON into a tree of [`Node`]s under them, [`Node::write`] prints one. Validation walks the same tree and finds Go's
//! validation tags in the table.

mod decode;
mod encode;
mod node;
mod table;

pub use decode::{Case, decode};
pub use node::{Fields, Node};
pub use table::find;

/// A struct and its fields in the order in which they are written.
#[derive(Debug, PartialEq, Eq)]
pub struct Struct {
    /// Go's name, for example `v3.BGPPeerSpec`.
    pub name: String,
    /// The fields.
    pub fields: Vec<Field>,
}

impl Struct {
    /// Position of the field with this JSON name.
    #[must_use]
    pub fn index_of(&self, json: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.json == json)
    }
}

/// A field of a struct.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in JSON.
    pub json: String,
    /// Its name in Go.
    pub go: String,
    /// Its type.
    pub ty: Type,
    /// Left out when empty: nil, no elements, `""`, `0`, `false`. Structs are never empty.
    pub omit_empty: bool,
    /// Left out when it is the zero value; of a struct, when all its fields are.
    pub omit_zero: bool,
    /// The API server's own bookkeeping, which no agent reads: skipped, except under [`Case::Folded`].
    pub bookkeeping: bool,
    /// Go's validation tag; empty when there is none.
    pub validate: String,
    /// Name of the field's configuration key, where it differs from the Go name; `-`: none.
    pub config_name: Option<String>,
    /// A duration that configuration keys carry in milliseconds.
    pub milliseconds: bool,
}

/// The type of a field or element.
#[derive(Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A whole number within these bounds.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// Text.
    Text,
    /// RFC 3339; zero prints `null`.
    Time,
    /// Go duration text.
    Duration,
    /// A 32-bit number or text.
    IntOrString,
    /// A port, range or port name.
    Port,
    /// A protocol or DSCP: an 8-bit number or a name.
    Protocol,
    /// A 32-bit AS number.
    AsNumber,
    /// JSON kept as it is.
    Raw,
    /// May be nil.
    Pointer(Box<Type>),
    /// A list; nil differs from empty.
    List(Box<Type>),
    /// A map from text; nil differs from empty.
    Map(Box<Type>),
    /// A struct, by its position in the table.
    Struct(usize),
}

impl Type {
    /// The struct that a [`Type::Struct`] names.
    #[must_use]
    pub fn as_struct(&self) -> Option<&'static Struct> {
        match self {
            Self::Struct(index) => Some(table::at(*index)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
