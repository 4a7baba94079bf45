//! Host endpoints: keyed by node and name.

use std::net::IpAddr;

use serde::Deserialize;

use super::conflict::{ConvertKeyed, Resolving};
use super::workload_endpoint::qos;
use super::{Context, rejected_or_raw};
use crate::calico::numorstring::Protocol;
use crate::calico::v1::endpoint::{EndpointPort, HostEndpoint, QosControls};
use crate::calico::v1::meta::{Body, Meta};
use crate::calico::v1::text::Text;
use crate::calico::validate::rules;
use crate::calico::{keys, net};
use crate::datastore::Object;
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::{ConvertError, Processor};

/// The processor of `HostEndpoint`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Resolving::new(HostEndpoints))
}

#[derive(Debug)]
struct HostEndpoints;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Spec<'a> {
    node: Text<'a>,
    interface_name: Text<'a>,
    #[serde(rename = "expectedIPs")]
    expected_ips: Vec<Text<'a>>,
    profiles: Vec<Text<'a>>,
    ports: Vec<Port<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct Port<'a> {
    name: Text<'a>,
    protocol: Option<Protocol>,
    port: u16,
}

impl ConvertKeyed for HostEndpoints {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            let body: Body<'_, Spec<'_>> = gojson::from_str(body)?;
            let (meta, spec) = (body.meta(object.dialect)?, body.spec);
            if spec.node.is_empty() {
                return Err(ConvertError::new("spec.node: missing; a host endpoint belongs to a node"));
            }
            // A custom resource may keep the name in v3 in an annotation.
            let name = if meta.name.is_empty() { &*object.id.name } else { &*meta.name };
            let key = format!("/calico/v1/host/{}/endpoint/{}", spec.node, keys::escape(name)).into();
            let endpoint = host_endpoint(meta, spec);
            Ok((key, rejected_or_raw(gojson::to_bytes(&endpoint), rules::endpoint::host_endpoint(&endpoint))))
        })
    }
}

fn host_endpoint<'a>(meta: Meta<'a>, spec: Spec<'a>) -> HostEndpoint<'a> {
    let (expected_ipv4_addrs, expected_ipv6_addrs) =
        spec.expected_ips.iter().filter_map(|text| net::parse_ip(text)).partition(IpAddr::is_ipv4);
    let qos_controls =
        qos::dscp(&meta.annotations).map(|dscp| QosControls { dscp: Some(dscp), ..QosControls::default() });
    HostEndpoint {
        name: spec.interface_name,
        expected_ipv4_addrs,
        expected_ipv6_addrs,
        labels: meta.labels,
        profile_ids: spec.profiles,
        ports: spec
            .ports
            .into_iter()
            .map(|port| EndpointPort {
                name: port.name,
                protocol: port.protocol.unwrap_or(Protocol::Number(0)).to_v1(),
                port: port.port,
            })
            .collect(),
        qos_controls,
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;
    use crate::datastore::{Dialect, ObjectId};

    #[test]
    fn endpoints_are_keyed_by_their_name_in_v3() {
        let body = r#"{"metadata":{"name":"cr","labels":{},"annotations":{"projectcalico.org/metadata":"{\"name\":\"v3\"}"}},
            "spec":{"node":"n"}}"#;
        let object = Object {
            id: ObjectId { namespace: "".into(), name: "cr".into() },
            revision: "7".into(),
            dialect: Dialect::CrdV1,
            body: body.into(),
            place: None,
        };
        let (key, value) = HostEndpoints.convert(&object).unwrap();
        assert_eq!(key.as_str(), "/calico/v1/host/n/endpoint/v3");
        let value = String::from_utf8(value.bytes.to_vec()).unwrap();
        assert!(value.contains(r#""labels":{}"#), "{value}");
    }

    #[test]
    fn host_endpoints_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::HOST_ENDPOINT], new(ctx))],
            |key| key.starts_with("/calico/v1/host/") && key.contains("/endpoint/") && !key.contains("/workload/"),
            1,
        );
    }
}
