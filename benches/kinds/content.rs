//! The objects that the measurements make up, always the same ones.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Group of the many kinds.
pub(crate) const MANY: &str = "many.example.org";
/// Where gardens are in etcd.
pub(crate) const MESH: &str = "/mesh/";
/// Where Calico keeps its network sets in etcd.
const NETWORK_SETS: &str = "/calico/resources/v3/projectcalico.org/globalnetworksets/";
/// Words in the text of a garden: they make it some 1 KiB.
const WORDS: usize = 92;
/// Networks in a network set: they make it some 1 KiB.
const NETWORKS: usize = 41;

/// A sequence of numbers that looks random and depends on `seed` alone.
fn numbers(seed: usize) -> impl Iterator<Item = u32> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    })
}

/// Text of words that hardly repeat, so that it is not much smaller when compressed.
fn text(seed: usize, words: usize) -> String {
    let mut text = String::new();
    for number in numbers(seed).take(words) {
        let _ = write!(text, "{number:08x} ");
    }
    text
}

/// The name of garden `i`.
pub(crate) fn garden_name(i: usize) -> String {
    format!("garden-{i:06}")
}

/// The key at which agents get a garden.
pub(crate) fn garden_key(i: usize) -> String {
    format!("/bulrush/v1/example.org/Garden/home/{}", garden_name(i))
}

/// Garden `i` with a note, which is what edits change.
pub(crate) fn garden(i: usize, note: &str) -> Value {
    json!({
        "apiVersion": "example.org/v1",
        "kind": "Garden",
        "metadata": {
            "name": garden_name(i),
            "namespace": "home",
            "labels": {"app": format!("web-{}", i % 200), "tier": "frontend", "zone": format!("z{}", i % 3)},
        },
        "spec": {"beds": i % 9 + 1, "note": note, "text": text(i, WORDS)},
    })
}

/// Garden `i` in etcd: key and value.
pub(crate) fn garden_in_etcd(i: usize) -> (String, String) {
    (format!("{MESH}home/{}", garden_name(i)), garden(i, "").to_string())
}

/// Calico's network set `i` in etcd: key and value.
pub(crate) fn network_set_in_etcd(i: usize) -> (String, String) {
    let name = format!("set-{i:06}");
    let networks: Vec<String> = numbers(i)
        .take(NETWORKS)
        .map(|number| format!("10.{}.{}.{}/32", number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff))
        .collect();
    let object = json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "GlobalNetworkSet",
        "metadata": {
            "name": name,
            "uid": format!("00000000-0000-4000-8000-{i:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("web-{}", i % 200), "tier": "frontend", "zone": format!("z{}", i % 3)},
        },
        "spec": {"nets": networks},
    });
    (format!("{NETWORK_SETS}{name}"), object.to_string())
}

/// The only object of the kind number `i` of many.
pub(crate) fn one_of_many(i: usize) -> Value {
    json!({
        "apiVersion": format!("{MANY}/v1"),
        "kind": format!("Kind{i}"),
        "metadata": {"name": "only", "labels": {"app": "web"}},
        "spec": {"text": text(i, 8)},
    })
}

/// The plural of the kind number `i` of many.
pub(crate) fn plural_of_many(i: usize) -> String {
    format!("kind{i}s")
}

/// The definition of the kind number `i` of many.
pub(crate) fn definition_of_many(i: usize) -> Value {
    let (kind, plural) = (format!("Kind{i}"), plural_of_many(i));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{MANY}")},
        "spec": {
            "group": MANY,
            "scope": "Cluster",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
