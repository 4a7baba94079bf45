//! The objects that a user names: `VirtualService/reviews`, `virtualservices`, `configmap.core`. No I/O.

use std::collections::BTreeSet;
use std::fmt;

use crate::model::nearest::nearest;

/// Most kinds that a message lists; a cluster has some hundreds.
const MOST_LISTED: usize = 20;

/// A kind as the data have it. Displays as `VirtualService.networking.istio.io`, one of the core group by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) name: String,
    /// Empty for the core group.
    pub(super) group: String,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{}", self.name, self.group)
    }
}

/// A kind as a user writes it, and perhaps the name of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// In lower case, singular or plural.
    kind: String,
    /// In lower case; `core` is the core group. `None`: any.
    group: Option<String>,
    /// The object's name. `None`: all.
    pub(super) name: Option<String>,
}

impl Wanted {
    /// Reads `KIND[.GROUP][/NAME]`.
    ///
    /// # Errors
    /// There is no kind, or an empty part, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group)),
            None => (kind, None),
        };
        if kind.is_empty() || group == Some("") || name == Some("") {
            return Err("KIND[.GROUP][/NAME] is expected, for example VirtualService/reviews, or \
                        gateways.networking.istio.io"
                .to_owned());
        }
        Ok(Self { kind: kind.to_lowercase(), group: group.map(str::to_lowercase), name: name.map(str::to_owned) })
    }

    /// The kind of the data that is meant.
    ///
    /// # Errors
    /// None is, or several are, in words.
    pub(super) fn resolve<'a>(&self, kinds: &'a BTreeSet<Kind>) -> Result<&'a Kind, String> {
        let found: Vec<&Kind> = kinds.iter().filter(|kind| self.means(kind)).collect();
        match found[..] {
            [kind] => Ok(kind),
            [] => Err(self.none_of(kinds)),
            _ => Err(format!("several kinds have this name: {}; give the group as well", listed(found))),
        }
    }

    fn means(&self, kind: &Kind) -> bool {
        let group = |group: &str| group.eq_ignore_ascii_case(if kind.group.is_empty() { "core" } else { &kind.group });
        let name = kind.name.to_lowercase();
        (self.kind == name || self.kind == plural(&name)) && self.group.as_deref().is_none_or(group)
    }

    fn none_of(&self, kinds: &BTreeSet<Kind>) -> String {
        if kinds.is_empty() {
            return "it has no object of any kind; Calico's syncers never have one, --syncer names another".to_owned();
        }
        let names = kinds.iter().flat_map(|kind| [kind.name.clone(), plural(&kind.name)]).collect::<Vec<_>>();
        let near = nearest(&self.kind, names.iter().map(String::as_str));
        // A name in another group is as near as can be.
        let is_near = |kind: &&Kind| near.is_some_and(|name| name == kind.name || name == plural(&kind.name));
        let near: Vec<&Kind> = kinds.iter().filter(is_near).collect();
        if near.is_empty() {
            format!("no object has this kind; there are {}", listed(kinds))
        } else {
            format!("no object has this kind; did you mean {}?", listed(near))
        }
    }
}

/// The plural of a kind as Kubernetes makes it of kinds' names.
fn plural(kind: &str) -> String {
    let before_y = kind.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{stem}ies"),
        // Endpoints is a plural already.
        None if kind.to_lowercase() == "endpoints" => kind.to_owned(),
        None if ["s", "x", "z", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        None => format!("{kind}s"),
    }
}

/// Kinds in a row, not too many.
fn listed<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> String {
    let names: Vec<String> = kinds.into_iter().map(Kind::to_string).collect();
    let more = names.len().saturating_sub(MOST_LISTED);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> BTreeSet<Kind> {
        let kind = |(name, group): (&str, &str)| Kind { name: name.to_owned(), group: group.to_owned() };
        [
            ("ConfigMap", ""),
            ("Endpoints", ""),
            ("Service", ""),
            ("Service", "serving.knative.dev"),
            ("Ingress", "networking.k8s.io"),
            ("NetworkPolicy", "networking.k8s.io"),
            ("VirtualService", "networking.istio.io"),
            ("Gateway", "networking.istio.io"),
            ("Gateway", "gateway.networking.k8s.io"),
        ]
        .map(kind)
        .into()
    }

    #[test]
    fn a_kind_is_found_in_any_case_singular_or_plural() {
        for (text, expected) in [
            ("VirtualService", "VirtualService.networking.istio.io"),
            ("virtualservice", "VirtualService.networking.istio.io"),
            ("VIRTUALSERVICES", "VirtualService.networking.istio.io"),
            ("virtualservices.networking.istio.io", "VirtualService.networking.istio.io"),
            ("configmaps", "ConfigMap"),
            ("cm.core", ""),
            ("ConfigMap.core/app", "ConfigMap"),
            ("ingresses", "Ingress.networking.k8s.io"),
            ("networkpolicies", "NetworkPolicy.networking.k8s.io"),
            ("endpoints", "Endpoints"),
            ("services.core", "Service"),
            ("gateway.networking.istio.io", "Gateway.networking.istio.io"),
            ("gateways.Gateway.networking.k8s.io", "Gateway.gateway.networking.k8s.io"),
        ] {
            let kinds = kinds();
            let found = Wanted::parse(text).unwrap().resolve(&kinds).map(Kind::to_string).unwrap_or_default();
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(Wanted::parse("a/b").unwrap().name.as_deref(), Some("b"));
    }

    #[test]
    fn the_mistake_is_named() {
        for (text, expected) in [
            ("service", "several kinds have this name: Service, Service.serving.knative.dev; give the group as well"),
            ("virtualservce", "no object has this kind; did you mean VirtualService.networking.istio.io?"),
            ("configmap.v1", "no object has this kind; did you mean ConfigMap?"),
            ("vs", "no object has this kind; there are ConfigMap, Endpoints, Gateway.gateway.networking.k8s.io, "),
        ] {
            let said = Wanted::parse(text).unwrap().resolve(&kinds()).unwrap_err();
            assert!(said.starts_with(expected), "{said}");
        }
        assert_eq!(
            Wanted::parse("a").unwrap().resolve(&BTreeSet::new()).unwrap_err(),
            "it has no object of any kind; Calico's syncers never have one, --syncer names another"
        );
        for text in ["", "/a", "a/", "a.", ".a"] {
            assert!(Wanted::parse(text).is_err(), "{text}");
        }
    }
}
