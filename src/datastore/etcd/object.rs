//! From etcd's keys and values to objects.
//!
//! Pure. Fed by [`list`](super::list) and [`watch`](super::watch). Looks at a value only as far as needed to know that it may
//! be an object; reading it is for the processors, which name faults and their places.

use std::sync::Arc;

use bytes::Bytes;

use crate::datastore::catalog::ValueForm;
use crate::datastore::inlet::Malformed;
use crate::model::object::{Dialect, Kind, Object, ObjectId};
use crate::model::{Revision, gojson};

/// etcd's own text for a revision.
pub(super) fn revision_text(revision: i64) -> Revision {
    Arc::from(revision.to_string())
}

/// Where the objects of a kind are, and in which form.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The kind.
    pub(super) kind: Kind,
    /// The start of the keys of all its objects.
    pub(super) prefix: String,
    /// The start of the keys of those that are wanted; begins with the prefix.
    pub(super) range: String,
    /// The form of their values.
    pub(super) form: ValueForm,
}

impl Layout {
    /// The object that `key` names.
    ///
    /// # Errors
    /// A key that names none gets its whole text as name, with the reason.
    pub(super) fn id(&self, key: &[u8]) -> Result<ObjectId, Malformed> {
        let text = String::from_utf8_lossy(key);
        let whole = |why: &str| {
            let id = ObjectId { namespace: Arc::from(""), name: Arc::from(&*text) };
            Err(Malformed { id, reason: format!("key {text:?} {why}") })
        };
        if std::str::from_utf8(key).is_err() {
            return whole("is not UTF-8");
        }
        let Some(rest) = text.strip_prefix(&self.prefix) else {
            return whole("is outside of the prefix that was asked for");
        };
        if rest.is_empty() {
            return whole("names no object");
        }
        if !self.kind.namespaced {
            return Ok(ObjectId { namespace: Arc::from(""), name: Arc::from(rest) });
        }
        match rest.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(ObjectId { namespace: Arc::from(namespace), name: Arc::from(name) })
            }
            _ => whole("lacks the namespace or the name"),
        }
    }

    /// The object behind a key and value.
    ///
    /// # Errors
    /// When the value is unreadable.
    pub(super) fn object(&self, key: &[u8], value: Vec<u8>, mod_revision: i64) -> Result<Object, Malformed> {
        let id = self.id(key)?;
        match body(self.form, value) {
            Ok(body) => {
                Ok(Object { id, revision: revision_text(mod_revision), dialect: Dialect::Etcd, body, place: None })
            }
            Err(reason) => Err(Malformed { id, reason }),
        }
    }
}

fn body(form: ValueForm, value: Vec<u8>) -> Result<Bytes, String> {
    match form {
        ValueForm::Raw => return Ok(value.into()),
        ValueForm::JsonOrEmpty if value.is_empty() => return Ok(Bytes::from_static(b"{}")),
        ValueForm::Json if value.is_empty() => return Err("the value is empty".to_owned()),
        ValueForm::Json | ValueForm::JsonOrEmpty => {}
    }
    let value = gojson::utf8(&Bytes::from(value));
    if value.trim_ascii_start().starts_with(b"{") {
        Ok(value)
    } else {
        Err("the value is not a JSON object".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds;

    fn layout(kind: &Kind) -> Layout {
        let prefix = kind.etcd_prefix.clone().unwrap().into_owned();
        Layout { kind: kind.clone(), range: prefix.clone(), prefix, form: ValueForm::Json }
    }

    fn id(kind: &Kind, key: &str) -> Result<String, String> {
        layout(kind).id(key.as_bytes()).map(|id| id.to_string()).map_err(|malformed| malformed.reason)
    }

    #[test]
    fn ids_follow_the_scope_of_the_kind() {
        let pool = "/calico/resources/v3/projectcalico.org/ippools/pool-1";
        assert_eq!(id(&kinds::IP_POOL, pool).unwrap(), "pool-1");
        let endpoint = "/calico/resources/v3/projectcalico.org/workloadendpoints/ns1/node--1-k8s-a-eth0";
        assert_eq!(id(&kinds::WORKLOAD_ENDPOINT, endpoint).unwrap(), "ns1/node--1-k8s-a-eth0");
        let block = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
        assert_eq!(id(&kinds::IPAM_BLOCK, block).unwrap(), "ipv4/block/10.0.0.0-26");
        let affinity = "/calico/ipam/v2/host/n1/ipv6/block/fd00::-122";
        assert_eq!(id(&kinds::BLOCK_AFFINITY, affinity).unwrap(), "n1/ipv6/block/fd00::-122");
    }

    #[test]
    fn keys_without_an_object_are_named() {
        for key in ["x", "", "/x", "ns/"] {
            let whole = format!("/calico/resources/v3/projectcalico.org/networksets/{key}");
            let reason = id(&kinds::NETWORK_SET, &whole).unwrap_err();
            assert!(reason.contains(&whole), "{reason}");
        }
        let pools = layout(&kinds::IP_POOL);
        let bad = [pools.prefix.as_bytes(), b"\xff"].concat();
        let Malformed { reason, .. } = pools.id(&bad).unwrap_err();
        assert!(reason.contains("UTF-8"), "{reason}");
    }

    #[test]
    fn only_what_may_be_an_object_is_let_through() {
        let ok = |value: &[u8]| body(ValueForm::Json, value.to_vec());
        for good in [&b"{\"a\":1}"[..], b" \t\r\n{\"a\":1}"] {
            assert_eq!(ok(good).unwrap(), good);
        }
        for bad in [&b""[..], b"  ", b"nope", b"7", b"[{}]", b"\"{}\""] {
            assert!(ok(bad).is_err(), "{bad:?}");
        }
        assert_eq!(body(ValueForm::JsonOrEmpty, Vec::new()).unwrap(), &b"{}"[..]);
        assert!(body(ValueForm::JsonOrEmpty, b" ".to_vec()).is_err());
        for any in [&b""[..], b"\xff", b"7"] {
            assert_eq!(body(ValueForm::Raw, any.to_vec()).unwrap(), any);
        }
    }

    #[test]
    fn invalid_utf8_is_repaired_byte_by_byte() {
        let body = body(ValueForm::Json, b"{\"a\":\"x\xe2\x82y\xff\"}".to_vec()).unwrap();
        assert_eq!(body, "{\"a\":\"x\u{fffd}\u{fffd}y\u{fffd}\"}".as_bytes());
    }
}
