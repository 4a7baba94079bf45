//! Profiles: from Calico's own resources, from namespaces and from service accounts; and one built-in profile.
//!
//! A profile is three data: the whole resource, its labels, its rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json, json};

use super::rules::{NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX, all_to_v1};
use super::{Context, blank, pair};
use crate::calico::keys;
use crate::calico::resource::{Resource, reverse_uid};
use crate::calico::schema::Case;
use crate::calico::v1::meta::{Body, Meta};
use crate::calico::v1::policy::ProfileRules;
use crate::calico::v3::rule::Rule;
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, KvPair, Revision, Value, gojson, no_revision};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

const KIND: &str = "Profile";
const PLURAL: &str = "profiles";
/// Prefix of the names of namespaces' profiles.
const NAMESPACE_PROFILE: &str = "kns.";
/// Prefix of the names of service accounts' profiles.
const SERVICE_ACCOUNT_PROFILE: &str = "ksa.";
/// Label (after the prefix) with the namespace's or service account's name.
const NAME_LABEL: &str = "projectcalico.org/name";
/// The built-in profile.
const DEFAULT_ALLOW: &str = "projectcalico-default-allow";
/// Its revision.
const DEFAULT_ALLOW_REVISION: &str = "1";

/// The processor of `Profile`, `Namespace` and `ServiceAccount`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Profiles::default())
}

/// The kind of object that a profile is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Profile,
    Namespace,
    ServiceAccount,
}

impl Origin {
    fn of(id: &ObjectId, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Kubernetes if id.namespace.is_empty() => Self::Namespace,
            Dialect::Kubernetes => Self::ServiceAccount,
            _ => Self::Profile,
        }
    }

    fn profile_name(self, id: &ObjectId) -> String {
        match self {
            Self::Profile => id.name.to_string(),
            Self::Namespace => format!("{NAMESPACE_PROFILE}{}", id.name),
            Self::ServiceAccount => format!("{SERVICE_ACCOUNT_PROFILE}{}.{}", id.namespace, id.name),
        }
    }

    /// Calico's revision of the joined watch over namespaces and service accounts: two halves, only one of them known.
    fn revision(self, revision: &Revision) -> Revision {
        match self {
            Self::Profile => Arc::clone(revision),
            Self::Namespace => format!("{revision}/").into(),
            Self::ServiceAccount => format!("/{revision}").into(),
        }
    }
}

/// The newest bookmarks of the two watches since the last list and the last event of each.
#[derive(Debug, Default)]
struct Bookmarks {
    namespaces: String,
    service_accounts: String,
}

impl fmt::Display for Bookmarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespaces, self.service_accounts)
    }
}

impl Bookmarks {
    /// An event makes Calico forget the bookmark of its watch.
    fn forget(&mut self, origin: Origin) {
        match origin {
            Origin::Namespace => self.namespaces.clear(),
            Origin::ServiceAccount => self.service_accounts.clear(),
            Origin::Profile => {}
        }
    }
}

#[derive(Debug, Default)]
struct Profiles {
    bookmarks: Bookmarks,
    /// Lists are complete; events come from watches now.
    watching: bool,
    /// The origins of objects, for deletions that give only a name.
    origins: HashMap<ObjectId, HashSet<Origin>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    ingress: Vec<Rule>,
    egress: Vec<Rule>,
    labels_to_apply: BTreeMap<String, String>,
}

impl Profiles {
    fn put(&mut self, object: &Object, origin: Origin, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let name = origin.profile_name(&object.id);
        let revision = origin.revision(&object.revision);
        if origin == Origin::Profile {
            let whole = Resource::decode(KIND, object)?;
            return append(&name, whole, &object.body, &revision, None, out);
        }
        let json = gojson::parse_with(&object.body, |body| {
            let body: Body<'_, IgnoredAny> = gojson::from_str(body)?;
            profile(&name, &object.id, origin, &body.meta(object.dialect)?)
        })?
        .to_string();
        let whole = Resource::decode_json(KIND, json.as_bytes(), Case::Exact)?;
        // An accident of Calico's that reaches clients, though none uses it: no resource version after a list; after an
        // event the bookmarks of the two watches, mostly unknown.
        let version = if self.watching { self.bookmarks.to_string().into() } else { no_revision() };
        append(&name, whole, json.as_bytes(), &revision, Some(version), out)
    }

    fn delete(&mut self, id: &ObjectId, last: Option<&Object>, out: &mut Vec<KvPair>) {
        let known = self.origins.remove(id).unwrap_or_default();
        let (gone, left): (HashSet<Origin>, HashSet<Origin>) = match last {
            Some(object) => {
                let origin = Origin::of(id, object.dialect);
                ([origin].into(), known.into_iter().filter(|known| *known != origin).collect())
            }
            None => (known, HashSet::new()),
        };
        for origin in gone {
            self.bookmarks.forget(origin);
            let name = origin.profile_name(id);
            if name == DEFAULT_ALLOW {
                append_default_allow(out);
            } else {
                out.extend(profile_keys(&name).map(blank));
            }
        }
        if !left.is_empty() {
            self.origins.insert(id.clone(), left);
        }
    }
}

impl Processor for Profiles {
    fn on_resync(&mut self) {
        *self = Self::default();
    }

    fn on_list_end(&mut self, out: &mut Vec<KvPair>) {
        self.watching = true;
        append_default_allow(out);
    }

    fn on_progress(&mut self, kind_name: &str, revision: &str) {
        match kind_name {
            "Namespace" => revision.clone_into(&mut self.bookmarks.namespaces),
            "ServiceAccount" => revision.clone_into(&mut self.bookmarks.service_accounts),
            _ => {}
        }
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) => {
                let origin = Origin::of(&object.id, object.dialect);
                self.origins.entry(object.id.clone()).or_default().insert(origin);
                self.bookmarks.forget(origin);
                let before = out.len();
                self.put(object, origin, out).inspect_err(|_| {
                    out.truncate(before);
                    out.extend(profile_keys(&origin.profile_name(&object.id)).map(blank));
                })
            }
            ObjectEvent::Delete(id, last) => {
                self.delete(id, last, out);
                Ok(())
            }
        }
    }
}

/// The three keys of a profile: the whole, labels, rules.
fn profile_keys(name: &str) -> [Key; 3] {
    let id = ObjectId { namespace: "".into(), name: name.into() };
    let pieces = format!("/calico/v1/policy/profile/{}", keys::escape(name));
    [keys::resource(PLURAL, &id), format!("{pieces}/labels").into(), format!("{pieces}/rules").into()]
}

/// The profile of a namespace or service account.
fn profile(name: &str, id: &ObjectId, origin: Origin, meta: &Meta<'_>) -> Result<Json, ConvertError> {
    let uid = reverse_uid(&meta.uid)
        .ok_or_else(|| ConvertError::new(format!("metadata.uid: {:?} is not a UUID", &*meta.uid)))?;
    let prefix = if origin == Origin::Namespace { NAMESPACE_PREFIX } else { SERVICE_ACCOUNT_PREFIX };
    let mut labels: Map<String, Json> =
        meta.labels.iter().map(|(key, value)| (format!("{prefix}{key}"), value.into())).collect();
    labels.insert(format!("{prefix}{NAME_LABEL}"), (*id.name).into());
    let mut spec = json!({"labelsToApply": labels});
    if origin == Origin::Namespace {
        spec["ingress"] = json!([{"action": "Allow"}]);
        spec["egress"] = json!([{"action": "Allow"}]);
    }
    let created = Some(&*meta.creation_timestamp).filter(|text| !text.is_empty());
    Ok(json!({"metadata": {"name": name, "uid": uid, "creationTimestamp": created}, "spec": spec}))
}

fn append_default_allow(out: &mut Vec<KvPair>) {
    let json = json!({
        "metadata": {"name": DEFAULT_ALLOW},
        "spec": {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]},
    })
    .to_string();
    let whole = Resource::decode_json(KIND, json.as_bytes(), Case::Exact).expect("the text above is a profile");
    append(DEFAULT_ALLOW, whole, json.as_bytes(), &DEFAULT_ALLOW_REVISION.into(), None, out)
        .expect("the text above is a profile");
}

/// Appends the three data of a profile. `body` is the JSON that `whole` was read from.
fn append(
    name: &str,
    whole: Resource,
    body: &[u8],
    revision: &Revision,
    version: Option<Revision>,
    out: &mut Vec<KvPair>,
) -> Result<(), ConvertError> {
    let spec = gojson::parse_with(body, |json| gojson::from_str::<Body<'_, Spec>>(json).map(|body| body.spec))?;
    let rules = ProfileRules { inbound_rules: all_to_v1(spec.ingress, ""), outbound_rules: all_to_v1(spec.egress, "") };
    let [whole_key, labels_key, rules_key] = profile_keys(name);
    let own = super::whole(whole_key, whole, revision);
    out.push(KvPair { v3_resource_version: version.unwrap_or(own.v3_resource_version), ..own });
    let labels = &spec.labels_to_apply;
    out.push(pair(labels_key, (!labels.is_empty()).then(|| Value::raw(gojson::to_bytes(labels))), revision));
    let bytes = gojson::to_bytes(&rules);
    out.push(pair(rules_key, Some(Value::checked(bytes, Arc::new(rules))), revision));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;

    #[test]
    fn profiles_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::PROFILE, kinds::NAMESPACE, kinds::SERVICE_ACCOUNT], new(ctx))],
            |key| key.contains("/profile"),
            6,
        );
    }

    fn object(name: &str, dialect: Dialect) -> Object {
        Object {
            id: ObjectId { namespace: "".into(), name: name.into() },
            revision: "5".into(),
            dialect,
            body: r#"{"metadata":{"uid":"30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6a"}}"#.into(),
            place: None,
        }
    }

    fn blanked(out: &[KvPair]) -> Vec<&str> {
        out.iter().filter(|pair| pair.value.is_none()).map(|pair| pair.key.as_str()).collect()
    }

    #[test]
    fn a_namespace_and_a_profile_of_one_name_are_told_apart() {
        let (namespace, profile) = (object("x", Dialect::Kubernetes), object("x", Dialect::V3));
        let mut processor = new(&Context::default());
        let mut out = Vec::new();
        processor.process(ObjectEvent::Put(&namespace), &mut out).unwrap();
        processor.process(ObjectEvent::Put(&profile), &mut out).unwrap();
        out.clear();
        processor.process(ObjectEvent::Delete(&namespace.id, Some(&namespace)), &mut out).unwrap();
        assert_eq!(blanked(&out)[0], "/calico/resources/v3/projectcalico.org/profiles/kns.x");
        assert_eq!(out.len(), 3);
        out.clear();
        processor.process(ObjectEvent::Delete(&profile.id, None), &mut out).unwrap();
        assert_eq!(blanked(&out)[0], "/calico/resources/v3/projectcalico.org/profiles/x");
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn an_event_forgets_the_bookmark_of_its_own_watch() {
        let namespace = object("x", Dialect::Kubernetes);
        let id = ObjectId { namespace: "x".into(), name: "sa".into() };
        let account = Object { id, ..object("", Dialect::Kubernetes) };
        let mut processor = new(&Context::default());
        processor.on_list_end(&mut Vec::new());
        let version = |processor: &mut Box<dyn Processor>, object: &Object| {
            let mut out = Vec::new();
            processor.process(ObjectEvent::Put(object), &mut out).unwrap();
            out[0].v3_resource_version.to_string()
        };
        processor.on_progress("Namespace", "1010");
        assert_eq!(version(&mut processor, &namespace), "/");
        assert_eq!(version(&mut processor, &account), "/");
        processor.on_progress("Namespace", "1010");
        processor.on_progress("ServiceAccount", "1020");
        assert_eq!(version(&mut processor, &account), "1010/");
        processor.process(ObjectEvent::Delete(&namespace.id, Some(&namespace)), &mut Vec::new()).unwrap();
        assert_eq!(version(&mut processor, &account), "/");
    }

    #[test]
    fn the_default_profile_cannot_be_deleted() {
        let stored = object(DEFAULT_ALLOW, Dialect::Etcd);
        let mut processor = new(&Context::default());
        let mut out = Vec::new();
        processor.process(ObjectEvent::Put(&stored), &mut out).unwrap();
        out.clear();
        processor.process(ObjectEvent::Delete(&stored.id, None), &mut out).unwrap();
        assert!(out[0].value.is_some() && out[2].value.is_some());
    }
}
