//! The content of an `EndpointSlice` about the servers of a service: which of them take connections, their addresses and zones.
//!
//! Fed with the JSON of a slice by [`super`]; the result is grouped into [`Replica`](super::Replica)s there. Only IP addresses count
//! (Kubernetes has given up `FQDN` slices), and of each endpoint only the first, as the API defines it.
//!
//! Invariants: an endpoint that is terminating or says that it is not ready takes no connections (saying nothing counts as
//! ready); a port without a number, of another protocol or of another name is not ours; no JSON
//! makes this panic.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// The names by which our endpoints are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace of the service.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name of the port that agents connect to.
    pub port_name: String,
}

impl Service {
    /// The label that ties a slice to its service.
    pub const LABEL: &str = "kubernetes.io/service-name";
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One endpoint that takes connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) identity: Identity,
    pub(super) node: Option<String>,
    pub(super) zone: Option<String>,
    /// Zones whose clients should come here, as the control plane advises.
    pub(super) for_zones: Vec<String>,
}

/// The sign by which endpoints of one replica, one per address family, belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Identity {
    /// The object behind it by its UID, or by name where there is none.
    Target(String),
    /// The host name that it was given; unique within a service.
    Hostname(String),
    /// Only the node is known.
    Node(String),
    /// Nothing is known.
    Address(SocketAddr),
}

/// The reason why a slice cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}; it counts as absent")]
pub struct Unreadable(#[from] serde_json::Error);

#[derive(Deserialize)]
struct Slice {
    metadata: Option<Metadata>,
    #[serde(rename = "addressType")]
    address_type: Option<String>,
    endpoints: Option<Vec<RawEndpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Metadata {
    labels: Option<std::collections::HashMap<String, String>>,
}

#[derive(Deserialize)]
struct RawEndpoint {
    addresses: Option<Vec<String>>,
    conditions: Option<Conditions>,
    hostname: Option<String>,
    #[serde(rename = "targetRef")]
    target: Option<Target>,
    #[serde(rename = "nodeName")]
    node: Option<String>,
    zone: Option<String>,
    hints: Option<Hints>,
}

#[derive(Deserialize, Default)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
struct Hints {
    #[serde(rename = "forZones")]
    for_zones: Option<Vec<ForZone>>,
}

#[derive(Deserialize)]
struct ForZone {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i64>,
}

/// The endpoints of a slice that take connections for the service. Empty for slices of other services; the namespace is the
/// caller's to look at.
///
/// # Errors
/// The JSON is not that of a slice.
pub(super) fn read(body: &[u8], service: &Service) -> Result<Vec<Endpoint>, Unreadable> {
    let slice: Slice = serde_json::from_slice(body)?;
    let labels = slice.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
    let is_ip = matches!(slice.address_type.as_deref(), Some("IPv4" | "IPv6"));
    if labels.get(Service::LABEL) != Some(&service.name) || !is_ip {
        return Ok(Vec::new());
    }
    let Some(port) = slice.ports.iter().flatten().find_map(|port| number(port, &service.port_name)) else {
        return Ok(Vec::new());
    };
    Ok(slice.endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.usable(port)).collect())
}

fn number(port: &Port, wanted: &str) -> Option<u16> {
    let tcp = port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let named = port.name.as_deref().unwrap_or_default() == wanted;
    port.port.filter(|_| tcp && named).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

impl RawEndpoint {
    fn usable(self, port: u16) -> Option<Endpoint> {
        let conditions = self.conditions.unwrap_or_default();
        if conditions.ready == Some(false) || conditions.terminating == Some(true) {
            return None;
        }
        let ip: IpAddr = self.addresses?.first()?.parse().ok()?;
        let address = SocketAddr::new(ip.to_canonical(), port);
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let node = given(self.node);
        let identity = self
            .target
            .and_then(Target::identity)
            .or_else(|| given(self.hostname).map(Identity::Hostname))
            .or_else(|| node.clone().map(Identity::Node))
            .unwrap_or(Identity::Address(address));
        let for_zones = self.hints.and_then(|hints| hints.for_zones).into_iter().flatten();
        Some(Endpoint {
            address,
            identity,
            node,
            zone: given(self.zone),
            for_zones: for_zones.filter_map(|zone| given(zone.name)).collect(),
        })
    }
}

impl Target {
    fn identity(self) -> Option<Identity> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        given(self.uid).map(Identity::Target).or_else(|| {
            let (kind, namespace) = (self.kind.unwrap_or_default(), self.namespace.unwrap_or_default());
            given(self.name).map(|name| Identity::Target(format!("{kind}/{namespace}/{name}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn service() -> Service {
        Service { namespace: "kube-system".into(), name: "calico-typha".into(), port_name: "calico-typha".into() }
    }

    fn slice(endpoints: Value) -> Value {
        json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "calico-typha"}},
            "addressType": "IPv4",
            "ports": [
                {"name": "metrics", "port": 9091, "protocol": "TCP"},
                {"name": "calico-typha", "port": 5473, "protocol": "TCP"},
            ],
            "endpoints": endpoints,
        })
    }

    fn addresses(slice: &Value) -> Vec<String> {
        let read = read(slice.to_string().as_bytes(), &service()).expect("a slice");
        read.iter().map(|endpoint| endpoint.address.to_string()).collect()
    }

    #[test]
    fn only_endpoints_that_take_connections_count() {
        let endpoint =
            |last: u8, conditions: Value| json!({"addresses": [format!("10.0.0.{last}")], "conditions": conditions});
        let slice = slice(json!([
            endpoint(1, json!({"ready": true})),
            endpoint(2, json!({"ready": false})),
            endpoint(3, json!({})),
            endpoint(4, Value::Null),
            endpoint(5, json!({"ready": true, "terminating": true, "serving": true})),
            endpoint(6, json!({"ready": null, "terminating": false})),
            {"addresses": []},
            {"addresses": ["a.name"]},
            {"addresses": ["10.0.0.7", "10.0.0.8"]},
        ]));
        assert_eq!(
            addresses(&slice),
            ["10.0.0.1:5473", "10.0.0.3:5473", "10.0.0.4:5473", "10.0.0.6:5473", "10.0.0.7:5473"]
        );
    }

    #[test]
    fn label_port_and_address_type_decide_whether_a_slice_is_ours() {
        let ours = slice(json!([{"addresses": ["10.0.0.1"]}]));
        assert_eq!(addresses(&ours).len(), 1);
        for (pointer, value) in [
            ("/metadata/labels/kubernetes.io~1service-name", json!("another")),
            ("/metadata/labels", Value::Null),
            ("/metadata", Value::Null),
            ("/addressType", json!("FQDN")),
            ("/addressType", Value::Null),
            ("/ports", Value::Null),
            ("/ports/1/name", json!("other")),
            ("/ports/1/name", Value::Null),
            ("/ports/1/port", Value::Null),
            ("/ports/1/port", json!(0)),
            ("/ports/1/port", json!(70_000)),
            ("/ports/1/protocol", json!("UDP")),
            ("/endpoints", Value::Null),
        ] {
            let mut other = ours.clone();
            *other.pointer_mut(pointer).expect("it is there") = value.clone();
            assert_eq!(addresses(&other), [""; 0], "{pointer} = {value}");
        }
        let mut unnamed = ours.clone();
        unnamed["ports"][1]["protocol"] = Value::Null;
        assert_eq!(addresses(&unnamed).len(), 1, "no protocol means TCP");
    }

    #[test]
    fn identity_is_the_best_that_is_known() {
        let endpoint = json!({
            "addresses": ["fd00::1"], "hostname": "h", "nodeName": "n", "zone": "z",
            "hints": {"forZones": [{"name": "y"}, {"name": ""}, {}]},
            "targetRef": {"kind": "Pod", "namespace": "s", "name": "p", "uid": "u"},
        });
        let identity = |without: &[&str]| {
            let mut endpoint = endpoint.clone();
            for pointer in without {
                *endpoint.pointer_mut(pointer).expect("it is there") = Value::Null;
            }
            let mut slice = slice(json!([endpoint]));
            slice["addressType"] = json!("IPv6");
            let mut read = read(slice.to_string().as_bytes(), &service()).expect("a slice");
            let endpoint = read.remove(0);
            assert_eq!(endpoint.address.to_string(), "[fd00::1]:5473");
            assert_eq!((endpoint.zone.as_deref(), endpoint.for_zones), (Some("z"), vec!["y".to_owned()]));
            endpoint.identity
        };
        assert_eq!(identity(&[]), Identity::Target("u".into()));
        assert_eq!(identity(&["/targetRef/uid"]), Identity::Target("Pod/s/p".into()));
        assert_eq!(identity(&["/targetRef"]), Identity::Hostname("h".into()));
        assert_eq!(identity(&["/targetRef", "/hostname"]), Identity::Node("n".into()));
        let nothing = identity(&["/targetRef", "/hostname", "/nodeName"]);
        assert_eq!(nothing, Identity::Address("[fd00::1]:5473".parse().expect("an address")));
    }

    #[test]
    fn what_is_no_slice_is_refused_in_words() {
        for body in ["", "{", "[]", "7", r#"{"endpoints": 3}"#, r#"{"ports": [{"port": "x"}]}"#] {
            let error = read(body.as_bytes(), &service()).expect_err(body).to_string();
            assert!(error.ends_with("it counts as absent"), "{error}");
        }
        assert_eq!(read(b"{}", &service()).expect("an empty slice"), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&body, &service());
        }
    }
}
