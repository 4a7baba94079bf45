//! Keys of objects of any kind: `/bulrush/v1/GROUP/KIND/NAMESPACE/NAME`. docs/protocol.md describes them for agents.
//!
//! The core group is written `core`, and an object that belongs to no namespace has the namespace `-`. So the keys of a kind, and
//! those of a kind in a namespace, are ranges.

use std::fmt;

use super::Key;

/// The start of all these keys. The version counts the form of keys and values.
const ROOT: &str = "/bulrush/v1/";

/// The group of `v1/ConfigMap` and the like, as a key writes it.
const CORE: &str = "core";

/// The namespace of objects without one, as a key writes it. No namespace has this name.
const NO_NAMESPACE: &str = "-";

/// The parts of an object's key. Displays in words: `VirtualService.networking.istio.io default/reviews`, without a group or a
/// namespace that is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind, for example `VirtualService`.
    pub kind: &'a str,
    /// The namespace; empty for objects that belong to none.
    pub namespace: &'a str,
    /// The name; may have slashes.
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

    /// The key. No part but the name may contain `/`.
    #[must_use]
    pub fn to_key(self) -> Key {
        let namespace = if self.namespace.is_empty() { NO_NAMESPACE } else { self.namespace };
        format!("{}{namespace}/{}", Self::prefix_of_kind(self.group, self.kind), self.name).into()
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
        f.write_str(self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        f.write_str(" ")?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(self.name)
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
            assert!(parts.to_string().starts_with(kind));
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
