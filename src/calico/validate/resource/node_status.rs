//! Rules for CalicoNodeStatus.

use super::NAME;
use super::formats::is_name;
use super::tree::At;

/// The longest period that Calico accepts: a day, in seconds.
const LONGEST_PERIOD: i64 = 86_400;

/// Checks the spec of a CalicoNodeStatus.
pub(super) fn check(status: &At<'_>) {
    let Some(spec) = status.get("spec") else { return status.lacks("spec") };
    match spec.get("node") {
        Some(node) => node.text_is(is_name, NAME),
        None => spec.lacks("node"),
    }
    // An absent list is not found here, since an empty list is not printed either: see `Printed::unset`.
    spec.list_has_each_once("classes", "each class once");
    if spec.get("updatePeriodSeconds").is_none() {
        spec.lacks("updatePeriodSeconds");
    }
    spec.field_in("updatePeriodSeconds", 0..=LONGEST_PERIOD);
}
