//! Network sets, global and namespaced.

use serde::Deserialize;

use super::conflict::{ConvertKeyed, Resolving};
use super::rules::NAMESPACE_LABEL;
use super::simple::{Convert, Converted, Simple};
use super::{Context, rejected_or_raw};
use crate::calico::keys;
use crate::calico::v1::meta::{Body, Meta};
use crate::calico::v1::policy::Net;
use crate::calico::v1::sets::NetworkSet;
use crate::calico::v1::text::Text;
use crate::calico::validate::rules::endpoint as checks;
use crate::datastore::{Object, ObjectId};
use crate::model::{Key, Value, gojson};
use crate::syncer::processor::{ConvertError, Processor};

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
#[serde(default, bound = "'de: 'a")]
struct Spec<'a> {
    nets: Vec<Text<'a>>,
}

impl Convert for NetworkSets {
    fn key(&self, id: &ObjectId) -> Option<Key> {
        (!id.namespace.is_empty()).then(|| key(id))
    }

    fn value(&self, object: &Object) -> Result<Option<Converted>, ConvertError> {
        convert(object).map(|(_, value)| Some(value.into()))
    }
}

impl ConvertKeyed for NetworkSets {
    fn convert(&self, object: &Object) -> Result<(Key, Value), ConvertError> {
        let (name, value) = convert(object)?;
        Ok((key(&ObjectId { namespace: "".into(), name: name.into() }), value))
    }
}

fn key(id: &ObjectId) -> Key {
    format!("/calico/v1/netset/{}", keys::escape(&id.to_string())).into()
}

/// The set's name in v3 and its value. A custom resource may keep the name in an annotation.
fn convert(object: &Object) -> Result<(String, Value), ConvertError> {
    gojson::parse_with(&object.body, |body| {
        let body: Body<'_, Spec<'_>> = gojson::from_str(body)?;
        let meta = body.meta(object.dialect)?;
        let name = if meta.name.is_empty() { object.id.name.to_string() } else { meta.name.to_string() };
        let set = network_set(&object.id.namespace, meta, body.spec);
        Ok((name, rejected_or_raw(gojson::to_bytes(&set), checks::network_set(&set))))
    })
}

fn network_set<'a>(namespace: &'a str, meta: Meta<'a>, spec: Spec<'a>) -> NetworkSet<'a> {
    let mut labels = meta.labels;
    let mut profile_ids = Vec::new();
    if !namespace.is_empty() {
        labels.set(NAMESPACE_LABEL, namespace);
        profile_ids.push(format!("kns.{namespace}").into());
    }
    NetworkSet { nets: spec.nets.iter().filter_map(|text| Net::read(text)).collect(), labels, profile_ids }
}

#[cfg(test)]
mod tests {
    use super::super::vectors_tests::{run, source};
    use super::*;
    use crate::calico::kinds;
    use crate::datastore::Dialect;

    fn object(namespace: &str, body: &str) -> Object {
        Object {
            id: ObjectId { namespace: namespace.into(), name: "cr".into() },
            revision: "7".into(),
            dialect: Dialect::CrdV1,
            body: body.to_owned().into(),
            place: None,
        }
    }

    #[test]
    fn an_empty_network_prints_as_in_go() {
        let object = object("", r#"{"spec":{"nets":["","junk","10.1.2.3/8"]}}"#);
        let (_, value) = convert(&object).unwrap();
        let text = String::from_utf8(value.bytes.to_vec()).unwrap();
        assert!(text.starts_with(r#"{"nets":["\u003cnil\u003e","10.0.0.0/8"]"#), "{text}");
    }

    #[test]
    fn global_sets_are_keyed_by_their_name_in_v3() {
        let body = r#"{"metadata":{"name":"cr","annotations":{"projectcalico.org/metadata":"{\"name\":\"v3\"}"}}}"#;
        let (global, _) = ConvertKeyed::convert(&NetworkSets, &object("", body)).unwrap();
        assert_eq!(global.as_str(), "/calico/v1/netset/v3");
        assert_eq!(NetworkSets.key(&object("ns", body).id).unwrap().as_str(), "/calico/v1/netset/ns%2fcr");
    }

    #[test]
    fn network_sets_match_the_vectors() {
        run(
            "felix",
            |ctx| vec![source([kinds::GLOBAL_NETWORK_SET], global(ctx)), source([kinds::NETWORK_SET], namespaced(ctx))],
            |key| key.starts_with("/calico/v1/netset/"),
            1,
        );
    }
}
