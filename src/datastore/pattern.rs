//! The kinds that a pipeline asks for, as people write them, and the kinds of a datastore that meet them.

use std::fmt;
use std::str::FromStr;

use crate::model::nearest::did_you_mean;
use crate::model::object::Kind;

/// Most kinds that one pattern stands for. A kind costs a watch; a large cluster has some 300 kinds in all.
pub(super) const MAX_KINDS: usize = 1_000;

/// Stands for all kinds of a group.
const ALL: &str = "*";
/// Longest pattern, in bytes. Groups are DNS names of at most 253, versions and kinds of at most 63.
const MAX_PATTERN: usize = 400;

/// A kind, or all kinds of a group: `networking.istio.io/v1/VirtualService`, `v1/ConfigMap` (Kubernetes' core group),
/// `networking.istio.io/*`, `v1/*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// API group; empty for Kubernetes' core group.
    pub group: String,
    /// Version and name of the only kind; `None`: all kinds of the group, each in the version that the datastore prefers.
    pub kind: Option<(String, String)>,
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no kind: {reason}")]
pub struct BadPattern {
    text: String,
    reason: &'static str,
}

impl Pattern {
    /// The kind that it names, if it names one; with no plural, and of a scope that may have namespaces.
    pub(super) fn named(&self) -> Option<Kind> {
        let (version, name) = self.kind.clone()?;
        Some(Kind {
            group: self.group.clone().into(),
            version: version.into(),
            name: name.into(),
            plural: "".into(),
            namespaced: true,
            etcd_prefix: None,
        })
    }

    /// Whether a kind of this group and name is asked for, in any version.
    #[must_use]
    pub fn names(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind.as_ref().is_none_or(|(_, name)| name == kind)
    }

    /// Whether a kind in this version is asked for.
    #[must_use]
    pub fn matches(&self, group: &str, version: &str, kind: &str) -> bool {
        self.names(group, kind) && self.kind.as_ref().is_none_or(|(wanted, _)| wanted == version)
    }
}

impl FromStr for Pattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let bad = |reason| BadPattern { text: text.chars().take(MAX_PATTERN).collect(), reason };
        if text.len() > MAX_PATTERN {
            return Err(bad("it is too long"));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (group, kind) = match parts[..] {
            [version, ALL] if is_version(version) => ("", None),
            [group, ALL] => (group, None),
            [version, name] => ("", Some((version, name))),
            [group, version, name] => (group, Some((version, name))),
            _ => return Err(bad("write group/version/Kind, version/Kind for Kubernetes' core group, or group/*")),
        };
        let is_group = |word: &str| word.bytes().all(|byte| is_lower(byte) || byte == b'.' || byte == b'-');
        let names_group = parts.len() == 3 || kind.is_none() && !is_version(parts[0]);
        if !is_group(group) || names_group && group.is_empty() {
            return Err(bad("the group is a DNS name in lower case"));
        }
        if let Some((version, name)) = kind {
            if !is_version(version) {
                return Err(bad(
                    "the version begins with v and has lower-case letters and digits, for example v1beta1",
                ));
            }
            if !name.starts_with(|first: char| first.is_ascii_uppercase())
                || !name.bytes().all(|b| b.is_ascii_alphanumeric())
            {
                return Err(bad(
                    "the kind begins with a capital letter and has letters and digits, for example ConfigMap",
                ));
            }
        }
        Ok(Self { group: group.to_owned(), kind: kind.map(|(version, name)| (version.to_owned(), name.to_owned())) })
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the text is a version: `v1`, `v2beta3`.
fn is_version(text: &str) -> bool {
    let rest = text.strip_prefix('v').unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit()) && rest.bytes().all(is_lower)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.group, &self.kind) {
            ("", None) => write!(f, "v1/{ALL}"),
            (group, None) => write!(f, "{group}/{ALL}"),
            ("", Some((version, name))) => write!(f, "{version}/{name}"),
            (group, Some((version, name))) => write!(f, "{group}/{version}/{name}"),
        }
    }
}

/// The kinds of a datastore that meet some patterns now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindsNow {
    /// The kinds, complete: plural, scope, version. In a folder the version may be `*`: its objects are in any. Of one group and name at most one version, unless two patterns name two.
    pub kinds: Vec<Kind>,
    /// Patterns for which the datastore has no kind.
    pub unknown: Vec<Unknown>,
}

/// A pattern for which the datastore has no kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The pattern.
    pub pattern: Pattern,
    /// Why there is none, and the name that was probably meant, in words.
    pub reason: String,
}

/// The remark about a pattern that more kinds meet than one may stand for.
pub(super) fn too_many(pattern: &Pattern, count: usize) -> Option<Unknown> {
    let reason = || format!("{count} kinds meet it, of which only the first {MAX_KINDS} are read: name kinds instead");
    (count > MAX_KINDS).then(|| Unknown { pattern: pattern.clone(), reason: reason() })
}

/// A reason, with the pattern that was probably meant.
pub(super) fn with_hint(reason: &str, meant: Option<&Pattern>) -> String {
    let meant = meant.map(ToString::to_string);
    match did_you_mean(meant.as_deref()) {
        hint if hint.is_empty() => reason.to_owned(),
        hint => format!("{reason}; {hint}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_and_printed() {
        for (text, group, kind) in [
            ("networking.istio.io/v1/VirtualService", "networking.istio.io", Some(("v1", "VirtualService"))),
            ("v1/ConfigMap", "", Some(("v1", "ConfigMap"))),
            ("apps/v1/Deployment", "apps", Some(("v1", "Deployment"))),
            ("networking.istio.io/*", "networking.istio.io", None),
            ("v1/*", "", None),
        ] {
            let pattern: Pattern = text.parse().unwrap();
            let kind = kind.map(|(version, name)| (version.to_owned(), name.to_owned()));
            assert_eq!(pattern, Pattern { group: group.to_owned(), kind });
            assert_eq!(pattern.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("{}/*", "a".repeat(MAX_PATTERN));
        for text in [
            "",
            "ConfigMap",
            "/*",
            "*",
            "*/*",
            "v1/configMap",
            "V1/ConfigMap",
            "a/b/c/d",
            "/v1/Pod",
            "a b/*",
            "v1/",
            &long,
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_with_a_version_takes_that_version_only() {
        let one: Pattern = "networking.istio.io/v1/Gateway".parse().unwrap();
        let all: Pattern = "networking.istio.io/*".parse().unwrap();
        for (pattern, version, kind, expected) in [
            (&one, "v1", "Gateway", true),
            (&one, "v1beta1", "Gateway", false),
            (&one, "v1", "Sidecar", false),
            (&all, "v1beta1", "Gateway", true),
        ] {
            assert_eq!(pattern.matches("networking.istio.io", version, kind), expected, "{pattern} {version} {kind}");
        }
        assert!(!all.matches("istio.io", "v1", "Gateway"));
    }
}
