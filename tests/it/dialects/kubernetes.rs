//! The same with the Kubernetes API as the datastore: the answers of API servers with each release's own definitions of kinds, and the
//! data that the Typha of that release sent from them (`tests/vectors/dialects/kubernetes.json.zst`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bulrush::calico::dialect::View;
use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::calico::release::Release;
use bulrush::health::HealthAggregator;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::{Key, SyncStatus, Update, UpdateType, Value, no_revision};
use bulrush::pipeline::{PipelineView, SyncerPipeline};
use bulrush::preflight::compare::{Difference, differences};
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::spec::PipelineSpec;
use bulrush::tasks::TaskRegistry;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use crate::scripted::{self, Asked, ScriptedApi};

/// Longest time until in-sync, in paused time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Updates of a crumb.
const MAX_BATCH_SIZE: usize = 100;

#[derive(Deserialize)]
struct Recorded {
    releases: BTreeMap<String, Cluster>,
}

#[derive(Deserialize)]
struct Cluster {
    /// The API server's answers to plain lists, by path.
    lists: BTreeMap<String, Json>,
    /// Value and revision by syncer and key. A value that is not JSON is a text.
    answers: BTreeMap<String, BTreeMap<String, (Json, String)>>,
}

fn answer(asked: Asked, lists: &BTreeMap<String, Json>) {
    match lists.get(&asked.path) {
        None => asked.answer(404, &[], "404 page not found\n"),
        Some(_) if asked.wants_initial_events() => asked.refuse(422, "Invalid", "sendInitialEvents is forbidden"),
        // Nothing changes.
        Some(_) if asked.is_watch() => std::mem::forget(asked.stream()),
        Some(list) => asked.json(list),
    }
}

async fn answer_all(mut api: ScriptedApi, lists: BTreeMap<String, Json>) {
    while let Some(asked) = api.recv().await {
        answer(asked, &lists);
    }
}

/// Pipelines over an API server with this content, in sync.
async fn in_sync(lists: BTreeMap<String, Json>, stop: &CancellationToken) -> anyhow::Result<Vec<PipelineView>> {
    let (store, api) = scripted::start(|_| {});
    let (tasks, health, context) = (TaskRegistry::new(), HealthAggregator::new(), Context::default());
    let mut hub = KindHub::new(Arc::new(store), 1);
    let build = |spec: PipelineSpec| {
        let metrics = SyncerMetrics::unregistered();
        SyncerPipeline::new(spec, MAX_BATCH_SIZE, &metrics, &mut hub)
    };
    let built: Vec<SyncerPipeline> = pipelines::calico(Flavour::Kubernetes, &context).into_iter().map(build).collect();
    let views: Vec<PipelineView> = built.iter().map(SyncerPipeline::view).collect();
    for pipeline in built {
        pipeline.start(&tasks, &health, true, stop);
    }
    tasks.spawn("api", answer_all(api, lists));
    tasks.spawn("watches", hub.run(stop.clone()));
    for view in &views {
        let mut trail = view.reader.follow();
        let arrives = async {
            while trail.position().status != SyncStatus::InSync {
                trail.next().await.context("the cache ended")?;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, arrives).await.with_context(|| format!("{} is not in sync", view.syncer))??;
    }
    Ok(views)
}

fn recorded(answers: &BTreeMap<String, (Json, String)>) -> BTreeMap<Key, Update> {
    let update = |(key, (value, revision)): (&String, &(Json, String))| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let update = Update {
            key: key.as_str().into(),
            value: Some(Value::raw(text)),
            revision: revision.as_str().into(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::New,
            origin: None,
        };
        (update.key.clone(), update)
    };
    answers.iter().map(update).collect()
}

/// Expected number of each known difference.
fn expected(line: Release) -> BTreeMap<&'static str, usize> {
    let old =
        |words, count, releases: std::ops::RangeInclusive<Release>| releases.contains(&line).then_some((words, count));
    [
        old("metadata.managedFields", usize::MAX, Release::V3_26..=Release::V3_32),
        old("a UID that 3.26 passes on", usize::MAX, Release::V3_26..=Release::V3_26),
        old("an entry of a rule's networks", 1, Release::V3_26..=Release::V3_30),
        old("named ports of init containers", 1, Release::V3_26..=Release::V3_29),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test(start_paused = true)]
async fn agents_of_every_release_get_the_data_of_their_own_typha_from_the_same_api_server() -> anyhow::Result<()> {
    let bytes = zstd::decode_all(&include_bytes!("../../vectors/dialects/kubernetes.json.zst")[..])?;
    let recorded_all: Recorded = serde_json::from_slice(&bytes)?;
    ensure!(recorded_all.releases.len() == 7, "one of each release");
    let mut compared = 0;
    for (version, cluster) in recorded_all.releases {
        let line: Release = version.parse()?;
        let stop = CancellationToken::new();
        let views = in_sync(cluster.lists, &stop).await?;
        let mut met: BTreeMap<&str, usize> = BTreeMap::new();
        for view in &views {
            let theirs = recorded(&cluster.answers[view.syncer.as_str()]);
            let ours = View::content(view.syncer, line, &view.reader.newest());
            compared += theirs.len();
            for (key, theirs) in &theirs {
                let ours = ours.get(key).with_context(|| format!("{version} {}: {key} is missing", view.syncer))?;
                ensure!(ours.revision == theirs.revision, "{version} {}: the revision of {key}", view.syncer);
            }
            for (key, difference) in differences(line, &theirs, &ours) {
                let reason = match &difference {
                    Difference::Value { known: Some(reason), .. } => *reason,
                    other => anyhow::bail!("{version} {} {key}: {other}", view.syncer),
                };
                // The recorded values are parsed: the order of their fields says nothing.
                if !reason.starts_with("another order") {
                    *met.entry(reason).or_default() += 1;
                }
            }
        }
        for (words, count) in expected(line) {
            let found: usize = met.iter().filter(|(reason, _)| reason.contains(words)).map(|(_, n)| n).sum();
            ensure!(
                found > 0 && (count == usize::MAX || found == count),
                "{version}: {words} {count} times, but {met:?}"
            );
            met.retain(|reason, _| !reason.contains(words));
        }
        ensure!(met.is_empty(), "{version}: known differences that are not expected: {met:?}");
        stop.cancel();
    }
    ensure!(compared > 800, "only {compared} keys were compared");
    Ok(())
}
