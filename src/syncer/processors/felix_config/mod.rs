//! Configuration resources split into single settings: `FelixConfiguration` and `ClusterInformation`.
//!
//! The resource named `default` becomes settings of all nodes, `node.{name}` those of one node. Any other
//! `FelixConfiguration` is chosen by its node selector and goes to agents whole.

use std::collections::{BTreeSet, HashMap};

use super::{Context, ConvertError, ObjectEvent, Processor, blank};
use crate::datastore::{Object, ObjectId};
use crate::model::resource::Resource;
use crate::model::schema::{self, Field, Fields, Node, Struct};
use crate::model::{Key, KvPair, Revision, Value, keys, no_revision};

mod setting;

/// What begins the annotations that set a setting by its name.
const ANNOTATION_PREFIX: &str = "config.projectcalico.org/";
/// The resource with the settings of all nodes.
const GLOBAL_NAME: &str = "default";
/// What begins the names of resources with one node's settings.
const NODE_NAME_PREFIX: &str = "node.";
/// The field that does not become a setting but the word whether agents may start.
const READY_FIELD: &str = "datastoreReady";
const READY_KEY: &str = "/calico/v1/Ready";
const FELIX_CONFIGURATION_PLURAL: &str = "felixconfigurations";

/// The processor of `FelixConfiguration`.
#[must_use]
pub fn felix_configuration(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(ConfigSplitter::new("FelixConfiguration", "v3.FelixConfigurationSpec", true))
}

/// The processor of `ClusterInformation`.
#[must_use]
pub fn cluster_information(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(ConfigSplitter::new("ClusterInformation", "v3.ClusterInformationSpec", false))
}

#[derive(Debug)]
struct ConfigSplitter {
    kind: &'static str,
    spec: &'static Struct,
    /// Whether annotations may set settings, and resources of other names go to agents whole.
    is_felix: bool,
    /// Per object, the settings that it has only by annotation, to be blanked once the annotation goes.
    extra: HashMap<ObjectId, BTreeSet<String>>,
}

/// Whose settings a resource holds.
enum Scope<'a> {
    Global,
    Node(&'a str),
}

impl Scope<'_> {
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
    fn new(kind: &'static str, spec: &str, is_felix: bool) -> Self {
        let spec = schema::find(spec).expect("the declarations of configuration resources are part of the program");
        Self { kind, spec, is_felix, extra: HashMap::new() }
    }

    fn scope<'a>(&self, name: &'a str) -> Option<Scope<'a>> {
        match name.strip_prefix(NODE_NAME_PREFIX) {
            _ if name == GLOBAL_NAME => Some(Scope::Global),
            Some(node) if self.is_felix && !node.is_empty() => Some(Scope::Node(node)),
            _ => None,
        }
    }

    fn put(&mut self, object: &Object, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let resource = Resource::decode(self.kind, object).map_err(|error| ConvertError::new(error.to_string()))?;
        let Some(scope) = self.scope(&object.id.name) else {
            if self.is_felix {
                let (value, v3_resource_version) = resource.into_value();
                let revision = object.revision.clone();
                out.push(KvPair { key: whole_key(&object.id), value: Some(value), revision, v3_resource_version });
            }
            return Ok(());
        };
        let mut annotated: HashMap<&str, &str> =
            if self.is_felix { annotated_settings(&resource).collect() } else { HashMap::new() };
        if let Some(spec) = resource.root.get("spec").and_then(Node::as_struct) {
            for (field, node) in spec.iter() {
                let Some(key) = scope.field_key(field) else { continue };
                let annotation = setting_name(field).and_then(|name| annotated.remove(name)).map(str::to_owned);
                let text = annotation.or_else(|| setting::text(field, node));
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
        let Some(scope) = self.scope(&id.name) else {
            if self.is_felix {
                out.push(blank(whole_key(id)));
            }
            return;
        };
        out.extend(self.spec.fields.iter().filter_map(|field| scope.field_key(field)).map(blank));
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

/// A setting without text is none: agents cannot tell an empty value from a deleted one.
fn setting_pair(key: Key, text: Option<String>, revision: &Revision) -> KvPair {
    match text.filter(|text| !text.is_empty()) {
        None => blank(key),
        Some(text) => KvPair {
            key,
            value: Some(Value::raw(text)),
            revision: revision.clone(),
            v3_resource_version: no_revision(),
        },
    }
}

fn whole_key(id: &ObjectId) -> Key {
    keys::resource(FELIX_CONFIGURATION_PLURAL, id)
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{Feed, assert_ran, run};
    use super::*;
    use crate::syncer::kinds;

    #[test]
    fn configuration_matches_the_vectors() {
        let ran = run(
            "felix",
            |ctx| {
                vec![
                    Feed::new([kinds::FELIX_CONFIGURATION], felix_configuration(ctx)),
                    Feed::new([kinds::CLUSTER_INFORMATION], cluster_information(ctx)),
                ]
            },
            |key| key.contains("/config/") || key.contains("/felixconfigurations/") || key == READY_KEY,
        );
        assert_ran(&ran, 8);
    }

    #[test]
    fn every_field_has_a_setting_of_its_own() {
        let splitter = ConfigSplitter::new("FelixConfiguration", "v3.FelixConfigurationSpec", true);
        let keys: Vec<Key> = splitter.spec.fields.iter().filter_map(|field| Scope::Global.field_key(field)).collect();
        assert_eq!(keys.len(), splitter.spec.fields.len() - 1, "all but the node selector");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
}
