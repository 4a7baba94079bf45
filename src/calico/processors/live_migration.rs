//! Live migrations of virtual machines: Calico's own in etcd, KubeVirt's elsewhere.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::Context;
use super::simple::{Convert, Converted, Simple};
use crate::calico::keys;
use crate::calico::resource::Resource;
use crate::calico::schema::Case;
use crate::calico::v1::meta::Native;
use crate::calico::v1::text::Text;
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, gojson};
use crate::syncer::processor::{ConvertError, Processor};

const KIND: &str = "LiveMigration";
const PLURAL: &str = "livemigrations";
/// Phases in which the target may exist, or the source must be known.
const PHASES: [&str; 6] = ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Failed"];

/// The processor of `LiveMigration` and `VirtualMachineInstanceMigration`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Simple(LiveMigrations))
}

#[derive(Debug)]
struct LiveMigrations;

type Migration<'a> = Native<'a, Spec<'a>, Status<'a>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Spec<'a> {
    #[serde(rename = "vmiName")]
    vmi_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Status<'a> {
    phase: Text<'a>,
    #[serde(rename = "migrationState")]
    state: State<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct State<'a> {
    #[serde(rename = "sourcePod")]
    source_pod: Text<'a>,
}

impl Convert for LiveMigrations {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        Some(keys::resource(PLURAL, id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        let resource = if object.dialect == Dialect::Kubernetes {
            let migration = gojson::parse_with(&object.body, |body| {
                gojson::from_str(body).map(|migration: Migration<'_>| live_migration(&object.id, &migration))
            })?;
            let Some(json) = migration else { return Ok(None) };
            Resource::decode_json(KIND, json.to_string().as_bytes(), Case::Exact)?
        } else {
            Resource::decode(KIND, object)?
        };
        Ok(Some(resource.into()))
    }
}

/// Calico's form of KubeVirt's migration. `None`: it does not affect the network in this phase.
fn live_migration(id: &ObjectId, migration: &Migration<'_>) -> Option<Json> {
    let Native { metadata: meta, spec, status } = migration;
    let vmi = &*spec.vmi_name;
    if !PHASES.contains(&&*status.phase) || vmi.is_empty() || meta.uid.is_empty() {
        return None;
    }
    let selector = format!(
        "(vmi.kubevirt.io/id == '{vmi}' || vm.kubevirt.io/name == '{vmi}') && kubevirt.io/migrationJobUID == '{}'",
        meta.uid
    );
    let mut spec = json!({"target": {"selector": selector}});
    if !status.state.source_pod.is_empty() {
        let workload = format!("{}/{}", id.namespace, status.state.source_pod);
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
            "labels": &meta.labels,
            "annotations": &meta.annotations,
        },
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;

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
