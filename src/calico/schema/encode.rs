//! Prints a tree as Go prints the struct.

use super::{Fields, Node, Type};
use crate::model::gojson;
use crate::model::timestamp::Timestamp;

impl Node {
    /// Appends the JSON of the tree.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(b"null"),
            Self::Bool(value) => gojson::write(out, value),
            Self::Int(value) => gojson::write(out, value),
            Self::Text(text) => gojson::write(out, text),
            Self::IntOrString(value) => gojson::write(out, value),
            Self::Time(time) if *time == Timestamp::ZERO => out.extend_from_slice(b"null"),
            Self::Time(time) => gojson::write(out, &time.to_string()),
            Self::Duration(duration) => gojson::write(out, &duration.to_string()),
            Self::Port(port) => gojson::write(out, port),
            Self::Protocol(protocol) => gojson::write(out, protocol),
            Self::AsNumber(number) => gojson::write(out, number),
            Self::Raw(json) if json.is_empty() => out.extend_from_slice(b"null"),
            Self::Raw(json) => gojson::write_raw(out, json),
            Self::List(list) => write_joined(out, b'[', b']', list.iter(), |out, node| node.write(out)),
            Self::Map(map) => write_joined(out, b'{', b'}', map.iter(), |out, (key, node)| {
                gojson::write(out, key);
                out.push(b':');
                node.write(out);
            }),
            Self::Struct(fields) => fields.write(out),
        }
    }
}

impl Fields {
    /// Appends the JSON of the struct.
    pub fn write(&self, out: &mut Vec<u8>) {
        let written = self.iter().filter(|(field, node)| {
            let pointer = matches!(field.ty, Type::Pointer(_));
            let left_out = if pointer {
                (field.omit_empty || field.omit_zero) && **node == Node::Nil
            } else {
                (field.omit_empty && node.is_empty()) || (field.omit_zero && node.is_zero())
            };
            !left_out
        });
        write_joined(out, b'{', b'}', written, |out, (field, node)| {
            gojson::write(out, &field.json);
            out.push(b':');
            node.write(out);
        });
    }
}

fn write_joined<T>(
    out: &mut Vec<u8>,
    open: u8,
    close: u8,
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    out.push(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(close);
}
