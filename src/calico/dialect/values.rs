//! Values of a line, made from the cache's: a few fields more or less. Equal values share their memory.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::calico::release::Release;
use crate::model::{Revision, Update, Value};

/// The profile that Calico adds by itself.
const DEFAULT_ALLOW: &str = "profiles/projectcalico-default-allow";
/// Its rules.
const DEFAULT_ALLOW_RULES: &str = "/calico/v1/policy/profile/projectcalico-default-allow/rules";

/// Fields that come after `apply_on_forward` in a policy.
const AFTER_APPLY_ON_FORWARD: [&str; 3] = ["types", "performance_hints", "staged_action"];
/// Fields that come after `source` and `destination` in a rule.
const AFTER_PEERS: [&str; 2] = ["http", "metadata"];
/// Fields that come after `creationTimestamp` in metadata.
const AFTER_TIMESTAMP: [&str; 7] = [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Fields added after 3.26 to `spec` of whole resources: the plural, the field, and its first line.
const FIELDS: [(&str, &str, Release); 12] = [
    ("bgpconfigurations", "localWorkloadPeeringIPV4", Release::V3_30),
    ("bgpconfigurations", "localWorkloadPeeringIPV6", Release::V3_30),
    ("bgpconfigurations", "serviceLoadBalancerAggregation", Release::V3_31),
    ("bgpconfigurations", "programClusterRoutes", Release::V3_32),
    ("bgpconfigurations", "ipv4NormalRoutePriority", Release::V3_32),
    ("bgpconfigurations", "ipv6NormalRoutePriority", Release::V3_32),
    ("bgppeers", "localWorkloadSelector", Release::V3_30),
    ("bgppeers", "nextHopMode", Release::V3_30),
    ("bgppeers", "reversePeering", Release::V3_30),
    ("bgppeers", "localASNumber", Release::V3_31),
    ("bgppeers", "keepaliveTime", Release::V3_32),
    ("nodes", "interfaces", Release::V3_31),
];

/// The same for the rules of BGP filters.
const FILTER_RULE_FIELDS: [(&str, Release); 8] = [
    ("source", Release::V3_27),
    ("interface", Release::V3_27),
    ("prefixLength", Release::V3_29),
    ("peerType", Release::V3_32),
    ("communities", Release::V3_32),
    ("asPathPrefix", Release::V3_32),
    ("priority", Release::V3_32),
    ("operations", Release::V3_32),
];

/// The lists of rules of a BGP filter.
const FILTER_RULES: [&str; 4] = ["exportV4", "importV4", "exportV6", "importV6"];

/// A policy under its old key: without its tier, which old agents take from the key. 3.26 has no hints. Up to 3.28,
/// namespaced policies also have `apply_on_forward`, which means nothing for endpoints of workloads.
pub(super) fn old_policy(line: Release, namespaced: bool, update: &Update) -> Option<Value> {
    rewritten(update, |fields| {
        fields.remove("tier");
        if line == Release::V3_26 {
            fields.remove("performance_hints");
        }
        if line <= Release::V3_28 && namespaced && !fields.has("apply_on_forward") {
            fields.insert("apply_on_forward", "true", &AFTER_APPLY_ON_FORWARD);
        }
        Some(())
    })
}

/// The update for the line's agents; the same one if nothing differs. A value that is no JSON object stays as it is.
pub(super) fn adapted(line: Release, update: &Arc<Update>) -> Arc<Update> {
    let key = update.key.as_str();
    let value = if let Some(resource) = key.strip_prefix("/calico/resources/v3/projectcalico.org/") {
        let value = (line <= Release::V3_32).then(|| resource_of_releases(line, update, resource)).flatten();
        if line <= Release::V3_27 && resource == DEFAULT_ALLOW {
            return counted_from_zero(update, value);
        }
        value
    } else if key.starts_with("/calico/v1/ipam/") {
        rewritten_if(update, line < Release::V3_31, b"assignment_mode", |fields| {
            fields.remove("allowed_uses");
            if line < Release::V3_30 {
                fields.remove("assignment_mode");
            }
            Some(())
        })
    } else if key.starts_with("/calico/ipam/v2/assignment/") {
        rewritten_if(update, line <= Release::V3_31, b"\"attributes\":[{", block_of_old_lines)
    } else if key.starts_with("/calico/v1/host/") || key.starts_with("/calico/v1/netset/") {
        labelled_of_old_lines(line, update)
    } else if line <= Release::V3_27 && key == DEFAULT_ALLOW_RULES {
        return counted_from_zero(update, None);
    } else {
        None
    };
    match value {
        Some(value) => Arc::new(Update { value: Some(value), ..Update::clone(update) }),
        None => update.clone(),
    }
}

/// The profile that Calico adds, in lines that give it the revision 0 instead of 1.
fn counted_from_zero(update: &Update, value: Option<Value>) -> Arc<Update> {
    let value = value.or_else(|| update.value.clone());
    Arc::new(Update { value, revision: Revision::from("0"), ..update.clone() })
}

/// Endpoints and sets: without fields added later, and up to 3.29 without an empty `labels`.
fn labelled_of_old_lines(line: Release, update: &Update) -> Option<Value> {
    let bytes = &update.value.as_ref()?.bytes;
    let unlabelled =
        line <= Release::V3_29 && (contains(bytes, b"\"labels\":null") || contains(bytes, b"\"labels\":{}"));
    let quality = line < Release::V3_31 && contains(bytes, b"\"qosControls\":");
    if !unlabelled && !quality {
        return None;
    }
    rewritten(update, |fields| {
        if unlabelled && fields.get("labels").is_some_and(|labels| labels == "null" || labels == "{}") {
            fields.remove("labels");
        }
        let of_workload = update.key.contains("/workload/");
        if quality && (line < Release::V3_30 || !of_workload) {
            fields.remove("qosControls");
        } else if quality {
            fields.change("qosControls", |controls| {
                controls.remove("dscp");
                Some(())
            })?;
        }
        Some(())
    })
}

/// Releases print the creation time of every resource, and both peers of a profile's rules, even if these are absent;
/// and no field that their line lacks. `None`: nothing differs.
fn resource_of_releases(line: Release, update: &Update, resource: &str) -> Option<Value> {
    let bytes = &update.value.as_ref()?.bytes;
    let plural = resource.split('/').next().unwrap_or_default();
    let untimed = !contains(bytes, b"\"creationTimestamp\":");
    let newer = |name: &str, since: Release| line < since && contains(bytes, format!("\"{name}\":").as_bytes());
    let of_spec = FIELDS.iter().filter(|(of, name, since)| *of == plural && newer(name, *since));
    let of_spec: Vec<&str> = of_spec.map(|(_, name, _)| *name).collect();
    let of_rules = FILTER_RULE_FIELDS.iter().filter(|(name, since)| plural == "bgpfilters" && newer(name, *since));
    let of_rules: Vec<&str> = of_rules.map(|(name, _)| *name).collect();
    if !untimed && plural != "profiles" && of_spec.is_empty() && of_rules.is_empty() {
        return None;
    }
    rewritten(update, |resource| {
        if untimed {
            resource.change("metadata", |metadata| {
                metadata.insert("creationTimestamp", "null", &AFTER_TIMESTAMP);
                Some(())
            })?;
        }
        if !resource.has("spec") {
            return Some(());
        }
        resource.change("spec", |spec| {
            for name in &of_spec {
                spec.remove(name);
            }
            if !of_rules.is_empty() {
                for list in FILTER_RULES {
                    spec.change_each(list, |rule| {
                        for name in &of_rules {
                            rule.remove(name);
                        }
                        Some(())
                    })?;
                }
            }
            if plural == "profiles" { peers_of_releases(spec) } else { Some(()) }
        })
    })
}

fn peers_of_releases(spec: &mut Fields) -> Option<()> {
    for direction in ["ingress", "egress"] {
        spec.change_each(direction, |rule| {
            for (peer, next) in [("source", Some("destination")), ("destination", None)] {
                if !rule.has(peer) {
                    let after: Vec<&str> = next.into_iter().chain(AFTER_PEERS).collect();
                    rule.insert(peer, "{}", &after);
                }
            }
            Some(())
        })?;
    }
    Some(())
}

/// Releases up to 3.31 print the use of an address even if it is empty.
fn block_of_old_lines(fields: &mut Fields) -> Option<()> {
    fields.change_each("attributes", |attribute| {
        for (name, after) in [
            ("secondary", &["alternateOwnerAttrs", "releasedAt"][..]),
            ("handle_id", &["secondary", "alternateOwnerAttrs", "releasedAt"][..]),
        ] {
            if !attribute.has(name) {
                attribute.insert(name, "null", after);
            }
        }
        Some(())
    })
}

/// [`rewritten`], if needed and if the value contains `about`.
fn rewritten_if(
    update: &Update,
    needed: bool,
    about: &[u8],
    change: impl FnOnce(&mut Fields) -> Option<()>,
) -> Option<Value> {
    let bytes = &update.value.as_ref()?.bytes;
    (needed && contains(bytes, about)).then(|| rewritten(update, change)).flatten()
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// The value of an update with changed fields. `None`: there is no value, it is no JSON object, or the change fails.
fn rewritten(update: &Update, change: impl FnOnce(&mut Fields) -> Option<()>) -> Option<Value> {
    let mut fields: Fields = serde_json::from_slice(&update.value.as_ref()?.bytes).ok()?;
    change(&mut fields)?;
    Some(Value::raw(Bytes::from(fields.print())))
}

/// The fields of a JSON object in their order, each as written.
#[derive(Debug, Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// Inserts a field before the first of these fields, or at the end.
    fn insert(&mut self, name: &str, value: &str, before: &[&str]) {
        let at = self.0.iter().position(|(field, _)| before.contains(&field.as_str())).unwrap_or(self.0.len());
        self.0.insert(at, (name.to_owned(), value.to_owned()));
    }

    /// Changes a field that is an object.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (_, value) = self.0.iter_mut().find(|(field, _)| field == name)?;
        let mut inner: Self = serde_json::from_str(value).ok()?;
        change(&mut inner)?;
        *value = inner.print();
        Some(())
    }

    /// Changes each item of a field that is a list of objects, if the field is present.
    fn change_each(&mut self, name: &str, mut change: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let Some((_, value)) = self.0.iter_mut().find(|(field, _)| field == name) else { return Some(()) };
        let mut items: Vec<Self> = serde_json::from_str(value).ok()?;
        items.iter_mut().try_for_each(&mut change)?;
        *value = format!("[{}]", items.iter().map(Self::print).collect::<Vec<_>>().join(","));
        Some(())
    }

    fn print(&self) -> String {
        let field = |(name, value): &(String, String)| format!("{}:{value}", serde_json::Value::from(name.as_str()));
        format!("{{{}}}", self.0.iter().map(field).collect::<Vec<_>>().join(","))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push((name, value.get().to_owned()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{UpdateType, no_revision};

    fn update(key: &str, value: &str) -> Arc<Update> {
        Arc::new(Update {
            key: key.into(),
            value: Some(Value::raw(value.to_owned())),
            revision: "1".into(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::New,
            origin: None,
        })
    }

    fn text(value: Option<&Value>) -> &str {
        std::str::from_utf8(&value.expect("a value").bytes).unwrap()
    }

    #[test]
    fn an_old_policy_has_no_tier() {
        let policy =
            update("/k", r#"{"namespace":"a\"b","tier":"sec","order":1.5,"selector":"x == 'ä'","types":["ingress"]}"#);
        let value = old_policy(Release::V3_31, true, &policy);
        assert_eq!(
            text(value.as_ref()),
            r#"{"namespace":"a\"b","order":1.5,"selector":"x == 'ä'","types":["ingress"]}"#
        );
        let value = old_policy(Release::V3_28, true, &policy);
        let expected =
            r#"{"namespace":"a\"b","order":1.5,"selector":"x == 'ä'","apply_on_forward":true,"types":["ingress"]}"#;
        assert_eq!(text(value.as_ref()), expected);
        let global = update("/k", r#"{"tier":"sec","selector":"all()","apply_on_forward":true}"#);
        let value = old_policy(Release::V3_28, false, &global);
        assert_eq!(text(value.as_ref()), r#"{"selector":"all()","apply_on_forward":true}"#);
    }

    #[test]
    fn values_are_adapted_to_the_lines_that_print_them_otherwise() {
        let profile = "/calico/resources/v3/projectcalico.org/profiles/";
        let heps = "/calico/v1/host/n/endpoint/h";
        let block = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
        let pool = "/calico/v1/ipam/v4/pool/10.0.0.0-16";
        let cases = [
            (
                format!("{profile}p"),
                r#"{"kind":"Profile","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"ingress":[{"action":"Allow"},{"action":"Deny","destination":{"nets":["10.0.0.0/8"]},"http":{}}]}}"#,
                Release::V3_32,
                r#"{"kind":"Profile","metadata":{"name":"p","creationTimestamp":null,"labels":{"a":"b"}},"spec":{"ingress":[{"action":"Allow","source":{},"destination":{}},{"action":"Deny","source":{},"destination":{"nets":["10.0.0.0/8"]},"http":{}}]}}"#,
            ),
            (
                heps.to_owned(),
                r#"{"name":"eth0","labels":null,"profile_ids":["\"labels\":null"]}"#,
                Release::V3_29,
                r#"{"name":"eth0","profile_ids":["\"labels\":null"]}"#,
            ),
            (
                block.to_owned(),
                r#"{"cidr":"10.0.0.0/26","attributes":[{},{"handle_id":"h","releasedAt":1}],"deleted":false}"#,
                Release::V3_31,
                r#"{"cidr":"10.0.0.0/26","attributes":[{"handle_id":null,"secondary":null},{"handle_id":"h","secondary":null,"releasedAt":1}],"deleted":false}"#,
            ),
            (
                pool.to_owned(),
                r#"{"cidr":"10.0.0.0/16","assignment_mode":"Automatic","allowed_uses":["Workload"]}"#,
                Release::V3_30,
                r#"{"cidr":"10.0.0.0/16","assignment_mode":"Automatic"}"#,
            ),
            (
                "/calico/v1/host/n/workload/k8s/p/endpoint/e".to_owned(),
                r#"{"name":"c","labels":{},"qosControls":{"dscp":"EF"}}"#,
                Release::V3_30,
                r#"{"name":"c","labels":{},"qosControls":{}}"#,
            ),
            (
                "/calico/resources/v3/projectcalico.org/bgpfilters/f".to_owned(),
                r#"{"metadata":{"name":"f","creationTimestamp":"t"},"spec":{"exportV4":[{"cidr":"10.0.0.0/8","priority":5,"action":"Accept"}]}}"#,
                Release::V3_31,
                r#"{"metadata":{"name":"f","creationTimestamp":"t"},"spec":{"exportV4":[{"cidr":"10.0.0.0/8","action":"Accept"}]}}"#,
            ),
        ];
        for (key, cached, last, expected) in cases {
            let cached = update(&key, cached);
            assert_eq!(text(adapted(last, &cached).value.as_ref()), expected);
            let newer = Release::ALL.into_iter().filter(|line| *line > last);
            for line in newer {
                assert!(Arc::ptr_eq(&adapted(line, &cached), &cached), "{line} {key}");
            }
        }
        let default = update(DEFAULT_ALLOW_RULES, "{}");
        assert_eq!(&*adapted(Release::V3_27, &default).revision, "0");
        assert_eq!(&*adapted(Release::V3_28, &default).revision, "1");
        let text = update(&format!("{profile}p"), "not JSON");
        assert!(Arc::ptr_eq(&adapted(Release::V3_26, &text), &text));
    }
}
