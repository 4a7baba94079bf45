//! IP pools: keyed by range, so that two pools of one range share a key.

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conflict::{ConvertKeyed, Resolving};
use super::{Context, ConvertError, ObjectEvent, Processor, unreadable};
use crate::datastore::{Dialect, Object};
use crate::model::v1::Net;
use crate::model::v1::meta::Resource;
use crate::model::v1::pool::{Encapsulation, IpPool};
use crate::model::v1::text::Text;
use crate::model::{Key, KvPair, Value, aside, gojson, keys, net, strict};

/// Device of pools with IP-in-IP.
const IPIP_DEVICE: &str = "tunl0";
/// What a pool without an assignment mode has.
const DEFAULT_ASSIGNMENT_MODE: &str = "Automatic";

/// The processor of `IPPool`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Pools { today: Resolving::new(IpPools { old: false }), old: Resolving::new(IpPools { old: true }) })
}

/// Each pool as it is today, and aside as agents of old releases are told of it.
#[derive(Debug)]
struct Pools {
    today: Resolving<IpPools>,
    old: Resolving<IpPools>,
}

impl Processor for Pools {
    fn on_resync(&mut self) {
        self.today.on_resync();
        self.old.on_resync();
    }

    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let result = self.today.process(event, out);
        self.old.process(event, out).and(result)
    }
}

#[derive(Debug)]
struct IpPools {
    /// Whether the fields that Calico's first API had are honoured, as all Typhas up to 3.31 do on Kubernetes.
    old: bool,
}

/// Tunnels of IP-in-IP as Calico's first API had them.
#[derive(Debug, Default, Deserialize)]
struct AncientIpip<'a> {
    enabled: Option<bool>,
    #[serde(borrow, default)]
    mode: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, default)]
    cidr: Text<'a>,
    #[serde(borrow, default)]
    vxlan_mode: Text<'a>,
    #[serde(borrow, default)]
    ipip_mode: Text<'a>,
    nat_outgoing: Option<bool>,
    disabled: Option<bool>,
    #[serde(rename = "disableBGPExport")]
    disable_bgp_export: Option<bool>,
    #[serde(borrow, default)]
    allowed_uses: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    assignment_mode: Option<Text<'a>>,
    /// An [`AncientIpip`]; not read where it does not count.
    ipip: Option<Box<RawValue>>,
    #[serde(rename = "nat-outgoing")]
    ancient_nat_outgoing: Option<Box<RawValue>>,
}

impl Spec<'_> {
    /// Has the fields of Calico's first API count.
    fn honour_ancient(&mut self) {
        if let Some(ipip) = &self.ipip
            && let Ok(ipip) = serde_json::from_str::<AncientIpip<'_>>(ipip.get())
        {
            self.ipip_mode = match (ipip.enabled, &*ipip.mode) {
                (Some(true), "cross-subnet") => "CrossSubnet".into(),
                (Some(true), _) => "Always".into(),
                _ => "Never".into(),
            };
        }
        if self.ancient_nat_outgoing.as_ref().is_some_and(|flag| flag.get() == "true") {
            self.nat_outgoing = Some(true);
        }
    }
}

impl ConvertKeyed for IpPools {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            let resource: Resource<'_, Spec<'_>> = strict::from_str(body).map_err(unreadable)?;
            resource.metadata.unwrap_or_default().settle(object.dialect).map_err(ConvertError::new)?;
            let mut spec = resource.spec.unwrap_or_default();
            if self.old && object.dialect != Dialect::Etcd {
                spec.honour_ancient();
            }
            let cidr = net::parse_cidr(&spec.cidr).map(|net| net.trunc()).ok_or_else(|| {
                ConvertError::new(format!("spec.cidr: {:?} is not a network (address/length)", &*spec.cidr))
            })?;
            let key = key(&cidr);
            let key = if self.old { aside::key(aside::OLD, &key) } else { key };
            Ok((key, Value::raw(gojson::to_bytes(&pool(cidr, spec)))))
        })
    }
}

fn pool(cidr: IpNet, spec: Spec<'_>) -> IpPool<'_> {
    let ipip_mode = Encapsulation::from_v3(&spec.ipip_mode);
    let disabled = spec.disabled.unwrap_or_default();
    IpPool {
        cidr: Net(cidr),
        ipip: if ipip_mode == Encapsulation::Never { "" } else { IPIP_DEVICE },
        ipip_mode,
        vxlan_mode: Encapsulation::from_v3(&spec.vxlan_mode),
        masquerade: spec.nat_outgoing.unwrap_or_default(),
        ipam: !disabled,
        disabled,
        disable_bgp_export: spec.disable_bgp_export.unwrap_or_default(),
        assignment_mode: spec.assignment_mode.unwrap_or_else(|| DEFAULT_ASSIGNMENT_MODE.into()),
        allowed_uses: spec.allowed_uses.unwrap_or_default(),
    }
}

fn key(cidr: &IpNet) -> Key {
    let version = if cidr.addr().is_ipv4() { 4 } else { 6 };
    format!("/calico/v1/ipam/v{version}/pool/{}", keys::net_element(cidr)).into()
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::datastore::ObjectId;
    use crate::model::kinds;

    /// As in v3.31.7's answers.
    #[test]
    fn old_agents_are_told_of_tunnels_that_the_first_api_asked_for() {
        let told = |dialect, spec: &str| {
            let object = Object {
                id: ObjectId { namespace: "".into(), name: "p".into() },
                revision: "5".into(),
                dialect,
                body: format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"cidr":"10.0.0.0/16",{spec}}}}}"#).into(),
            };
            let mut out = Vec::new();
            new(&Context::default()).process(ObjectEvent::Put(&object), &mut out).unwrap();
            let text = |old: bool| {
                let pair = out.iter().find(|pair| aside::is_aside(&pair.key) == old).unwrap();
                String::from_utf8(pair.value.as_ref().unwrap().bytes.to_vec()).unwrap()
            };
            (text(false), text(true))
        };
        for (spec, ipip, mode, masquerade) in [
            (r#""ipip":{"enabled":true,"mode":"cross-subnet"},"nat-outgoing":true"#, "tunl0", "cross-subnet", true),
            (r#""ipip":{"enabled":true}"#, "tunl0", "always", false),
            (r#""ipip":{"mode":"always"},"ipipMode":"Always""#, "", "", false),
            (r#""nat-outgoing":false,"natOutgoing":true"#, "", "", true),
        ] {
            let (_, old) = told(Dialect::CrdV1, spec);
            let expected = format!(r#""ipip":"{ipip}","ipip_mode":"{mode}","vxlan_mode":"","masquerade":{masquerade}"#);
            assert!(old.contains(&expected), "{spec}: {old}");
            let (today, in_etcd) = told(Dialect::Etcd, spec);
            assert_eq!(in_etcd, today, "the Typhas on etcd do not look");
        }
    }

    #[test]
    fn ip_pools_match_the_vectors() {
        // Pools of the other syncers are in further vectors, if anywhere.
        for (syncer, least) in [("felix", 1), ("bgp", 0), ("tunnel-ip-allocation", 0)] {
            run(syncer, |ctx| vec![source([kinds::IP_POOL], new(ctx))], |key| key.contains("/pool/"), least);
        }
    }
}
