//! The content that agents should hold: the API server's, read in plain lists by `admin` and put through the same processors and
//! the same validation, without the Kubernetes datastore.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Dialect, Kind, Object, ObjectId};
use bulrush::demand::Demand;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::SyncerName;
use bulrush::model::{Key, SyncStatus, SyncerEvent};
use bulrush::pipeline::Stages;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::spec::PipelineSpec;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::apiserver::crds::{CrdGroup, is_calico};
use crate::apiserver::rest::{Refused, Rest};

/// Longest time for the conversion. In memory it takes a second at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Content of one agent: values without revisions, because a change without effect alters only the revision.
pub(super) type Content = BTreeMap<Key, Bytes>;

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    resource_version: String,
}

/// The content of every syncer.
pub(super) async fn expected(
    rest: &Rest,
    group: CrdGroup,
    context: &Context,
) -> anyhow::Result<HashMap<SyncerName, Content>> {
    let store = MemoryStore::new();
    let specs = pipelines::calico(Flavour::Kubernetes, context);
    let mut loaded = Vec::new();
    for kind in specs.iter().flat_map(|spec| &spec.sources).flat_map(|source| &source.kinds) {
        if !loaded.contains(kind) {
            load(&store, rest, group, kind).await?;
            loaded.push(kind.clone());
        }
    }
    let mut contents = HashMap::new();
    for spec in specs {
        let syncer = spec.syncer;
        let content = tokio::time::timeout(PATIENCE, converted(spec, &store)).await;
        contents.insert(syncer, content.with_context(|| format!("{syncer} does not get in sync"))??);
    }
    Ok(contents)
}

/// Copies a kind's objects from the API server into the store.
async fn load(store: &MemoryStore, rest: &Rest, group: CrdGroup, kind: &Kind) -> anyhow::Result<()> {
    let path = group.collection(kind, "");
    let body = match rest.get_bytes(&path).await {
        Ok(body) => body,
        Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == 404) => {
            store.set_absent(kind, true);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let dialect = match group {
        _ if !is_calico(kind) => Dialect::Kubernetes,
        CrdGroup::V1 => Dialect::CrdV1,
        CrdGroup::V3 => Dialect::V3,
    };
    let list: List<'_> = serde_json::from_slice(&body).with_context(|| format!("{path} is a list"))?;
    let mut objects = Vec::new();
    for raw in list.items {
        let Item { metadata } = serde_json::from_str(raw.get())?;
        objects.push(Object {
            id: ObjectId { namespace: metadata.namespace.into(), name: metadata.name.into() },
            revision: metadata.resource_version.into(),
            dialect,
            body: raw.get().to_owned().into(),
            place: None,
        });
    }
    store.load(kind, objects, list.metadata.resource_version.into());
    Ok(())
}

/// Runs one syncer's stages over the store until they are in sync.
async fn converted(spec: PipelineSpec, store: &MemoryStore) -> anyhow::Result<Content> {
    let metrics = SyncerMetrics::unregistered();
    let mut hub = KindHub::new(Arc::new(store.clone()), 1);
    let (stages, mut received) = Stages::new(spec, &metrics, &mut hub, Demand::default());
    let cancel = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(hub.run(cancel.clone()));
    tasks.spawn(stages.run(cancel.clone()));
    let mut content = Content::new();
    let mut batch = Vec::new();
    let mut is_in_sync = false;
    while !is_in_sync {
        ensure!(received.recv_batch(&mut batch, 1).await > 0, "the stages run");
        for event in batch.drain(..) {
            match event {
                SyncerEvent::Status(status) => is_in_sync = status == SyncStatus::InSync,
                SyncerEvent::Progress(_) => {}
                SyncerEvent::Updates(updates) => {
                    // The agents here are of the development branch, which gets no key that is carried aside.
                    for update in updates.into_iter().filter(|update| !update.key.is_aside()) {
                        if let Some(value) = update.value {
                            content.insert(update.key, value.bytes);
                        } else {
                            content.remove(&update.key);
                        }
                    }
                }
            }
        }
    }
    cancel.cancel();
    tasks.join_all().await;
    Ok(content)
}
