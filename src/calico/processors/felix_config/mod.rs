//! Configuration resources split into single settings: `FelixConfiguration` and `ClusterInformation`.
//!
//! The resource `default` becomes settings of all nodes, `node.{name}` settings of one node. Any other goes to agents
//! whole: a `FelixConfiguration` applies by its node selector, a `ClusterInformation` means nothing to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::sync::watch;

use super::{Context, blank, pair, whole};
use crate::calico::keys;
use crate::calico::release::{Release, Version};
use crate::calico::resource::Resource;
use crate::calico::schema::{self, Field, Fields, Node, Struct};
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, KvPair, Revision, Value};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

mod retired;
mod setting;

/// Prefix of annotations that set a setting by its name.
const ANNOTATION_PREFIX: &str = "config.projectcalico.org/";
/// The resource with the settings of all nodes.
const GLOBAL_NAME: &str = "default";
/// Prefix of the names of resources with one node's settings.
const NODE_NAME_PREFIX: &str = "node.";
/// The field that is no setting: it tells agents whether they may start.
const READY_FIELD: &str = "datastoreReady";
const READY_KEY: &str = "/calico/v1/Ready";

/// The processor of `FelixConfiguration`.
#[must_use]
pub fn felix_configuration(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(ConfigSplitter::new(FELIX_CONFIGURATION, None))
}

/// The processor of `ClusterInformation`.
#[must_use]
pub fn cluster_information(ctx: &Context) -> Box<dyn Processor> {
    Box::new(ConfigSplitter::new(CLUSTER_INFORMATION, Some(ctx.cluster.clone())))
}

/// The differences between the two kinds.
#[derive(Clone, Copy, Debug)]
struct ConfigKind {
    name: &'static str,
    /// Its name in keys.
    plural: &'static str,
    /// The declaration of its `spec`.
    spec: &'static str,
    /// Whether annotations may set settings, and some of its settings are only for agents of old releases.
    of_felix: bool,
}

const FELIX_CONFIGURATION: ConfigKind = ConfigKind {
    name: "FelixConfiguration",
    plural: "felixconfigurations",
    spec: "v3.FelixConfigurationSpec",
    of_felix: true,
};
const CLUSTER_INFORMATION: ConfigKind = ConfigKind {
    name: "ClusterInformation",
    plural: "clusterinformations",
    spec: "v3.ClusterInformationSpec",
    of_felix: false,
};

#[derive(Debug)]
struct ConfigSplitter {
    kind: ConfigKind,
    spec: &'static Struct,
    /// Per object, the settings that only annotations set, to be blanked once the annotation goes.
    extra: HashMap<ObjectId, BTreeSet<String>>,
    /// Receives the release of the cluster's own Calico.
    cluster: Option<watch::Sender<Option<Release>>>,
}

/// The nodes that a resource's settings are for.
enum Scope<'a> {
    Global,
    Node(&'a str),
}

impl<'a> Scope<'a> {
    /// By the resource's name. `None`: the resource goes to agents whole.
    fn of(name: &'a str) -> Option<Self> {
        match name.strip_prefix(NODE_NAME_PREFIX) {
            Some(node) if !node.is_empty() => Some(Self::Node(node)),
            // A node without a name stands for all nodes: as in Calico.
            Some(_) => Some(Self::Global),
            None => (name == GLOBAL_NAME).then_some(Self::Global),
        }
    }

    fn key(&self, setting: &str) -> Key {
        match self {
            Self::Global => format!("/calico/v1/config/{setting}").into(),
            Self::Node(node) => format!("/calico/v1/host/{node}/config/{setting}").into(),
        }
    }

    fn field_key(&self, field: &Field) -> Option<Key> {
        if field.json == READY_FIELD {
            return matches!(self, Self::Global).then(|| READY_KEY.into());
        }
        setting_name(field).map(|name| self.key(name))
    }
}

/// The setting that a field becomes.
fn setting_name(field: &Field) -> Option<&str> {
    match field.config_name.as_deref() {
        Some("-") => None,
        Some(name) => Some(name),
        None => Some(&field.go),
    }
}

impl ConfigSplitter {
    fn new(kind: ConfigKind, cluster: Option<watch::Sender<Option<Release>>>) -> Self {
        let spec =
            schema::find(kind.spec).expect("the declarations of configuration resources are part of the program");
        Self { kind, spec, extra: HashMap::new(), cluster }
    }

    fn whole_key(&self, id: &ObjectId) -> Key {
        keys::resource(self.kind.plural, id)
    }

    fn put(&mut self, object: &Object, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let resource = Resource::decode(self.kind.name, object)?;
        let Some(scope) = Scope::of(&object.id.name) else {
            out.push(whole(self.whole_key(&object.id), resource, &object.revision));
            return Ok(());
        };
        if let Some(cluster) = self.cluster.as_ref().filter(|_| matches!(scope, Scope::Global)) {
            let version =
                resource.root.get("spec").and_then(|spec| spec.at(&["calicoVersion"])).and_then(Node::as_text);
            let release = match Version::of(version.unwrap_or_default()) {
                Version::Release(release) => Some(release),
                Version::TooOld | Version::Unknown => None,
            };
            cluster.send_if_modified(|known| std::mem::replace(known, release) != release);
        }
        let mut annotated: BTreeMap<&str, &str> =
            annotated_settings(&resource).filter(|_| self.kind.of_felix).collect();
        if let Some(spec) = resource.root.get("spec").and_then(Node::as_struct) {
            for (field, node) in spec.iter() {
                let Some(key) = scope.field_key(field) else { continue };
                let annotation = setting_name(field).and_then(|name| annotated.remove(name)).map(str::to_owned);
                let text = annotation.or_else(|| setting::text(field, node));
                out.push(setting_pair(key, text, &object.revision));
            }
        }
        if self.kind.of_felix {
            for (name, key, text) in retired::settings(&scope, object) {
                // An annotation wins, and is sent under the same name.
                let text = text.filter(|_| !annotated.contains_key(name));
                out.push(setting_pair(key, text, &object.revision));
            }
        }
        let extra: BTreeSet<String> = annotated.keys().map(|name| (*name).to_owned()).collect();
        for (name, text) in annotated {
            out.push(setting_pair(scope.key(name), Some(text.to_owned()), &object.revision));
        }
        for gone in self.extra.remove(&object.id).into_iter().flatten().filter(|name| !extra.contains(name)) {
            out.push(blank(scope.key(&gone)));
        }
        if !extra.is_empty() {
            self.extra.insert(object.id.clone(), extra);
        }
        Ok(())
    }

    fn delete(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        let Some(scope) = Scope::of(&id.name) else {
            out.push(blank(self.whole_key(id)));
            return;
        };
        out.extend(self.spec.fields.iter().filter_map(|field| scope.field_key(field)).map(blank));
        if self.kind.of_felix {
            out.extend(retired::keys(&scope).map(blank));
        }
        out.extend(self.extra.remove(id).into_iter().flatten().map(|name| blank(scope.key(&name))));
    }
}

impl Processor for ConfigSplitter {
    fn on_resync(&mut self) {
        self.extra.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) => self.put(object, out),
            ObjectEvent::Delete(id, _) => {
                self.delete(id, out);
                Ok(())
            }
        }
    }
}

fn annotated_settings(resource: &Resource) -> impl Iterator<Item = (&str, &str)> {
    resource
        .metadata()
        .and_then(|metadata: &Fields| metadata.get("annotations")?.as_map())
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.strip_prefix(ANNOTATION_PREFIX)?, value.as_text()?)))
}

/// A setting with empty text is sent with an empty value, as by Calico.
fn setting_pair(key: Key, text: Option<String>, revision: &Revision) -> KvPair {
    pair(key, text.map(Value::raw), revision)
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;
    use crate::datastore::Dialect;

    #[test]
    fn configuration_matches_the_vectors() {
        run(
            "felix",
            |ctx| {
                vec![
                    source([kinds::FELIX_CONFIGURATION], felix_configuration(ctx)),
                    source([kinds::CLUSTER_INFORMATION], cluster_information(ctx)),
                ]
            },
            |key| key.contains("/config/") || key.contains("/felixconfigurations/") || key == READY_KEY,
            8,
        );
    }

    fn sent(kind: ConfigKind, name: &str, body: &str) -> Vec<(String, String)> {
        let object = Object {
            id: ObjectId { namespace: "".into(), name: name.into() },
            revision: "7".into(),
            dialect: Dialect::V3,
            body: body.to_owned().into(),
            place: None,
        };
        let mut out = Vec::new();
        ConfigSplitter::new(kind, None).process(ObjectEvent::Put(&object), &mut out).unwrap();
        let with_value = out.into_iter().filter_map(|pair| Some((pair.key, pair.value?, pair.revision)));
        with_value
            .map(|(key, value, revision)| {
                assert_eq!(&*revision, "7");
                (key.to_string(), String::from_utf8(value.bytes.to_vec()).unwrap())
            })
            .collect()
    }

    /// As in v3.31.7's answers.
    #[test]
    fn old_agents_receive_retired_settings() {
        let body = r#"{
            "metadata": {"annotations": {"config.projectcalico.org/IptablesLockFilePath": "/other"}},
            "spec": {"iptablesLockTimeout": "1500ms", "iptablesLockFilePath": "/x", "bpfKubeProxyEndpointSlicesEnabled": false}
        }"#;
        let mut sent = sent(FELIX_CONFIGURATION, "node.n", body);
        sent.retain(|(key, _)| key.contains("Lock") || key.contains("Slices"));
        sent.sort();
        let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        let expected = [
            pair("/calico/v1/host/n/config/IptablesLockFilePath", "/other"),
            pair("~3.26-3.31/calico/v1/host/n/config/BPFKubeProxyEndpointSlicesEnabled", "false"),
            pair("~3.26-3.31/calico/v1/host/n/config/IptablesLockTimeoutSecs", "1.5"),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn settings_that_are_set_to_nothing_are_sent_empty() {
        let body = r#"{
            "metadata": {"annotations": {"config.projectcalico.org/Other": "", "config.projectcalico.org/LogPrefix": ""}},
            "spec": {
                "externalNodesList": [], "routeTableRanges": [], "bpfConntrackTimeouts": {}, "healthHost": "",
                "logFilePath": "", "healthTimeoutOverrides": [], "failsafeInboundHostPorts": []
            }
        }"#;
        let empty = |name: &str| (format!("/calico/v1/config/{name}"), String::new());
        let mut expected =
            ["BPFConntrackTimeouts", "ExternalNodesCIDRList", "HealthHost", "LogPrefix", "Other", "RouteTableRanges"]
                .map(empty)
                .to_vec();
        expected.push(("/calico/v1/config/FailsafeInboundHostPorts".to_owned(), "none".to_owned()));
        let mut sent = sent(FELIX_CONFIGURATION, "default", body);
        sent.retain(|(key, value)| !key.ends_with("BPFLogLevel") || !value.is_empty());
        sent.sort();
        expected.sort();
        assert_eq!(sent, expected);
    }

    #[test]
    fn cluster_informations_of_other_names() {
        let body = r#"{"metadata":{"name":"other"},"spec":{"clusterGUID":"g","datastoreReady":true}}"#;
        let pairs = sent(CLUSTER_INFORMATION, "other", body);
        let [(key, value)] = pairs.as_slice() else { panic!("one pair: {pairs:?}") };
        assert_eq!(key, "/calico/resources/v3/projectcalico.org/clusterinformations/other");
        assert!(value.starts_with(r#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3""#), "{value}");
        let one = |key: &str| vec![(key.to_owned(), "g".to_owned())];
        assert_eq!(sent(CLUSTER_INFORMATION, "node.x", body), one("/calico/v1/host/x/config/ClusterGUID"));
        let mut global = one("/calico/v1/config/ClusterGUID");
        global.push((READY_KEY.to_owned(), "true".to_owned()));
        for name in ["default", "node."] {
            assert_eq!(sent(CLUSTER_INFORMATION, name, body), global, "{name}");
        }
        let id = ObjectId { namespace: "".into(), name: "other".into() };
        let mut out = Vec::new();
        ConfigSplitter::new(CLUSTER_INFORMATION, None).process(ObjectEvent::Delete(&id, None), &mut out).unwrap();
        assert_eq!(out.len(), 1);
        assert!(out[0].value.is_none() && out[0].key.as_str() == key);
    }

    #[test]
    fn every_field_has_a_setting_of_its_own() {
        let splitter = ConfigSplitter::new(FELIX_CONFIGURATION, None);
        let keys: Vec<Key> = splitter.spec.fields.iter().filter_map(|field| Scope::Global.field_key(field)).collect();
        assert_eq!(keys.len(), splitter.spec.fields.len() - 1, "all but the node selector");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
}
