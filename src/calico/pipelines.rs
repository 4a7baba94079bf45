//! The kinds that each syncer watches: a table, so that a further kind is a further row.
//!
//! The daemon asks for the table of its datastore once at start and builds one pipeline per [`PipelineSpec`], with one
//! watcher cache per [`Source`]. A kind that several syncers name is still watched once per process.

use super::processors::{
    Context, block_affinity, felix_config, host_endpoint, ip_pool, ipam_block, live_migration, network_set, node,
    passthrough, policy, profile, tier, workload_endpoint,
};
use crate::calico::syncers;
use crate::calico::syncers::FELIX;
use crate::calico::{keys, kinds as k};
use crate::datastore::Kind;
use crate::model::SyncerName;
use crate::syncer::processor::Processor;
use crate::syncer::spec::{PipelineSpec, Source};
use crate::validate::filter::{OnInvalid, Rules};

/// The family of a datastore; decides which kinds stand for Calico's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Calico's etcd layout.
    Etcd,
    /// The Kubernetes API.
    Kubernetes,
    /// A folder of YAML as `calicoctl` and `kubectl` print it: the kinds of both others.
    Folder,
}

/// Calico's four syncers over a datastore of this flavour, in [`syncers::ALL`]'s order.
#[must_use]
pub fn calico(flavour: Flavour, ctx: &Context) -> Vec<PipelineSpec> {
    let rows: [fn(&Context) -> Vec<Row>; 4] = [felix, bgp, tunnel_ip_allocation, node_status];
    let spec = |(syncer, rows): (SyncerName, fn(&Context) -> Vec<Row>)| PipelineSpec {
        syncer,
        sources: rows(ctx).into_iter().filter_map(|row| row.source(flavour, ctx)).collect(),
        inlets: Vec::new(),
        publishing: None,
        rules: RULES,
        counts: (syncer == FELIX).then_some(NODES),
    };
    syncers::ALL.into_iter().zip(rows).map(spec).collect()
}

/// Invalid values are absent, as in Calico.
pub const RULES: Rules = Rules { on_invalid: OnInvalid::Absent, family: keys::family };
/// Whole nodes, by whose number agents are shared out among replicas.
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";

/// A source in all flavours.
struct Row {
    name: &'static str,
    etcd: Vec<Kind>,
    kubernetes: Vec<Kind>,
    /// Not watched in pod-CIDR mode. etcd has no such mode.
    not_with_pod_cidr: bool,
    processor: Box<dyn Processor>,
}

impl Row {
    fn source(self, flavour: Flavour, ctx: &Context) -> Option<Source> {
        if self.not_with_pod_cidr && ctx.use_pod_cidr && flavour != Flavour::Etcd {
            return None;
        }
        let kinds = match flavour {
            Flavour::Etcd => self.etcd,
            Flavour::Kubernetes => self.kubernetes,
            Flavour::Folder => {
                let mut kinds = self.etcd;
                let further: Vec<Kind> = self.kubernetes.into_iter().filter(|kind| !kinds.contains(kind)).collect();
                kinds.extend(further);
                kinds
            }
        };
        (!kinds.is_empty()).then(|| Source { name: self.name.into(), kinds, processor: self.processor })
    }

    fn not_with_pod_cidr(mut self) -> Self {
        self.not_with_pod_cidr = true;
        self
    }
}

/// A source whose kind is the same in all flavours.
fn calico_kind(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![kind.clone()], kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

/// A source with one kind in etcd and other kinds in Kubernetes.
fn either<const N: usize>(name: &'static str, etcd: Kind, kubernetes: [Kind; N], processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![etcd], kubernetes: kubernetes.into(), not_with_pod_cidr: false, processor }
}

/// A source that only Kubernetes has.
fn kubernetes_only(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: Vec::new(), kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

/// Felix: policy, endpoints, configuration.
fn felix(ctx: &Context) -> Vec<Row> {
    vec![
        calico_kind("ClusterInformation", k::CLUSTER_INFORMATION, felix_config::cluster_information(ctx)),
        calico_kind("FelixConfiguration", k::FELIX_CONFIGURATION, felix_config::felix_configuration(ctx)),
        calico_policy("GlobalNetworkPolicy", k::GLOBAL_NETWORK_POLICY, ctx),
        calico_policy("StagedGlobalNetworkPolicy", k::STAGED_GLOBAL_NETWORK_POLICY, ctx),
        calico_kind("GlobalNetworkSet", k::GLOBAL_NETWORK_SET, network_set::global(ctx)),
        calico_kind("IPPool", k::IP_POOL, ip_pool::new(ctx)),
        either("Node", k::CALICO_NODE, [k::K8S_NODE], node::felix(ctx)),
        either("Profile", k::PROFILE, [k::NAMESPACE, k::SERVICE_ACCOUNT], profile::new(ctx)),
        either("WorkloadEndpoint", k::WORKLOAD_ENDPOINT, [k::POD], workload_endpoint::new(ctx)),
        calico_policy("NetworkPolicy", k::NETWORK_POLICY, ctx),
        calico_policy("StagedNetworkPolicy", k::STAGED_NETWORK_POLICY, ctx),
        calico_policy("StagedKubernetesNetworkPolicy", k::STAGED_KUBERNETES_NETWORK_POLICY, ctx),
        calico_kind("NetworkSet", k::NETWORK_SET, network_set::namespaced(ctx)),
        calico_kind("Tier", k::TIER, tier::new(ctx)),
        calico_kind("HostEndpoint", k::HOST_ENDPOINT, host_endpoint::new(ctx)),
        whole("BGPConfiguration", k::BGP_CONFIGURATION, ctx),
        whole("BGPPeer", k::BGP_PEER, ctx),
        either("LiveMigration", k::LIVE_MIGRATION, [k::VM_INSTANCE_MIGRATION], live_migration::new(ctx)),
        kubernetes_only("KubernetesNetworkPolicy", k::K8S_NETWORK_POLICY, policy::kubernetes(ctx)),
        kubernetes_only("KubernetesClusterNetworkPolicy", k::K8S_CLUSTER_NETWORK_POLICY, policy::cluster(ctx)),
        kubernetes_only("AdminNetworkPolicy", k::K8S_ADMIN_NETWORK_POLICY, policy::admin(ctx)),
        kubernetes_only(
            "BaselineAdminNetworkPolicy",
            k::K8S_BASELINE_ADMIN_NETWORK_POLICY,
            policy::baseline_admin(ctx),
        ),
        kubernetes_only("KubernetesEndpointSlice", k::ENDPOINT_SLICE, passthrough::new(k::ENDPOINT_SLICE, ctx)),
        kubernetes_only("KubernetesService", k::SERVICE, passthrough::new(k::SERVICE, ctx)),
        // Nodes produce the blocks in pod-CIDR mode.
        calico_kind("IPAMBlock", k::IPAM_BLOCK, ipam_block::new(ctx)).not_with_pod_cidr(),
    ]
}

/// confd: BGP.
fn bgp(ctx: &Context) -> Vec<Row> {
    vec![
        calico_kind("IPPool", k::IP_POOL, ip_pool::new(ctx)),
        whole("BGPConfiguration", k::BGP_CONFIGURATION, ctx),
        either("Node", k::CALICO_NODE, [k::K8S_NODE], node::whole(ctx)),
        whole("BGPPeer", k::BGP_PEER, ctx),
        whole("BGPFilter", k::BGP_FILTER, ctx),
        // In pod-CIDR mode nothing takes their place.
        calico_kind("BlockAffinity", k::BLOCK_AFFINITY, block_affinity::new(ctx)).not_with_pod_cidr(),
    ]
}

/// The allocator of tunnel addresses.
fn tunnel_ip_allocation(ctx: &Context) -> Vec<Row> {
    vec![
        calico_kind("IPPool", k::IP_POOL, ip_pool::new(ctx)),
        either("Node", k::CALICO_NODE, [k::K8S_NODE], node::whole(ctx)),
    ]
}

/// The node status reporter.
fn node_status(ctx: &Context) -> Vec<Row> {
    vec![whole("CalicoNodeStatus", k::CALICO_NODE_STATUS, ctx)]
}

/// One of Calico's own policy kinds.
fn calico_policy(name: &'static str, kind: Kind, ctx: &Context) -> Row {
    let processor = policy::calico(&kind, ctx);
    calico_kind(name, kind, processor)
}

/// A kind that agents receive whole.
fn whole(name: &'static str, kind: Kind, ctx: &Context) -> Row {
    calico_kind(name, kind.clone(), passthrough::new(kind, ctx))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::calico::processors::exercise::{DIALECTS, NAMES, object_of};
    use crate::calico::syncers::{BGP, NODE_STATUS, TUNNEL_IP_ALLOCATION};
    use crate::model::Key;
    use crate::syncer::processor::ObjectEvent;

    fn kinds_of(flavour: Flavour, ctx: &Context, syncer: SyncerName) -> BTreeSet<Kind> {
        let specs = calico(flavour, ctx);
        let spec = specs.into_iter().find(|spec| spec.syncer == syncer).unwrap();
        spec.sources.into_iter().flat_map(|source| source.kinds).collect()
    }

    /// Datastores do not check that a body is JSON; every processor does, to its end. No name and dialect lets such a
    /// body become a value, and at least one of the names makes the source report it.
    #[test]
    fn every_source_refuses_text_that_is_not_json() {
        let deep = format!(r#"{{"spec":{}"#, "[".repeat(100_000));
        let bodies = ["{", "{} {}", r#"{"a":01}"#, r#"{"a":"b}"#, r#"{"metadata":{"name":"a"},"spec":{}"#, &deep];
        for (body, dialect) in bodies.iter().flat_map(|body| (0..DIALECTS.len()).map(move |dialect| (body, dialect))) {
            let shown = &body[..body.len().min(40)];
            for source in calico(Flavour::Folder, &Context::default()).into_iter().flat_map(|spec| spec.sources) {
                let (name, mut processor, mut refused) = (source.name, source.processor, false);
                for id in 0..NAMES.len() {
                    let object = object_of(id, dialect, body.as_bytes());
                    let mut out = Vec::new();
                    refused |= processor.process(ObjectEvent::Put(&object), &mut out).is_err();
                    let blank = out.iter().all(|pair| pair.value.is_none());
                    assert!(blank, "{name}, {}, {:?}: {shown} became {out:?}", object.id, object.dialect);
                }
                assert!(refused, "{name}, {:?}: {shown} is not refused", DIALECTS[dialect]);
            }
        }
    }

    #[test]
    fn each_flavour_has_its_kinds() {
        let ctx = Context::default();
        for (syncer, etcd, kubernetes, folder) in
            [(FELIX, 19, 26, 30), (BGP, 6, 6, 7), (TUNNEL_IP_ALLOCATION, 2, 2, 3), (NODE_STATUS, 1, 1, 1)]
        {
            let count = |flavour| kinds_of(flavour, &ctx, syncer).len();
            assert_eq!(count(Flavour::Etcd), etcd, "{syncer} etcd");
            assert_eq!(count(Flavour::Kubernetes), kubernetes, "{syncer} kubernetes");
            assert_eq!(count(Flavour::Folder), folder, "{syncer} folder");
        }
    }

    #[test]
    fn etcd_watches_only_what_etcd_holds() {
        for spec in calico(Flavour::Etcd, &Context::default()) {
            for source in spec.sources {
                assert!(source.kinds.iter().all(|kind| kind.etcd_prefix.is_some()), "{source:?}");
            }
        }
    }

    #[test]
    fn pod_cidr_mode_leaves_address_management_out_except_in_etcd() {
        let ctx = Context { use_pod_cidr: true, ..Context::default() };
        for (syncer, kind) in [(FELIX, k::IPAM_BLOCK), (BGP, k::BLOCK_AFFINITY)] {
            assert!(kinds_of(Flavour::Etcd, &ctx, syncer).contains(&kind));
            assert!(!kinds_of(Flavour::Kubernetes, &ctx, syncer).contains(&kind));
            assert!(!kinds_of(Flavour::Folder, &ctx, syncer).contains(&kind));
        }
    }

    #[test]
    fn no_kind_feeds_two_sources_of_a_syncer() {
        for flavour in [Flavour::Etcd, Flavour::Kubernetes, Flavour::Folder] {
            for spec in calico(flavour, &Context::default()) {
                let kinds: Vec<Kind> = spec.sources.into_iter().flat_map(|source| source.kinds).collect();
                assert_eq!(kinds.iter().collect::<BTreeSet<_>>().len(), kinds.len());
            }
        }
    }

    /// Objects of many kinds, to be damaged.
    const BODIES: [&str; 6] = [
        r#"{"metadata":{"name":"n-k8s-p-eth0","namespace":"ns","labels":{"a":"b"},"annotations":{"projectcalico.org/metadata":"{}","qos.projectcalico.org/dscp":"EF"}},"spec":{"node":"n","ipNetworks":["10.0.0.1/32"],"interfaceName":"cali1","ports":[{"name":"http","protocol":"TCP","port":80}],"mac":"ee:ee:ee:ee:ee:ee"}}"#,
        r#"{"metadata":{"uid":"30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6a","annotations":{"cni.projectcalico.org/floatingIPs":"[\"1.2.3.4\"]","projectcalico.org/Interfaces":"[{\"addresses\":[\"bad\"]}]"}},"spec":{"nodeName":"n","podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"],"containers":[{"ports":[{"containerPort":80,"name":"x"}]}],"vmiName":"vm"},"status":{"phase":"Running","podIP":"10.0.0.1"}}"#,
        r#"{"spec":{"cidr":"10.0.0.0/26","node":"n","state":"confirmed","deleted":"false","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"h","secondary":{"a":"b"}}],"nets":["10.0.0.0/8","x"],"ipipMode":"Always"}}"#,
        r#"{"cidr":"10.0.0.0/26","affinity":"host:n","allocations":[0],"sequenceNumberForAllocation":{"0":1},"state":"confirmed"}"#,
        r#"{"metadata":{"annotations":{"config.projectcalico.org/Foo":"bar"}},"spec":{"routeTableRanges":[{"min":1,"max":2}],"failsafeInboundHostPorts":[{"protocol":"TCP","port":22,"net":"fd00::/8"}],"iptablesRefreshInterval":"90s","datastoreReady":true,"bpfLogFilters":{"a":"b"}}}"#,
        r#"{"spec":{"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"a == 'b'","nets":["10.0.0.0/8"]},"destination":{"ports":[80,"90:100"]}}],"order":10.5,"labelsToApply":{"a":"b"},"podSelector":{"matchLabels":{"a":"b"}},"priority":5,"tier":"Admin","subject":{"namespaces":{}}}}"#,
    ];
    proptest::proptest! {
        #[test]
        fn no_object_makes_a_processor_panic_or_send_an_empty_value(
            body in 0..BODIES.len(),
            name in 0..NAMES.len(),
            dialect in 0..DIALECTS.len(),
            damage in proptest::collection::vec((0..1000_usize, proptest::num::u8::ANY), 0..4),
            use_pod_cidr: bool,
        ) {
            let mut body = BODIES[body].as_bytes().to_vec();
            for (at, byte) in damage {
                let at = at % body.len();
                body[at] = byte;
            }
            let object = object_of(name, dialect, &body);
            let ctx = Context { use_pod_cidr, ..Context::default() };
            for source in calico(Flavour::Folder, &ctx).into_iter().flat_map(|spec| spec.sources) {
                let mut processor = source.processor;
                let mut out = Vec::new();
                processor.on_resync();
                let _ = processor.process(ObjectEvent::Put(&object), &mut out);
                processor.on_list_end(&mut out);
                let sent: BTreeSet<Key> =
                    out.iter().filter(|pair| pair.value.is_some()).map(|pair| pair.key.clone()).collect();
                for pair in out.drain(..) {
                    proptest::prop_assert!(pair.value.is_none_or(|value| !value.bytes.is_empty()), "{}", source.name);
                }
                processor.process(ObjectEvent::Delete(&object.id, Some(&object)), &mut out).unwrap();
                let gone: BTreeSet<Key> =
                    out.iter().filter(|pair| pair.value.is_none()).map(|pair| pair.key.clone()).collect();
                let left: Vec<&Key> =
                    sent.difference(&gone).filter(|key| !key.contains("projectcalico-default-allow")).collect();
                proptest::prop_assert!(left.is_empty(), "{}: {left:?} outlive their object", source.name);
            }
        }
    }

    #[test]
    fn the_felix_pipeline_counts_nodes() {
        let counting: Vec<SyncerName> = calico(Flavour::Etcd, &Context::default())
            .into_iter()
            .filter(|spec| spec.counts.is_some())
            .map(|spec| spec.syncer)
            .collect();
        assert_eq!(counting, [FELIX]);
    }
}
