//! Workload endpoints: from Calico's own resources and from Kubernetes' pods.
//!
//! The busiest processor: there may be hundreds of thousands of endpoints, and they change all day. An object's text is
//! borrowed from its JSON and copied once, into the value.

use super::keyed::Sent;
use super::rules::{NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX};
use super::{Context, blank, pair};
use crate::calico::keys;
use crate::datastore::Dialect;
use crate::model::{Key, KvPair};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

mod pod;
pub(super) mod qos;
mod v3;

/// Prefixes of labels that only Calico may set.
const RESERVED_LABEL_PREFIXES: [&str; 2] = [NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX];

/// The processor of `WorkloadEndpoint` and `Pod`.
#[must_use]
pub fn new(ctx: &Context) -> Box<dyn Processor> {
    Box::new(WorkloadEndpoints { interface_prefix: ctx.interface_prefix.clone(), pods: Sent::default() })
}

#[derive(Debug)]
struct WorkloadEndpoints {
    interface_prefix: String,
    /// Keys of the pods that were sent. A pod's name does not give its node, and a deletion may give only the name.
    pods: Sent,
}

impl Processor for WorkloadEndpoints {
    fn on_resync(&mut self) {
        self.pods.clear();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        match event {
            ObjectEvent::Put(object) if object.dialect == Dialect::Kubernetes => {
                // An unreadable pod keeps its last endpoint, whose network is still set up.
                let Some((key, value)) = pod::convert(object, &self.interface_prefix)? else {
                    self.pods.forget(&object.id, out);
                    return Ok(());
                };
                self.pods.put(object, key, value, out);
                Ok(())
            }
            ObjectEvent::Put(object) => {
                let Some(key) = v3::key(&object.id) else {
                    return Err(ConvertError::new(format!(
                        "name {:?}: not node-orchestrator-workload-endpoint in a namespace",
                        &*object.id.name
                    )));
                };
                let value = v3::convert(object).inspect_err(|_| out.push(blank(key.clone())))?;
                out.push(pair(key, value, &object.revision));
                Ok(())
            }
            ObjectEvent::Delete(id, last) => {
                let dialect = last.map(|object| object.dialect);
                if dialect.is_none_or(|dialect| dialect == Dialect::Kubernetes) {
                    self.pods.forget(id, out);
                }
                if dialect.is_none_or(|dialect| dialect != Dialect::Kubernetes) {
                    out.extend(v3::key(id).map(blank));
                }
                Ok(())
            }
        }
    }
}

/// The key of an endpoint. `workload` is the name within the namespace.
fn key(node: &str, orchestrator: &str, namespace: &str, workload: &str, endpoint: &str) -> Key {
    let (orchestrator, endpoint) = (keys::escape(orchestrator), keys::escape(endpoint));
    let (namespace, workload) = (keys::escape(namespace), keys::escape(workload));
    format!("/calico/v1/host/{node}/workload/{orchestrator}/{namespace}%2f{workload}/endpoint/{endpoint}").into()
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;

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
