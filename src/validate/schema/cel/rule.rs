//! A compiled rule.

use kube_cel::cel::Program;

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// The expression as written.
    pub text: String,
    /// The message when it does not hold.
    pub message: Option<String>,
    pub(super) program: Program,
    pub(super) message_program: Option<Program>,
    /// The field at fault, as steps from the rule's place.
    pub(in crate::validate::schema) field: Vec<String>,
    /// It compares with the old value.
    pub transition: bool,
    pub(super) optional_old: bool,
}
