//! The names in a rule: a variable that does not exist, and a field that the schema does not have, are mistakes of the schema. The interpreter
//! would find them only when a value comes.

use std::collections::HashMap;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};

use super::value::escaped;
use crate::model::nearest::nearest;
use crate::validate::schema::node::{Node, Type};

/// Names that are no variables: types, and the first part of a function's name.
const NO_VARIABLES: [&str; 21] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "google",
    "sets",
    "math",
    "optional",
    "base64",
    "format",
    "strings",
    "ip",
    "cidr",
    "jsonpatch",
    "regex",
];

/// Names and the schemas of their values, as far as known.
type Names<'a> = HashMap<&'a str, Option<&'a Node>>;

/// The first name in an expression that does not exist. `optional`: the old value is an optional.
pub(super) fn unknown_name(expression: &IdedExpr, node: &Node, optional: bool) -> Option<String> {
    let names = Names::from([("self", Some(node)), ("oldSelf", (!optional).then_some(node))]);
    look(expression, &names).err()
}

/// Whether an expression is nested deeper than this.
pub(super) fn is_deeper(expression: &IdedExpr, depth: usize) -> bool {
    let Some(left) = depth.checked_sub(1) else { return true };
    let deeper = |inner: &IdedExpr| is_deeper(inner, left);
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().is_some_and(deeper) || call.args.iter().any(deeper),
        Expr::Select(select) => deeper(&select.operand),
        Expr::Comprehension(loops) => {
            [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result]
                .into_iter()
                .any(deeper)
        }
        Expr::List(list) => list.elements.iter().any(deeper),
        Expr::Map(map) => map.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => deeper(&entry.key) || deeper(&entry.value),
            EntryExpr::StructField(field) => deeper(&field.value),
        }),
        Expr::Struct(of) => of.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => deeper(&entry.key) || deeper(&entry.value),
            EntryExpr::StructField(field) => deeper(&field.value),
        }),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => false,
    }
}

/// Looks at an expression. Gives the schema of its value, if known.
fn look<'a>(expression: &'a IdedExpr, names: &Names<'a>) -> Result<Option<&'a Node>, String> {
    match &expression.expr {
        Expr::Ident(name) => match names.get(name.as_str()) {
            Some(node) => Ok(*node),
            None if NO_VARIABLES.contains(&name.as_str()) => Ok(None),
            None => Err(format!("there is no variable {name:?}")),
        },
        Expr::Select(select) => {
            let Some(node) = look(&select.operand, names)? else { return Ok(None) };
            field(node, &select.field)
        }
        Expr::Call(call) => {
            let target = call.target.as_deref().map(|target| look(target, names)).transpose()?.flatten();
            let mut values = Vec::with_capacity(call.args.len());
            for argument in &call.args {
                values.push(look(argument, names)?);
            }
            Ok(match (call.func_name.as_str(), target, values.first().copied().flatten()) {
                ("_[_]", _, Some(node)) => node.items.as_deref(),
                _ => None,
            })
        }
        Expr::Comprehension(loops) => {
            let range = look(&loops.iter_range, names)?;
            let mut inner = names.clone();
            let item = range.filter(|node| node.kind == Some(Type::Array)).and_then(|node| node.items.as_deref());
            inner.insert(&loops.iter_var, if loops.iter_var2.is_some() { None } else { item });
            if let Some(second) = &loops.iter_var2 {
                inner.insert(second, None);
            }
            look(&loops.accu_init, &inner)?;
            inner.insert(&loops.accu_var, None);
            look(&loops.loop_cond, &inner)?;
            look(&loops.loop_step, &inner)?;
            look(&loops.result, &inner)?;
            Ok(None)
        }
        Expr::List(list) => {
            for element in &list.elements {
                look(element, names)?;
            }
            Ok(None)
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    look(&entry.key, names)?;
                    look(&entry.value, names)?;
                }
            }
            Ok(None)
        }
        Expr::Struct(_) | Expr::Literal(_) | Expr::Unspecified => Ok(None),
    }
}

/// The schema of a field, which the rule names as CEL does.
fn field<'a>(node: &'a Node, name: &str) -> Result<Option<&'a Node>, String> {
    if let Some((_, inner)) = node.properties.iter().find(|(known, _)| escaped(known) == name) {
        return Ok(Some(inner));
    }
    // The API server lets rules see these of every object.
    let of_object = node.embedded && ["apiVersion", "kind", "metadata"].contains(&name);
    if node.kind != Some(Type::Object) || !node.is_closed() || of_object || node.properties.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = node.properties.keys().map(|known| escaped(known)).collect();
    let hint = nearest(name, names.iter().map(String::as_str)).map(|near| format!("; did you mean {near:?}?"));
    Err(format!("there is no field {name:?} at that place{}", hint.unwrap_or_default()))
}
