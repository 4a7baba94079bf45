//! Rules for CalicoNodeStatus.

use super::NAME;
use super::formats::is_name;
use super::tree::At;
use crate::validate::Invalid;

/// The longest period that Calico accepts: a day, in seconds.
const LONGEST_PERIOD: i64 = 86_400;

/// Checks the spec of a CalicoNodeStatus.
pub(super) fn check(status: &At<'_>) -> Result<(), Invalid> {
    let spec = status.get("spec").ok_or_else(|| status.invalid("spec has to be set"))?;
    match spec.get("node") {
        Some(node) => node.text_is(is_name, NAME)?,
        None => return Err(spec.invalid("node has to be set")),
    }
    // That they are set at all cannot be seen here: an empty list is not printed.
    let classes = spec.list("classes");
    for (i, class) in classes.iter().enumerate() {
        if classes[..i].iter().any(|other| other.text() == class.text()) {
            return Err(class.invalid("each class once"));
        }
    }
    if spec.get("updatePeriodSeconds").is_none() {
        return Err(spec.invalid("updatePeriodSeconds has to be set"));
    }
    spec.field_in("updatePeriodSeconds", 0..=LONGEST_PERIOD)
}
