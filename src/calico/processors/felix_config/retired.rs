//! Settings that Calico 3.32 dropped and agents of older releases still have. They are carried aside.

use serde_json::{Map, Value as Json};

use super::Scope;
use super::setting::seconds;
use crate::calico::aside;
use crate::calico::duration::GoDuration;
use crate::datastore::Object;
use crate::model::{Key, gojson};

/// Their fields and names.
const SETTINGS: [(&str, &str); 3] = [
    ("iptablesLockFilePath", "IptablesLockFilePath"),
    ("iptablesLockTimeout", "IptablesLockTimeoutSecs"),
    ("bpfKubeProxyEndpointSlicesEnabled", "BPFKubeProxyEndpointSlicesEnabled"),
];

/// The names, keys and texts of all of them; no text for a setting that is absent or malformed.
pub(super) fn settings(
    scope: &Scope<'_>,
    object: &Object,
) -> impl Iterator<Item = (&'static str, Key, Option<String>)> {
    let body: Map<String, Json> = gojson::parse(&object.body).unwrap_or_default();
    let mut spec = match body.into_iter().find(|(name, _)| name == "spec") {
        Some((_, Json::Object(spec))) => spec,
        _ => Map::new(),
    };
    let mut text = move |field: &str| match spec.remove(field)? {
        Json::Bool(flag) => Some(flag.to_string()),
        Json::String(text) if field == "iptablesLockTimeout" => GoDuration::parse(&text).map(seconds),
        Json::String(text) => Some(text).filter(|text| !text.is_empty()),
        _ => None,
    };
    keys(scope).into_iter().zip(SETTINGS).map(move |(key, (field, name))| (name, key, text(field)))
}

/// The keys of all of them.
pub(super) fn keys(scope: &Scope<'_>) -> [Key; SETTINGS.len()] {
    SETTINGS.map(|(_, name)| aside::key(aside::OLD, &scope.key(name)))
}
