//! Values of fields that are not there, as the API server fills them in before it checks an object.
//!
//! Pure. Used by [`library`](super::library).

use std::borrow::Cow;

use serde_json::Value;

use super::node::{Additional, Node};

/// The object with its defaults, and without the nulls of fields that take none. Unchanged where nothing is to be filled in.
pub(super) fn filled<'a>(object: &'a Value, node: &Node) -> Cow<'a, Value> {
    if needs(object, node) {
        let mut object = object.clone();
        fill(&mut object, node);
        Cow::Owned(object)
    } else {
        Cow::Borrowed(object)
    }
}

/// Whether filling would change the value.
fn needs(value: &Value, node: &Node) -> bool {
    if !node.fills {
        return false;
    }
    match value {
        Value::Object(fields) => {
            let known = node.properties.iter().any(|(name, inner)| match fields.get(name) {
                None => inner.default.is_some(),
                Some(Value::Null) => !inner.nullable,
                Some(value) => needs(value, inner),
            });
            let others = |inner: &Node| {
                let mut others = fields.iter().filter(|(name, _)| !node.properties.contains_key(*name));
                others.any(|(_, value)| {
                    needs(value, inner) || (value.is_null() && !inner.nullable && inner.default.is_some())
                })
            };
            known || matches!(&node.additional, Additional::Schema(inner) if others(inner))
        }
        Value::Array(items) => node.items.as_deref().is_some_and(|inner| {
            items
                .iter()
                .any(|item| needs(item, inner) || (item.is_null() && !inner.nullable && inner.default.is_some()))
        }),
        _ => false,
    }
}

fn fill(value: &mut Value, node: &Node) {
    if !node.fills {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in &node.properties {
                let absent = fields.get(name).is_none_or(|value| value.is_null() && !inner.nullable);
                match &inner.default {
                    Some(default) if absent => {
                        fields.insert(name.clone(), default.clone());
                    }
                    None if absent => drop(fields.remove(name)),
                    _ => {}
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(value, inner);
                }
            }
            if let Additional::Schema(inner) = &node.additional {
                for (_, value) in fields.iter_mut().filter(|(name, _)| !node.properties.contains_key(*name)) {
                    fill_item(value, inner);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter_mut().for_each(|item| fill_item(item, inner));
            }
        }
        _ => {}
    }
}

/// Fills in a value that is an item or an entry: a null becomes the default, and stays if there is none.
fn fill_item(value: &mut Value, node: &Node) {
    match &node.default {
        Some(default) if value.is_null() && !node.nullable => *value = default.clone(),
        _ => {}
    }
    fill(value, node);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::schema::compile::compile;

    #[test]
    fn defaults_are_filled_in_as_by_the_api_server() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "string", "nullable": true, "default": "y"},
            "c": {"type": "string"},
            "d": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 7}}},
            "f": {"type": "object", "properties": {"g": {"type": "integer", "default": 8}}},
            "h": {"type": "array", "items": {"type": "object", "properties": {"i": {"type": "boolean", "default": true}}}},
            "j": {"type": "object", "additionalProperties": {"type": "string", "default": "z"}},
        }});
        let node = compile(&schema).expect("a schema");
        for (given, expected) in [
            (json!({}), json!({"a": "x", "b": "y", "d": {"e": 7}})),
            (json!({"a": null, "b": null, "c": null, "d": {"e": 1}}), json!({"a": "x", "b": null, "d": {"e": 1}})),
            (json!({"a": "", "b": "", "d": {}, "f": {}}), json!({"a": "", "b": "", "d": {"e": 7}, "f": {"g": 8}})),
            (
                json!({"a": "", "b": "", "d": {"e": 1}, "h": [{}, 1], "j": {"k": null}}),
                json!({"a": "", "b": "", "d": {"e": 1}, "h": [{"i": true}, 1], "j": {"k": "z"}}),
            ),
        ] {
            assert_eq!(*filled(&given, &node), expected);
            assert!(matches!(filled(&expected, &node), Cow::Borrowed(_)), "filling twice is filling once: {expected}");
        }
    }
}
