//! Which syncer watches what: a table, so that a further kind is a further row.
//!
//! The daemon asks for the table of its datastore once at start and builds one pipeline per [`PipelineSpec`], with one
//! watcher cache per [`Source`]. A kind that several syncers name is still watched once per process.

use std::fmt;

use super::processors::{
    Context, Processor, block_affinity, felix_config, host_endpoint, ip_pool, ipam_block, live_migration, network_set,
    node, passthrough, policy, profile, tier, workload_endpoint,
};
use crate::datastore::Kind;
use crate::model::SyncerType;
use crate::model::kinds as k;

/// What one watcher cache is made of: kinds whose objects share keys, and their processor.
pub struct Source {
    /// Calico's name for what comes out, for logs.
    pub name: &'static str,
    /// What is watched. Never empty.
    pub kinds: Vec<Kind>,
    /// Converts the objects of all `kinds`.
    pub processor: Box<dyn Processor>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// One syncer's pipeline.
#[derive(Debug)]
pub struct PipelineSpec {
    /// Whom it feeds.
    pub syncer: SyncerType,
    /// What it is fed from.
    pub sources: Vec<Source>,
    /// Whether the nodes that pass through it are counted, for sharing agents out between instances.
    pub counts_nodes: bool,
}

/// The family of datastores; decides which kinds stand for Calico's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Calico's etcd layout.
    Etcd,
    /// The Kubernetes API.
    Kubernetes,
    /// A folder of YAML as `calicoctl` and `kubectl` print it: the kinds of both others.
    Folder,
}

/// Calico's four syncers over a datastore of this flavour, in [`SyncerType::ALL`]'s order.
#[must_use]
pub fn calico(flavour: Flavour, ctx: &Context) -> Vec<PipelineSpec> {
    SyncerType::ALL
        .into_iter()
        .map(|syncer| PipelineSpec {
            syncer,
            sources: rows(syncer, ctx).into_iter().filter_map(|row| row.source(flavour, ctx)).collect(),
            counts_nodes: syncer == SyncerType::Felix,
        })
        .collect()
}

/// A source in all flavours.
struct Row {
    name: &'static str,
    etcd: Vec<Kind>,
    kubernetes: Vec<Kind>,
    /// Nothing is watched in pod-CIDR mode, which etcd does not know.
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
        (!kinds.is_empty()).then(|| Source { name: self.name, kinds, processor: self.processor })
    }
}

/// A source whose kind is the same in all flavours.
fn calico_kind(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![kind.clone()], kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

/// A source that is one thing in etcd and others in Kubernetes.
fn either<const N: usize>(name: &'static str, etcd: Kind, kubernetes: [Kind; N], processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![etcd], kubernetes: kubernetes.into(), not_with_pod_cidr: false, processor }
}

/// A source that only Kubernetes has.
fn kubernetes_only(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: Vec::new(), kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

fn rows(syncer: SyncerType, ctx: &Context) -> Vec<Row> {
    match syncer {
        SyncerType::Felix => felix(ctx),
        SyncerType::Bgp => bgp(ctx),
        SyncerType::TunnelIpAllocation => tunnel_ip_allocation(ctx),
        SyncerType::NodeStatus => node_status(ctx),
    }
}

impl Row {
    fn not_with_pod_cidr(mut self) -> Self {
        self.not_with_pod_cidr = true;
        self
    }
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
        // Nothing stands in for them in pod-CIDR mode.
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
    use crate::model::Key;
    use crate::syncer::processors::ObjectEvent;
    use crate::syncer::processors::exercise::{DIALECTS, NAMES, object_of};

    fn kinds_of(flavour: Flavour, ctx: &Context, syncer: SyncerType) -> BTreeSet<Kind> {
        let specs = calico(flavour, ctx);
        let spec = specs.into_iter().find(|spec| spec.syncer == syncer).unwrap();
        spec.sources.into_iter().flat_map(|source| source.kinds).collect()
    }

    /// Datastores do not look whether a value is JSON: every processor does, to the end. Whatever the object's name and
    /// dialect are, no value comes of it, and for at least one of the names the source says why.
    #[test]
    fn every_source_refuses_what_is_not_json() {
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
        for (syncer, etcd, kubernetes, folder) in [
            (SyncerType::Felix, 19, 26, 30),
            (SyncerType::Bgp, 6, 6, 7),
            (SyncerType::TunnelIpAllocation, 2, 2, 3),
            (SyncerType::NodeStatus, 1, 1, 1),
        ] {
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
        for (syncer, kind) in [(SyncerType::Felix, k::IPAM_BLOCK), (SyncerType::Bgp, k::BLOCK_AFFINITY)] {
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
        fn no_object_makes_a_processor_panic_or_send_nothing_as_something(
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
        let counting: Vec<SyncerType> = calico(Flavour::Etcd, &Context::default())
            .into_iter()
            .filter(|spec| spec.counts_nodes)
            .map(|spec| spec.syncer)
            .collect();
        assert_eq!(counting, [SyncerType::Felix]);
    }
}
