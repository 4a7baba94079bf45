//! The little that is written at start: what Calico's components expect to find in a fresh datastore.
//!
//! `ClusterInformation` `default` is created, or completed where something is missing: a GUID, `datastoreReady` (only if
//! nobody set it), our words in `clusterType`. The tiers `default`, `kube-admin` and `kube-baseline` are created if they
//! are missing. Every write is a compare-and-swap, so any number of processes may do this at once, and doing it again
//! changes nothing. A datastore takes part by implementing [`Writable`]. Runs before the syncers; they do not wait for
//! `datastoreReady`, which is only data.

use std::time::Duration;

use rand::RngCore;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::calico::kinds;
use crate::datastore::write::{Change, Writable, Write, Written};
use crate::datastore::{Error, Kind, ObjectId};
use crate::model::timestamp::Timestamp;

/// How long one attempt may take before it is abandoned and started afresh. Typha's.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts. Typha's.
pub const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause where somebody has to act first: a role, or the definitions of the kinds.
pub const LONG_PAUSE: Duration = Duration::from_secs(5);
/// How often one object is read again because somebody else wrote it in between, within one attempt.
const MAX_CONFLICTS: u32 = 10;
/// Failed attempts are logged from the first on, then once per this many.
const LOG_EVERY: u64 = 30;

/// The tiers every cluster has, with order and default action.
const TIERS: [(&str, u32, &str); 3] =
    [("default", 1_000_000, "Deny"), ("kube-admin", 1_000, "Pass"), ("kube-baseline", 10_000_000, "Pass")];

/// How the datastore is initialised.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Write nothing at all. An option of ours.
    pub read_only: bool,
    /// Words that `clusterType` must contain: `typha`, and with Kubernetes as datastore also `kdd`.
    pub cluster_types: Vec<String>,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { read_only: false, cluster_types: vec!["typha".to_owned()] }
    }
}

/// Initialises the datastore; comes back when that has succeeded, however long it takes.
///
/// `may_serve` is told when what is in the datastore may be served: at the end, or earlier if waiting longer may be in vain,
/// because we are not permitted to write or the kinds are not defined yet.
///
/// # Cancel safety
/// May be dropped at any time: every write stands for itself.
pub async fn initialise(store: &dyn Writable, options: &InitOptions, may_serve: oneshot::Sender<()>) {
    let mut may_serve = Some(may_serve);
    let mut serve = || {
        // Nobody waits any more: the daemon ends.
        may_serve.take().map(|told| told.send(()))
    };
    if options.read_only {
        info!("read-only: the datastore is not initialised");
        serve();
        return;
    }
    for attempt in 0_u64.. {
        let (reason, pause) = match timeout(ATTEMPT_TIMEOUT, ensure(store, options)).await {
            Ok(Ok(written)) => {
                info!(written, "the datastore is initialised");
                serve();
                return;
            }
            Ok(Err(error @ (Error::Forbidden { .. } | Error::KindAbsent { .. }))) => {
                serve();
                (error.to_string(), LONG_PAUSE)
            }
            Ok(Err(error)) => (error.to_string(), RETRY_PAUSE),
            Err(_) => (format!("no end within {ATTEMPT_TIMEOUT:?}"), RETRY_PAUSE),
        };
        if attempt % LOG_EVERY == 0 {
            warn!(attempt, reason, "initialising the datastore failed, trying again");
        }
        sleep(pause).await;
    }
}

/// One attempt. Returns how many objects were written.
///
/// # Errors
/// The first error of the datastore. An object that is there but is not JSON is logged and left alone.
pub async fn ensure(store: &dyn Writable, options: &InitOptions) -> Result<usize, Error> {
    let mut written = 0;
    let cluster = &kinds::CLUSTER_INFORMATION;
    written += settle(store, cluster, "default", |before| complete_cluster(before, &options.cluster_types)).await?;
    for (name, order, action) in TIERS {
        let spec = json!({ "order": order, "defaultAction": action });
        let tier = |before: Option<Value>| match before {
            Some(_) => None,
            None => Some(resource("Tier", name, spec.clone())),
        };
        written += settle(store, &kinds::TIER, name, tier).await?;
    }
    Ok(written)
}

/// Reads, changes, writes, and starts over when somebody else wrote in between.
async fn settle(
    store: &dyn Writable,
    kind: &Kind,
    name: &str,
    change: impl Fn(Option<Value>) -> Option<Value>,
) -> Result<usize, Error> {
    let id = ObjectId { namespace: "".into(), name: name.into() };
    for _ in 0..MAX_CONFLICTS {
        let stored = store.read(kind, &id).await?;
        let before = match stored.as_ref().map(|stored| serde_json::from_slice(&stored.body)).transpose() {
            Ok(before) => before,
            Err(reason) => {
                error!(%kind, name, %reason, "this object is not JSON: it is left as it is, repair it by hand");
                return Ok(0);
            }
        };
        let Some(after) = change(before) else { return Ok(0) };
        let body = after.to_string().into_bytes();
        let change = match &stored {
            Some(stored) => Change::Update { body, before: &stored.revision },
            None => Change::Create { body },
        };
        if let Written::Done(_) = store.write(Write { kind, id: &id, change, dry_run: false }).await? {
            info!(%kind, name, "written to the datastore at start");
            return Ok(1);
        }
    }
    Err(Error::Retry {
        doing: format!("initialise {kind} {name}"),
        reason: format!("somebody else wrote it {MAX_CONFLICTS} times in between; check what does"),
    })
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "kind": kind,
        "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": name, "uid": random_uid(), "creationTimestamp": Timestamp::now().to_string() },
        "spec": spec,
    })
}

/// The cluster information as it should be; `None`: it is complete.
fn complete_cluster(before: Option<Value>, words: &[String]) -> Option<Value> {
    let fresh = before.is_none();
    let mut object = before.unwrap_or_else(|| resource("ClusterInformation", "default", json!({})));
    let top = object.as_object_mut()?;
    let spec = top.entry("spec").or_insert(Value::Null);
    if spec.is_null() {
        *spec = Value::Object(Map::new());
    }
    let spec = spec.as_object_mut()?;
    let mut changed = fresh;
    if spec.get("clusterGUID").and_then(Value::as_str).is_none_or(str::is_empty) {
        spec.insert("clusterGUID".to_owned(), random_uid().replace('-', "").into());
        changed = true;
    }
    if spec.get("datastoreReady").is_none_or(Value::is_null) {
        spec.insert("datastoreReady".to_owned(), true.into());
        changed = true;
    }
    let mut types = spec.get("clusterType").and_then(Value::as_str).unwrap_or_default().to_owned();
    for word in words {
        if !types.split(',').any(|known| known == word) {
            if !types.is_empty() {
                types.push(',');
            }
            types.push_str(word);
            changed = true;
        }
    }
    spec.insert("clusterType".to_owned(), types.into());
    changed.then_some(object)
}

/// A random UUID (version 4).
fn random_uid() -> String {
    let mut bytes = [0_u8; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests;
