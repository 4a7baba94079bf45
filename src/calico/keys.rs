//! Key paths: the place of each datum on the wire.
//!
//! Names of objects are inserted as Calico does: some escaped, to stay one path element, others verbatim.

use std::borrow::Cow;
use std::fmt::Write;

use ipnet::IpNet;

use crate::model::Key;
use crate::model::object::{Kind, ObjectId};

/// Makes one path element of any text.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.contains(['%', '/']) {
        Cow::Owned(text.replace('%', "%25").replace('/', "%2f"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A network as path element: `10.0.0.0-8`, masked.
#[must_use]
pub fn net_element(net: &IpNet) -> String {
    format!("{}-{}", net.network(), net.prefix_len())
}

/// A policy of any kind; global kinds have an empty namespace.
#[must_use]
pub fn policy(kind: &str, id: &ObjectId) -> Key {
    format!("/calico/v1/policy/{kind}/{}/{}", id.namespace, id.name).into()
}

/// The key of a policy with this full name in releases up to 3.31.
#[must_use]
pub fn old_policy(tier: &str, full_name: &str) -> Key {
    format!("/calico/v1/policy/tier/{tier}/policy/{}", escape(full_name)).into()
}

/// The key of an AdminNetworkPolicy, in the releases that have it.
#[must_use]
pub fn old_admin_policy(name: &str) -> Key {
    old_policy("adminnetworkpolicy", &format!("kanp.adminnetworkpolicy.{name}"))
}

/// The key of a BaselineAdminNetworkPolicy, in the releases that have it.
#[must_use]
pub fn old_baseline_admin_policy(name: &str) -> Key {
    old_policy("baselineadminnetworkpolicy", &format!("kbanp.baselineadminnetworkpolicy.{name}"))
}

/// A tier.
#[must_use]
pub fn tier(name: &str) -> Key {
    format!("/calico/v1/policy/tier/{name}/metadata").into()
}

/// The plural under which a kind's whole objects are on the wire: mostly its own.
#[must_use]
pub fn wire_plural(kind: &Kind) -> &str {
    match (&*kind.group, &*kind.plural) {
        ("", "services") => "kubernetesservice",
        ("discovery.k8s.io", "endpointslices") => "kubernetesendpointslices",
        (_, plural) => plural,
    }
}

/// A whole object of the kind with this plural; no namespace for cluster-scoped ones.
#[must_use]
pub fn resource(plural: &str, id: &ObjectId) -> Key {
    let mut path = String::with_capacity(48 + plural.len() + id.namespace.len() + id.name.len());
    let _ = write!(path, "/calico/resources/v3/projectcalico.org/{plural}/");
    if !id.namespace.is_empty() {
        let _ = write!(path, "{}/", id.namespace);
    }
    path.push_str(&id.name);
    path.into()
}

/// The subject of a key in one word: a policy's kind, a whole resource's plural, or the name of the v1 datum.
#[must_use]
pub fn family(key: &str) -> &str {
    let first = |rest: &'_ str| rest.find('/').unwrap_or(rest.len());
    if let Some(rest) = key.strip_prefix("/calico/resources/v3/projectcalico.org/") {
        return &rest[..first(rest)];
    }
    if let Some(rest) = key.strip_prefix("/calico/v1/policy/") {
        return &rest[..first(rest)];
    }
    let v1 = [("/workload/", "workload"), ("/endpoint/", "endpoint"), ("/config/", "config")];
    if let Some(rest) = key.strip_prefix("/calico/v1/host/") {
        let of_host = &rest[first(rest)..];
        return v1.iter().find(|(part, _)| of_host.starts_with(part)).map_or("host", |(_, family)| family);
    }
    match key.split('/').nth(3) {
        Some("netset") => "netset",
        Some("config") => "config",
        _ if key.contains("/ipam/") => "ipam",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_families() {
        for (key, expected) in [
            ("/calico/resources/v3/projectcalico.org/nodes/n", "nodes"),
            ("/calico/v1/policy/NetworkPolicy/ns/p", "NetworkPolicy"),
            ("/calico/v1/policy/profile/kns.a/rules", "profile"),
            ("/calico/v1/host/n/workload/k8s/a%2fp/endpoint/eth0", "workload"),
            ("/calico/v1/host/n/endpoint/eth0", "endpoint"),
            ("/calico/v1/host/n/wireguard", "host"),
            ("/calico/v1/netset/a", "netset"),
            ("/calico/v1/ipam/v4/pool/10.0.0.0-8", "ipam"),
            ("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26", "ipam"),
            ("/calico/v1/Ready", "other"),
            ("", "other"),
        ] {
            assert_eq!(family(key), expected, "{key}");
        }
    }

    #[test]
    fn escapes_characters_that_would_split_a_path() {
        assert_eq!(escape("a/b%c"), "a%2fb%25c");
        assert_eq!(escape("plain.name-1"), "plain.name-1");
    }

    #[test]
    fn global_policies_have_a_double_slash() {
        let id = ObjectId { namespace: "".into(), name: "default.x".into() };
        assert_eq!(policy("GlobalNetworkPolicy", &id).as_str(), "/calico/v1/policy/GlobalNetworkPolicy//default.x");
    }
}
