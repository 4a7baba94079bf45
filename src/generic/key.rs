//! Keys: `/bulrush/v1/GROUP/KIND/NAMESPACE/NAME`, so that all objects of a kind are one range.
//!
//! The version of a kind is no part of the key: an object is the same in all versions.

use crate::datastore::ObjectId;
use crate::model::{Key, ResourceKey};

/// The start of all keys.
pub const PREFIX: &str = ResourceKey::root();

/// The key of an object.
#[must_use]
pub fn of(group: &str, kind: &str, id: &ObjectId) -> Key {
    ResourceKey { group, kind, namespace: &id.namespace, name: &id.name }.to_key()
}

/// The parts of a key; `None` if it has another form.
#[must_use]
pub fn parts(key: &str) -> Option<ResourceKey<'_>> {
    ResourceKey::parse(key)
}

/// The kind in a key, as `GROUP/KIND`: the family under which its problems and changes are counted.
#[must_use]
pub fn family(key: &str) -> &str {
    let Some(rest) = key.strip_prefix(PREFIX) else { return "" };
    let ends = rest.match_indices('/').map(|(at, _)| at);
    ends.take(2).last().map_or(rest, |end| &rest[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(namespace: &str, name: &str) -> ObjectId {
        ObjectId { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn keys_have_their_parts() {
        for (group, kind, namespace, name, expected, family_is, words) in [
            (
                "networking.istio.io",
                "VirtualService",
                "default",
                "reviews",
                "/bulrush/v1/networking.istio.io/VirtualService/default/reviews",
                "networking.istio.io/VirtualService",
                "VirtualService.networking.istio.io default/reviews",
            ),
            ("", "ConfigMap", "a", "b", "/bulrush/v1/core/ConfigMap/a/b", "core/ConfigMap", "ConfigMap a/b"),
            ("", "Node", "", "n", "/bulrush/v1/core/Node/-/n", "core/Node", "Node n"),
            ("b.io", "Bytes", "", "x/y/z", "/bulrush/v1/b.io/Bytes/-/x/y/z", "b.io/Bytes", "Bytes.b.io x/y/z"),
        ] {
            let key = of(group, kind, &id(namespace, name));
            assert_eq!(key.as_str(), expected);
            assert_eq!(parts(&key), Some(ResourceKey { group, kind, namespace, name }));
            assert_eq!(family(&key), family_is);
            assert_eq!(parts(&key).unwrap().to_string(), words);
        }
        for other in ["", "/calico/v1/x", "/bulrush/v1/a/b/c", "/bulrush/v1/"] {
            assert_eq!(parts(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_key_can_be_looked_at(text in ".{0,80}") {
            let _ = (parts(&text), family(&text));
            let _ = family(&format!("{PREFIX}{text}"));
        }
    }
}
