//! Refused resources, and errors that name the field.

use serde_json::{Value, json};

use super::check;

fn resource(spec: &Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": spec})
}

/// Kind, spec, and the field that the error names; `""` for a valid one.
fn specs() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("Node", json!({}), ""),
        ("Node", json!({"bgp": {}}), "spec.bgp"),
        ("Node", json!({"bgp": {"ipv4Address": "10.0.0.1/24", "ipv4IPIPTunnelAddr": "10.65.0.1"}}), ""),
        ("Node", json!({"bgp": {"ipv4IPIPTunnelAddr": "10.65.0.1/32"}}), "spec.bgp.ipv4IPIPTunnelAddr"),
        ("Node", json!({"bgp": {"ipv6Address": "10.0.0.1/24"}}), "spec.bgp.ipv6Address"),
        ("Node", json!({"vxlanTunnelMACAddr": "66:aa"}), "spec.vxlanTunnelMACAddr"),
        ("Node", json!({"wireguard": {"interfaceIPv4Address": "fd00::1"}}), "spec.wireguard.interfaceIPv4Address"),
        ("Node", json!({"interfaces": [{"name": "ETH_0"}]}), ""),
        ("BGPPeer", json!({"peerIP": "192.168.1.1", "asNumber": 1, "filters": ["f1"]}), ""),
        ("BGPPeer", json!({"peerIP": "192.168.1.1:0"}), "spec.peerIP"),
        ("BGPPeer", json!({"peerIP": "192.168.1.1", "reachableBy": "fd00::1"}), "spec.reachableBy"),
        ("BGPPeer", json!({"nodeSelector": "a =="}), "spec.nodeSelector"),
        ("BGPPeer", json!({"filters": ["Bad_Name"]}), "spec.filters[0]"),
        (
            "BGPConfiguration",
            json!({"communities": [{"name": "c1", "value": "1:2"}], "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["c1", "1:2:3"]}]}),
            "",
        ),
        ("BGPConfiguration", json!({"communities": [{"name": "c1", "value": "1:70000"}]}), "spec.communities[0].value"),
        (
            "BGPConfiguration",
            json!({"prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["c2"]}]}),
            "spec.prefixAdvertisements[0].communities[0]",
        ),
        ("BGPConfiguration", json!({"serviceClusterIPs": [{"cidr": "10.0.0.1/8"}]}), "spec.serviceClusterIPs[0].cidr"),
        ("BGPConfiguration", json!({"ignoredInterfaces": ["*"]}), "spec.ignoredInterfaces[0]"),
        ("BGPConfiguration", json!({"ipv4NormalRoutePriority": 0}), "spec.ipv4NormalRoutePriority"),
        (
            "BGPFilter",
            json!({"exportV4": [{"action": "Accept", "cidr": "77.1.0.0/16", "prefixLength": {"min": 16, "max": 24}}]}),
            "",
        ),
        ("BGPFilter", json!({"exportV4": [{"action": "Accept", "cidr": "fd00::/8"}]}), "spec.exportV4[0].cidr"),
        (
            "BGPFilter",
            json!({"importV6": [{"action": "Accept", "prefixLength": {"max": 129}}]}),
            "spec.importV6[0].prefixLength.max",
        ),
        ("BGPFilter", json!({"importV6": [{"cidr": "9000::/64"}]}), "spec.importV6[0]"),
        ("BGPFilter", json!({"importV4": [{"action": "Accept", "operations": [{"addCommunity": {"value": ""}}]}]}), ""),
        ("BGPFilter", json!({"importV4": [{"action": "Accept", "source": "Nobody"}]}), "spec.importV4[0].source"),
        ("CalicoNodeStatus", json!({"node": "n", "classes": ["BGP"], "updatePeriodSeconds": 0}), ""),
        ("CalicoNodeStatus", json!({"node": "n"}), "spec"),
        (
            "CalicoNodeStatus",
            json!({"node": "n", "classes": ["BGP", "BGP"], "updatePeriodSeconds": 1}),
            "spec.classes[1]",
        ),
        (
            "CalicoNodeStatus",
            json!({"node": "n", "classes": ["BGP"], "updatePeriodSeconds": 86401}),
            "spec.updatePeriodSeconds",
        ),
        ("Profile", json!({"ingress": [{"action": "Allow"}], "labelsToApply": {"pcns.a": "b"}}), ""),
        ("Profile", json!({"labelsToApply": {"a b": "c"}}), "spec.labelsToApply"),
        (
            "Profile",
            json!({"ingress": [{"action": "Allow", "protocol": "TCP", "source": {"ports": [80, "1:2", "web"]}}]}),
            "",
        ),
        (
            "Profile",
            json!({"ingress": [{"action": "Allow", "source": {"ports": [80]}}]}),
            "spec.ingress[0].source.ports[0]",
        ),
        (
            "Profile",
            json!({"ingress": [{"action": "Allow", "protocol": "ICMP", "source": {"ports": ["web"]}}]}),
            "spec.ingress[0].source.ports[0]",
        ),
        (
            "Profile",
            json!({"ingress": [{"action": "Allow", "protocol": "TCP", "source": {"ports": ["HTTP_ALT"]}}]}),
            "spec.ingress[0].source.ports[0]",
        ),
        (
            "Profile",
            json!({"ingress": [{"action": "Allow", "protocol": "TCP", "source": {"ports": ["9:1"]}}]}),
            "spec.ingress[0].source.ports[0]",
        ),
        ("Profile", json!({"egress": [{"action": "Allow", "protocol": "NOPE"}]}), "spec.egress[0].protocol"),
        ("Profile", json!({"egress": [{"action": "Allow", "icmp": {"type": 255}}]}), "spec.egress[0].icmp.type"),
        (
            "Profile",
            json!({"egress": [{"action": "Allow", "destination": {"notNets": ["0.0.0.0/0"]}}]}),
            "spec.egress[0].destination.notNets[0]",
        ),
        (
            "Profile",
            json!({"egress": [{"action": "Allow", "source": {"nets": ["10.0.0.0/8"]}, "destination": {"nets": ["fd00::/8"]}}]}),
            "spec.egress[0].destination.nets[0]",
        ),
        (
            "Profile",
            json!({"egress": [{"action": "Allow", "http": {"paths": [{"exact": "/a", "prefix": "/b"}]}}]}),
            "spec.egress[0].http.paths[0]",
        ),
        ("FelixConfiguration", json!({"bpfEnabled": true, "bpfLogLevel": "", "nodeSelector": "x"}), ""),
        ("FelixConfiguration", json!({"debugPort": 70000}), "spec.debugPort"),
        ("FelixConfiguration", json!({"bpfJITHardening": "Maybe"}), "spec.bpfJITHardening"),
        ("FelixConfiguration", json!({"bpfJITHardening": ""}), "spec.bpfJITHardening"),
        ("FelixConfiguration", json!({"natPortRange": "0:100"}), "spec.natPortRange"),
        ("FelixConfiguration", json!({"natPortRange": "1:100", "bpfPSNATPorts": 0}), "spec.bpfPSNATPorts"),
        ("FelixConfiguration", json!({"mtuIfacePattern": "("}), "spec.mtuIfacePattern"),
        ("FelixConfiguration", json!({"kubeNodePortRanges": [1, 2, 3, 4, 5, 6, 7, 8]}), "spec.kubeNodePortRanges[7]"),
        ("FelixConfiguration", json!({"kubeNodePortRanges": ["web"]}), "spec.kubeNodePortRanges[0]"),
        ("FelixConfiguration", json!({"routeTableRange": {"min": 1, "max": 251}}), "spec.routeTableRange"),
        (
            "FelixConfiguration",
            json!({"routeTableRanges": [{"min": 1, "max": 40000}, {"min": 1, "max": 40000}]}),
            "spec.routeTableRanges[1]",
        ),
        (
            "FelixConfiguration",
            json!({"healthTimeoutOverrides": [{"name": "a b", "timeout": "-1s"}]}),
            "spec.healthTimeoutOverrides[0]",
        ),
        ("FelixConfiguration", json!({"bpfLogFilters": {"eth+": "x"}}), "spec.bpfLogFilters"),
        ("FelixConfiguration", json!({"failsafeInboundHostPorts": [{"protocol": "tcp", "port": 1}]}), ""),
        ("FelixConfiguration", json!({"externalNodesList": ["fd00::/8"]}), "spec.externalNodesList[0]"),
        ("Service", json!({"anything": 1}), ""),
    ]
}

#[test]
fn specs_are_accepted_or_refused_with_the_field_named() {
    for (kind, spec, field) in specs() {
        let verdict = check(kind, &resource(&spec));
        let named = verdict.as_slice().first().map_or("", |finding| finding.path.as_str());
        assert_eq!(named, field, "{kind} {spec}: {verdict:?}");
    }
}

#[test]
fn metadata_of_every_kind_is_checked() {
    let long = "x".repeat(254);
    let table = [
        (json!({"name": "a.b-c"}), ""),
        (json!({}), "metadata.name"),
        (json!({"name": "A"}), "metadata.name"),
        (json!({"name": long}), "metadata.name"),
        (json!({"name": "x", "labels": {"a/b": "", "c": "d"}}), ""),
        (json!({"name": "x", "labels": {"a/b/c": ""}}), "metadata.labels"),
        (json!({"name": "x", "labels": {"a": "-"}}), "metadata.labels[a]"),
        (json!({"name": "x", "annotations": {"Upper.Case/Key": "any thing"}}), ""),
        (json!({"name": "x", "annotations": {"no blanks": ""}}), "metadata.annotations"),
        (json!({"name": "x", "annotations": {"a": "x".repeat(256 * 1024)}}), "metadata.annotations"),
    ];
    for (metadata, field) in table {
        let verdict = check("EndpointSlice", &json!({ "metadata": metadata }));
        let named = verdict.as_slice().first().map_or("", |finding| finding.path.as_str());
        assert_eq!(named, field, "{verdict:?}");
    }
}
