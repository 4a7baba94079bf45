//! Kubernetes pods as workload endpoints.

use std::fmt::Write;

use ipnet::IpNet;
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::super::rules::{NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL};
use super::super::{ConvertError, rejected_or_raw, unreadable};
use super::v3::Nets;
use super::{RESERVED_LABEL_PREFIXES, qos};
use crate::datastore::Object;
use crate::model::numorstring::Uint8OrString;
use crate::model::v1::Net;
use crate::model::v1::endpoint::{EndpointPort, IpNat, WorkloadEndpoint};
use crate::model::v1::meta::Meta;
use crate::model::v1::text::{Text, TextMap};
use crate::model::{Key, Value, gojson, net, strict};
use crate::validate::rules;

/// What Calico calls Kubernetes.
const ORCHESTRATOR: &str = "k8s";
/// Name of a pod's only interface.
const ENDPOINT: &str = "eth0";
/// How many hexadecimal digits of a hash follow the prefix of an interface's name; with it, the name fits the kernel's 15.
const INTERFACE_HASH_DIGITS: usize = 11;
const ORCHESTRATOR_LABEL: &str = "projectcalico.org/orchestrator";
const POD_IP_ANNOTATION: &str = "cni.projectcalico.org/podIP";
const POD_IPS_ANNOTATION: &str = "cni.projectcalico.org/podIPs";
const AWS_POD_IPS_ANNOTATION: &str = "vpc.amazonaws.com/pod-ips";
const FLOATING_IPS_ANNOTATION: &str = "cni.projectcalico.org/floatingIPs";
const SOURCE_PREFIXES_ANNOTATION: &str = "cni.projectcalico.org/allowedSourcePrefixes";
/// The only annotation that agents get to see.
const NETWORK_STATUS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Debug, Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Option<Meta<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, default)]
    node_name: Text<'a>,
    host_network: Option<bool>,
    #[serde(borrow, default)]
    service_account_name: Text<'a>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    ports: Option<Vec<Port<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    protocol: Text<'a>,
    container_port: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
    #[serde(borrow, default, rename = "podIP")]
    pod_ip: Text<'a>,
    #[serde(borrow, rename = "podIPs")]
    pod_ips: Option<Vec<PodIp<'a>>>,
}

#[derive(Debug, Deserialize)]
struct PodIp<'a> {
    #[serde(borrow, default)]
    ip: Text<'a>,
}

/// A pod's endpoint. `None`: the pod has no interface of its own (it is on the host's network), or not yet. No value: it
/// has no address, or no longer.
pub(super) fn convert(object: &Object, interface_prefix: &str) -> Result<Option<(Key, Option<Value>)>, ConvertError> {
    gojson::parse_with(&object.body, |body| {
        let pod: Pod<'_> = strict::from_str(body).map_err(unreadable)?;
        let meta = pod.metadata.unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        if spec.node_name.is_empty() || spec.host_network == Some(true) {
            return Ok(None);
        }
        let key = super::key(&spec.node_name, ORCHESTRATOR, &object.id.namespace, &object.id.name, ENDPOINT);
        let mut addresses = addresses(&meta.annotations, &status).map_err(ConvertError::new)?;
        if is_finished(&meta, &status.phase) {
            addresses.clear();
        }
        let spoofed = source_prefixes(&meta.annotations).map_err(ConvertError::new)?;
        if addresses.is_empty() {
            return Ok(Some((key, None)));
        }
        let nats = floating_addresses(&meta.annotations, &addresses).map_err(ConvertError::new)?;
        let name = interface_name(interface_prefix, &object.id.namespace, &object.id.name);
        let endpoint = endpoint(&object.id.namespace, name, meta, spec, &addresses, nats, spoofed);
        let value = rejected_or_raw(gojson::to_bytes(&endpoint), rules::endpoint::workload_endpoint(&endpoint));
        Ok(Some((key, Some(value))))
    })
}

fn endpoint<'a>(
    namespace: &'a str,
    interface: String,
    meta: Meta<'a>,
    spec: Spec<'a>,
    addresses: &[IpNet],
    nats: Vec<IpNat>,
    spoofed: Vec<Net>,
) -> WorkloadEndpoint<'a> {
    let mut nets = Nets::default();
    for address in addresses {
        nets.add(address.trunc());
    }
    let mut profiles = vec![format!("kns.{namespace}").into()];
    let mut labels = meta.labels;
    labels.retain(|key| !RESERVED_LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
    labels.set(NAMESPACE_LABEL, namespace);
    labels.set(ORCHESTRATOR_LABEL, ORCHESTRATOR);
    if !spec.service_account_name.is_empty() {
        profiles.push(format!("ksa.{namespace}.{}", spec.service_account_name).into());
        labels.set(SERVICE_ACCOUNT_LABEL, spec.service_account_name);
    }
    let qos_controls = qos::controls(&meta.annotations);
    let mut annotations = meta.annotations;
    annotations.retain(|name| name == NETWORK_STATUS_ANNOTATION);
    let (ipv4_nat, ipv6_nat) = nats.into_iter().partition(|nat| nat.int_ip.is_ipv4());
    WorkloadEndpoint {
        state: "active",
        name: interface.into(),
        active_instance_id: "",
        mac: None,
        profile_ids: Some(profiles),
        ipv4_nets: nets.v4,
        ipv6_nets: nets.v6,
        ipv4_nat,
        ipv6_nat,
        labels,
        ipv4_gateway: None,
        ipv6_gateway: None,
        ports: [spec.containers, spec.init_containers].into_iter().flatten().flatten().flat_map(named_ports).collect(),
        generate_name: meta.generate_name,
        allow_spoofed_source_ips: spoofed,
        annotations,
        qos_controls,
    }
}

fn named_ports(container: Container<'_>) -> impl Iterator<Item = EndpointPort<'_>> {
    container.ports.into_iter().flatten().filter_map(|port| {
        let number = port.container_port.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)?;
        let protocol = match &*port.protocol {
            "" | "TCP" => "tcp",
            "UDP" => "udp",
            "SCTP" => "sctp",
            _ => return None,
        };
        (!port.name.is_empty()).then(|| EndpointPort {
            name: port.name,
            protocol: Uint8OrString::Name(protocol.to_owned()),
            port: number,
        })
    })
}

/// The pod's addresses from the first place that has any.
fn addresses(annotations: &TextMap<'_>, status: &Status<'_>) -> Result<Vec<IpNet>, String> {
    let listed = status.pod_ips.as_deref().unwrap_or_default();
    let annotation = |name: &str| annotations.get(name).filter(|text| !text.is_empty());
    let found: Vec<&str> = if !listed.is_empty() {
        listed.iter().map(|address| &*address.ip).collect()
    } else if !status.pod_ip.is_empty() {
        vec![&status.pod_ip]
    } else if let Some(text) = annotation(POD_IPS_ANNOTATION) {
        text.split(',').collect()
    } else if let Some(text) = annotation(POD_IP_ANNOTATION) {
        vec![text]
    } else if let Some(text) = annotation(AWS_POD_IPS_ANNOTATION) {
        text.split(',').collect()
    } else {
        Vec::new()
    };
    found
        .into_iter()
        .map(|text| {
            let address = if text.contains('/') { net::parse_cidr(text) } else { net::parse_net(text) };
            address.ok_or_else(|| format!("pod address {text:?} is not an address"))
        })
        .collect()
}

/// Whether the pod's addresses have been given back.
fn is_finished(meta: &Meta<'_>, phase: &str) -> bool {
    let released = |name: &str| meta.annotations.get(name) == Some("");
    matches!(phase, "Failed" | "Succeeded" | "Completed")
        || (meta.deletion_timestamp.is_some() && (released(POD_IP_ANNOTATION) || released(AWS_POD_IPS_ANNOTATION)))
}

fn list_in(annotations: &TextMap<'_>, name: &str) -> Result<Vec<String>, String> {
    let Some(text) = annotations.get(name) else { return Ok(Vec::new()) };
    let list: Option<Vec<Option<String>>> = gojson::parse(text.as_bytes())
        .map_err(|error| format!("metadata.annotations[{name}]: {text:?} is not a JSON list of text: {error}"))?;
    Ok(list.into_iter().flatten().map(Option::unwrap_or_default).collect())
}

fn floating_addresses(annotations: &TextMap<'_>, addresses: &[IpNet]) -> Result<Vec<IpNat>, String> {
    let floating = list_in(annotations, FLOATING_IPS_ANNOTATION)?;
    if annotations.get(FLOATING_IPS_ANNOTATION).is_some()
        && let Some(wide) = addresses.iter().find(|address| address.prefix_len() != address.max_prefix_len())
    {
        return Err(format!("pod address {wide} is a network, which cannot have a floating address"));
    }
    Ok(floating
        .iter()
        .filter_map(|text| {
            let is_v6 = text.contains(':');
            let inside = addresses.iter().rfind(|address| address.addr().is_ipv6() == is_v6)?;
            Some(IpNat { int_ip: inside.addr(), ext_ip: net::parse_ip(text)? })
        })
        .collect())
}

fn source_prefixes(annotations: &TextMap<'_>) -> Result<Vec<Net>, String> {
    if annotations.get(SOURCE_PREFIXES_ANNOTATION) == Some("") {
        return Ok(Vec::new());
    }
    list_in(annotations, SOURCE_PREFIXES_ANNOTATION)?
        .iter()
        .map(|text| {
            net::parse_cidr(text).map(|net| Net(net.trunc())).ok_or_else(|| {
                format!(
                    "metadata.annotations[{SOURCE_PREFIXES_ANNOTATION}]: {text:?} is not a network (address/length)"
                )
            })
        })
        .collect()
}

/// Name of the host's side of the pod's interface, as the CNI plugin chooses it.
fn interface_name(prefix: &str, namespace: &str, pod: &str) -> String {
    let digest = Sha1::new().chain_update(namespace).chain_update(".").chain_update(pod).finalize();
    let mut name = prefix.to_owned();
    for byte in &digest[..INTERFACE_HASH_DIGITS.div_ceil(2)] {
        let _ = write!(name, "{byte:02x}");
    }
    name.truncate(prefix.len() + INTERFACE_HASH_DIGITS);
    name
}
