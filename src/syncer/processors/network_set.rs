//! Network sets, global and namespaced.

use serde::Deserialize;

use super::conflict::{ConvertKeyed, Resolving};
use super::rules::NAMESPACE_LABEL;
use super::simple::{Convert, Converted, Simple};
use super::{Context, ConvertError, Processor, rejected_or_raw, unreadable};
use crate::datastore::{Object, ObjectId};
use crate::model::v1::Net;
use crate::model::v1::meta::{Meta, Resource};
use crate::model::v1::sets::NetworkSet;
use crate::model::v1::text::Text;
use crate::model::{Key, Value, gojson, keys, net, strict};
use crate::validate::rules::endpoint as checks;

/// The processor of `NetworkSet`.
#[must_use]
pub fn namespaced(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Simple(NetworkSets))
}

/// The processor of `GlobalNetworkSet`.
#[must_use]
pub fn global(_ctx: &Context) -> Box<dyn Processor> {
    Box::new(Resolving::new(NetworkSets))
}

#[derive(Debug)]
struct NetworkSets;

#[derive(Debug, Default, Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default)]
    nets: Option<Vec<Text<'a>>>,
}

impl Convert for NetworkSets {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        (!id.namespace.is_empty()).then(|| key(id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        value(object).map(|value| Some(value.into()))
    }
}

impl ConvertKeyed for NetworkSets {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        Ok((key(&object.id), value(object)?))
    }
}

fn key(id: &ObjectId) -> Key {
    format!("/calico/v1/netset/{}", keys::escape(&id.to_string())).into()
}

fn value(object: &Object) -> Result<Value, ConvertError> {
    gojson::parse_with(&object.body, |body| {
        let resource: Resource<'_, Spec<'_>> = strict::from_str(body).map_err(unreadable)?;
        let meta = resource.metadata.unwrap_or_default().settle(object.dialect).map_err(ConvertError::new)?;
        let set = network_set(&object.id.namespace, meta, resource.spec.unwrap_or_default());
        Ok(rejected_or_raw(gojson::to_bytes(&set), checks::network_set(&set)))
    })
}

fn network_set<'a>(namespace: &'a str, meta: Meta<'a>, spec: Spec<'a>) -> NetworkSet<'a> {
    let mut labels = meta.labels;
    let mut profile_ids = Vec::new();
    if !namespace.is_empty() {
        labels.set(NAMESPACE_LABEL, namespace);
        profile_ids.push(format!("kns.{namespace}").into());
    }
    let nets = spec.nets.unwrap_or_default();
    NetworkSet { nets: nets.iter().filter_map(|text| net::parse_net(text)).map(Net).collect(), labels, profile_ids }
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{Feed, run};
    use super::*;
    use crate::syncer::kinds;

    #[test]
    fn network_sets_match_the_vectors() {
        run(
            "felix",
            |ctx| {
                vec![
                    Feed::new([kinds::GLOBAL_NETWORK_SET], global(ctx)),
                    Feed::new([kinds::NETWORK_SET], namespaced(ctx)),
                ]
            },
            |key| key.starts_with("/calico/v1/netset/"),
        );
    }
}
