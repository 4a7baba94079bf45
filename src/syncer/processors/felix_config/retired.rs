//! Settings that Calico 3.32 has given up, and agents of older releases still have. They are carried aside.

use serde_json::{Map, Value as Json};

use super::Scope;
use super::setting::seconds;
use crate::datastore::Object;
use crate::model::duration::GoDuration;
use crate::model::{Key, aside, gojson, strict};

/// Their fields and names.
const SETTINGS: [(&str, &str); 3] = [
    ("iptablesLockFilePath", "IptablesLockFilePath"),
    ("iptablesLockTimeout", "IptablesLockTimeoutSecs"),
    ("bpfKubeProxyEndpointSlicesEnabled", "BPFKubeProxyEndpointSlicesEnabled"),
];

/// The keys and texts of all of them; no text where the object does not set it, or sets it to something that it cannot be.
pub(super) fn settings(
    scope: &Scope<'_>,
    object: &Object,
) -> impl Iterator<Item = (&'static str, Key, Option<String>)> {
    let body: Map<String, Json> = gojson::parse_with(&object.body, |text| strict::from_str(text)).unwrap_or_default();
    let mut spec = match body.into_iter().find(|(name, _)| name == "spec") {
        Some((_, Json::Object(spec))) => spec,
        _ => Map::new(),
    };
    let text = move |field: &str| match spec.remove(field)? {
        Json::Bool(flag) => Some(flag.to_string()),
        Json::String(text) if field == "iptablesLockTimeout" => GoDuration::parse(&text).map(seconds),
        Json::String(text) => Some(text).filter(|text| !text.is_empty()),
        _ => None,
    };
    let mut text = text;
    keys(scope).into_iter().zip(SETTINGS).map(move |(key, (field, name))| (name, key, text(field)))
}

/// The keys of all of them.
pub(super) fn keys(scope: &Scope<'_>) -> [Key; SETTINGS.len()] {
    SETTINGS.map(|(_, name)| aside::key(aside::OLD, &scope.key(name)))
}
