//! The findings about an object of Calico's, without a pipeline: for `bulrush validate`.
//!
//! The object goes through the processors of all syncers that watch its kind, and their values through Calico's rules, so the findings are
//! those that the daemon would have.

use std::sync::Arc;

use serde_json::Value;

use super::catalog::catalog;
use super::pipelines::{Flavour, calico};
use super::processors::Context;
use crate::datastore::{Object, ObjectId};
use crate::model::finding::{BAD_VALUE, Finding, Findings};
use crate::syncer::processor::ObjectEvent;

/// Rule: the object cannot be converted for agents.
const NOT_CONVERTED: &str = "not-converted";

/// All that is wrong with an object of one of Calico's kinds. `None`: the object is of another group.
#[must_use]
pub fn check(object: &Value, limit: usize) -> Option<Findings> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/')?;
    let (catalog, kind) = (catalog(None), object["kind"].as_str()?);
    let mut findings = Findings::up_to(limit);
    let (group, dialect) = match catalog.place(group, version) {
        Ok((group, dialect)) if catalog.family(group).is_some() => (group, dialect),
        Ok(_) => return None,
        Err(family) => {
            let expected = format!("one of {}", family.places_in_words());
            findings.add(Finding::of_value(BAD_VALUE, "/apiVersion", api_version, expected));
            return Some(findings);
        }
    };
    if catalog.is_unknown(group, kind) {
        findings.add(Finding::of_value(BAD_VALUE, "/kind", kind, format!("a kind of {group}")));
        return Some(findings);
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let namespace = catalog.namespace(group, kind, text("/metadata/namespace"));
    let object = Object {
        id: ObjectId { namespace: Arc::from(namespace), name: Arc::from(text("/metadata/name")) },
        revision: "1".into(),
        dialect,
        body: object.to_string().into_bytes().into(),
        place: None,
    };
    let mut found: Vec<Finding> = Vec::new();
    for mut source in calico(Flavour::Folder, &Context::default()).into_iter().flat_map(|spec| spec.sources) {
        if !source.kinds.iter().any(|known| *known.group == *group && *known.name == *kind) {
            continue;
        }
        let mut pairs = Vec::new();
        if let Err(error) = source.processor.process(ObjectEvent::Put(&object), &mut pairs) {
            found.push(Finding::of_field(NOT_CONVERTED, "", error.reason));
        }
        let subjects = pairs.iter().filter_map(|pair| pair.value.as_ref()?.subject.as_ref());
        found.extend(subjects.flat_map(|subject| subject.validate().into_vec()));
    }
    // Several syncers watch the same kind, and find the same.
    let mut seen = Vec::new();
    for finding in found {
        let line = finding.line();
        if !seen.contains(&line) {
            seen.push(line);
            findings.add(finding);
        }
    }
    Some(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(object: &Value) -> Option<Vec<String>> {
        Some(check(object, 100)?.as_slice().iter().map(Finding::line).collect())
    }

    #[test]
    fn findings_are_those_of_calicos_rules() {
        let pool = |cidr: &str| json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "a"}, "spec": {"cidr": cidr}});
        assert_eq!(lines(&pool("10.0.0.0/16")), Some(vec![]));
        let found = lines(&pool("10.0.0.0/99")).expect("it is Calico's");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("10.0.0.0/99"), "{found:?}");
        let peer = json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer", "metadata": {"name": "a"}, "spec": {"peerIP": "x"}});
        let found = lines(&peer).expect("it is Calico's");
        assert!(
            found.iter().any(|line| line.starts_with("error bad-value /spec/peerIP: \"x\" is not valid")),
            "{found:?}"
        );
        let typo = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPol", "metadata": {"name": "a"}});
        assert!(lines(&typo).expect("it is Calico's")[0].starts_with("error bad-value /kind"));
        let old = json!({"apiVersion": "projectcalico.org/v9", "kind": "IPPool", "metadata": {"name": "a"}});
        assert!(lines(&old).expect("it is Calico's")[0].starts_with("error bad-value /apiVersion"));
        assert_eq!(lines(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), None);
    }
}
