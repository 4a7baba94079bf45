//! The difference between two servers' content: pure.
//!
//! Some differences are known (docs/operations.md, "Agents of several releases"): they are recognised by their form, never by a key's name.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::calico::release::Release;
use crate::calico::resource::reverse_uid;
use crate::model::{Key, Update};
use crate::snapcache::Map;

/// Places in a value that a difference names.
const MOST_PLACES: usize = 3;
/// Longest text of a value that is shown.
const MOST_SHOWN: usize = 80;

/// A difference of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The other server has it, and we do not.
    OnlyThere,
    /// We have it, and the other server does not.
    OnlyHere,
    /// Both have it, with these values.
    Value {
        /// The places that are different, in words.
        places: String,
        /// The reason, if it is known.
        known: Option<&'static str>,
    },
}

impl Difference {
    /// The reason, where it is a known difference.
    pub(super) fn known(&self) -> Option<&'static str> {
        match self {
            Self::Value { known, .. } => *known,
            Self::OnlyThere | Self::OnlyHere => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyThere => f.write_str("is only there"),
            Self::OnlyHere => f.write_str("is only here"),
            Self::Value { places, .. } => f.write_str(places),
        }
    }
}

/// All keys that are different to an agent of a release.
#[must_use]
pub fn differences(line: Release, theirs: &BTreeMap<Key, Update>, ours: &Map) -> BTreeMap<Key, Difference> {
    let mut found = BTreeMap::new();
    for (key, there) in theirs {
        match ours.get(key) {
            None => {
                found.insert(key.clone(), Difference::OnlyThere);
            }
            Some(here) => {
                if let Some(difference) = value(line, there, here) {
                    found.insert(key.clone(), difference);
                }
            }
        }
    }
    found.extend(ours.keys().filter(|key| !theirs.contains_key(*key)).map(|key| (key.clone(), Difference::OnlyHere)));
    found
}

fn value(line: Release, there: &Update, here: &Update) -> Option<Difference> {
    let bytes = |update: &Update| update.value.as_ref().map(|value| value.bytes.clone()).unwrap_or_default();
    let (there_bytes, here_bytes) = (bytes(there), bytes(here));
    if there.ttl != here.ttl {
        let places = format!("lives for {:?} there, {:?} here", there.ttl, here.ttl);
        return Some(Difference::Value { places, known: None });
    }
    if there_bytes == here_bytes {
        return None;
    }
    let parsed = (serde_json::from_slice(&there_bytes), serde_json::from_slice(&here_bytes));
    let (Ok(mut there), Ok(mut here)) = parsed else {
        let shown = |bytes: &[u8]| shown(&String::from_utf8_lossy(bytes));
        let places = format!("is {} there, {} here", shown(&there_bytes), shown(&here_bytes));
        return Some(Difference::Value { places, known: None });
    };
    let mut places = Vec::new();
    name_places(&there, &here, "", &mut places);
    let mut known = "another order of fields or spelling of the same JSON";
    for (of, reason, pass_over) in KNOWN {
        if there == here {
            break;
        }
        if of(line) {
            let before = (there.clone(), here.clone());
            pass_over(&mut there, &mut here);
            if before != (there.clone(), here.clone()) {
                known = reason;
            }
        }
    }
    let rest = places.len().saturating_sub(MOST_PLACES);
    places.truncate(MOST_PLACES);
    let more = if rest > 0 { format!("; {rest} more places") } else { String::new() };
    Some(Difference::Value { places: places.join("; ") + &more, known: (there == here).then_some(known) })
}

/// Names the places at which two documents differ.
fn name_places(there: &Value, here: &Value, at: &str, places: &mut Vec<String>) {
    match (there, here) {
        _ if there == here => {}
        (Value::Object(one), Value::Object(other)) => {
            let mut names: Vec<&String> =
                one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))).collect();
            names.sort();
            for name in names {
                let (one, other) = (one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null));
                name_places(one, other, &format!("{at}/{name}"), places);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                name_places(one, other, &format!("{at}/{index}"), places);
            }
        }
        _ => places.push(format!("{at}: {} there, {} here", shown(&there.to_string()), shown(&here.to_string()))),
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A test of the release, the reason in words, and a function that removes the difference from both documents.
type Known = (fn(Release) -> bool, &'static str, fn(&mut Value, &mut Value));

/// The known differences between values.
const KNOWN: [Known; 5] = [
    (
        |_| true,
        "the API server's own records (metadata.managedFields), which agents do not read",
        |there, here| {
            for side in [there, here] {
                if let Some(metadata) = side.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            }
        },
    ),
    (
        |_| true,
        "a time of creation that is none: Typha prints null",
        |there, here| {
            for side in [there, here] {
                if let Some(metadata) = side.get_mut("metadata").and_then(Value::as_object_mut)
                    && metadata.get("creationTimestamp") == Some(&Value::Null)
                {
                    metadata.remove("creationTimestamp");
                }
            }
        },
    ),
    (
        |line| line == Release::V3_26,
        "a UID that 3.26 passes on as the API server has it, which agents do not read",
        |there, here| {
            let uid = |side: &Value| side.pointer("/metadata/uid").and_then(Value::as_str).and_then(reverse_uid);
            if uid(there).is_some_and(|turned| here.pointer("/metadata/uid") == Some(&turned.into())) {
                there["metadata"]["uid"] = here["metadata"]["uid"].clone();
            }
        },
    ),
    (
        |line| line <= Release::V3_30,
        "an entry of a rule's networks that is none: Typha sends null, which may end Felix",
        |there, _| without_null_networks(there),
    ),
    (
        |line| line <= Release::V3_29,
        "named ports of init containers, which old Typhas do not look at",
        |there, here| {
            let ports = |value: &Value| value.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
            let (old, new) = (ports(there), ports(here));
            if old.iter().all(|port| new.contains(port))
                && let (Some(there), Some(here)) = (there.as_object_mut(), here.as_object_mut())
            {
                there.remove("ports");
                here.remove("ports");
            }
        },
    ),
];

fn without_null_networks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::Array(entries) if name.ends_with("_nets") => entries.retain(|entry| !entry.is_null()),
                    other => without_null_networks(other),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_null_networks),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::model::{UpdateType, Value as Bytes, no_revision};

    fn update(key: &str, value: &str) -> Update {
        Update {
            key: key.into(),
            value: Some(Bytes::raw(value.to_owned())),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::New,
            origin: None,
        }
    }

    fn judged(line: Release, there: &str, here: &str) -> Option<Difference> {
        value(line, &update("/k", there), &update("/k", here))
    }

    #[test]
    fn keys_on_one_side_are_named() {
        let theirs: BTreeMap<Key, Update> = ["/a", "/b"].map(|key| (key.into(), update(key, "1"))).into();
        let ours: Map = ["/b", "/c"].map(|key| (Key::from(key), Arc::new(update(key, "1")))).into_iter().collect();
        let found = differences(Release::V3_31, &theirs, &ours);
        let expected = [("/a".into(), Difference::OnlyThere), ("/c".into(), Difference::OnlyHere)];
        assert_eq!(found, expected.into());
    }

    #[test]
    fn places_of_a_value_are_named() {
        let difference = judged(Release::V3_31, r#"{"spec":{"a":[1,2],"b":3}}"#, r#"{"spec":{"a":[1,9],"c":"x"}}"#);
        let text = difference.unwrap().to_string();
        assert_eq!(text, r#"/spec/a/1: 2 there, 9 here; /spec/b: 3 there, null here; /spec/c: null there, "x" here"#);
        assert_eq!(judged(Release::V3_31, "10.0.0.1", "10.0.0.2").unwrap().known(), None);
        assert_eq!(judged(Release::V3_31, "same", "same"), None);
    }

    #[test]
    fn known_differences_are_known_only_where_they_are_expected() {
        let nets = (
            r#"{"outbound_rules":[{"dst_nets":["10.0.0.0/8",null]}]}"#,
            r#"{"outbound_rules":[{"dst_nets":["10.0.0.0/8"]}]}"#,
        );
        let ports = (r#"{"name":"w","ports":[{"port":80}]}"#, r#"{"name":"w","ports":[{"port":80},{"port":81}]}"#);
        let uid = (
            r#"{"metadata":{"uid":"1f265cbb-a10b-4c7e-9a98-7f107cdb8331"}}"#,
            r#"{"metadata":{"uid":"f8643add-85d0-4c7e-9a19-fe083edbc18c"}}"#,
        );
        for (line, (there, here), known) in [
            (Release::V3_30, nets, true),
            (Release::V3_31, nets, false),
            (Release::V3_29, ports, true),
            (Release::V3_30, ports, false),
            (Release::V3_26, uid, true),
            (Release::V3_27, uid, false),
            // Fewer than the old Typha has.
            (Release::V3_29, (ports.1, ports.0), false),
            (
                Release::V3_31,
                (r#"{"metadata":{"managedFields":[1],"name":"x"}}"#, r#"{"metadata":{"name":"x"}}"#),
                true,
            ),
            (Release::V3_32, (r#"{"metadata":{"creationTimestamp":null}}"#, r#"{"metadata":{}}"#), true),
            (
                Release::V3_32,
                (r#"{"metadata":{"creationTimestamp":null},"spec":1}"#, r#"{"metadata":{},"spec":2}"#),
                false,
            ),
        ] {
            let difference = judged(line, there, here).expect("they differ");
            assert_eq!(difference.known().is_some(), known, "{line} {there} {here}: {difference:?}");
        }
    }
}
