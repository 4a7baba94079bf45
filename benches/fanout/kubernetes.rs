//! A believable cluster in a real API server: pods with all that a kubelet and a controller write into them, nodes,
//! namespaces, services, network policies, and Calico's definitions.

use anyhow::Context as _;
use bulrush::syncer::kinds::IP_POOL;
use serde_json::{Value, json};

use crate::apiserver::crds::CrdGroup;
use crate::apiserver::rest::Rest;
use crate::apiserver::{ApiServer, Auth, token};
use crate::relay::Relay;

const GROUP: CrdGroup = CrdGroup::V1;
/// Most pods of a node and of a namespace; a small cluster has fewer.
const PODS_EACH: usize = 100;
const LEAST_NODES: usize = 100;
const LEAST_NAMESPACES: usize = 20;
/// EndpointSlices that are written together.
const SLICES_AT_ONCE: usize = 40;
/// Pods that are changed before anything is measured.
const WARM_UP: usize = 100;
/// Network policies of a namespace.
const POLICIES_EACH: usize = 2;

/// How much of everything.
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
    pub(crate) server: ApiServer,
    size: Size,
    rest: Rest,
}

impl Cluster {
    /// Starts an API server and fills it.
    pub(crate) async fn start(size: Size) -> anyhow::Result<Self> {
        let server = ApiServer::start().await.context("no kube-apiserver; `tests/run` builds one")?;
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
        server.seed("pods", (0..size.pods).map(|i| pod(i, size))).await?;
        let pool = json!({
            "apiVersion": GROUP.api_version(), "kind": "IPPool", "metadata": {"name": "default-ipv4-ippool"},
            "spec": {"cidr": "10.0.0.0/8", "ipipMode": "Always", "natOutgoing": true, "nodeSelector": "all()"},
        });
        rest.create(&GROUP.collection(&IP_POOL, ""), &pool).await?;
        // A consistent read: by then the server's own cache has everything, and its work is not measured with ours.
        for collection in ["pods", "nodes", "namespaces", "serviceaccounts", "services"] {
            rest.get(&format!("/api/v1/{collection}?limit=1")).await?;
        }
        Ok(Self { server, size, rest })
    }

    /// A kubeconfig for a user who may do everything, by way of `relay` if there is one.
    pub(crate) fn kubeconfig(&self, relay: Option<&Relay>) -> std::path::PathBuf {
        let url = relay.map_or_else(|| self.server.url(), |relay| format!("https://{}", relay.address));
        self.server.kubeconfig_at("bench", &url, &Auth::Token(token("admin")))
    }

    /// Change number `number`: one pod gets it as a label.
    pub(crate) fn change(&self, number: usize) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        self.label(number.wrapping_mul(7919) % self.size.pods, "bench-seq", number)
    }

    /// Patches some pods, one after the other: a server that has just started takes a second for the first of each kind.
    pub(crate) async fn warm_up(&self) -> anyhow::Result<()> {
        for i in 0..WARM_UP.min(self.size.pods) {
            self.label(i, "bench-warm", i).await?;
        }
        Ok(())
    }

    fn label(
        &self,
        i: usize,
        label: &'static str,
        value: usize,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let path = format!("/api/v1/namespaces/{}/pods/{}", namespace_name(i % self.size.namespaces), pod_name(i));
        let rest = self.rest.clone();
        async move {
            let patch = json!({"metadata": {"labels": {label: value.to_string()}}});
            rest.patch(&path, &patch).await.map(drop)
        }
    }
}

fn namespace_name(i: usize) -> String {
    format!("ns-{i}")
}

fn node_name(i: usize) -> String {
    format!("node-{i}")
}

fn pod_name(i: usize) -> String {
    format!("web-{:08x}-{i:05}", i.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

fn pod_address(i: usize) -> String {
    format!("10.{}.{}.{}", i >> 16 & 0xff, i >> 8 & 0xff, i & 0xff)
}

fn namespace(i: usize) -> Value {
    let name = namespace_name(i);
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, "team": format!("team-{}", i % 10)}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

fn service_account(i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace_name(i)}})
}

fn service(i: usize) -> Value {
    let address = format!("10.96.{}.{}", i >> 8 & 0xff, i & 0xff);
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace_name(i)},
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "selector": {"app": "web"},
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn endpoint_slice(i: usize, size: Size) -> Value {
    let pods = (i..size.pods).step_by(size.namespaces).take(PODS_EACH);
    let endpoint = |pod: usize| {
        json!({
            "addresses": [pod_address(pod)], "nodeName": node_name(pod % size.nodes),
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "name": pod_name(pod), "namespace": namespace_name(i)},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web-abcde", "namespace": namespace_name(i), "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "endpoints": pods.map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn policy(i: usize, size: Size) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("allow-{i}"), "namespace": namespace_name(i % size.namespaces)},
        "spec": {
            "podSelector": {"matchLabels": {"tier": "frontend"}}, "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"namespaceSelector": {"matchLabels": {"team": format!("team-{}", i % 10)}}}],
                "ports": [{"port": 8080, "protocol": "TCP"}],
            }],
        },
    })
}

fn node(i: usize) -> Value {
    let (name, address) = (node_name(i), format!("172.16.{}.{}", i >> 8 & 0xff, i & 0xff));
    let images =
        |n: usize| json!({"names": [format!("registry.example/app-{n}@sha256:{n:064x}")], "sizeBytes": 123_456_789});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", i % 3)},
            "annotations": {
                "projectcalico.org/IPv4Address": format!("{address}/16"),
                "projectcalico.org/IPv4IPIPTunnelAddr": format!("10.250.{}.{}", i >> 8 & 0xff, i & 0xff),
            },
        },
        "spec": {"podCIDR": format!("10.200.{}.0/24", i & 0xff), "podCIDRs": [format!("10.200.{}.0/24", i & 0xff)]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": {"cpu": "16", "memory": "65536000Ki", "pods": "110"},
            "images": (0..20).map(images).collect::<Vec<_>>(),
        },
    })
}

/// A pod as one of a Deployment looks once it runs.
fn pod(i: usize, size: Size) -> Value {
    let name = pod_name(i);
    let hash = format!("{:08x}", i.wrapping_mul(2_654_435_761) & 0xffff_ffff);
    let (address, host) =
        (pod_address(i), format!("172.16.{}.{}", (i % size.nodes) >> 8 & 0xff, (i % size.nodes) & 0xff));
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:05Z"});
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let env = |n: usize| json!({"name": format!("SETTING_{n}"), "value": format!("value-of-setting-{n}")});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "generateName": format!("web-{hash}-"), "namespace": namespace_name(i % size.namespaces),
            "labels": {
                "app": format!("web-{}", i % 200), "bench-seq": "0", "pod-template-hash": hash, "tier": "frontend",
                "version": format!("v{}", i % 7),
            },
            "annotations": {
                "cni.projectcalico.org/containerID": format!("{i:064x}"),
                "cni.projectcalico.org/podIP": format!("{address}/32"),
                "cni.projectcalico.org/podIPs": format!("{address}/32"),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{hash}"),
                "uid": format!("00000000-0000-4000-9000-{i:012}"), "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": managed_fields(),
        },
        "spec": {
            "nodeName": node_name(i % size.nodes), "serviceAccountName": "default", "serviceAccount": "default",
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority", "securityContext": {},
            "containers": [{
                "name": "web", "image": format!("registry.example/web:v{}", i % 7), "imagePullPolicy": "IfNotPresent",
                "env": (0..10).map(env).collect::<Vec<_>>(),
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "livenessProbe": {"httpGet": {"path": "/live", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
            }],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ]}}],
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:01Z",
            "hostIP": host, "hostIPs": [{"ip": host}], "podIP": address, "podIPs": [{"ip": address}],
            "conditions": conditions,
            "containerStatuses": [{
                "name": "web", "ready": true, "started": true, "restartCount": 0,
                "image": format!("registry.example/web:v{}", i % 7),
                "imageID": format!("registry.example/web@sha256:{i:064x}"), "containerID": format!("containerd://{i:064x}"),
                "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}},
            }],
        },
    })
}

/// What a controller manager and a kubelet leave of their writes: about as much as everything else in a pod.
fn managed_fields() -> Value {
    let condition =
        || json!({".": {}, "f:type": {}, "f:status": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}});
    let probe = || json!({".": {}, "f:failureThreshold": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}}, "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {}});
    let env: serde_json::Map<String, Value> = (0..10)
        .map(|n| (format!("k:{{\"name\":\"SETTING_{n}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect();
    json!([
        {
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:generateName": {},
                    "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:tier": {}, "f:version": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"00000000-0000-4000-9000-000000000000\"}": {}},
                },
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"web\"}": {
                        ".": {}, "f:env": env, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": probe(),
                        "f:name": {}, "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {}}},
                        "f:readinessProbe": probe(),
                        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                    }},
                    "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                    "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
                },
            },
        },
        {
            "manager": "calico", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:02Z",
            "fieldsType": "FieldsV1", "subresource": "status",
            "fieldsV1": {"f:metadata": {"f:annotations": {
                ".": {}, "f:cni.projectcalico.org/containerID": {}, "f:cni.projectcalico.org/podIP": {}, "f:cni.projectcalico.org/podIPs": {},
            }}},
        },
        {
            "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:05Z",
            "fieldsType": "FieldsV1", "subresource": "status",
            "fieldsV1": {"f:status": {
                "f:conditions": {
                    "k:{\"type\":\"ContainersReady\"}": condition(), "k:{\"type\":\"Initialized\"}": condition(),
                    "k:{\"type\":\"PodReadyToStartContainers\"}": condition(), "k:{\"type\":\"Ready\"}": condition(),
                },
                "f:containerStatuses": {}, "f:hostIP": {}, "f:hostIPs": {}, "f:phase": {}, "f:podIP": {},
                "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}}, "f:startTime": {},
            }},
        },
    ])
}
