//! Live migrations of virtual machines: Calico's own in etcd, KubeVirt's elsewhere.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::simple::{Convert, Converted, Simple};
use super::{Context, ConvertError, Processor, unreadable};
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::resource::Resource;
use crate::model::schema::Case;
use crate::model::v1::meta::Meta;
use crate::model::v1::text::{Text, TextMap};
use crate::model::{Key, gojson, keys, strict};

const KIND: &str = "LiveMigration";
const PLURAL: &str = "livemigrations";
/// Phases of a migration in which its target may exist, or its source must be known.
const PHASES: [&str; 6] = ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Failed"];

/// The processor of `LiveMigration` and `VirtualMachineInstanceMigration`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Simple(LiveMigrations))
}

#[derive(Debug)]
struct LiveMigrations;

#[derive(Debug, Deserialize)]
struct Migration<'a> {
    #[serde(borrow)]
    metadata: Option<Meta<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default, rename = "vmiName")]
    vmi_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
    #[serde(borrow, rename = "migrationState")]
    state: Option<State<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct State<'a> {
    #[serde(borrow, default, rename = "sourcePod")]
    source_pod: Text<'a>,
}

impl Convert for LiveMigrations {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::resource(PLURAL, id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let refuse = |error: crate::model::resource::ResourceError| ConvertError::new(error.to_string());
        let resource = if object.dialect == Dialect::Kubernetes {
            let migration = gojson::parse_with(&object.body, |body| {
                strict::from_str(body).map(|migration: Migration<'_>| live_migration(&object.id, &migration))
            })
            .map_err(unreadable)?;
            let Some(json) = migration else { return Ok(None) };
            Resource::decode_json(KIND, json.to_string().as_bytes(), Case::Exact).map_err(refuse)?
        } else {
            Resource::decode(KIND, object).map_err(refuse)?
        };
        let (value, v3_resource_version) = resource.into_value();
        Ok(Some(Converted { value, v3_resource_version, left_out: None }))
    }
}

/// Calico's form of KubeVirt's migration, while it matters to the network.
fn live_migration(id: &ObjectId, migration: &Migration<'_>) -> Option<Json> {
    let meta = migration.metadata.as_ref()?;
    let status = migration.status.as_ref()?;
    let vmi = &*migration.spec.as_ref()?.vmi_name;
    if !PHASES.contains(&&*status.phase) || vmi.is_empty() || meta.uid.is_empty() {
        return None;
    }
    let selector = format!(
        "(vmi.kubevirt.io/id == '{vmi}' || vm.kubevirt.io/name == '{vmi}') && kubevirt.io/migrationJobUID == '{}'",
        meta.uid
    );
    let mut spec = json!({"target": {"selector": selector}});
    if let Some(state) = status.state.as_ref().filter(|state| !state.source_pod.is_empty()) {
        let workload = format!("{}/{}", id.namespace, state.source_pod);
        spec["source"] = json!({"workload": {"orchestratorID": "k8s", "workloadID": workload}});
    }
    let created = Some(&*meta.creation_timestamp).filter(|text| !text.is_empty());
    Some(json!({
        "metadata": {
            "name": &*id.name,
            "namespace": &*id.namespace,
            "uid": &*meta.uid,
            "resourceVersion": &*meta.resource_version,
            "creationTimestamp": created,
            "labels": text_map(&meta.labels),
            "annotations": text_map(&meta.annotations),
        },
        "spec": spec,
    }))
}

fn text_map(map: &TextMap<'_>) -> Json {
    map.iter().map(|(key, value)| (key.to_owned(), value.into())).collect::<Map<String, Json>>().into()
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::model::kinds;

    #[test]
    fn live_migrations_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::LIVE_MIGRATION, kinds::VM_INSTANCE_MIGRATION], new(ctx))],
            |key| key.contains("/livemigrations/"),
            1,
        );
    }
}
