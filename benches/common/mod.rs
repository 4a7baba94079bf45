//! Endpoints as a real cluster has them: objects as `calicoctl` leaves them in etcd, and the updates that agents get.
//!
//! For the benches `micro` and `memory`, which need no datastore.

use std::time::Duration;

use bulrush::calico::processors::{Context, workload_endpoint};
use bulrush::datastore::{Dialect, Object, ObjectId};
use bulrush::model::{Update, UpdateType};
use bulrush::syncer::processor::{ObjectEvent, Processor};
use bytes::Bytes;

/// Endpoints per node, as in the published figures.
pub(crate) const PER_NODE: usize = 50;
const NAMESPACES: usize = 50;

/// WorkloadEndpoint number `i` of `total`; `seq` is a label that churn changes.
pub(crate) fn endpoint(i: usize, total: usize, seq: usize) -> Object {
    let (namespace, node) = (i % NAMESPACES, i % (total / PER_NODE).max(1));
    let (a, b, c) = (i >> 16 & 0xff, i >> 8 & 0xff, i & 0xff);
    let (app, version) = (i % 200, i % 7);
    let hash = i.wrapping_mul(2_654_435_761) & 0xffff_ffff;
    let name = format!("node--{node}-k8s-web--{i}-eth0");
    let body = format!(
        r#"{{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","namespace":"ns-{namespace}","uid":"00000000-0000-4000-8000-{i:012}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"web-{app}","bench-seq":"{seq:06}","pod-template-hash":"{hash:08x}","projectcalico.org/namespace":"ns-{namespace}","projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"default","tier":"frontend","version":"v{version}"}}}},"spec":{{"orchestrator":"k8s","workload":"","node":"node-{node}","containerID":"{i:064x}","pod":"web-{i}","endpoint":"eth0","serviceAccountName":"default","ipNetworks":["10.{a}.{b}.{c}/32"],"profiles":["kns.ns-{namespace}","ksa.ns-{namespace}.default"],"interfaceName":"cali{i:011x}","ports":[{{"name":"http","protocol":"TCP","port":8080}}]}}}}"#
    );
    Object {
        id: ObjectId { namespace: format!("ns-{namespace}").into(), name: name.into() },
        revision: (1000 + i + seq * total).to_string().into(),
        dialect: Dialect::Etcd,
        body: Bytes::from(body),
        place: None,
    }
}

/// Makes updates of endpoints, as the syncer does.
pub(crate) struct Converter {
    processor: Box<dyn Processor>,
    pairs: Vec<bulrush::model::KvPair>,
}

impl Converter {
    pub(crate) fn new() -> Self {
        Self { processor: workload_endpoint::new(&Context::default()), pairs: Vec::new() }
    }

    /// The update made from endpoint number `i`.
    pub(crate) fn update(&mut self, i: usize, total: usize, seq: usize) -> Update {
        let object = endpoint(i, total, seq);
        self.processor.process(ObjectEvent::Put(&object), &mut self.pairs).expect("the object is good");
        let pair = self.pairs.drain(..).next().expect("an endpoint is one key");
        Update {
            key: pair.key,
            // Validation drops the typed form.
            value: pair.value.map(|value| bulrush::model::Value::raw(value.bytes)),
            revision: pair.revision,
            v3_resource_version: pair.v3_resource_version,
            ttl: Duration::ZERO,
            update_type: if seq == 0 { UpdateType::New } else { UpdateType::Updated },
            origin: None,
        }
    }
}
