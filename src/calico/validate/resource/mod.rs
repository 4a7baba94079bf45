//! Rules for whole resources, as Calico's v3 validator checks them.
//!
//! Run on the printed resource, in which absent fields are absent. Values of other kinds have rules in
//! [`super::rules`].

pub(crate) mod formats;

mod bgp;
mod felix;
mod metadata;
mod node;
mod node_status;
mod rule;
mod tree;

use std::cell::RefCell;

use serde_json::Value;

use self::tree::At;
use crate::calico::resource::Printed;
use crate::calico::selector::Selector;
use crate::model::finding::{BAD_VALUE, Findings, MISSING_FIELD, Validate};

const NAME: &str = "a lower-case DNS subdomain";
const SELECTOR: &str = "a selector";

fn is_selector(text: &str) -> bool {
    Selector::parse(text).is_ok()
}

/// Checks a resource of this kind (`BGPPeer`, `Service`, …): its metadata, and the kind's own fields.
#[must_use]
pub fn check(kind: &str, resource: &Value) -> Findings {
    let findings = RefCell::default();
    let top = At::top(resource, &findings);
    metadata::check(&top);
    match kind {
        "Node" => node::check(&top),
        "Profile" => rule::check_profile(&top),
        "BGPPeer" => bgp::check_peer(&top),
        "BGPConfiguration" => bgp::check_configuration(&top),
        "BGPFilter" => bgp::check_filter(&top),
        "CalicoNodeStatus" => node_status::check(&top),
        "FelixConfiguration" => felix::check(&top),
        _ => {}
    }
    findings.into_inner()
}

impl Validate for Printed {
    fn validate(&self) -> Findings {
        let mut findings = Findings::none();
        if let Some(path) = &self.unset {
            findings.error(MISSING_FIELD, path, "", "a list, which may be empty");
        }
        // The JSON is read again, since most objects are validated once and kept long: trees would take more memory.
        match serde_json::from_slice(&self.json) {
            Ok(tree) => findings.extend(check(self.kind, &tree)),
            Err(error) => findings.error(BAD_VALUE, self.kind, &error.to_string(), "JSON"),
        }
        findings
    }
}

#[cfg(test)]
mod tests;
