//! The declarations in `types.json`, read once.
//!
//! Per struct a list of `[JSON name, Go name, type, flags, extras]`: flags `e` omitempty, `z` omitzero, `b`
//! bookkeeping; extras, when there are any, `validate` (tag), `config` (configuration key), `unit` (`ms`). Types are
//! written as in Go.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::{Field, Struct, Type};

const TYPES: &str = include_str!("types.json");

#[derive(Deserialize)]
struct Line(String, String, String, String, #[serde(default)] Extras);

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Extras {
    validate: String,
    config: Option<String>,
    unit: String,
}

fn table() -> &'static [Struct] {
    static TABLE: OnceLock<Vec<Struct>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let lines: BTreeMap<String, Vec<Line>> =
            serde_json::from_str(TYPES).expect("types.json is part of the program");
        let names: Vec<String> = lines.keys().cloned().collect();
        let field = |line: Line| Field {
            ty: parse(&line.2, &names).unwrap_or_else(|| panic!("types.json: unknown type {}", line.2)),
            json: line.0,
            go: line.1,
            omit_empty: line.3.contains('e'),
            omit_zero: line.3.contains('z'),
            bookkeeping: line.3.contains('b'),
            validate: line.4.validate,
            config_name: line.4.config,
            milliseconds: line.4.unit == "ms",
        };
        lines.into_iter().map(|(name, lines)| Struct { name, fields: lines.into_iter().map(field).collect() }).collect()
    })
}

fn parse(text: &str, names: &[String]) -> Option<Type> {
    let inner = |prefix: &str| text.strip_prefix(prefix).map(|text| parse(text, names));
    if let Some(ty) = inner("*") {
        return ty.map(|ty| Type::Pointer(Box::new(ty)));
    }
    if let Some(ty) = inner("[]") {
        return ty.map(|ty| Type::List(Box::new(ty)));
    }
    if let Some(ty) = inner("map[string]") {
        return ty.map(|ty| Type::Map(Box::new(ty)));
    }
    Some(match text {
        "bool" => Type::Bool,
        "string" => Type::Text,
        "int" | "int64" => Type::Int { min: i64::MIN, max: i64::MAX },
        "int32" => Type::Int { min: i32::MIN.into(), max: i32::MAX.into() },
        "uint8" => Type::Int { min: 0, max: u8::MAX.into() },
        "uint16" => Type::Int { min: 0, max: u16::MAX.into() },
        "uint32" => Type::Int { min: 0, max: u32::MAX.into() },
        "time" => Type::Time,
        "duration" => Type::Duration,
        "intorstring" => Type::IntOrString,
        "port" => Type::Port,
        "protocol" => Type::Protocol,
        "asnumber" => Type::AsNumber,
        "raw" => Type::Raw,
        _ => Type::Struct(names.binary_search_by(|name| name.as_str().cmp(text)).ok()?),
    })
}

pub(super) fn at(index: usize) -> &'static Struct {
    &table()[index]
}

/// The struct with this Go name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Struct> {
    let table = table();
    table.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok().map(|index| &table[index])
}
