//! Single objects in etcd: reads, and writes that are transactions on the revision of the key.

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures_util::future::BoxFuture;

use super::endpoints::Connection;
use super::failure::Failure;
use super::object::revision_text;
use super::store::EtcdStore;
use crate::datastore::inlet::Error;
use crate::datastore::write::{Change, Stored, Writable, Write, Written};
use crate::model::object::{Kind, ObjectId};
use crate::model::{Revision, no_revision};

impl EtcdStore {
    fn write_failed(&self, verb: &str, key: &str, failure: Failure) -> Error {
        let doing = format!("{verb} {key} in etcd at {}", self.shared.endpoints.urls());
        failure.into_error(doing, &no_revision())
    }
}

/// The key of an object.
fn key_of(kind: &Kind, id: &ObjectId) -> Result<String, Error> {
    match &kind.etcd_prefix {
        Some(prefix) => Ok(format!("{prefix}{id}")),
        None => Err(Error::KindAbsent { kind: kind.to_string(), gone: false }),
    }
}

/// The revision that the key of an object must have; 0: there is no such key.
fn expected(change: &Change<'_>, key: &str) -> Result<i64, Error> {
    let of = |before: &Revision| {
        before.parse().map_err(|_| Error::Relist {
            doing: format!("write {key} in etcd"),
            revision: before.clone(),
            reason: "this is no revision of etcd".to_owned(),
        })
    };
    match change {
        Change::Create { .. } => Ok(0),
        Change::Update { before, .. } | Change::Delete { before } => of(before),
    }
}

impl Writable for EtcdStore {
    fn read<'a>(&'a self, kind: &'a Kind, id: &'a ObjectId) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        Box::pin(async move {
            let key = key_of(kind, id)?;
            let get = |connection: Connection| {
                let key = key.clone();
                async move { connection.client.kv_client().get(key, None).await.map_err(|error| Failure::of(&error)) }
            };
            let mut response =
                self.shared.endpoints.request(get).await.map_err(|failure| self.write_failed("read", &key, failure))?;
            let kv = std::mem::take(&mut response.0.kvs).into_iter().next();
            Ok(kv.map(|kv| Stored { body: kv.value, revision: revision_text(kv.mod_revision) }))
        })
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<Written, Error>> {
        let Write { kind, id, change, dry_run } = write;
        Box::pin(async move {
            let key = key_of(kind, id)?;
            let expected = expected(&change, &key)?;
            let send = |connection: Connection| {
                let act = match &change {
                    Change::Create { body } | Change::Update { body, .. } => {
                        TxnOp::put(key.as_str(), body.as_slice(), None)
                    }
                    Change::Delete { .. } => TxnOp::delete(key.as_str(), None),
                };
                let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, expected);
                let acts = if dry_run { Vec::new() } else { vec![act] };
                let txn = Txn::new().when([unchanged]).and_then(acts);
                async move { connection.client.kv_client().txn(txn).await.map_err(|error| Failure::of(&error)) }
            };
            let answer = self.shared.endpoints.request(send).await;
            let answer = answer.map_err(|failure| self.write_failed("write", &key, failure))?;
            if !answer.succeeded() {
                return Ok(Written::Conflict);
            }
            Ok(Written::Done(answer.header().map_or_else(no_revision, |header| revision_text(header.revision()))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::kinds::{NETWORK_SET, POD, TIER};

    #[test]
    fn keys_and_conditions() {
        let id = |namespace: &str| ObjectId { namespace: namespace.into(), name: "x".into() };
        assert_eq!(key_of(&TIER, &id("")).unwrap(), "/calico/resources/v3/projectcalico.org/tiers/x");
        assert_eq!(key_of(&NETWORK_SET, &id("n")).unwrap(), "/calico/resources/v3/projectcalico.org/networksets/n/x");
        assert!(matches!(key_of(&POD, &id("n")), Err(Error::KindAbsent { .. })));
        let (known, odd): (Revision, Revision) = ("7".into(), "seven".into());
        let (none, some) = (Change::Create { body: Vec::new() }, Change::Delete { before: &known });
        assert_eq!((expected(&none, "k").unwrap(), expected(&some, "k").unwrap()), (0, 7));
        let wrong = expected(&Change::Update { body: Vec::new(), before: &odd }, "k").unwrap_err();
        assert!(matches!(&wrong, Error::Relist { revision, .. } if **revision == *"seven"), "{wrong}");
    }
}
