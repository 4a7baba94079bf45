//! Kubernetes' label selectors as text in Calico's selector language.

use super::kubernetes_types::{LabelRequirement, LabelSelector};

/// Selects all pods; the start of every pod selector.
const IS_POD: &str = "projectcalico.org/orchestrator == 'k8s'";

/// A selector of pods; `None` selects all.
pub(super) fn pods(selector: Option<&LabelSelector>) -> String {
    let mut terms = vec![IS_POD.to_owned()];
    terms.extend(selector.into_iter().flat_map(terms_of));
    terms.join(" && ")
}

/// A selector of namespaces; a selector without terms selects all, `None` is empty text.
pub(super) fn namespaces(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return String::new() };
    if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
        return "all()".to_owned();
    }
    terms_of(selector).collect::<Vec<_>>().join(" && ")
}

fn terms_of(selector: &LabelSelector) -> impl Iterator<Item = String> {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key} == '{value}'"));
    labels.chain(selector.match_expressions.iter().filter_map(term))
}

fn term(LabelRequirement { key, operator, values }: &LabelRequirement) -> Option<String> {
    let values = || values.join("', '");
    Some(match operator.as_str() {
        "In" => format!("{key} in {{ '{}' }}", values()),
        "NotIn" => format!("{key} not in {{ '{}' }}", values()),
        "Exists" => format!("has({key})"),
        "DoesNotExist" => format!("! has({key})"),
        _ => return None,
    })
}
