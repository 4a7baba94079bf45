//! The effect of each fault on an object of each kind: the object is gone, is blanked or left out in part, or is unaffected.

use serde_json::{Value as Json, json};

use super::bodies::{Place, all, of};
use super::{Road, SyncerName};
use crate::paused::in_paused_time;

/// Outcome of a bad object.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// All its keys are gone, and it is reported with this text.
    Gone(&'static str),
    /// Keys that contain one of these texts are gone, the others stay; it is reported with the last text.
    Partly(&'static [&'static str], &'static str),
    /// All its keys stay (with the good parts, or as they were), and it is reported with this text.
    Stays(&'static str),
    /// All its keys stay, and nothing is reported: the field is not read, or Calico drops the bad part.
    Fine,
    /// Its keys are gone, and nothing is reported: it is no fault.
    Left,
}
use Then::{Fine, Gone, Left, Partly, Stays};

type Row = (&'static str, Json, Then);

fn run(kind: &str, group: &str, rows: Vec<Row>) {
    let good = of(kind, group);
    let mut failures = Vec::new();
    for place in good.places() {
        in_paused_time(async {
            let mut road = Road::start(&good, *place).await;
            for (pointer, value, then) in &rows {
                let mut body = good.body(2, *place);
                set(&mut body, pointer, value.clone());
                let shown = format!("{place:?} {kind} {pointer} {:.80}", value.to_string());
                road.put(&body.to_string()).await;
                road.check_others(&shown);
                if let Err(failure) = verdict(&road, *then) {
                    failures.push(format!("{shown}: {then:?}: {failure}"));
                }
                road.heal(&shown).await;
            }
        });
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Sets the value at the pointer, also where there was none.
fn set(body: &mut Json, pointer: &str, value: Json) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    let name = name.replace("~1", "/");
    match body.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}")) {
        Json::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        node => node[name] = value,
    }
}

fn verdict(road: &Road, then: Then) -> Result<(), String> {
    let problems = road.problems();
    let (left, own) = (road.left(), &road.own);
    let reported = |part: &str| !problems.is_empty() && problems.iter().all(|problem| problem.contains(part));
    let as_expected = match then {
        Gone(part) => left.is_empty() && reported(part),
        Partly(gone, part) => {
            let stays = |key: &&(SyncerName, String)| !gone.iter().any(|part| key.1.contains(part));
            left == own.iter().filter(stays).collect() && reported(part)
        }
        Stays(part) => left == own.iter().collect() && reported(part),
        Fine => left == own.iter().collect() && problems.is_empty(),
        Left => left.is_empty() && problems.is_empty(),
    };
    if as_expected { Ok(()) } else { Err(format!("left {left:?}, reported {problems:?}")) }
}

/// A text of this length, for names at their limit and beyond.
fn name(length: usize) -> Json {
    "x".repeat(length).into()
}

#[test]
fn metadata_of_wrong_types_costs_an_object_of_any_kind() {
    let mut failures = Vec::new();
    for good in all() {
        for place in good.places() {
            in_paused_time(async {
                let mut road = Road::start(&good, *place).await;
                for (pointer, value, part) in [
                    ("/metadata", json!(7), "metadata"),
                    ("/metadata", json!(["in", "order"]), "metadata"),
                    ("/metadata/labels", json!(["app", "web"]), "labels"),
                    ("/metadata/labels", json!({"app": 7}), "labels"),
                    ("/metadata/labels", json!({"app": {"deep": []}}), "labels"),
                    ("/metadata/annotations", json!("text"), "annotations"),
                    ("/metadata/annotations", json!({"a": true}), "annotations"),
                    ("/metadata/uid", json!(7), "uid"),
                ] {
                    let mut body = good.body(2, *place);
                    set(&mut body, pointer, value);
                    let shown =
                        format!("{place:?} {} {pointer} {}", good.kind, body.pointer(pointer).unwrap_or(&Json::Null));
                    road.put(&body.to_string()).await;
                    road.check_others(&shown);
                    let reason = road.problems().join("; ");
                    // A pod's endpoint is in use already, and unreadable configuration is not unset.
                    let kept = ["Pod", "FelixConfiguration", "ClusterInformation"].contains(&good.kind);
                    if !reason.contains(part) || (!kept && !road.left().is_empty()) {
                        failures.push(format!("{shown}: left {:?}, reported {reason:?}", road.left()));
                    }
                    road.heal(&shown).await;
                }
                // Null counts as missing, unknown fields are ignored, bookkeeping fields are not read.
                for (pointer, value) in [
                    ("/metadata/labels", Json::Null),
                    ("/metadata/annotations", json!({})),
                    ("/metadata/managedFields", json!(7)),
                    ("/metadata/somethingNew", json!({"a": [1, {}]})),
                    ("/somethingNew", json!([[[]]])),
                    ("/kind", json!(7)),
                ] {
                    // Whole objects name their kind.
                    let whole = good.group == "projectcalico.org" || ["Service", "EndpointSlice"].contains(&good.kind);
                    if pointer == "/kind" && whole {
                        continue;
                    }
                    let mut body = good.body(2, *place);
                    set(&mut body, pointer, value);
                    if good.kind == "Node" && pointer == "/metadata/annotations" {
                        continue;
                    }
                    road.put(&body.to_string()).await;
                    let (problems, missing) = (road.problems(), road.own.len() - road.left().len());
                    if missing > 0 || !problems.is_empty() {
                        failures.push(format!(
                            "{place:?} {} {pointer}: {missing} missing, reported {problems:?}",
                            good.kind
                        ));
                    }
                    road.heal(pointer).await;
                }
            });
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn metadata_of_objects_that_agents_get_whole() {
    for kind in [("Service", ""), ("EndpointSlice", "discovery.k8s.io"), ("BGPPeer", "projectcalico.org")] {
        run(
            kind.0,
            kind.1,
            vec![
                ("/metadata/labels", json!({"a b": "c"}), Gone("metadata.labels")),
                ("/metadata/labels", json!({"a": "-"}), Gone("metadata.labels")),
                ("/metadata/labels", json!({"a": name(63)}), Fine),
                ("/metadata/labels", json!({"a": name(64)}), Gone("metadata.labels")),
                ("/metadata/annotations", json!({"no blanks": ""}), Gone("metadata.annotations")),
                ("/metadata/annotations", json!({"a": "x".repeat(256 * 1024 - 1)}), Fine),
                ("/metadata/annotations", json!({"a": "x".repeat(256 * 1024)}), Gone("metadata.annotations")),
                ("/metadata/name", json!("Upper_Case"), Gone("metadata.name")),
                ("/metadata/name", name(253), Fine),
                ("/metadata/name", name(254), Gone("metadata.name")),
                ("/metadata/creationTimestamp", json!("yesterday"), Gone("metadata.creationTimestamp")),
                ("/metadata/creationTimestamp", Json::Null, Fine),
                ("/metadata/generation", json!("7"), Gone("metadata.generation")),
                ("/metadata/ownerReferences", json!({}), Gone("metadata.ownerReferences")),
                ("/metadata/finalizers", json!([7]), Gone("metadata.finalizers")),
            ],
        );
    }
}

#[test]
fn the_metadata_annotation_of_custom_resources() {
    for kind in ["BGPPeer", "NetworkSet", "NetworkPolicy", "Tier", "IPPool", "IPAMBlock", "HostEndpoint"] {
        let good = of(kind, "projectcalico.org");
        in_paused_time(async {
            let mut road = Road::start(&good, Place::CrdV1).await;
            for (text, part) in [
                ("{bad", "projectcalico.org/metadata"),
                ("[]", "projectcalico.org/metadata"),
                ("[\"in\",\"order\"]", "projectcalico.org/metadata"),
                ("{\"labels\":[]}", "projectcalico.org/metadata"),
                ("{\"annotations\":{\"a\":1}}", "projectcalico.org/metadata"),
            ] {
                let mut body = good.body(2, Place::CrdV1);
                body["metadata"]["annotations"] = json!({"projectcalico.org/metadata": text});
                road.put(&body.to_string()).await;
                road.check_others(text);
                let problems = road.problems();
                assert!(road.left().is_empty(), "{kind} {text}: {:?}", road.left());
                assert!(problems.iter().all(|problem| problem.contains(part)), "{kind} {text}: {problems:?}");
                assert!(!problems.is_empty(), "{kind} {text}");
                road.heal(text).await;
            }
            let mut body = good.body(2, Place::CrdV1);
            body["metadata"]["uid"] = "not a uuid".into();
            road.put(&body.to_string()).await;
            assert!(
                road.left().is_empty() && road.problems()[0].contains("not a UUID"),
                "{kind}: {:?}",
                road.problems()
            );
        });
    }
}

#[test]
fn pods() {
    run(
        "Pod",
        "",
        vec![
            ("/spec", json!(7), Stays("spec")),
            ("/spec", json!(["node-a", false, "web"]), Stays("spec")),
            ("/spec/nodeName", json!({}), Stays("spec.nodeName")),
            ("/spec/nodeName", json!(""), Left),
            ("/spec/nodeName", Json::Null, Left),
            ("/spec/hostNetwork", json!("yes"), Stays("spec.hostNetwork")),
            ("/spec/hostNetwork", json!(true), Left),
            ("/spec/hostNetwork", Json::Null, Fine),
            ("/spec/serviceAccountName", json!(["web"]), Stays("spec.serviceAccountName")),
            ("/spec/containers", json!({}), Stays("spec.containers")),
            ("/spec/containers", Json::Null, Fine),
            ("/spec/containers/0", json!("c"), Stays("spec.containers[0]")),
            ("/spec/containers/0", json!([[{"name": "http"}]]), Stays("spec.containers[0]")),
            ("/spec/containers/0/image", json!({"not": "read"}), Fine),
            ("/spec/containers/0/ports", json!("80"), Stays("spec.containers[0].ports")),
            (
                "/spec/containers/0/ports/0/containerPort",
                json!("http"),
                Stays("spec.containers[0].ports[0].containerPort"),
            ),
            ("/spec/containers/0/ports/0/containerPort", json!(80.5), Stays("containerPort")),
            ("/spec/containers/0/ports/0/containerPort", json!(u64::MAX), Stays("containerPort")),
            ("/spec/containers/0/ports/0/containerPort", json!(65_536), Fine),
            ("/spec/containers/0/ports/0/containerPort", json!(-1), Fine),
            ("/spec/containers/0/ports/0/protocol", json!("ICMP"), Fine),
            ("/spec/containers/0/ports/0/name", json!("no blanks"), Gone("no blanks")),
            ("/spec/containers/0/ports/0/name", name(129), Gone("name")),
            ("/spec/volumes", json!("never read"), Fine),
            ("/status", json!([]), Stays("status")),
            ("/status/phase", json!(7), Stays("status.phase")),
            ("/status/phase", json!("Succeeded"), Left),
            ("/status/podIPs", json!("10.65.0.2"), Stays("status.podIPs")),
            ("/status/podIPs", json!([{"ip": "10.65.0.256"}]), Stays("10.65.0.256")),
            ("/status/podIPs", json!([["10.65.0.2"]]), Stays("status.podIPs[0]")),
            ("/status/podIPs", json!([{"ip": "not an address"}]), Stays("not an address")),
            ("/metadata/labels", json!({"any key": "any value is taken as it is"}), Fine),
            ("/metadata/annotations", json!({"cni.projectcalico.org/floatingIPs": "{"}), Stays("floatingIPs")),
            ("/metadata/annotations", json!({"cni.projectcalico.org/floatingIPs": "[1]"}), Stays("floatingIPs")),
            (
                "/metadata/annotations",
                json!({"cni.projectcalico.org/allowedSourcePrefixes": "[\"1.2.3.4\"]"}),
                Stays("1.2.3.4"),
            ),
            ("/metadata/annotations", json!({"qos.projectcalico.org/ingressBandwidth": "a lot"}), Fine),
            ("/metadata/annotations", json!({"qos.projectcalico.org/dscp": "99"}), Fine),
            ("/metadata/annotations", json!({"anything": "x".repeat(1 << 20)}), Fine),
        ],
    );
}

#[test]
fn namespaces_and_service_accounts() {
    for kind in ["Namespace", "ServiceAccount"] {
        run(
            kind,
            "",
            vec![
                ("/metadata/uid", json!(""), Gone("metadata.uid")),
                ("/metadata/uid", json!("zzz"), Gone("metadata.uid")),
                ("/metadata/uid", Json::Null, Gone("metadata.uid")),
                ("/metadata/creationTimestamp", json!("yesterday"), Gone("creationTimestamp")),
                ("/metadata/creationTimestamp", json!(7), Gone("creationTimestamp")),
                ("/metadata/labels", json!({"": "x"}), Partly(&["resources/v3"], "labelsToApply")),
                ("/metadata/labels", json!({"a b": "x"}), Partly(&["resources/v3"], "labelsToApply")),
                ("/spec", json!("never read"), Fine),
                ("/status", json!([[]]), Fine),
            ],
        );
    }
}

#[test]
fn nodes() {
    let annotation =
        |name: &str, value: &str| (format!("/metadata/annotations/projectcalico.org~1{name}"), json!(value));
    let mut rows: Vec<Row> = vec![
        ("/spec", json!("x"), Gone("spec")),
        ("/spec/podCIDR", json!(["10.244.2.0/24"]), Gone("spec.podCIDR")),
        ("/spec/podCIDRs", json!("10.244.2.0/24"), Gone("spec.podCIDRs")),
        ("/spec/podCIDRs", json!([7]), Gone("spec.podCIDRs[0]")),
        ("/status/addresses", json!({}), Gone("status.addresses")),
        ("/status/addresses/0", json!(["InternalIP", "10.0.0.2"]), Gone("status.addresses[0]")),
        ("/status/addresses/0/address", json!(7), Gone("status.addresses[0].address")),
        ("/status/images", json!("never read"), Fine),
    ];
    for (name, value, then) in [
        ("labels", "{", Fine),
        ("labels", "[]", Fine),
        ("labels", "{\"a\":1}", Fine),
        ("annotations", "7", Fine),
        ("IPv4Address", "10.0.0.256", Fine),
        ("IPv4Address", "fd00::1", Fine),
        ("IPv4IPIPTunnelAddr", "junk", Partly(&["IpInIpTunnelAddr"], "")),
        (
            "IPv4IPIPTunnelAddr",
            "10.65.1.2/32",
            Partly(&["resources/v3", "IpInIpTunnelAddr"], "spec.bgp.ipv4IPIPTunnelAddr"),
        ),
        ("IPv4VXLANTunnelAddr", "junk", Partly(&["IPv4VXLANTunnelAddr"], "")),
        ("IPv4VXLANTunnelAddr", "10.65.2.2/24", Partly(&["IPv4VXLANTunnelAddr"], "")),
        (
            "IPv4VXLANTunnelAddr",
            "10.65.2.2/32",
            Partly(&["resources/v3", "IPv4VXLANTunnelAddr"], "spec.ipv4VXLANTunnelAddr"),
        ),
        ("VXLANTunnelMACAddr", "66:aa", Partly(&["VXLANTunnelMACAddr"], "")),
        ("ASNumber", "many", Fine),
        ("RouteReflectorClusterID", "x", Fine),
        ("RouteReflectorClusterID", "1.0.0.1/32", Partly(&["resources/v3"], "routeReflectorClusterID")),
        ("Interfaces", "[{\"addresses\":[7]}]", Fine),
        ("Interfaces", "{", Fine),
        ("WireguardPublicKey", "short", Partly(&["resources/v3"], "wireguard")),
    ] {
        let (pointer, value) = annotation(name, value);
        rows.push((String::leak(pointer), value, then));
    }
    // The address is absent rather than bad: no report, and only its key is gone.
    let (tunnel, rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| matches!(row.2, Partly(_, "")));
    run("Node", "", rows);
    let good = of("Node", "");
    in_paused_time(async {
        let mut road = Road::start(&good, Place::Native).await;
        for (pointer, value, then) in tunnel {
            let Partly([setting], _) = then else { panic!("one setting: {then:?}") };
            let mut body = good.body(2, Place::Native);
            set(&mut body, pointer, value);
            road.put(&body.to_string()).await;
            road.check_others(pointer);
            let gone: Vec<_> = road.own.iter().filter(|key| !road.view.contains_key(*key)).collect();
            assert!(matches!(gone[..], [(_, key)] if key.ends_with(setting)), "{gone:?}");
            assert_eq!(road.problems(), [""; 0]);
        }
    });
}

#[test]
fn network_policies_of_kubernetes() {
    for (kind, group) in
        [("NetworkPolicy", "networking.k8s.io"), ("StagedKubernetesNetworkPolicy", "projectcalico.org")]
    {
        // A staged policy with a bad port in a rule is not sent at all.
        let ports = if kind == "NetworkPolicy" { Stays("spec.ingress[0]") } else { Gone("spec.ingress[0]") };
        run(
            kind,
            group,
            vec![
                ("/spec", json!([]), Gone("spec")),
                ("/spec/podSelector", json!("app == 'db'"), Gone("spec.podSelector")),
                ("/spec/podSelector", json!([{"app": "db"}]), Gone("spec.podSelector")),
                ("/spec/podSelector/matchLabels", json!({"a": 7}), Gone("spec.podSelector.matchLabels")),
                ("/spec/podSelector/matchExpressions", json!({}), Gone("matchExpressions")),
                ("/spec/podSelector/matchExpressions/0", json!(["tier", "In", ["a"]]), Gone("matchExpressions[0]")),
                ("/spec/podSelector/matchLabels", json!({"a": "it's"}), Gone("selector")),
                ("/spec/podSelector/matchLabels", json!({"no blanks": "b"}), Gone("selector")),
                ("/spec/policyTypes", json!("Ingress"), Gone("spec.policyTypes")),
                ("/spec/ingress", json!({}), Gone("spec.ingress")),
                ("/spec/ingress", Json::Null, Fine),
                ("/spec/ingress/0", json!(7), Gone("spec.ingress[0]")),
                ("/spec/ingress/0/from", json!("all"), Gone("spec.ingress[0].from")),
                ("/spec/ingress/0/ports/0", json!([["TCP", 80]]), Gone("spec.ingress[0].ports[0]")),
                ("/spec/ingress/0/ports/0/port", json!(80.5), Gone("spec.ingress[0].ports[0].port")),
                ("/spec/ingress/0/ports/0/port", json!(70_000), ports),
                // Calico takes this as the name of a port, which validation then refuses.
                ("/spec/ingress/0/ports/0/port", json!(-1), Gone("dst_ports")),
                ("/spec/ingress/0/ports/0/endPort", json!(7), ports),
                ("/spec/ingress/0/ports/0/protocol", json!("HTTP"), Gone("protocol")),
                ("/spec/ingress/1/from/0/ipBlock/cidr", json!("10.0.0.0/33"), Stays("10.0.0.0/33")),
                ("/spec/ingress/1/from/0/ipBlock/except", json!(["junk"]), Stays("junk")),
                ("/spec/ingress/1/from/0/ipBlock/except", json!("10.1.0.0/16"), Gone("except")),
            ],
        );
    }
}

#[test]
fn cluster_network_policies() {
    run(
        "ClusterNetworkPolicy",
        "policy.networking.k8s.io",
        vec![
            ("/spec", json!([]), Gone("spec")),
            ("/spec/tier", json!("Middle"), Left),
            ("/spec/tier", json!(7), Gone("spec.tier")),
            ("/spec/priority", json!("high"), Gone("spec.priority")),
            ("/spec/priority", json!(1_i64 << 40), Gone("spec.priority")),
            ("/spec/subject", json!({}), Left),
            ("/spec/subject", json!([{}]), Gone("spec.subject")),
            ("/spec/subject/namespaces/matchLabels", json!(["env"]), Gone("matchLabels")),
            ("/spec/ingress", json!({"0": {}}), Gone("spec.ingress")),
            ("/spec/ingress/0/action", json!("Shrug"), Stays("Shrug")),
            ("/spec/ingress/0/from/0", json!({"somethingNew": {}}), Stays("spec.ingress[0]")),
            ("/spec/ingress/0/protocols/0", json!({"tcp": {"destinationPort": {"number": 0}}}), Fine),
            (
                "/spec/ingress/0/protocols/0",
                json!({"tcp": {"destinationPort": {"range": {"start": 2, "end": 1}}}}),
                Stays("spec.ingress[0]"),
            ),
            (
                "/spec/ingress/0/protocols/0",
                json!({"tcp": {"destinationPort": {"range": {"start": 0, "end": 1}}}}),
                Gone("inbound_rules[0]"),
            ),
            ("/spec/ingress/0/protocols/0", json!({}), Fine),
            ("/spec/ingress/0/protocols/0", json!({"destinationNamedPort": "80"}), Gone("inbound_rules[0]")),
            ("/spec/egress/0/to", json!([]), Fine),
            ("/spec/ingress/0/protocols/0", json!({"tcp": [{"number": 80}]}), Gone("spec.ingress[0].protocols[0].tcp")),
            ("/spec/egress/0/to/0/networks", json!(["192.0.2.0/33"]), Stays("192.0.2.0/33")),
            ("/spec/egress/0/to/0/networks", json!("192.0.2.0/24"), Gone("networks")),
        ],
    );
}

#[test]
fn services_and_endpoint_slices() {
    run(
        "Service",
        "",
        vec![
            ("/spec", json!(7), Gone("spec")),
            ("/spec/ports", json!({}), Gone("spec.ports")),
            ("/spec/ports/0", json!(["dns", 53]), Gone("spec.ports[0]")),
            ("/spec/ports/0/port", json!("53"), Gone("spec.ports[0].port")),
            ("/spec/ports/0/port", json!(1_u64 << 40), Gone("spec.ports[0].port")),
            ("/spec/ports/0/targetPort", json!({}), Gone("spec.ports[0].targetPort")),
            ("/spec/ports/0/targetPort", json!(1_u64 << 40), Gone("spec.ports[0].targetPort")),
            ("/spec/selector", json!({"a": 1}), Gone("spec.selector")),
            ("/spec/clusterIP", json!("not checked here"), Fine),
            ("/spec/clusterIPs", json!("10.96.0.10"), Gone("spec.clusterIPs")),
            ("/spec/somethingNew", json!({"a": 1}), Fine),
            ("/status", json!("x"), Gone("status")),
            ("/status", Json::Null, Fine),
        ],
    );
    run(
        "EndpointSlice",
        "discovery.k8s.io",
        vec![
            ("/endpoints", json!({}), Gone("endpoints")),
            ("/endpoints", Json::Null, Fine),
            ("/endpoints/0", json!(["10.65.0.5"]), Gone("endpoints[0]")),
            ("/endpoints/0/addresses", json!("10.65.0.5"), Gone("endpoints[0].addresses")),
            ("/endpoints/0/conditions/ready", json!("true"), Gone("endpoints[0].conditions.ready")),
            ("/ports", json!([{"port": "http"}]), Gone("ports[0].port")),
            ("/addressType", json!(4), Gone("addressType")),
            ("/addressType", json!("IPv7"), Fine),
        ],
    );
}

#[test]
fn live_migrations() {
    run(
        "VirtualMachineInstanceMigration",
        "kubevirt.io",
        vec![
            ("/spec", json!([{"vmiName": "x"}]), Gone("spec")),
            ("/spec/vmiName", json!(7), Gone("spec.vmiName")),
            ("/spec/vmiName", json!(""), Left),
            ("/spec/vmiName", json!("it's"), Fine),
            ("/status/phase", json!("Pending"), Left),
            ("/status/phase", json!({}), Gone("status.phase")),
            ("/status/migrationState", json!(["p"]), Gone("status.migrationState")),
            ("/status/migrationState", Json::Null, Fine),
            ("/metadata/uid", json!(""), Left),
            ("/metadata/creationTimestamp", json!("yesterday"), Gone("creationTimestamp")),
        ],
    );
}

#[test]
fn policies_of_calico() {
    for kind in ["GlobalNetworkPolicy", "NetworkPolicy", "StagedGlobalNetworkPolicy", "StagedNetworkPolicy"] {
        run(
            kind,
            "projectcalico.org",
            vec![
                ("/spec", json!([]), Gone("spec")),
                ("/spec/order", json!("first"), Gone("spec.order")),
                ("/spec/selector", json!(["a"]), Gone("spec.selector")),
                ("/spec/selector", json!("a == "), Gone("selector")),
                ("/spec/selector", json!(format!("a == '{}'", "x".repeat(100_000))), Fine),
                ("/spec/types", json!("Ingress"), Gone("spec.types")),
                ("/spec/ingress", json!({}), Gone("spec.ingress")),
                ("/spec/ingress/0", json!(["Allow"]), Gone("spec.ingress[0]")),
                ("/spec/ingress/0/source", json!(["10.0.0.0/8"]), Gone("spec.ingress[0].source")),
                ("/spec/ingress/0/source/nets", json!("10.0.0.0/8"), Gone("spec.ingress[0].source.nets")),
                ("/spec/ingress/0/source/nets", json!(["junk"]), Fine),
                ("/spec/ingress/0/source/selector", json!("a =="), Gone("selector")),
                ("/spec/ingress/0/source/namespaceSelector", json!("a in {"), Gone("selector")),
                ("/spec/ingress/0/source/serviceAccounts", json!({"selector": "=="}), Gone("selector")),
                ("/spec/ingress/0/destination/ports", json!([0]), Gone("port")),
                ("/spec/ingress/0/destination/ports", json!([65_536]), Gone("port")),
                ("/spec/ingress/0/destination/ports", json!(["9:1"]), Gone("9:1")),
                ("/spec/ingress/0/destination/ports", json!(["HTTP_ALT"]), Gone("HTTP_ALT")),
                ("/spec/ingress/0/destination/ports", json!([{}]), Gone("spec.ingress[0].destination.ports[0]")),
                ("/spec/ingress/0/protocol", json!("NOPE"), Gone("protocol")),
                ("/spec/ingress/0/protocol", json!(256), Gone("protocol")),
                ("/spec/ingress/0/protocol", json!("ICMP"), Gone("port")),
                ("/spec/ingress/0/protocol", Json::Null, Gone("port")),
                ("/spec/ingress/0/ipVersion", json!(5), Gone("ip_version")),
                ("/spec/ingress/0/icmp", json!({"type": 255}), Gone("icmp_type")),
                ("/spec/ingress/0/icmp", json!([8]), Gone("spec.ingress[0].icmp")),
                ("/spec/ingress/0/action", json!("Shrug"), Fine),
                ("/spec/performanceHints", json!(["Maybe"]), Gone("performance_hints")),
                ("/spec/somethingNew", json!({}), Fine),
            ],
        );
    }
}

#[test]
fn sets_pools_tiers_and_host_endpoints() {
    for kind in ["NetworkSet", "GlobalNetworkSet"] {
        run(
            kind,
            "projectcalico.org",
            vec![
                ("/spec", json!(7), Gone("spec")),
                ("/spec/nets", json!("10.0.0.0/8"), Gone("spec.nets")),
                ("/spec/nets", json!([7]), Gone("spec.nets[0]")),
                ("/spec/nets", json!(["junk", "10.0.0.0/33"]), Fine),
                ("/spec/nets", Json::Null, Fine),
                ("/metadata/labels", json!({"any key": "any value"}), Fine),
            ],
        );
    }
    run(
        "IPPool",
        "projectcalico.org",
        vec![
            ("/spec/cidr", json!(""), Gone("spec.cidr")),
            ("/spec/cidr", json!("10.62.0.0/33"), Gone("10.62.0.0/33")),
            ("/spec/cidr", json!("10.62.0.0"), Gone("spec.cidr")),
            ("/spec/cidr", json!(["10.62.0.0/16"]), Gone("spec.cidr")),
            ("/spec/cidr", json!("10.62.3.4/16"), Fine),
            ("/spec/natOutgoing", json!("yes"), Gone("spec.natOutgoing")),
            ("/spec/ipipMode", json!(7), Gone("spec.ipipMode")),
            ("/spec/ipipMode", json!("Sometimes"), Fine),
            ("/spec/allowedUses", json!("Workload"), Gone("spec.allowedUses")),
        ],
    );
    run(
        "Tier",
        "projectcalico.org",
        vec![
            ("/spec/order", json!("high"), Gone("spec.order")),
            ("/spec/order", Json::Null, Fine),
            ("/spec/order", json!(1e300), Fine),
            ("/spec/defaultAction", json!("Maybe"), Fine),
            ("/spec/defaultAction", json!([]), Gone("spec.defaultAction")),
            ("/spec", json!([100, "Pass"]), Gone("spec")),
        ],
    );
    run(
        "HostEndpoint",
        "projectcalico.org",
        vec![
            ("/spec/node", json!(""), Gone("spec.node")),
            ("/spec/node", json!(7), Gone("spec.node")),
            ("/spec/interfaceName", json!("sixteencharacter"), Gone("name")),
            ("/spec/interfaceName", json!("fifteencharacte"), Fine),
            ("/spec/interfaceName", json!("no blanks"), Gone("name")),
            ("/spec/expectedIPs", json!("10.0.0.2"), Gone("spec.expectedIPs")),
            ("/spec/expectedIPs", json!(["junk"]), Fine),
            ("/spec/profiles", json!(["no blanks"]), Gone("profile")),
            ("/spec/profiles", json!([name(128)]), Fine),
            ("/spec/profiles", json!([name(129)]), Gone("profile")),
            ("/spec/ports/0", json!(["ssh", "TCP", 22]), Gone("spec.ports[0]")),
            ("/spec/ports/0/port", json!(65_536), Gone("spec.ports[0].port")),
            ("/spec/ports/0/port", json!(0), Gone("port")),
            ("/spec/ports/0/protocol", json!("ICMP"), Gone("protocol")),
            ("/spec/ports/0/protocol", json!(6), Gone("protocol")),
            ("/spec/ports/0/protocol", json!("6"), Gone("protocol")),
        ],
    );
}

#[test]
fn address_management() {
    run(
        "IPAMBlock",
        "projectcalico.org",
        vec![
            ("/spec", json!(["10.65.2.0/30"]), Gone("spec")),
            ("/spec/cidr", json!("10.65.2.0"), Gone("spec.cidr")),
            ("/spec/cidr", json!("junk/30"), Gone("junk/30")),
            ("/spec/cidr", json!(7), Gone("spec.cidr")),
            ("/spec/allocations", json!({}), Gone("spec.allocations")),
            ("/spec/allocations", json!(["0"]), Gone("spec.allocations[0]")),
            ("/spec/allocations", Json::Null, Fine),
            ("/spec/attributes/0", json!(["h"]), Gone("spec.attributes[0]")),
            ("/spec/attributes/0/secondary", json!(["pod"]), Gone("spec.attributes[0].secondary")),
            ("/spec/sequenceNumber", json!(-1), Gone("spec.sequenceNumber")),
            ("/spec/sequenceNumberForAllocation", json!({"0": "15"}), Gone("spec.sequenceNumberForAllocation")),
            ("/spec/deleted", json!("false"), Gone("spec.deleted")),
            ("/spec/affinityClaimTime", json!("yesterday"), Gone("yesterday")),
        ],
    );
    run(
        "BlockAffinity",
        "projectcalico.org",
        vec![
            ("/spec", json!(["confirmed"]), Gone("spec")),
            ("/spec/cidr", json!(""), Gone("spec.cidr")),
            ("/spec/cidr", json!("10.65.2.0/99"), Gone("10.65.2.0/99")),
            ("/spec/state", json!(7), Gone("spec.state")),
            ("/spec/deleted", json!({}), Gone("spec.deleted")),
            ("/spec/deleted", json!("no idea"), Fine),
            ("/spec/deleted", json!(false), Fine),
        ],
    );
}

#[test]
fn bgp_and_configuration() {
    run(
        "BGPPeer",
        "projectcalico.org",
        vec![
            ("/spec/peerIP", json!("192.168.1.256"), Gone("spec.peerIP")),
            ("/spec/peerIP", json!("192.168.1.1:0"), Gone("spec.peerIP")),
            ("/spec/peerIP", json!(7), Gone("spec.peerIP")),
            ("/spec/asNumber", json!("1.2.3"), Gone("spec.asNumber")),
            ("/spec/asNumber", json!(1_u64 << 32), Gone("spec.asNumber")),
            ("/spec/asNumber", json!(-1), Gone("spec.asNumber")),
            ("/spec/nodeSelector", json!("rack =="), Gone("spec.nodeSelector")),
            ("/spec/filters", json!(["Bad_Name"]), Gone("spec.filters[0]")),
            ("/spec/filters", json!({}), Gone("spec.filters")),
        ],
    );
    run(
        "BGPConfiguration",
        "projectcalico.org",
        vec![
            ("/spec/listenPort", json!(65_536), Gone("spec.listenPort")),
            ("/spec/nodeMeshMaxRestartTime", json!("soon"), Gone("spec.nodeMeshMaxRestartTime")),
            ("/spec/communities/0/value", json!("1:70000"), Gone("spec.communities[0].value")),
            ("/spec/communities/0", json!(["c1", "1:2"]), Gone("spec.communities[0]")),
            ("/spec/prefixAdvertisements/0/communities", json!([]), Fine),
            ("/spec/prefixAdvertisements/0/communities", Json::Null, Gone("communities")),
            ("/spec/prefixAdvertisements/0/communities", json!(["c2"]), Gone("communities[0]")),
            ("/spec/serviceClusterIPs/0/cidr", json!("10.96.0.1/12"), Gone("spec.serviceClusterIPs[0].cidr")),
        ],
    );
    run(
        "BGPFilter",
        "projectcalico.org",
        vec![
            ("/spec/exportV4/0/cidr", json!("fd00::/8"), Gone("spec.exportV4[0].cidr")),
            ("/spec/exportV4/0/prefixLength/max", json!(33), Gone("prefixLength.max")),
            ("/spec/exportV4/0/prefixLength", json!([16, 24]), Gone("spec.exportV4[0].prefixLength")),
            ("/spec/exportV4/0/action", json!(""), Gone("spec.exportV4[0]")),
            ("/spec/exportV4", json!({}), Gone("spec.exportV4")),
        ],
    );
    run(
        "CalicoNodeStatus",
        "projectcalico.org",
        vec![
            ("/spec/classes", json!([]), Fine),
            ("/spec/classes", Json::Null, Gone("spec.classes")),
            ("/spec/classes", json!(["BGP", "BGP"]), Gone("spec.classes[1]")),
            ("/spec/updatePeriodSeconds", json!(86_401), Gone("spec.updatePeriodSeconds")),
            ("/spec/updatePeriodSeconds", json!("10"), Gone("spec.updatePeriodSeconds")),
            ("/status/agent", json!([]), Gone("status.agent")),
        ],
    );
    // Named neither `default` nor after a node, so that agents get it whole and validation checks every field.
    run(
        "FelixConfiguration",
        "projectcalico.org",
        vec![
            ("/spec/vxlanPort", json!("4789"), Stays("spec.vxlanPort")),
            ("/spec/debugPort", json!(70_000), Gone("spec.debugPort")),
            ("/spec/iptablesRefreshInterval", json!("soon"), Stays("spec.iptablesRefreshInterval")),
            ("/spec/failsafeInboundHostPorts/0/protocol", json!("tcp"), Fine),
            ("/spec/natPortRange", json!("0:100"), Gone("spec.natPortRange")),
            ("/spec/bpfJITHardening", json!(""), Gone("spec.bpfJITHardening")),
            ("/spec/routeTableRanges/0/min", json!(-1), Gone("routeTableRanges[0]")),
            ("/spec/kubeNodePortRanges", json!(["web"]), Gone("spec.kubeNodePortRanges[0]")),
            ("/spec/externalNodesList", json!(["fd00::/8"]), Gone("spec.externalNodesList[0]")),
        ],
    );
}
