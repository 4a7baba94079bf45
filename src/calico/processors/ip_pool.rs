//! IP pools: keyed by range, so two pools with one range share a key.

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conflict::{ConvertKeyed, Resolving};
use super::{Context, network};
use crate::calico::v1::Net;
use crate::calico::v1::meta::Body;
use crate::calico::v1::pool::{Encapsulation, IpPool};
use crate::calico::v1::text::Text;
use crate::calico::{aside, keys};
use crate::datastore::{Dialect, Object};
use crate::model::{Key, KvPair, Value, gojson};
use crate::syncer::processor::{ConvertError, ObjectEvent, Processor};

/// Device of pools with IP-in-IP.
const IPIP_DEVICE: &str = "tunl0";
/// Assignment mode of pools without one.
const DEFAULT_ASSIGNMENT_MODE: &str = "Automatic";

/// The processor of `IPPool`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Pools { today: Resolving::new(IpPools { old: false }), old: Resolving::new(IpPools { old: true }) })
}

/// Each pool in today's form, and aside in the form for agents of old releases.
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
    /// Whether fields of Calico's first API count, as in all Typhas up to 3.31 on Kubernetes.
    old: bool,
}

/// IP-in-IP tunnels in Calico's first API.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a")]
struct AncientIpip<'a> {
    enabled: bool,
    mode: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
struct Spec<'a> {
    cidr: Text<'a>,
    vxlan_mode: Text<'a>,
    ipip_mode: Text<'a>,
    nat_outgoing: bool,
    disabled: bool,
    #[serde(rename = "disableBGPExport")]
    disable_bgp_export: bool,
    allowed_uses: Vec<Text<'a>>,
    assignment_mode: Option<Text<'a>>,
    /// An [`AncientIpip`]; read only where it counts.
    ipip: Option<&'a RawValue>,
    #[serde(rename = "nat-outgoing")]
    ancient_nat_outgoing: Option<&'a RawValue>,
}

impl Spec<'_> {
    /// Applies the fields of Calico's first API.
    fn honour_ancient(&mut self) {
        if let Some(ipip) = self.ipip
            && let Ok(ipip) = gojson::from_str::<AncientIpip<'_>>(ipip.get())
        {
            self.ipip_mode = match (ipip.enabled, &*ipip.mode) {
                (true, "cross-subnet") => "CrossSubnet".into(),
                (true, _) => "Always".into(),
                (false, _) => "Never".into(),
            };
        }
        self.nat_outgoing |= self.ancient_nat_outgoing.is_some_and(|flag| flag.get() == "true");
    }
}

impl ConvertKeyed for IpPools {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            let body: Body<'_, Spec<'_>> = gojson::from_str(body)?;
            body.meta(object.dialect)?;
            let mut spec = body.spec;
            if self.old && object.dialect != Dialect::Etcd {
                spec.honour_ancient();
            }
            let cidr = network("spec.cidr", &spec.cidr)?;
            let key = key(&cidr);
            let key = if self.old { aside::key(aside::OLD, &key) } else { key };
            Ok((key, Value::raw(gojson::to_bytes(&pool(cidr, spec)))))
        })
    }
}

fn pool(cidr: IpNet, spec: Spec<'_>) -> IpPool<'_> {
    let ipip_mode = Encapsulation::from_v3(&spec.ipip_mode);
    IpPool {
        cidr: Net(cidr),
        ipip: if ipip_mode == Encapsulation::Never { "" } else { IPIP_DEVICE },
        ipip_mode,
        vxlan_mode: Encapsulation::from_v3(&spec.vxlan_mode),
        masquerade: spec.nat_outgoing,
        ipam: !spec.disabled,
        disabled: spec.disabled,
        disable_bgp_export: spec.disable_bgp_export,
        assignment_mode: spec.assignment_mode.unwrap_or_else(|| DEFAULT_ASSIGNMENT_MODE.into()),
        allowed_uses: spec.allowed_uses,
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
    use crate::calico::kinds;
    use crate::datastore::ObjectId;

    /// As in v3.31.7's answers.
    #[test]
    fn old_agents_receive_tunnels_of_the_first_api() {
        let told = |dialect, spec: &str| {
            let object = Object {
                id: ObjectId { namespace: "".into(), name: "p".into() },
                revision: "5".into(),
                dialect,
                body: format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"cidr":"10.0.0.0/16",{spec}}}}}"#).into(),
                place: None,
            };
            let mut out = Vec::new();
            new(&Context::default()).process(ObjectEvent::Put(&object), &mut out).unwrap();
            let text = |old: bool| {
                let pair = out.iter().find(|pair| pair.key.is_aside() == old).unwrap();
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
