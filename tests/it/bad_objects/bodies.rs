//! Good objects of every converted kind, to be damaged by tests.

use bulrush::datastore::Dialect;
use serde_json::{Value as Json, json};

/// API group in which a kind is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `crd.projectcalico.org/v1`.
    CrdV1,
    /// `projectcalico.org/v3`.
    V3,
    /// A kind that is not Calico's.
    Native,
}

impl Place {
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::CrdV1 => Dialect::CrdV1,
            Self::V3 => Dialect::V3,
            Self::Native => Dialect::Kubernetes,
        }
    }
}

/// A kind and its good objects.
#[derive(Clone, Debug)]
pub(super) struct Good {
    pub(super) kind: &'static str,
    /// `projectcalico.org` for all of Calico's.
    pub(super) group: &'static str,
    namespaced: bool,
    rest: fn(usize) -> Json,
}

const CALICO: &str = "projectcalico.org";

impl Good {
    /// The groups that its objects can be in.
    pub(super) fn places(&self) -> &'static [Place] {
        if self.group == CALICO { &[Place::CrdV1, Place::V3] } else { &[Place::Native] }
    }

    /// The good object with this number, below 10.
    pub(super) fn body(&self, number: usize, place: Place) -> Json {
        let mut body = (self.rest)(number);
        let name = self.name(number);
        let metadata = json!({
            "name": name,
            "resourceVersion": "7",
            "uid": format!("30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6{number}"),
            "creationTimestamp": "2024-01-02T03:04:05Z",
            "labels": {"app": "web"},
            "annotations": {"example.org/note": "x"},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
        });
        let own = std::mem::replace(&mut body["metadata"], metadata);
        for (field, value) in own.as_object().into_iter().flatten() {
            body["metadata"][field] = value.clone();
        }
        if self.namespaced {
            body["metadata"]["namespace"] = "shop".into();
        }
        body["kind"] = self.kind.into();
        body["apiVersion"] = match (place, self.group) {
            (Place::CrdV1, _) => "crd.projectcalico.org/v1",
            (_, CALICO) => "projectcalico.org/v3",
            (_, "") => "v1",
            (_, group) => group,
        }
        .into();
        body
    }

    fn name(&self, number: usize) -> String {
        // An object of another name goes to agents whole.
        if self.kind == "ClusterInformation" && number == 2 {
            return "default".to_owned();
        }
        format!("{}-{number}", self.kind.to_lowercase())
    }
}

/// The good objects of a kind.
pub(super) fn of(kind: &str, group: &str) -> Good {
    let found = all().into_iter().find(|good| good.kind == kind && good.group == group);
    found.unwrap_or_else(|| panic!("no good {kind}"))
}

fn rule() -> Json {
    json!({
        "action": "Allow", "protocol": "TCP",
        "source": {"selector": "a == 'b'", "nets": ["10.0.0.0/8"], "namespaceSelector": "team == 'x'"},
        "destination": {"ports": [80, "90:100", "http"]},
    })
}

fn policy(_number: usize) -> Json {
    json!({"spec": {"selector": "app == 'web'", "order": 10.5, "types": ["Ingress", "Egress"], "ingress": [rule()], "egress": [rule()]}})
}

fn staged(number: usize) -> Json {
    let mut body = policy(number);
    body["spec"]["stagedAction"] = "Set".into();
    body
}

fn kubernetes_policy(_number: usize) -> Json {
    json!({"spec": {
        "podSelector": {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": {}}, {"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 80}]},
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]},
        ],
    }})
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(super) fn all() -> Vec<Good> {
    let native = |kind, group, namespaced, rest| Good { kind, group, namespaced, rest };
    let calico = |kind, namespaced, rest| Good { kind, group: CALICO, namespaced, rest };
    vec![
        native("Pod", "", true, |n| {
            json!({
                "spec": {
                    "nodeName": "node-a", "serviceAccountName": "web",
                    "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}],
                },
                "status": {"phase": "Running", "podIP": format!("10.65.0.{n}"), "podIPs": [{"ip": format!("10.65.0.{n}")}]},
            })
        }),
        native("Namespace", "", false, |_| json!({"spec": {"finalizers": ["kubernetes"]}})),
        native("ServiceAccount", "", true, |_| json!({"secrets": [{"name": "s"}]})),
        native("Node", "", false, |n| {
            json!({
                "metadata": {"annotations": {
                    "projectcalico.org/IPv4Address": format!("10.0.0.{n}/24"),
                    "projectcalico.org/IPv4IPIPTunnelAddr": format!("10.65.1.{n}"),
                    "projectcalico.org/IPv4VXLANTunnelAddr": format!("10.65.2.{n}"),
                    "projectcalico.org/VXLANTunnelMACAddr": "66:aa:bb:cc:dd:ee",
                    "projectcalico.org/labels": "{\"a\":\"b\"}",
                    "projectcalico.org/Interfaces": "[{\"name\":\"eth0\",\"addresses\":[\"10.0.0.1\"]}]",
                }},
                "spec": {"podCIDR": format!("10.244.{n}.0/24"), "podCIDRs": [format!("10.244.{n}.0/24")]},
                "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{n}")}]},
            })
        }),
        native("NetworkPolicy", "networking.k8s.io", true, kubernetes_policy),
        native("ClusterNetworkPolicy", "policy.networking.k8s.io", false, |_| {
            json!({"spec": {
                "tier": "Admin", "priority": 20, "subject": {"namespaces": {"matchLabels": {"env": "prod"}}},
                "ingress": [{"name": "r", "action": "Accept", "from": [{"namespaces": {}}],
                             "protocols": [{"tcp": {"destinationPort": {"number": 9090}}}]}],
                "egress": [{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}]}],
            }})
        }),
        native(
            "Service",
            "",
            true,
            |_| json!({"spec": {"clusterIP": "10.96.0.10", "ports": [{"name": "dns", "port": 53, "targetPort": "dns"}], "selector": {"a": "b"}}}),
        ),
        native("EndpointSlice", "discovery.k8s.io", true, |_| {
            json!({
                "addressType": "IPv4", "ports": [{"name": "dns", "port": 53}],
                "endpoints": [{"addresses": ["10.65.0.5"], "conditions": {"ready": true}, "nodeName": "node-a"}],
            })
        }),
        native(
            "VirtualMachineInstanceMigration",
            "kubevirt.io",
            true,
            |_| json!({"spec": {"vmiName": "vm1"}, "status": {"phase": "Running", "migrationState": {"sourcePod": "p"}}}),
        ),
        calico("ClusterInformation", false, |_| json!({"spec": {"clusterGUID": "g", "clusterType": "typha,kdd"}})),
        calico("FelixConfiguration", false, |_| {
            json!({"spec": {
                "bpfEnabled": false, "iptablesRefreshInterval": "90s", "vxlanPort": 4789, "nodeSelector": "all()",
                "failsafeInboundHostPorts": [{"protocol": "TCP", "port": 22}], "routeTableRanges": [{"min": 1, "max": 20}],
                "kubeNodePortRanges": ["30000:32767"], "externalNodesList": ["10.0.0.0/8"],
            }})
        }),
        calico("GlobalNetworkPolicy", false, |n| {
            let mut body = policy(n);
            body["spec"]["namespaceSelector"] = "env == 'prod'".into();
            body
        }),
        calico("NetworkPolicy", true, policy),
        calico("StagedGlobalNetworkPolicy", false, staged),
        calico("StagedNetworkPolicy", true, staged),
        calico("StagedKubernetesNetworkPolicy", true, |n| {
            let mut body = kubernetes_policy(n);
            body["spec"]["stagedAction"] = "Set".into();
            body
        }),
        calico("GlobalNetworkSet", false, |_| json!({"spec": {"nets": ["192.0.2.0/24", "198.51.100.7"]}})),
        calico("NetworkSet", true, |_| json!({"spec": {"nets": ["192.0.2.0/24", "198.51.100.7"]}})),
        calico(
            "IPPool",
            false,
            |n| json!({"spec": {"cidr": format!("10.6{n}.0.0/16"), "ipipMode": "Always", "natOutgoing": true, "allowedUses": ["Workload"]}}),
        ),
        calico("Tier", false, |_| json!({"spec": {"order": 100, "defaultAction": "Pass"}})),
        calico("HostEndpoint", false, |n| {
            json!({"spec": {"node": "node-a", "interfaceName": format!("eth{n}"), "expectedIPs": [format!("10.0.0.{n}")],
                            "profiles": ["p"], "ports": [{"name": "ssh", "protocol": "TCP", "port": 22}]}})
        }),
        calico("BGPConfiguration", false, |_| {
            json!({"spec": {"asNumber": 63400, "listenPort": 178, "nodeMeshMaxRestartTime": "3m",
                            "communities": [{"name": "c1", "value": "63400:300"}],
                            "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["c1"]}],
                            "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}})
        }),
        calico(
            "BGPPeer",
            false,
            |_| json!({"spec": {"peerIP": "192.168.1.1", "asNumber": "1.10", "nodeSelector": "rack == 'r1'", "filters": ["f1"]}}),
        ),
        calico("BGPFilter", false, |_| {
            json!({"spec": {"exportV4": [{"action": "Accept", "matchOperator": "In", "cidr": "77.1.0.0/16",
                                          "prefixLength": {"min": 16, "max": 24}}]}})
        }),
        calico("CalicoNodeStatus", false, |_| {
            json!({"spec": {"node": "node-a", "classes": ["Agent", "BGP"], "updatePeriodSeconds": 10},
                   "status": {"agent": {"birdV4": {"state": "Ready"}}}})
        }),
        calico("IPAMBlock", false, |n| {
            json!({"spec": {"cidr": format!("10.65.{n}.0/30"), "affinity": "host:node-a", "allocations": [0, null, null, null],
                            "unallocated": [1, 2, 3], "attributes": [{"handle_id": "h", "secondary": {"pod": "p"}}],
                            "sequenceNumber": 17, "sequenceNumberForAllocation": {"0": 15}, "deleted": false}})
        }),
        calico(
            "BlockAffinity",
            false,
            |n| json!({"spec": {"cidr": format!("10.65.{n}.0/26"), "node": "node-a", "state": "confirmed", "deleted": "false"}}),
        ),
    ]
}
