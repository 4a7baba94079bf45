//! Bytes per key-value of felix' pipeline: the map, and the memory of the stages before it.

use std::sync::Arc;

use anyhow::Context as _;
use bulrush::calico::kinds::WORKLOAD_ENDPOINT;
use bulrush::calico::pipelines::{Flavour, calico};
use bulrush::calico::processors::Context;
use bulrush::calico::syncers::FELIX;
use bulrush::datastore::{Datastore, Error, ListPage, Selection, WatchBatch};
use bulrush::health::HealthAggregator;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::{Revision, SyncStatus};
use bulrush::pipeline::SyncerPipeline;
use bulrush::snapcache::Map;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::tasks::TaskRegistry;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::common::endpoint;
use super::{Figures, live};

/// Objects in a page of a list.
const PAGE: usize = 1000;

/// Makes endpoints while they are listed, and keeps none of them. All other kinds are empty, and nothing changes.
#[derive(Debug)]
struct MadeUp {
    endpoints: usize,
}

impl Datastore for MadeUp {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        let total = if *selection.kind() == WORKLOAD_ENDPOINT { self.endpoints } else { 0 };
        let page = move |from: usize| {
            let objects = (from..total.min(from + PAGE)).map(|i| endpoint(i, total, 0)).collect();
            Ok(ListPage { objects, malformed: Vec::new(), revision: Arc::from("1"), as_of: None })
        };
        stream::iter((0..total.max(1)).step_by(PAGE)).map(page).boxed()
    }

    fn watch(&self, _selection: &Selection, _from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        stream::pending().boxed()
    }
}

pub(super) async fn measure(endpoints: usize) -> anyhow::Result<Figures> {
    eprintln!("pipeline: {endpoints} endpoints");
    let before = live();
    let (map, whole) = run(endpoints).await?;
    let map_only = live() - before;
    let whole = whole - before;
    let texts = |update: &bulrush::model::Update| {
        update.key.len() + update.value.as_ref().map_or(0, |value| value.bytes.len()) + update.revision.len()
    };
    let texts: usize = map.values().map(|update| texts(update)).sum();
    let keys = map.len() as f64;
    Ok(vec![
        ("keys", keys),
        ("bytes per KV: key, value and revision as text", texts as f64 / keys),
        ("bytes per KV: map", map_only as f64 / keys),
        ("bytes per KV: stages before the map", (whole - map_only) as f64 / keys),
        ("bytes per KV: pipeline", whole as f64 / keys),
    ])
}

/// The map of a pipeline in sync, and the live bytes before the pipeline was dropped.
async fn run(endpoints: usize) -> anyhow::Result<(Map, i64)> {
    let (tasks, health, cancel) = (TaskRegistry::new(), HealthAggregator::new(), CancellationToken::new());
    let mut hub = KindHub::new(Arc::new(MadeUp { endpoints }), 1);
    let felix = calico(Flavour::Etcd, &Context::default()).into_iter().find(|spec| spec.syncer == FELIX);
    let metrics = SyncerMetrics::unregistered();
    let pipeline = SyncerPipeline::new(felix.context("felix has a pipeline")?, 100, &metrics, &mut hub);
    let reader = pipeline.view().reader;
    pipeline.start(&tasks, &health, true, &cancel);
    tasks.spawn("watches", hub.run(cancel.clone()));
    let mut trail = reader.follow();
    while trail.skip_to_newest().status != SyncStatus::InSync {
        trail.next().await.context("the pipeline ended")?;
    }
    let map = trail.position().map.clone();
    drop(trail);
    let whole = live();
    tasks.stopping();
    cancel.cancel();
    tasks.all_ended().await;
    Ok((map, whole))
}
