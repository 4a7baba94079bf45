//! The objects of a realistic cluster, as controllers and kubelets leave them.

use serde_json::{Value, json};

use super::{PODS_EACH, Size};
use crate::args::Pods;

pub(super) fn namespace_name(i: usize) -> String {
    format!("ns-{i}")
}

fn node_name(i: usize) -> String {
    format!("node-{i}")
}

pub(super) fn pod_name(i: usize) -> String {
    format!("web-{:08x}-{i:05}", i.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

fn pod_address(i: usize) -> String {
    format!("10.{}.{}.{}", i >> 16 & 0xff, i >> 8 & 0xff, i & 0xff)
}

pub(super) fn namespace(i: usize) -> Value {
    let name = namespace_name(i);
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, "team": format!("team-{}", i % 10)}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

pub(super) fn service_account(i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace_name(i)}})
}

pub(super) fn service(i: usize) -> Value {
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

pub(super) fn endpoint_slice(i: usize, size: Size) -> Value {
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

pub(super) fn policy(i: usize, size: Size) -> Value {
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

pub(super) fn node(i: usize) -> Value {
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

/// A pod whose label `bench-seq` is `seq`.
pub(super) fn pod(i: usize, seq: usize, size: Size, pods: Pods) -> Value {
    let mut pod = match pods {
        Pods::Full => full_pod(i, size),
        Pods::Lean => lean_pod(i, size),
    };
    pod["metadata"]["labels"]["bench-seq"] = seq.to_string().into();
    pod
}

/// A pod with only the fields that an endpoint needs.
fn lean_pod(i: usize, size: Size) -> Value {
    let address = pod_address(i);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(i), "namespace": namespace_name(i % size.namespaces),
            "labels": {"app": format!("web-{}", i % 200), "bench-seq": "0", "tier": "frontend"},
        },
        "spec": {
            "nodeName": node_name(i % size.nodes), "serviceAccountName": "default",
            "containers": [{"name": "web", "image": "registry.example/web"}],
        },
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

/// A running pod of a Deployment, with all its fields.
fn full_pod(i: usize, size: Size) -> Value {
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

/// Managed fields as a controller manager and a kubelet leave them: about as large as the rest of a pod.
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
