//! Whether a running Typha (or Bulrush) and this program tell agents the same: the proof before the image is swapped.
//!
//! Our pipelines read the datastore as the daemon's do, and write nothing. When they are in sync we connect to the server as an agent of one
//! release for each syncer, and compare keys and values with those that such an agent would get from us. Both sides go on changing: a difference
//! counts once it has lasted for [`SETTLED`].

mod judge;
mod theirs;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use prometheus::Registry;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

pub use self::judge::{Difference, differences};
pub use self::theirs::Against;
use self::theirs::Theirs;
use super::report::Report;
use crate::calico::catalog::catalog;
use crate::calico::cluster::Cluster;
use crate::calico::dialect::View;
use crate::calico::pipelines;
use crate::calico::processors::Context;
use crate::calico::release::Release;
use crate::calico::syncers;
use crate::config::DatastoreConfig;
use crate::daemon::source::Source;
use crate::health::HealthAggregator;
use crate::metrics::SyncerMetrics;
use crate::model::SyncerName;
use crate::model::{Key, SyncStatus};
use crate::pipeline::{PipelineView, SyncerPipeline};
use crate::syncer::kind_watch::{KindHub, KindStatus, Phase};
use crate::syncer::spec::PipelineSpec;
use crate::tasks::TaskRegistry;

/// A difference that has lasted for this long is no change on its way: changes take milliseconds on both sides.
pub const SETTLED: Duration = Duration::from_secs(5);
/// Time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(1);
/// Differences of one syncer that get a finding of their own. The report's facts have all of them.
const MOST_FINDINGS: usize = 20;
/// Typha's default.
const MAX_BATCH_SIZE: usize = 100;
const TOPIC: &str = "compare";

/// Compares all syncers.
///
/// # Errors
/// The datastore cannot be opened with this configuration. A datastore or a server that does not answer is a finding.
///
/// # Cancel safety
/// May be dropped at any time.
pub async fn compare(
    datastore: &DatastoreConfig,
    context: &Context,
    against: Against,
    report: &mut Report,
) -> anyhow::Result<()> {
    let source = Source::open(datastore, catalog(None)).context("open the datastore")?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let deadline = Instant::now() + against.limit;
    let ours = Ours::start(source, context, &stop);
    if timeout_at(deadline, ours.in_sync()).await.is_err() {
        let text = format!("our own pipelines are not in sync after {:?}: {}", against.limit, ours.trouble());
        report.unknown(TOPIC, text);
        return Ok(());
    }
    let of_the_cluster = *context.cluster.borrow();
    let Some(line) = against.line.or(of_the_cluster) else {
        report
            .unknown(TOPIC, "the cluster's ClusterInformation names no release of Calico")
            .remedy("say with --dialect as an agent of which release to compare");
        return Ok(());
    };
    report.fact("compared_as", line.as_str());
    let theirs: Vec<Theirs> =
        syncers::ALL.iter().map(|syncer| Theirs::follow(&against, *syncer, line)).collect::<Result<_, _>>()?;
    for server in &theirs {
        if timeout_at(deadline, server.in_sync()).await.is_err() {
            let text = format!("{} of {} is not in sync: {}", server.syncer, against.server, server.progress());
            report.unknown(TOPIC, text);
            return Ok(());
        }
    }
    let mut seen: BTreeMap<(SyncerName, Key), Instant> = BTreeMap::new();
    loop {
        let compared: Vec<Compared> = theirs.iter().map(|server| ours.compare(server, line)).collect();
        let now = Instant::now();
        let names = compared.iter().flat_map(|one| one.differences.keys().map(|key| (one.syncer, key.clone())));
        seen = names.map(|name| (name.clone(), seen.get(&name).copied().unwrap_or(now))).collect();
        let settled = seen.values().all(|since| now.duration_since(*since) >= SETTLED);
        if settled || now >= deadline {
            for one in &compared {
                let moving = |key: &Key| {
                    seen.get(&(one.syncer, key.clone())).is_some_and(|since| now.duration_since(*since) < SETTLED)
                };
                one.tell(line, &moving, report);
            }
            return Ok(());
        }
        sleep(INTERVAL).await;
    }
}

/// Our own pipelines over the datastore.
struct Ours {
    views: Vec<PipelineView>,
    kinds: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
}

impl Ours {
    fn start(source: Source, context: &Context, stop: &CancellationToken) -> Self {
        let (tasks, health, registry) = (TaskRegistry::new(), HealthAggregator::new(), Registry::new());
        tasks.include(&source.tasks);
        let hub = KindHub::new(source.datastore.clone(), rand::random());
        let mut hub = hub.with_policy(Cluster::of(context.cluster.subscribe()));
        let build = |spec: PipelineSpec| {
            let metrics = SyncerMetrics::new(&registry, spec.syncer.as_str());
            SyncerPipeline::new(spec, MAX_BATCH_SIZE, &metrics, &mut hub)
        };
        let built: Vec<SyncerPipeline> = pipelines::calico(source.flavour, context).into_iter().map(build).collect();
        let views = built.iter().map(SyncerPipeline::view).collect();
        let kinds = hub.statuses();
        for pipeline in built {
            pipeline.start(&tasks, &health, true, stop);
        }
        tasks.spawn("watches", hub.run(stop.clone()));
        Self { views, kinds }
    }

    async fn in_sync(&self) {
        for view in &self.views {
            while view.reader.newest().status != SyncStatus::InSync {
                sleep(INTERVAL / 10).await;
            }
        }
    }

    /// The reasons why we are not in sync.
    fn trouble(&self) -> String {
        let kinds: Vec<KindStatus> = self.kinds.borrow().iter().map(|kind| kind.borrow().clone()).collect();
        let told = kinds.iter().filter(|kind| !matches!(kind.phase, Phase::Absent));
        let errors: Vec<String> =
            told.filter_map(|kind| Some(format!("{}: {}", kind.kind, kind.error.as_ref()?))).collect();
        if errors.is_empty() { "lists are still on their way".to_owned() } else { errors.join("; ") }
    }

    fn compare(&self, server: &Theirs, line: Release) -> Compared {
        let view = self.views.iter().find(|view| view.syncer == server.syncer).expect("all syncers have a pipeline");
        let ours = View::content(server.syncer, line, &view.reader.newest());
        server.content(|theirs| Compared {
            syncer: server.syncer,
            theirs: theirs.len(),
            ours: ours.len(),
            differences: differences(line, theirs, &ours),
        })
    }
}

/// The result for one syncer.
struct Compared {
    syncer: SyncerName,
    theirs: usize,
    ours: usize,
    differences: BTreeMap<Key, Difference>,
}

impl Compared {
    fn tell(&self, line: Release, moving: &dyn Fn(&Key) -> bool, report: &mut Report) {
        let Self { syncer, theirs, ours, differences } = self;
        let known = differences.values().filter(|difference| difference.known().is_some()).count();
        let unknown: Vec<(&Key, &Difference)> =
            differences.iter().filter(|(_, difference)| difference.known().is_none()).collect();
        let told = json!({
            "theirs": theirs,
            "ours": ours,
            "differences": unknown.iter().map(|(key, difference)| json!({"key": key.as_str(), "difference": difference.to_string()})).collect::<Vec<_>>(),
            "known_differences": known,
        });
        report.fact(syncer.as_str(), told);
        if unknown.is_empty() {
            report.ok(TOPIC, format!("{syncer} as {line}: {ours} keys, equal but for {known} known differences"));
        } else {
            let text =
                format!("{syncer} as {line}: {} of {theirs} keys there, {ours} here are different", unknown.len());
            report.obstacle(TOPIC, text);
        }
        for (key, difference) in unknown.iter().take(MOST_FINDINGS) {
            let still = if moving(key) { " (still changing)" } else { "" };
            report.obstacle(TOPIC, format!("{syncer} {}: {difference}{still}", key.as_str()));
        }
        if unknown.len() > MOST_FINDINGS {
            let rest = unknown.len() - MOST_FINDINGS;
            report.obstacle(TOPIC, format!("{syncer}: {rest} more, which --output json lists"));
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in differences.values().filter_map(Difference::known) {
            *reasons.entry(reason).or_default() += 1;
        }
        for (reason, count) in reasons {
            report.note(TOPIC, format!("{syncer}: {count} keys differ by {reason}"));
        }
    }
}
