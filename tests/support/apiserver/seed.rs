//! Fast population: objects written straight into the API server's etcd, as JSON, which it reads like its own format.
//!
//! A REST call per object (two for a pod with a status) takes some milliseconds; a transaction with a hundred objects takes
//! as long. Fields that the server would have filled in (uid, creation time) are filled in here. Nothing is validated or defaulted
//! until the server decodes it.

use anyhow::{Context as _, ensure};
use etcd_client::{CompactionOptions, Txn, TxnOp};
use serde_json::{Value, json};

use super::ApiServer;

/// Objects per transaction; etcd allows 128 operations.
const PER_TRANSACTION: usize = 100;

impl ApiServer {
    /// Stores objects. `resource` is the lower-case plural; the objects have group, version, namespace and name.
    pub(crate) async fn seed(&self, resource: &str, objects: impl IntoIterator<Item = Value>) -> anyhow::Result<usize> {
        let mut etcd = self.etcd.client().await;
        let mut writes = Vec::new();
        for mut object in objects {
            let key = key_of(resource, &object).with_context(|| format!("{object} has no name"))?;
            complete(&mut object);
            writes.push(TxnOp::put(key, object.to_string(), None));
        }
        for chunk in writes.chunks(PER_TRANSACTION) {
            etcd.txn(Txn::new().and_then(chunk.to_vec())).await?;
        }
        Ok(writes.len())
    }

    /// Removes stored objects, unseen by an API server that is away. Only group, namespace and name of the objects are used.
    pub(crate) async fn erase(&self, resource: &str, objects: impl IntoIterator<Item = Value>) -> anyhow::Result<()> {
        let mut etcd = self.etcd.client().await;
        for object in objects {
            let key = key_of(resource, &object).with_context(|| format!("{object} has no name"))?;
            let deleted = etcd.delete(key.as_str(), None).await?.deleted();
            ensure!(deleted == 1, "{key} is not there");
        }
        Ok(())
    }

    /// Compacts etcd's history up to the present.
    pub(crate) async fn compact(&self) -> anyhow::Result<()> {
        let mut etcd = self.etcd.client().await;
        let now = etcd.get("x", None).await?.header().context("an answer has a header")?.revision();
        etcd.compact(now, Some(CompactionOptions::new().with_physical())).await?;
        Ok(())
    }
}

/// The key of an object in the API server's etcd.
fn key_of(resource: &str, object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str()?;
    let name = match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let group = object["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
    let folder = match resource {
        "nodes" => "minions".to_owned(),
        "services" => "services/specs".to_owned(),
        // Paths of built-in kinds have no group; paths of custom kinds do.
        _ if group.is_empty() || ["discovery.k8s.io", "networking.k8s.io"].contains(&group) => resource.to_owned(),
        _ => format!("{group}/{resource}"),
    };
    Some(format!("/registry/{folder}/{name}"))
}

/// Fills in the fields that the API server adds to every object.
fn complete(object: &mut Value) {
    let metadata = &mut object["metadata"];
    for (field, value) in [("uid", json!(uid())), ("creationTimestamp", json!("2026-01-02T03:04:05Z"))] {
        if metadata[field].is_null() {
            metadata[field] = value;
        }
    }
}

/// A random UUID.
fn uid() -> String {
    let bits: u128 = rand::random();
    let hex = format!("{bits:032x}");
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}
