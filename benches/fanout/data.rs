//! The data that a bench fills etcd with: a believable cluster of endpoints, nodes, policies and pools.

use anyhow::Context as _;
use etcd_client::{Client, Txn, TxnOp};

use crate::progress::Step;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org";
/// Puts per transaction: etcd's default limit is 128.
const TXN_OPS: usize = 100;

/// Numbers of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) endpoints: usize,
    pub(crate) nodes: usize,
    pub(crate) policies: usize,
}

impl Size {
    /// A cluster with this many endpoints, in the proportions of the published figures (50 or 100 endpoints a node).
    pub(crate) fn of(endpoints: usize) -> Self {
        let nodes = if endpoints >= 100_000 { endpoints / 100 } else { endpoints / 50 }.max(1);
        Self { endpoints, nodes, policies: nodes }
    }
}

/// The key of endpoint `i`.
pub(crate) fn endpoint_key(i: usize, size: Size) -> String {
    let (namespace, node) = (i % 50, i % size.nodes);
    format!("{PREFIX}/workloadendpoints/ns-{namespace}/node--{node}-k8s-web--{i}-eth0")
}

/// The value of endpoint `i`; agents receive `seq` as the label `bench-seq`.
pub(crate) fn endpoint_value(i: usize, seq: u64, size: Size) -> String {
    let (namespace, node) = (i % 50, i % size.nodes);
    let (a, b, c) = (i >> 16 & 0xff, i >> 8 & 0xff, i & 0xff);
    format!(
        r#"{{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{{"name":"node--{node}-k8s-web--{i}-eth0","namespace":"ns-{namespace}","uid":"00000000-0000-4000-8000-{i:012}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"web-{}","bench-seq":"{seq}","pod-template-hash":"{:08x}","projectcalico.org/namespace":"ns-{namespace}","projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"default","tier":"frontend","version":"v{}"}}}},"spec":{{"orchestrator":"k8s","workload":"","node":"node-{node}","containerID":"{i:064x}","pod":"web-{i}","endpoint":"eth0","serviceAccountName":"default","ipNetworks":["10.{a}.{b}.{c}/32"],"profiles":["kns.ns-{namespace}","ksa.ns-{namespace}.default"],"interfaceName":"cali{i:011x}","ports":[{{"name":"http","protocol":"TCP","port":8080}}]}}}}"#,
        i % 200,
        i.wrapping_mul(2_654_435_761) as u32,
        i % 7,
    )
}

fn node(i: usize) -> (String, String) {
    let (a, b) = (i >> 8 & 0xff, i & 0xff);
    let value = format!(
        r#"{{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{{"name":"node-{i}","labels":{{"kubernetes.io/hostname":"node-{i}","zone":"z{}"}}}},"spec":{{"bgp":{{"ipv4Address":"172.16.{a}.{b}/16","ipv4IPIPTunnelAddr":"10.250.{a}.{b}"}},"orchRefs":[{{"nodeName":"node-{i}","orchestrator":"k8s"}}]}}}}"#,
        i % 3
    );
    (format!("{PREFIX}/nodes/node-{i}"), value)
}

fn policy(i: usize) -> (String, String) {
    let (namespace, name) = (i % 50, format!("default.allow-web-{i}"));
    let value = format!(
        r#"{{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","namespace":"ns-{namespace}"}},"spec":{{"tier":"default","order":{i},"selector":"app == 'web-{}'","types":["Ingress"],"ingress":[{{"action":"Allow","protocol":"TCP","source":{{"selector":"tier == 'frontend'"}},"destination":{{"ports":[8080,"9000:9010"]}}}}]}}}}"#,
        i % 200
    );
    (format!("{PREFIX}/networkpolicies/ns-{namespace}/{name}"), value)
}

fn rest() -> Vec<(String, String)> {
    let mut all = vec![(
        format!("{PREFIX}/ippools/default-ipv4-ippool"),
        r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"default-ipv4-ippool"},"spec":{"cidr":"10.0.0.0/8","ipipMode":"Always","natOutgoing":true,"blockSize":26,"nodeSelector":"all()"}}"#.to_owned(),
    )];
    for namespace in 0..50 {
        all.push((
            format!("{PREFIX}/profiles/kns.ns-{namespace}"),
            format!(
                r#"{{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{{"name":"kns.ns-{namespace}"}},"spec":{{"ingress":[{{"action":"Allow"}}],"egress":[{{"action":"Allow"}}],"labelsToApply":{{"pcns.projectcalico.org/name":"ns-{namespace}"}}}}}}"#
            ),
        ));
    }
    all
}

/// Writes the whole cluster. Existing keys are overwritten, so that a bench can run twice on one etcd.
pub(crate) async fn fill(etcd: &mut Client, size: Size) -> anyhow::Result<()> {
    let endpoints = (0..size.endpoints).map(|i| (endpoint_key(i, size), endpoint_value(i, 0, size)));
    let nodes = (0..size.nodes).map(node);
    let policies = (0..size.policies).map(policy);
    let all = size.endpoints + size.nodes + size.policies;
    let mut step = Step::begin(format!(
        "filling etcd with {} endpoints, {} nodes, {} policies",
        size.endpoints, size.nodes, size.policies
    ));
    let (mut ops, mut written) = (Vec::with_capacity(TXN_OPS), 0);
    for (key, value) in rest().into_iter().chain(nodes).chain(policies).chain(endpoints) {
        ops.push(TxnOp::put(key, value, None));
        if ops.len() == TXN_OPS {
            etcd.txn(Txn::new().and_then(std::mem::take(&mut ops))).await.context("fill etcd")?;
            written += TXN_OPS;
            step.at(written, all);
        }
    }
    if !ops.is_empty() {
        etcd.txn(Txn::new().and_then(ops)).await.context("fill etcd")?;
    }
    step.done();
    Ok(())
}
