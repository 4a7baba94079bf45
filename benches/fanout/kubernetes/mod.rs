//! A realistic cluster in a real API server: pods with all fields that a kubelet and a controller write, nodes,
//! namespaces, services, network policies, and Calico's definitions. And the ways to change a pod.
//!
//! A patch of a full pod costs the API server some 8 ms of CPU time, most of it for managedFields; a patch of a lean pod costs 3 ms.
//! On a small machine, 200 patches a second would hide all other costs. A change written to the API server's etcd costs it 2 ms: for
//! watching etcd, decoding, and telling its watchers, which are part of the measured way. A replica of the API server does the same for
//! changes made through another replica. So this is the default; [`Writes`] has the other ways.

mod objects;

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::Context as _;
use bulrush::calico::kinds::IP_POOL;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use self::objects::{endpoint_slice, namespace, namespace_name, node, pod, pod_name, policy, service, service_account};
use crate::apiserver::crds::CrdGroup;
use crate::apiserver::rest::Rest;
use crate::apiserver::{ApiServer, Auth, Options, token};
use crate::args::{Args, Pods, Writes};
use crate::progress::Step;
use crate::relay::Relay;

const GROUP: CrdGroup = CrdGroup::V1;
/// Most pods of a node and of a namespace; a small cluster has fewer.
const PODS_EACH: usize = 100;
const LEAST_NODES: usize = 100;
const LEAST_NAMESPACES: usize = 20;
/// EndpointSlices that are written together.
const SLICES_AT_ONCE: usize = 40;
/// Number of pods that are changed before the measurement, and the label's number that they get, which no probe knows.
const WARM_UP: usize = 100;
const WARM_UP_NUMBER: usize = 1_000_000_000;
/// Network policies of a namespace.
const POLICIES_EACH: usize = 2;

/// Numbers of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
    pub(crate) namespaces: usize,
}

impl Size {
    /// A cluster with this many pods.
    pub(crate) fn of(pods: usize) -> Self {
        Self {
            pods,
            nodes: pods.div_ceil(PODS_EACH).max(LEAST_NODES),
            namespaces: pods.div_ceil(PODS_EACH).max(LEAST_NAMESPACES),
        }
    }
}

/// A running API server with its content.
pub(crate) struct Cluster {
    server: ApiServer,
    size: Size,
    writes: Writes,
    rest: Rest,
    etcd: etcd_client::Client,
    /// Pods as the API server shows them, by path, if changes replace pods.
    shown: HashMap<String, Value>,
    /// Text before and after the number in each pod, if changes are written to etcd: then making a pod costs nothing.
    stored: Vec<(String, String)>,
}

impl Cluster {
    /// Starts an API server and fills it.
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        let size = Size::of(args.endpoints);
        let options = Options { flags: args.apiserver_flag.clone() };
        let server = ApiServer::start_with(options).await.context("BULRUSH_WITHOUT leaves it out")?;
        let step = Step::begin(format!("filling the API server with {} pods", size.pods));
        server.install_crds(GROUP).await?;
        let rest = server.rest();
        server.seed("namespaces", (0..size.namespaces).map(namespace)).await?;
        server.seed("serviceaccounts", (0..size.namespaces).map(service_account)).await?;
        server.seed("services", (0..size.namespaces).map(service)).await?;
        // A transaction of the seed takes up to a hundred objects, and etcd 1.5 MiB: these have 25 KB each.
        for first in (0..size.namespaces).step_by(SLICES_AT_ONCE) {
            let slices = first..size.namespaces.min(first + SLICES_AT_ONCE);
            server.seed("endpointslices", slices.map(|i| endpoint_slice(i, size))).await?;
        }
        server.seed("networkpolicies", (0..size.namespaces * POLICIES_EACH).map(|i| policy(i, size))).await?;
        server.seed("nodes", (0..size.nodes).map(node)).await?;
        server.seed("pods", (0..size.pods).map(|i| stored_pod(i, 0, size, args.pods))).await?;
        let pool = json!({
            "apiVersion": GROUP.api_version(), "kind": "IPPool", "metadata": {"name": "default-ipv4-ippool"},
            "spec": {"cidr": "10.0.0.0/8", "ipipMode": "Always", "natOutgoing": true, "nodeSelector": "all()"},
        });
        rest.create(&GROUP.collection(&IP_POOL, ""), &pool).await?;
        // After a consistent read the server's own cache is complete, and filling it is not measured.
        for collection in ["pods", "nodes", "namespaces", "serviceaccounts", "services"] {
            rest.get(&format!("/api/v1/{collection}?limit=1")).await?;
        }
        let etcd = server.etcd.client().await;
        let (writes, shown, stored) = (args.writes, HashMap::new(), Vec::new());
        let mut cluster = Self { server, size, writes, rest, etcd, shown, stored };
        match writes {
            Writes::Patch => {}
            Writes::Replace => cluster.read_pods().await?,
            Writes::Etcd => cluster.stored = (0..size.pods).map(|i| around_the_number(i, size, args.pods)).collect(),
        }
        step.done();
        Ok(cluster)
    }

    /// Reads the pods that are to be replaced later.
    async fn read_pods(&mut self) -> anyhow::Result<()> {
        for mut pod in self.rest.list("/api/v1/pods").await? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let path = pod_path(&text(&pod["metadata"]["namespace"]), &text(&pod["metadata"]["name"]));
            // Without a version, any version is replaced.
            if let Some(metadata) = pod["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            self.shown.insert(path, pod);
        }
        Ok(())
    }

    /// Address of the API server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The way of changes to the API server.
    pub(crate) fn writes(&self) -> Writes {
        self.writes
    }

    /// Number of pods.
    pub(crate) fn pods(&self) -> usize {
        self.size.pods
    }

    /// A kubeconfig for a user who may do everything, by way of `relay` if there is one.
    pub(crate) fn kubeconfig(&self, relay: Option<&Relay>) -> std::path::PathBuf {
        let url = relay.map_or_else(|| self.server.url(), |relay| format!("https://{}", relay.address));
        self.server.kubeconfig_at("bench", &url, &Auth::Token(token("admin")))
    }

    /// Changes some pods, one after the other: a server that has just started takes a second for the first of each kind.
    pub(crate) async fn warm_up(&self) -> anyhow::Result<()> {
        for i in 0..WARM_UP.min(self.size.pods) {
            self.change(i, WARM_UP_NUMBER).await?;
        }
        Ok(())
    }

    /// Gives pod `i` the number `seq` as its label `bench-seq`.
    pub(crate) fn change(&self, i: usize, seq: usize) -> BoxFuture<'static, anyhow::Result<()>> {
        let path = pod_path(&namespace_name(i % self.size.namespaces), &pod_name(i));
        let rest = self.rest.clone();
        match self.writes {
            Writes::Patch => {
                let patch = json!({"metadata": {"labels": {"bench-seq": seq.to_string()}}});
                Box::pin(async move { rest.patch(&path, &patch).await.map(drop) })
            }
            Writes::Replace => {
                let mut pod = self.shown.get(&path).cloned().unwrap_or_default();
                pod["metadata"]["labels"]["bench-seq"] = seq.to_string().into();
                Box::pin(async move { rest.replace(&path, &pod).await.map(drop) })
            }
            Writes::Etcd => {
                let key = format!("/registry/pods/{}/{}", namespace_name(i % self.size.namespaces), pod_name(i));
                let (before, after) = &self.stored[i];
                let (mut etcd, pod) = (self.etcd.clone(), format!("{before}{seq}{after}"));
                let put = async move { etcd.put(key, pod, None).await.map(drop).context("write a pod to etcd") };
                Box::pin(put)
            }
        }
    }
}

fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// A pod with the fields that the API server adds to each object, with the same values at every write.
fn stored_pod(i: usize, seq: usize, size: Size, pods: Pods) -> Value {
    let mut pod = pod(i, seq, size, pods);
    pod["metadata"]["uid"] = format!("00000000-0000-4000-b000-{i:012}").into();
    pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    pod
}

/// Text before and after the label's number in a pod.
fn around_the_number(i: usize, size: Size, pods: Pods) -> (String, String) {
    const LABEL: &str = r#""bench-seq":""#;
    let pod = stored_pod(i, 0, size, pods).to_string();
    let (before, after) = pod.split_once(LABEL).expect("every pod has the label");
    (format!("{before}{LABEL}"), after.trim_start_matches('0').to_owned())
}
