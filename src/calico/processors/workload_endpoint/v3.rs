//! Calico's own `WorkloadEndpoint` resources, as CNI plugins and OpenStack write them.

use std::net::IpAddr;

use serde::Deserialize;

use super::super::rejected_or_raw;
use super::super::rules::SERVICE_ACCOUNT_LABEL;
use super::RESERVED_LABEL_PREFIXES;
use crate::calico::net;
use crate::calico::numorstring::Protocol;
use crate::calico::v1::Net;
use crate::calico::v1::endpoint::{EndpointPort, IpNat, Mac, QosControls, WorkloadEndpoint};
use crate::calico::v1::meta::{Body, Meta};
use crate::calico::v1::text::{Text, TextMap};
use crate::calico::validate::rules;
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::ConvertError;

/// Parts of an endpoint's name: node, orchestrator, workload, endpoint.
const NAME_PARTS: usize = 4;

/// The key of an endpoint from its name: four parts joined by `-`, dashes within a part doubled.
pub(super) fn key(id: &ObjectId) -> Option<Key> {
    if id.namespace.is_empty() {
        return None;
    }
    let parts = name_parts(&id.name)?;
    let [node, orchestrator, workload, endpoint] = &parts;
    Some(super::key(node, orchestrator, &id.namespace, workload, endpoint))
}

fn name_parts(name: &str) -> Option<[String; NAME_PARTS]> {
    let mut parts: [String; NAME_PARTS] = Default::default();
    let mut at = 0;
    let mut rest = name;
    while let Some(dash) = rest.find('-') {
        parts[at].push_str(&rest[..dash]);
        rest = &rest[dash + 1..];
        if let Some(after) = rest.strip_prefix('-') {
            parts[at].push('-');
            rest = after;
        } else {
            at += 1;
            if at == NAME_PARTS {
                return None;
            }
        }
    }
    parts[at].push_str(rest);
    (at + 1 == NAME_PARTS && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// All fields of Calico's type, because a wrong type in any of them makes the object unreadable.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Spec<'a> {
    #[serde(rename = "orchestrator")]
    _orchestrator: Text<'a>,
    #[serde(rename = "workload")]
    _workload: Text<'a>,
    #[serde(rename = "node")]
    _node: Text<'a>,
    #[serde(rename = "containerID")]
    _container_id: Text<'a>,
    #[serde(rename = "pod")]
    _pod: Text<'a>,
    #[serde(rename = "endpoint")]
    _endpoint: Text<'a>,
    pub(super) service_account_name: Text<'a>,
    ip_networks: Vec<Text<'a>>,
    #[serde(rename = "ipNATs")]
    ip_nats: Vec<Nat<'a>>,
    ipv4_gateway: Text<'a>,
    ipv6_gateway: Text<'a>,
    profiles: Option<Vec<Text<'a>>>,
    interface_name: Text<'a>,
    mac: Text<'a>,
    ports: Vec<Port<'a>>,
    allow_spoofed_source_prefixes: Vec<Text<'a>>,
    qos_controls: Option<QosControls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Nat<'a> {
    #[serde(rename = "internalIP")]
    internal_ip: Text<'a>,
    #[serde(rename = "externalIP")]
    external_ip: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Port<'a> {
    name: Text<'a>,
    protocol: Option<Protocol>,
    port: u16,
    #[serde(rename = "hostPort")]
    _host_port: u16,
    #[serde(rename = "hostIP")]
    _host_ip: Text<'a>,
}

/// The value of a stored endpoint. `None`: it has no networks yet, so agents could make no rules for it.
pub(super) fn convert(object: &Object) -> Result<Option<Value>, ConvertError> {
    gojson::parse_with(&object.body, |body| {
        let body: Body<'_, Spec<'_>> = gojson::from_str(body)?;
        let (meta, spec) = (body.meta(object.dialect)?, body.spec);
        if spec.ip_networks.is_empty() {
            return Ok(None);
        }
        let endpoint = endpoint(meta, spec).map_err(ConvertError::new)?;
        let checked = rules::endpoint::workload_endpoint(&endpoint);
        Ok(Some(rejected_or_raw(gojson::to_bytes(&endpoint), checked)))
    })
}

fn endpoint<'a>(meta: Meta<'a>, spec: Spec<'a>) -> Result<WorkloadEndpoint<'a>, String> {
    let mut nets = Nets::default();
    for (at, text) in spec.ip_networks.iter().enumerate() {
        let net = net::parse_net(text)
            .ok_or_else(|| format!("spec.ipNetworks[{at}]: {:?} is not an address or network", &**text))?;
        nets.add(net);
    }
    let mut labels = meta.labels;
    labels.retain(|key| !RESERVED_LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
    if !spec.service_account_name.is_empty() {
        labels.set(SERVICE_ACCOUNT_LABEL, spec.service_account_name);
    } else if labels.is_absent() {
        labels = TextMap::empty();
    }
    let nats = spec.ip_nats.iter().filter_map(|nat| {
        Some(IpNat { int_ip: net::parse_ip(&nat.internal_ip)?, ext_ip: net::parse_ip(&nat.external_ip)? })
    });
    let (ipv4_nat, ipv6_nat) = nats.partition(|nat| nat.int_ip.is_ipv4());
    let mac = match &*spec.mac {
        "" => None,
        text => Some(Mac::parse(text).ok_or_else(|| format!("spec.mac: {text:?} is not a hardware address"))?),
    };
    let spoofed = spec.allow_spoofed_source_prefixes.iter().enumerate().map(|(at, text)| {
        net::parse_net(text)
            .map(Net)
            .ok_or_else(|| format!("spec.allowSpoofedSourcePrefixes[{at}]: {:?} is not an address or network", &**text))
    });
    Ok(WorkloadEndpoint {
        state: "active",
        name: spec.interface_name,
        active_instance_id: "",
        mac,
        profile_ids: spec.profiles,
        ipv4_nets: nets.v4,
        ipv6_nets: nets.v6,
        ipv4_nat,
        ipv6_nat,
        labels,
        ipv4_gateway: gateway("spec.ipv4Gateway", &spec.ipv4_gateway)?,
        ipv6_gateway: gateway("spec.ipv6Gateway", &spec.ipv6_gateway)?,
        ports: spec
            .ports
            .into_iter()
            .filter(|port| !port.name.is_empty())
            .map(|port| EndpointPort {
                name: port.name,
                protocol: port.protocol.unwrap_or(Protocol::Number(0)).to_v1(),
                port: port.port,
            })
            .collect(),
        generate_name: meta.generate_name,
        allow_spoofed_source_ips: spoofed.collect::<Result<_, _>>()?,
        annotations: meta.annotations,
        qos_controls: spec.qos_controls,
    })
}

fn gateway(field: &str, text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = text.split('/').next().and_then(net::parse_ip).filter(|_| net::parse_net(text).is_some());
    address.map(Some).ok_or_else(|| format!("{field}: {text:?} is not an address"))
}

/// Networks by family; a family without any is absent.
#[derive(Debug, Default)]
pub(super) struct Nets {
    pub(super) v4: Option<Vec<Net>>,
    pub(super) v6: Option<Vec<Net>>,
}

impl Nets {
    pub(super) fn add(&mut self, net: ipnet::IpNet) {
        let family = if net.addr().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        family.get_or_insert_default().push(Net(net));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datastore::Dialect;

    fn converted(spec: &serde_json::Value) -> Option<String> {
        let object = Object {
            id: id("ns", "host1-openstack-vm1-tap0"),
            revision: "5".into(),
            dialect: Dialect::Etcd,
            body: serde_json::json!({ "spec": spec }).to_string().into(),
            place: None,
        };
        convert(&object).unwrap().map(|value| String::from_utf8(value.bytes.to_vec()).unwrap())
    }

    #[test]
    fn an_endpoint_without_networks_is_not_sent() {
        use serde_json::json;
        for networks in [json!(null), json!([])] {
            assert_eq!(converted(&json!({"interfaceName": "tap0", "ipNetworks": networks})), None);
        }
        assert!(converted(&json!({"interfaceName": "tap0", "ipNetworks": ["10.0.0.1"]})).is_some());
    }

    #[test]
    fn spoofed_sources_may_be_addresses() {
        let value = converted(&serde_json::json!({
            "interfaceName": "tap0", "ipNetworks": ["10.0.0.1/32"],
            "allowSpoofedSourcePrefixes": ["10.1.1.1", "10.2.3.4/16"],
        }));
        let value = value.unwrap();
        assert!(value.contains(r#"["10.1.1.1/32","10.2.0.0/16"]"#), "{value}");
    }

    #[test]
    fn texts_of_digits_are_numbers() {
        let value = converted(&serde_json::json!({
            "interfaceName": "tap0", "ipNetworks": ["10.0.0.1/32"], "qosControls": {"dscp": "20"},
        }));
        let value = value.unwrap();
        assert!(value.contains(r#""dscp":20"#), "{value}");
    }

    fn id(namespace: &str, name: &str) -> ObjectId {
        ObjectId { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn names_split_on_single_dashes() {
        for (name, expected) in [
            ("host1-openstack-vm1-tap0", Some("/calico/v1/host/host1/workload/openstack/ns%2fvm1/endpoint/tap0")),
            ("node--1-k8s-my--pod-eth0", Some("/calico/v1/host/node-1/workload/k8s/ns%2fmy-pod/endpoint/eth0")),
            ("badname", None),
            ("a-b-c", None),
            ("a-b-c-d-e", None),
            ("a--b-c-d-e", Some("/calico/v1/host/a-b/workload/c/ns%2fd/endpoint/e")),
            ("-b-c-d", None),
            ("", None),
        ] {
            assert_eq!(key(&id("ns", name)).as_ref().map(Key::as_str), expected, "{name}");
        }
        assert_eq!(key(&id("", "host1-openstack-vm1-tap0")), None);
    }

    proptest! {
        #[test]
        fn joined_parts_are_found_again(parts in proptest::array::uniform4("[a-z][a-z-]{0,4}[a-z]")) {
            let name = parts.iter().map(|part| part.replace('-', "--")).collect::<Vec<_>>().join("-");
            prop_assert_eq!(name_parts(&name), Some(parts));
        }

        #[test]
        fn any_name_is_split_or_refused(name in "[a-d-]{0,20}") {
            let _ = name_parts(&name);
        }
    }
}
