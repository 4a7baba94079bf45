//! IP pools: keyed by range, so that two pools of one range share a key.

use ipnet::IpNet;
use serde::Deserialize;

use super::conflict::{ConvertKeyed, Resolving};
use super::{Context, ConvertError, Processor, unreadable};
use crate::datastore::Object;
use crate::model::v1::Net;
use crate::model::v1::meta::Resource;
use crate::model::v1::pool::{Encapsulation, IpPool};
use crate::model::v1::text::Text;
use crate::model::{Key, Value, gojson, keys, net, strict};

/// Device of pools with IP-in-IP.
const IPIP_DEVICE: &str = "tunl0";
/// What a pool without an assignment mode has.
const DEFAULT_ASSIGNMENT_MODE: &str = "Automatic";

/// The processor of `IPPool`.
#[must_use]
pub fn new(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Resolving::new(IpPools))
}

#[derive(Debug)]
struct IpPools;

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
}

impl ConvertKeyed for IpPools {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        gojson::parse_with(&object.body, |body| {
            let resource: Resource<'_, Spec<'_>> = strict::from_str(body).map_err(unreadable)?;
            resource.metadata.unwrap_or_default().settle(object.dialect).map_err(ConvertError::new)?;
            let spec = resource.spec.unwrap_or_default();
            let cidr = net::parse_cidr(&spec.cidr).map(|net| net.trunc()).ok_or_else(|| {
                ConvertError::new(format!("spec.cidr: {:?} is not a network (address/length)", &*spec.cidr))
            })?;
            Ok((key(&cidr), Value::raw(gojson::to_bytes(&pool(cidr, spec)))))
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
    use crate::syncer::kinds;

    #[test]
    fn ip_pools_match_the_vectors() {
        // Pools of the other syncers are in further vectors, if anywhere.
        for (syncer, least) in [("felix", 1), ("bgp", 0), ("tunnel-ip-allocation", 0)] {
            run(syncer, |ctx| vec![source([kinds::IP_POOL], new(ctx))], |key| key.contains("/pool/"), least);
        }
    }
}
