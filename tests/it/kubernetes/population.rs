//! Objects of every kind, for a cluster of a given size.

use serde_json::{Value, json};

use bulrush::calico::kinds as k;
use bulrush::datastore::Kind;

use crate::apiserver::ApiServer;
use crate::apiserver::crds::{CrdGroup, custom_kinds, is_calico};

/// Size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) namespaces: usize,
    pub(super) nodes: usize,
    pub(super) pods: usize,
    /// Number of objects of each kind of policy, set, block, service.
    pub(super) each: usize,
}

/// A large cluster.
pub(super) const LARGE: Size = Size { namespaces: 20, nodes: 100, pods: 5_000, each: 40 };
/// A few objects of every kind.
pub(super) const SMALL: Size = Size { namespaces: 4, nodes: 5, pods: 60, each: 3 };

/// The name of a namespace.
pub(super) fn namespace(index: usize) -> String {
    format!("team-{index}")
}

/// Fills a server, whose kinds are all defined.
pub(super) async fn fill(server: &ApiServer, group: CrdGroup, size: Size) -> anyhow::Result<()> {
    server.seed("namespaces", (0..size.namespaces).map(namespace_object)).await?;
    let account = |i| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
            "name": "app", "namespace": namespace(i), "labels": {"account": format!("a{i}")}
        }})
    };
    server.seed("serviceaccounts", (0..size.namespaces).map(account)).await?;
    server.seed("nodes", (0..size.nodes).map(node)).await?;
    server.seed("pods", (0..size.pods).map(|i| stored_pod(i, size))).await?;
    server.seed("services", (0..size.each).map(|i| service(i, size))).await?;
    server.seed("endpointslices", (0..size.each).map(|i| endpoint_slice(i, size))).await?;
    server.seed("networkpolicies", (0..size.each).map(|i| kubernetes_policy(i, size))).await?;
    for kind in custom_kinds() {
        let objects = (0..size.each).filter_map(|i| custom(&kind, group, i, size));
        server.seed(&kind.plural, objects).await?;
    }
    Ok(())
}

fn namespace_object(i: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace(i), "labels": {"kubernetes.io/metadata.name": namespace(i), "tier": format!("t{}", i % 3)}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

fn node(i: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("node-{i}"), "labels": {"zone": format!("z{}", i % 3), "kubernetes.io/hostname": format!("node-{i}")},
            "annotations": {
                "projectcalico.org/IPv4Address": format!("172.16.{}.{}/16", i / 250, i % 250 + 1),
                "projectcalico.org/IPv4VXLANTunnelAddr": format!("10.{}.{}.0", i / 250, i % 250),
                "node.alpha.kubernetes.io/ttl": "0",
            },
        },
        "spec": {"podCIDR": format!("10.{}.{}.0/24", i / 250, i % 250), "podCIDRs": [format!("10.{}.{}.0/24", i / 250, i % 250)]},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("172.16.{}.{}", i / 250, i % 250 + 1)}]},
    })
}

/// A pod as a user creates it.
pub(super) fn pod(namespace: &str, name: &str, node: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web", "version": "v1"}},
        "spec": {
            "nodeName": format!("node-{node}"), "serviceAccountName": "app",
            "containers": [{
                "name": "main", "image": "registry.example/web:1",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": (0..8).map(|i| json!({"name": format!("SETTING_{i}"), "value": "something of some length"})).collect::<Vec<_>>(),
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }],
        },
    })
}

/// A pod's status as a kubelet writes it.
pub(super) fn pod_status(address: usize) -> Value {
    let address = format!("10.{}.{}.{}", 64 + address / 62_500, address / 250 % 250, address % 250 + 2);
    json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
}

/// A pod as the server stores it once it runs.
pub(super) fn stored_pod(i: usize, size: Size) -> Value {
    let mut pod = pod(&namespace(i % size.namespaces), &format!("pod-{i}"), i % size.nodes);
    pod["status"] = pod_status(i)["status"].clone();
    pod["metadata"]["managedFields"] = json!([{
        "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:phase": {}, "f:podIP": {}, "f:podIPs": {}}}, "subresource": "status",
    }]);
    pod
}

fn service(i: usize, size: Size) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("service-{i}"), "namespace": namespace(i % size.namespaces)},
        "spec": {
            "type": "ClusterIP", "clusterIP": format!("10.96.{}.{}", 1 + i / 250, i % 250 + 1), "clusterIPs": [format!("10.96.{}.{}", 1 + i / 250, i % 250 + 1)],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    })
}

fn endpoint_slice(i: usize, size: Size) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("service-{i}-abcde"), "namespace": namespace(i % size.namespaces),
            "labels": {"kubernetes.io/service-name": format!("service-{i}")},
        },
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [format!("10.64.0.{}", i % 250 + 1)], "conditions": {"ready": true}, "nodeName": "node-0"}],
    })
}

/// A Kubernetes network policy.
pub(super) fn kubernetes_policy(i: usize, size: Size) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("allow-{i}"), "namespace": namespace(i % size.namespaces)},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"tier": "t1"}}}], "ports": [{"port": 8080, "protocol": "TCP"}]}],
        },
    })
}

/// An object of a custom kind, as it is stored.
pub(super) fn custom(kind: &Kind, group: CrdGroup, i: usize, size: Size) -> Option<Value> {
    let rules = json!([{"action": "Allow", "protocol": "TCP", "source": {"selector": format!("app == 'a{i}'")}, "destination": {"ports": [80, "90:100"]}}]);
    let policy = json!({"order": i, "selector": "app == 'web'", "types": ["Ingress"], "ingress": rules});
    let cidr = format!("10.{}.{}.0/26", 100 + i / 250, i % 250);
    let mut name = format!("{}-{i}", kind.name.to_lowercase());
    let spec = if *kind == k::NETWORK_POLICY || *kind == k::GLOBAL_NETWORK_POLICY {
        policy
    } else if *kind == k::STAGED_NETWORK_POLICY || *kind == k::STAGED_GLOBAL_NETWORK_POLICY {
        let mut staged = policy;
        staged["stagedAction"] = "Set".into();
        staged
    } else if *kind == k::STAGED_KUBERNETES_NETWORK_POLICY {
        json!({"stagedAction": "Set", "podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [{}]})
    } else if *kind == k::GLOBAL_NETWORK_SET || *kind == k::NETWORK_SET {
        json!({"nets": [cidr]})
    } else if *kind == k::IP_POOL {
        json!({"cidr": format!("10.{}.0.0/16", 100 + i), "ipipMode": "Always", "vxlanMode": "Never", "natOutgoing": true, "blockSize": 26, "nodeSelector": "all()"})
    } else if *kind == k::TIER {
        json!({"order": 100 + i, "defaultAction": "Deny"})
    } else if *kind == k::HOST_ENDPOINT {
        json!({"node": format!("node-{}", i % size.nodes), "interfaceName": "eth0", "expectedIPs": [format!("172.16.0.{}", i % 250 + 1)]})
    } else if *kind == k::FELIX_CONFIGURATION {
        name = if i == 0 { "default".to_owned() } else { format!("node.node-{i}") };
        json!({"logSeverityScreen": "Info", "iptablesRefreshInterval": "90s"})
    } else if *kind == k::BGP_CONFIGURATION {
        name = if i == 0 { "default".to_owned() } else { format!("node.node-{i}") };
        json!({"asNumber": 64_512 + i, "logSeverityScreen": "Info"})
    } else if *kind == k::BGP_PEER {
        json!({"peerIP": format!("192.168.0.{}", i % 250 + 1), "asNumber": 64_512 + i})
    } else if *kind == k::BGP_FILTER {
        json!({"exportV4": [{"action": "Accept", "matchOperator": "In", "cidr": cidr}]})
    } else if *kind == k::CALICO_NODE_STATUS {
        json!({"node": format!("node-{}", i % size.nodes), "classes": ["BGP"], "updatePeriodSeconds": 10})
    } else if *kind == k::IPAM_BLOCK {
        name = cidr.replace(['.', '/'], "-");
        json!({"cidr": cidr, "affinity": format!("host:node-{}", i % size.nodes), "allocations": [0, null], "unallocated": [1], "attributes": [{"handle_id": "h"}], "deleted": false})
    } else if *kind == k::BLOCK_AFFINITY {
        let node = format!("node-{}", i % size.nodes);
        name = format!("{node}-{}", cidr.replace(['.', '/'], "-"));
        let deleted = if group == CrdGroup::V1 { json!("false") } else { json!(false) };
        json!({"cidr": cidr, "node": node, "state": "confirmed", "deleted": deleted})
    } else if *kind == k::K8S_CLUSTER_NETWORK_POLICY {
        json!({"tier": "Admin", "priority": i, "subject": {"namespaces": {}}, "ingress": [{"name": "r", "action": "Deny", "from": [{"namespaces": {}}]}]})
    } else if [k::K8S_ADMIN_NETWORK_POLICY, k::K8S_BASELINE_ADMIN_NETWORK_POLICY].contains(kind) {
        json!({"priority": i, "subject": {"namespaces": {}}, "ingress": [{"name": "r", "action": "Deny", "from": [{"namespaces": {}}]}]})
    } else if *kind == k::VM_INSTANCE_MIGRATION {
        json!({"vmiName": format!("vm-{i}")})
    } else {
        // The daemon writes this kind itself.
        assert_eq!(*kind, k::CLUSTER_INFORMATION);
        return None;
    };
    let api_version =
        if is_calico(kind) { group.api_version().to_owned() } else { format!("{}/{}", kind.group, kind.version) };
    let mut object = json!({"apiVersion": api_version, "kind": kind.name, "metadata": {"name": name, "generation": 1}, "spec": spec});
    if kind.namespaced {
        object["metadata"]["namespace"] = namespace(i % size.namespaces).into();
    }
    if *kind == k::VM_INSTANCE_MIGRATION {
        object["status"] =
            json!({"phase": "Running", "migrationState": {"sourceNode": "node-0", "targetNode": "node-1"}});
    }
    Some(object)
}
