//! A rule on the values of its place, with a bound on its cost.

use kube_cel::cel::{ExecutionError, Program, Value as CelValue};
use serde_json::Value;

use super::cost::{self, MAX_COST};
use super::rule::Rule;
use super::value::{Bindings, Sizes};

/// Longest message that a rule can make, in bytes, as for the API server.
const MAX_MESSAGE: usize = 5120;

/// The outcome of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::validate::schema) enum Verdict {
    /// It holds, or there is nothing to compare with.
    Holds,
    /// It does not hold, for this reason.
    Broken(String),
    /// It would cost more than the limit; the text has both.
    TooCostly(String),
    /// It cannot be evaluated; the text says why.
    Failed(String),
}

/// Evaluates a rule on the values of its place. `value` is the place's value, of which `sizes` are.
pub(in crate::validate::schema) fn evaluate(rule: &Rule, bindings: &Bindings, value: &Value, sizes: &Sizes) -> Verdict {
    if rule.transition && !bindings.has_old() && !rule.optional_old {
        return Verdict::Holds;
    }
    if let Some(cost) = excess(&rule.program, value, sizes) {
        return Verdict::TooCostly(format!(
            "the rule {:?} would take {cost} steps on this object, and {MAX_COST} is the limit: shorten its lists and texts, or bound them in the schema",
            rule.text
        ));
    }
    bindings.bound(rule.optional_old, |context| match rule.program.execute(context) {
        Ok(CelValue::Bool(true)) => Verdict::Holds,
        Ok(CelValue::Bool(false)) => {
            let made = rule.message_program.as_ref().filter(|program| excess(program, value, sizes).is_none());
            let made = made.and_then(|program| match program.execute(context) {
                Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            });
            let made = made.filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n'));
            let message =
                made.or_else(|| rule.message.clone()).unwrap_or_else(|| format!("failed rule: {}", rule.text));
            Verdict::Broken(message)
        }
        Ok(_) => Verdict::Failed(format!("the rule {:?} gives neither true nor false", rule.text)),
        Err(error) => Verdict::Failed(format!("the rule {:?} cannot be evaluated: {}", rule.text, reason(&error))),
    })
}

/// The steps of a program on a value, if they are too many.
fn excess(program: &Program, value: &Value, sizes: &Sizes) -> Option<u64> {
    // Sizes by field are more exact and take longer to find.
    (cost::estimate(program.expression(), sizes) > MAX_COST)
        .then(|| cost::estimate(program.expression(), &Sizes::by_field(value)))
        .filter(|cost| *cost > MAX_COST)
}

/// The reason without the values, which may be large.
fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("there is no field or key {name:?}"),
        ExecutionError::UndeclaredReference(name) => format!("there is no function or variable {name:?}"),
        ExecutionError::FunctionError { function, message } => {
            format!("{function}: {}", message.chars().take(200).collect::<String>())
        }
        ExecutionError::NoSuchOverload => "an operator or function does not take values of these types".to_owned(),
        ExecutionError::UnexpectedType { got, want } => format!("it has {got} where {want} is needed"),
        ExecutionError::IndexOutOfBounds(_) => "an index is out of bounds".to_owned(),
        _ => "an operator or function does not take these values".to_owned(),
    }
}
