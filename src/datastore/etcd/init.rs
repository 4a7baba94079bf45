//! Initialisation in etcd: reads, and writes that are transactions on the revision of the key.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures_util::future::BoxFuture;

use super::super::init::{Stored, Writable, Write, Written};
use super::super::{Error, Kind};
use super::EtcdStore;
use super::failure::Failure;
use super::object::revision_text;
use crate::model::no_revision;

impl EtcdStore {
    fn key_of(kind: &Kind, name: &str) -> Result<String, Error> {
        match &kind.etcd_prefix {
            Some(prefix) => Ok(format!("{prefix}{name}")),
            None => Err(Error::KindAbsent { kind: kind.to_string(), gone: false }),
        }
    }

    fn write_failed(&self, verb: &str, key: &str, failure: Failure) -> Error {
        let doing = format!("{verb} {key} in etcd at {}", self.shared.endpoints.urls());
        failure.into_error(doing, &no_revision())
    }
}

impl Writable for EtcdStore {
    fn read<'a>(&'a self, kind: &'a Kind, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        Box::pin(async move {
            let key = Self::key_of(kind, name)?;
            let get = |connection: super::endpoints::Connection| {
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
        let Write { kind, name, body, before } = write;
        Box::pin(async move {
            let key = Self::key_of(kind, name)?;
            let expected = before.map_or(Ok(0), |revision| revision.parse::<i64>()).map_err(|_| Error::Relist {
                doing: format!("write {key} in etcd"),
                revision: before.cloned().unwrap_or_else(|| Arc::from("")),
                reason: "this is no revision of etcd".to_owned(),
            })?;
            let body = &body;
            let put = |connection: super::endpoints::Connection| {
                let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, expected);
                let txn = Txn::new().when([unchanged]).and_then([TxnOp::put(key.as_str(), body.as_slice(), None)]);
                async move { connection.client.kv_client().txn(txn).await.map_err(|error| Failure::of(&error)) }
            };
            let response = self
                .shared
                .endpoints
                .request(put)
                .await
                .map_err(|failure| self.write_failed("write", &key, failure))?;
            Ok(if response.succeeded() { Written::Done } else { Written::Conflict })
        })
    }
}
