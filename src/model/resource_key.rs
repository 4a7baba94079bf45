//! Keys of objects of any kind: `/bulrush/v1/GROUP/KIND/NAMESPACE/NAME`. docs/protocol.md describes them for agents.
//!
//! The core group is written `core`, and an object that belongs to no namespace has the namespace `-`. So the keys of a kind, and
//! those of a kind in a namespace, are ranges.

use std::fmt;

use super::Key;

/// All of these keys begin with this. The version counts the form of keys and values.
const ROOT: &str = "/bulrush/v1/";

/// The group of `v1/ConfigMap` and the like, as a key writes it.
const CORE: &str = "core";

/// The namespace of objects without one, as a key writes it. No namespace has this name.
const NO_NAMESPACE: &str = "-";

/// The parts of an object's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind, for example `VirtualService`.
    pub kind: &'a str,
    /// The namespace; empty for objects that belong to none.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl<'a> ResourceKey<'a> {
    /// The parts of a key. `None`: the key has another form, as those of Calico have.
    #[must_use]
    pub fn parse(key: &'a str) -> Option<Self> {
        let mut parts = key.strip_prefix(ROOT)?.splitn(4, '/');
        let [group, kind, namespace, name] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        if [group, kind, namespace, name].contains(&"") {
            return None;
        }
        let group = if group == CORE { "" } else { group };
        let namespace = if namespace == NO_NAMESPACE { "" } else { namespace };
        Some(Self { group, kind, namespace, name })
    }

    /// The key. No part may contain `/`, except for the name.
    #[must_use]
    pub fn to_key(self) -> Key {
        self.to_string().into()
    }

    /// The start of all keys of a kind. `group` is empty for the core group.
    #[must_use]
    pub fn prefix_of_kind(group: &str, kind: &str) -> String {
        format!("{ROOT}{}/{kind}/", if group.is_empty() { CORE } else { group })
    }

    /// The start of all keys of this form.
    #[must_use]
    pub const fn root() -> &'static str {
        ROOT
    }
}

impl fmt::Display for ResourceKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text, instead| if str::is_empty(text) { instead } else { text };
        let (group, namespace) = (or(self.group, CORE), or(self.namespace, NO_NAMESPACE));
        write!(f, "{ROOT}{group}/{}/{namespace}/{}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_parts_tell_the_same() {
        for (key, group, kind, namespace, name) in [
            ("/bulrush/v1/core/ConfigMap/default/app", "", "ConfigMap", "default", "app"),
            ("/bulrush/v1/core/Namespace/-/default", "", "Namespace", "", "default"),
            ("/bulrush/v1/networking.istio.io/Gateway/a/b", "networking.istio.io", "Gateway", "a", "b"),
            (
                "/bulrush/v1/rbac.authorization.k8s.io/ClusterRole/-/system:a",
                "rbac.authorization.k8s.io",
                "ClusterRole",
                "",
                "system:a",
            ),
            ("/bulrush/v1/g/K/n/with/slashes", "g", "K", "n", "with/slashes"),
        ] {
            let parts = ResourceKey { group, kind, namespace, name };
            assert_eq!(ResourceKey::parse(key), Some(parts));
            assert_eq!(parts.to_key().as_str(), key);
            assert!(key.starts_with(&ResourceKey::prefix_of_kind(group, kind)));
        }
    }

    #[test]
    fn other_keys_have_no_parts() {
        for key in [
            "",
            "/calico/v1/config/A",
            "/bulrush/v1/",
            "/bulrush/v1/a/b/c",
            "/bulrush/v1/a/b/c/",
            "/bulrush/v1//b/c/d",
            "/bulrush/v2/a/b/c/d",
        ] {
            assert_eq!(ResourceKey::parse(key), None, "{key}");
        }
    }
}
