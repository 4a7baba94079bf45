//! Rules for whole resources: what Calico's v3 validator checks of objects that are distributed as they are.
//!
//! Fed by the pass-through processors with the decoded resource, as a tree of JSON in which absent fields are absent.
//! Objects that the pass-through does not distribute whole have rules of their own in [`super::rules`].

pub(crate) mod formats;

mod bgp;
mod felix;
mod metadata;
mod node;
mod node_status;
mod rule;
mod tree;

use serde_json::Value;

use self::tree::At;
use super::{Invalid, Validate, invalid};
use crate::model::resource::Printed;
use crate::model::selector::Selector;

const NAME: &str = "a lower-case DNS subdomain";
const SELECTOR: &str = "a selector";

fn is_selector(text: &str) -> bool {
    Selector::parse(text).is_ok()
}

/// Checks a resource of this kind (`BGPPeer`, `Service`, …): its metadata, and what is known of the kind.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(kind: &str, resource: &Value) -> Result<(), Invalid> {
    let top = At::top(resource);
    metadata::check(&top)?;
    match kind {
        "Node" => node::check(&top),
        "Profile" => rule::check_profile(&top),
        "BGPPeer" => bgp::check_peer(&top),
        "BGPConfiguration" => bgp::check_configuration(&top),
        "BGPFilter" => bgp::check_filter(&top),
        "CalicoNodeStatus" => node_status::check(&top),
        "FelixConfiguration" => felix::check(&top),
        _ => Ok(()),
    }
}

impl Validate for Printed {
    fn validate(&self) -> Result<(), Invalid> {
        if let Some(path) = &self.unset {
            return Err(invalid(path, "", "a list, be it an empty one"));
        }
        // Read again instead of keeping trees: most objects are validated once and kept long.
        let tree =
            serde_json::from_slice(&self.json).map_err(|error| invalid(self.kind, &error.to_string(), "JSON"))?;
        check(self.kind, &tree)
    }
}

#[cfg(test)]
mod tests;
