//! The cost of a rule on a value, estimated before it runs: CEL has loops over lists and texts, in each other, and the interpreter
//! cannot be stopped.
//!
//! The estimate is an upper bound on steps: the expressions in a loop count once for each of its items, functions that read a text once
//! for every ten of its bytes.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::Expr;

use super::value::Sizes;

/// Most steps of a rule on one value. Kubernetes' API server has the same limit for all rules of an object, and a tenth of it for one.
pub(super) const MAX_COST: u64 = 10_000_000;
/// Bytes of a text that one step reads.
const BYTES_PER_STEP: u64 = 10;

/// Functions that read a text or a list from its start to its end.
const READERS: [&str; 22] = [
    "contains",
    "endsWith",
    "find",
    "findAll",
    "format",
    "indexOf",
    "isSorted",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "max",
    "min",
    "quantity",
    "replace",
    "reverse",
    "split",
    "startsWith",
    "substring",
    "sum",
    "trim",
    "upperAscii",
];

/// Steps of an expression on a value of these sizes, saturating.
pub(super) fn estimate(expression: &IdedExpr, sizes: &Sizes) -> u64 {
    let all = |list: &[IdedExpr]| list.iter().fold(0_u64, |sum, inner| sum.saturating_add(estimate(inner, sizes)));
    let inner = match &expression.expr {
        Expr::Call(call) => {
            let target = call.target.as_ref().map_or(0, |target| estimate(target, sizes));
            let reads_all = READERS.contains(&call.func_name.as_str()) || call.func_name.starts_with('_');
            let reading = if reads_all && !is_cheap(&call.func_name) { sizes.text / BYTES_PER_STEP } else { 0 };
            all(&call.args).saturating_add(target).saturating_add(reading)
        }
        Expr::Comprehension(loops) => {
            let body = estimate(&loops.loop_cond, sizes).saturating_add(estimate(&loops.loop_step, sizes));
            let around = estimate(&loops.iter_range, sizes)
                .saturating_add(estimate(&loops.accu_init, sizes))
                .saturating_add(estimate(&loops.result, sizes));
            items(&loops.iter_range, sizes).saturating_mul(body).saturating_add(around)
        }
        Expr::Select(select) => estimate(&select.operand, sizes),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.len() as u64,
        _ => 0,
    };
    inner.saturating_add(1)
}

/// Operators that do not compare, add or search their operands.
fn is_cheap(operator: &str) -> bool {
    ["_&&_", "_||_", "_?_:_", "_[_]", "_-_", "_*_", "_/_", "_%_"].contains(&operator)
}

/// Most items of a loop's range.
fn items(range: &IdedExpr, sizes: &Sizes) -> u64 {
    match &range.expr {
        Expr::Select(select) => sizes.fields.get(&select.field).copied().unwrap_or(sizes.items),
        Expr::List(list) => list.elements.len() as u64,
        // A function may have made it of a text.
        Expr::Call(_) => sizes.items.max(sizes.text),
        _ => sizes.items,
    }
}
