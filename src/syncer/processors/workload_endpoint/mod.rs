//! Workload endpoints: from Calico's own resources and from Kubernetes' pods.
//!
//! The busiest processor: endpoints come by the hundred thousand and change all day. An object's text is borrowed from
//! its JSON and copied once, into the value.

use std::collections::HashMap;

use super::rules::{NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX};
use super::{Context, ConvertError, ObjectEvent, Processor, blank};
use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::{Key, KvPair, Value, keys, no_revision};

mod pod;
pub(super) mod qos;
mod v3;

/// Prefixes of labels that only Calico may set.
const RESERVED_LABEL_PREFIXES: [&str; 2] = [NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX];

/// The processor of `WorkloadEndpoint` and `Pod`.
#[must_use]
pub fn new(ctx: &Context) -> Box<dyn Processor> {
    Box::new(WorkloadEndpoints { interface_prefix: ctx.interface_prefix.clone(), pods: HashMap::new() })
}

#[derive(Debug)]
struct WorkloadEndpoints {
    interface_prefix: String,
    /// Keys of the pods that have one: a pod's name does not tell its node, and what is left of a deleted pod may be its
    /// name alone.
    pods: HashMap<ObjectId, Key>,
}

impl WorkloadEndpoints {
    fn forget_pod(&mut self, id: &ObjectId, out: &mut Vec<KvPair>) {
        if let Some(key) = self.pods.remove(id) {
            out.push(blank(key));
        }
    }
}

impl Processor for WorkloadEndpoints {
    fn on_resync(&mut self) {
        self.pods.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let sent = |key: Key, value: Option<Value>, object: &Object| KvPair {
            key,
            value,
            revision: object.revision.clone(),
            v3_resource_version: no_revision(),
        };
        match event {
            ObjectEvent::Put(object) if object.dialect == Dialect::Kubernetes => {
                // A pod that cannot be read keeps the endpoint that it had: that is still plumbed in.
                let Some((key, value)) = pod::convert(object, &self.interface_prefix)? else {
                    self.forget_pod(&object.id, out);
                    return Ok(());
                };
                if self.pods.get(&object.id).is_none_or(|old| *old != key) {
                    self.forget_pod(&object.id, out);
                    self.pods.insert(object.id.clone(), key.clone());
                }
                out.push(sent(key, value, object));
                Ok(())
            }
            ObjectEvent::Put(object) => {
                let Some(key) = v3::key(&object.id) else {
                    return Err(ConvertError::new(format!(
                        "name {:?}: not node-orchestrator-workload-endpoint in a namespace",
                        &*object.id.name
                    )));
                };
                let (value, result) = match v3::convert(object) {
                    Ok(value) => (value, Ok(())),
                    Err(error) => (None, Err(error)),
                };
                out.push(sent(key, value, object));
                result
            }
            ObjectEvent::Delete(id, last) => {
                let dialect = last.map(|object| object.dialect);
                if dialect.is_none_or(|dialect| dialect == Dialect::Kubernetes) {
                    self.forget_pod(id, out);
                }
                if dialect.is_none_or(|dialect| dialect != Dialect::Kubernetes) {
                    out.extend(v3::key(id).map(blank));
                }
                Ok(())
            }
        }
    }
}

/// Where an endpoint lives. `workload` is the name within the namespace.
fn key(node: &str, orchestrator: &str, namespace: &str, workload: &str, endpoint: &str) -> Key {
    let (orchestrator, endpoint) = (keys::escape(orchestrator), keys::escape(endpoint));
    let (namespace, workload) = (keys::escape(namespace), keys::escape(workload));
    format!("/calico/v1/host/{node}/workload/{orchestrator}/{namespace}%2f{workload}/endpoint/{endpoint}").into()
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::model::kinds;

    #[test]
    fn workload_endpoints_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::WORKLOAD_ENDPOINT, kinds::POD], new(ctx))],
            |key| key.contains("/workload/"),
            1,
        );
    }
}
