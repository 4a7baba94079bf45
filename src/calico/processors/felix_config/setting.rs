//! The text of a setting, by the type of its field.

use crate::calico::duration::GoDuration;
use crate::calico::schema::{Field, Fields, Node, Type};

/// Text of an empty list of failsafe ports, which differs from an absent list.
const NO_PORTS: &str = "none";
/// Decimal exponents below this print in exponent form.
const SMALL_EXPONENT: i32 = -4;
/// Decimal exponents from this on print in exponent form.
const LARGE_EXPONENT: i32 = 21;

/// The text of a field; `None`: the field is not set. The target of a pointer is set even if it is empty.
pub(super) fn text(field: &Field, node: &Node) -> Option<String> {
    let text = match node {
        Node::Nil | Node::Raw(_) => return None,
        Node::Bool(flag) => flag.to_string(),
        Node::Int(number) => number.to_string(),
        Node::Text(text) => text.clone(),
        Node::Time(time) => time.to_string(),
        Node::Duration(duration) => float(in_unit(*duration, field.milliseconds)),
        Node::IntOrString(value) => value.to_string(),
        Node::Port(port) => port.to_string(),
        Node::Protocol(value) => value.to_string(),
        Node::AsNumber(number) => number.0.to_string(),
        Node::Struct(fields) => structure(fields),
        Node::Map(entries) => {
            entries.iter().map(|(name, value)| format!("{name}={},", value.as_text().unwrap_or_default())).collect()
        }
        Node::List(elements) => list(element_type(&field.ty), elements),
    };
    (matches!(field.ty, Type::Pointer(_)) || !text.is_empty()).then_some(text)
}

/// A duration in seconds.
pub(super) fn seconds(duration: GoDuration) -> String {
    float(duration.as_seconds())
}

fn in_unit(duration: GoDuration, milliseconds: bool) -> f64 {
    if milliseconds { duration.0 as f64 / 1e6 } else { duration.as_seconds() }
}

fn element_type(ty: &Type) -> &Type {
    match ty {
        Type::Pointer(inner) | Type::List(inner) => element_type(inner),
        other => other,
    }
}

fn list(element: &Type, elements: &[Node]) -> String {
    let joined =
        |separator: &str, text: fn(&Node) -> String| elements.iter().map(text).collect::<Vec<_>>().join(separator);
    match element {
        Type::Port => format!("[{}]", joined(" ", plain)),
        Type::Struct(_) if elements.is_empty() => {
            let failsafe = element.as_struct().is_some_and(|schema| schema.name == "v3.ProtoPort");
            if failsafe { NO_PORTS.to_owned() } else { String::new() }
        }
        _ => joined(",", plain),
    }
}

fn plain(node: &Node) -> String {
    match node {
        Node::Text(text) => text.clone(),
        Node::Int(number) => number.to_string(),
        Node::Port(port) => port.to_string(),
        Node::Struct(fields) => structure(fields),
        _ => String::new(),
    }
}

fn structure(fields: &Fields) -> String {
    let plain = |name: &str| fields.get(name).map(plain).unwrap_or_default();
    match fields.schema.name.as_str() {
        "v3.ProtoPort" => {
            let (protocol, net, port) = (plain("protocol").to_lowercase(), plain("net"), plain("port"));
            match net.as_str() {
                "" => format!("{protocol}:{port}"),
                v6 if v6.contains(':') => format!("{protocol}:[{v6}]:{port}"),
                v4 => format!("{protocol}:{v4}:{port}"),
            }
        }
        "v3.RouteTableRange" | "v3.RouteTableIDRange" => format!("{}-{}", plain("min"), plain("max")),
        "v3.HealthTimeoutOverride" => {
            let timeout = match fields.get("timeout") {
                Some(Node::Duration(duration)) => duration.to_string(),
                _ => String::new(),
            };
            format!("{}={timeout}", plain("name"))
        }
        _ => fields
            .iter()
            .filter_map(|(field, node)| Some(format!("{}={}", field.go, node.as_text()?)))
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// A float as Go's `%v` prints it.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let exponent =
        scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    match exponent {
        Some((digits, exponent)) if !(SMALL_EXPONENT..LARGE_EXPONENT).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_go_prints_values() {
        for (value, expected) in [
            (90.0, "90"),
            (0.1, "0.1"),
            (0.0, "0"),
            (1e-6, "1e-06"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (86400.0, "86400"),
            (1e-9, "1e-09"),
            (9.223_372_036e9, "9223372036"),
        ] {
            assert_eq!(float(value), expected);
        }
    }
}
