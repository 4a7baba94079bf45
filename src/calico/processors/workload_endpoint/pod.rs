//! Kubernetes pods as workload endpoints.

use ipnet::IpNet;
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::super::rejected_or_raw;
use super::super::rules::{NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL};
use super::v3::Nets;
use super::{RESERVED_LABEL_PREFIXES, qos};
use crate::calico::net;
use crate::calico::numorstring::Uint8OrString;
use crate::calico::v1::Net;
use crate::calico::v1::endpoint::{EndpointPort, IpNat, WorkloadEndpoint};
use crate::calico::v1::meta::{Meta, Native};
use crate::calico::v1::text::{Text, TextMap};
use crate::calico::validate::rules;
use crate::datastore::Object;
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::ConvertError;

/// Calico's name for Kubernetes.
const ORCHESTRATOR: &str = "k8s";
/// Name of a pod's only interface.
const ENDPOINT: &str = "eth0";
/// Hexadecimal digits of a hash after the prefix of an interface's name. With the usual prefix, names have the kernel's
/// limit of 15.
const INTERFACE_HASH_DIGITS: usize = 11;
const ORCHESTRATOR_LABEL: &str = "projectcalico.org/orchestrator";
const POD_IP_ANNOTATION: &str = "cni.projectcalico.org/podIP";
const POD_IPS_ANNOTATION: &str = "cni.projectcalico.org/podIPs";
const AWS_POD_IPS_ANNOTATION: &str = "vpc.amazonaws.com/pod-ips";
const FLOATING_IPS_ANNOTATION: &str = "cni.projectcalico.org/floatingIPs";
const SOURCE_PREFIXES_ANNOTATION: &str = "cni.projectcalico.org/allowedSourcePrefixes";
/// The only annotation that agents receive.
const NETWORK_STATUS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Spec<'a> {
    node_name: Text<'a>,
    host_network: bool,
    service_account_name: Text<'a>,
    containers: Vec<Container<'a>>,
    init_containers: Vec<Container<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Container<'a> {
    ports: Vec<Port<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Port<'a> {
    name: Text<'a>,
    protocol: Text<'a>,
    container_port: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Status<'a> {
    phase: Text<'a>,
    #[serde(rename = "podIP")]
    pod_ip: Text<'a>,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct PodIp<'a> {
    ip: Text<'a>,
}

/// A pod's key and endpoint. `None`: the pod has no node yet, or no interface of its own (it is on the host's network).
/// No endpoint: the pod has no address, or has given it back.
pub(super) fn convert(object: &Object, interface_prefix: &str) -> Result<Option<(Key, Option<Value>)>, ConvertError> {
    gojson::parse_with(&object.body, |body| {
        let Native { metadata: meta, spec, status }: Native<'_, Spec<'_>, Status<'_>> = gojson::from_str(body)?;
        if spec.node_name.is_empty() || spec.host_network {
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
        profile_ids: Some(profiles),
        ipv4_nets: nets.v4,
        ipv6_nets: nets.v6,
        ipv4_nat,
        ipv6_nat,
        labels,
        ports: [spec.containers, spec.init_containers].into_iter().flatten().flat_map(named_ports).collect(),
        generate_name: meta.generate_name,
        allow_spoofed_source_ips: spoofed,
        annotations,
        qos_controls,
        ..WorkloadEndpoint::default()
    }
}

fn named_ports(container: Container<'_>) -> impl Iterator<Item = EndpointPort<'_>> {
    container.ports.into_iter().filter_map(|port| {
        let number = u16::try_from(port.container_port).ok().filter(|number| *number != 0)?;
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

/// The pod's addresses, from the first source that has any.
fn addresses(annotations: &TextMap<'_>, status: &Status<'_>) -> Result<Vec<IpNet>, String> {
    let annotation = |name: &str| annotations.get(name).filter(|text| !text.is_empty());
    let found: Vec<&str> = if !status.pod_ips.is_empty() {
        status.pod_ips.iter().map(|address| &*address.ip).collect()
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
    let list: Option<Vec<String>> = gojson::parse(text.as_bytes())
        .map_err(|error| format!("metadata.annotations[{name}]: {text:?} is not a JSON list of text: {error}"))?;
    Ok(list.unwrap_or_default())
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

/// Name of the host's end of the pod's interface, as chosen by the CNI plugin.
fn interface_name(prefix: &str, namespace: &str, pod: &str) -> String {
    let digest = Sha1::new().chain_update(namespace).chain_update(".").chain_update(pod).finalize();
    let mut name = format!("{prefix}{digest:x}");
    name.truncate(prefix.len() + INTERFACE_HASH_DIGITS);
    name
}
