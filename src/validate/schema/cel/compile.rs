//! From a rule as written to a compiled one, with bounds on its text.

use kube_cel::cel::Program;
use serde::Deserialize;
use serde_json::Value;

use super::rule::Rule;
use super::scope::{is_deeper, unknown_name};
use crate::validate::schema::node::Node;

/// Longest text of a rule, in bytes. The longest of Istio's and the Gateway API's has 1,000.
const MAX_RULE: usize = 10_000;
/// Deepest nesting of expressions in a rule: the interpreter calls itself for each, on a stack of 2 MiB, of which a debug build takes some
/// 35 kB a level. All rules of Istio and of the Gateway API are within it.
const MAX_TREE: usize = 32;
/// Deepest nesting of brackets in a rule: the parser calls itself some ten times for each.
const MAX_NESTING: usize = 24;
/// Most operators and dots of a rule: `a + a + a` is as deep a tree as it is long.
const MAX_OPERATORS: usize = 400;
/// A rule as schemas have it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    rule: String,
    message: Option<String>,
    message_expression: Option<String>,
    field_path: Option<String>,
    #[serde(rename = "reason")]
    _reason: Option<String>,
    #[serde(default)]
    optional_old_self: bool,
}

/// Compiles a rule for values of a place. `correlates`: the place's old value can be known.
///
/// # Errors
/// The rule is none, too large, or names something that is not there; the text says which.
pub(in crate::validate::schema) fn compile(written: &Value, node: &Node, correlates: bool) -> Result<Rule, String> {
    let written: Written =
        serde_json::from_value(written.clone()).map_err(|error| format!("it is no rule: {error}"))?;
    let text = written.rule.trim().to_owned();
    let optional = written.optional_old_self;
    let program = program(&text, node, optional)?;
    let message_program = match written.message_expression.as_deref().map(str::trim) {
        Some(expression) => Some(
            self::program(expression, node, optional)
                .map_err(|reason| format!("its messageExpression {expression:?}: {reason}"))?,
        ),
        None => None,
    };
    let transition = program.references().has_variable("oldSelf");
    if transition && !correlates {
        let reason =
            "oldSelf is not known below a list whose x-kubernetes-list-type is not map, or below an atomic map";
        return Err(reason.to_owned());
    }
    if optional && !transition {
        return Err("optionalOldSelf is for rules that name oldSelf".to_owned());
    }
    let field = written.field_path.as_deref().map(|path| steps(path, node)).transpose()?.unwrap_or_default();
    let message = written.message.map(|message| message.trim().to_owned()).filter(|message| !message.is_empty());
    Ok(Rule { text, message, program, message_program, field, transition, optional_old: optional })
}

fn program(text: &str, node: &Node, optional: bool) -> Result<Program, String> {
    bounded(text)?;
    let program = Program::compile(text).map_err(|error| {
        let lines: Vec<String> = error.to_string().lines().map(|line| line.trim().to_owned()).collect();
        lines.first().cloned().unwrap_or_default()
    })?;
    if is_deeper(program.expression(), MAX_TREE) {
        return Err(format!("its expressions are nested more than {MAX_TREE} deep"));
    }
    match unknown_name(program.expression(), node, optional) {
        Some(reason) => Err(reason),
        None => Ok(program),
    }
}

/// Refuses texts that would take the parser too deep.
fn bounded(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > MAX_RULE {
        return Err(format!("it is longer than {MAX_RULE} bytes"));
    }
    let (mut depth, mut operators, mut quote) = (0_usize, 0_usize, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => drop(letters.next()),
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '+' | '-' | '*' | '/' | '%' | '.' | '!' | '?' | '<' | '>' | '=' | '&' | '|' | ',' | ':') => {
                operators += 1
            }
            (Some(_) | None, _) => {}
        }
        if depth > MAX_NESTING {
            return Err(format!("its brackets are nested more than {MAX_NESTING} deep"));
        }
    }
    if operators > MAX_OPERATORS { Err(format!("it has more than {MAX_OPERATORS} operators")) } else { Ok(()) }
}

/// The steps of a field path: `.spec.ports`, `['a.b']`.
fn steps(path: &str, node: &Node) -> Result<Vec<String>, String> {
    let wrong = || format!("its fieldPath {path:?} names no field of the place");
    let (mut rest, mut steps, mut here) = (path.trim(), Vec::new(), Some(node));
    while !rest.is_empty() {
        let (step, after) = if let Some(quoted) = rest.strip_prefix("['") {
            quoted.split_once("']").ok_or_else(wrong)?
        } else {
            let plain = rest.strip_prefix('.').ok_or_else(wrong)?;
            plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
        };
        here = here.ok_or_else(wrong)?.field(step);
        if step.is_empty() || here.is_none() {
            return Err(wrong());
        }
        steps.push(step.to_owned());
        rest = after;
    }
    Ok(steps)
}
