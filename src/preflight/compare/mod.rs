//! Whether a running Typha (or Bulrush) and this program tell agents the same: the proof before the image is swapped.
//!
//! Our pipelines read the datastore as the daemon's do, and write nothing. When they are in sync we connect to the server as an agent of one
//! release for each syncer, and compare keys and values with what such an agent would get from us. Both sides go on changing: a difference
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
use self::theirs::Theirs;
use super::report::{Report, Verdict};
use crate::config::DatastoreConfig;
use crate::daemon::source::Source;
use crate::dialect::View;
use crate::health::HealthAggregator;
use crate::metrics::SyncerMetrics;
use crate::model::SyncerType;
use crate::model::release::Release;
use crate::model::{Key, SyncStatus};
use crate::pipeline::{PipelineView, SyncerPipeline};
use crate::syncer::kind_watch::{KindHub, KindStatus, Phase};
use crate::syncer::pipelines;
use crate::syncer::processors::Context;
use crate::tasks::TaskRegistry;
use crate::tls::ClientTls;

/// A difference that has lasted for this long is no change on its way: changes take milliseconds on both sides.
pub const SETTLED: Duration = Duration::from_secs(5);
/// How often both sides are compared.
const INTERVAL: Duration = Duration::from_secs(1);
/// Differences of one syncer that get a finding of their own. The report's facts have all of them.
const MOST_FINDINGS: usize = 20;
/// Typha's default.
const MAX_BATCH_SIZE: usize = 100;
const TOPIC: &str = "compare";

/// The server to compare with.
#[derive(Clone, Debug)]
pub struct Against {
    /// Where it takes agents, `host:port`.
    pub server: String,
    /// The release as whose agent to ask; `None`: that of the cluster's own Calico.
    pub line: Option<Release>,
    /// TLS, if it wants that.
    pub tls: Option<ClientTls>,
    /// How long all of it may take.
    pub limit: Duration,
}

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
    let source = Source::open(datastore).context("open the datastore")?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let deadline = Instant::now() + against.limit;
    let ours = Ours::start(source, context, &stop);
    if timeout_at(deadline, ours.in_sync()).await.is_err() {
        let text = format!("our own pipelines are not in sync after {:?}: {}", against.limit, ours.trouble());
        report.add(TOPIC, Verdict::Unknown, text);
        return Ok(());
    }
    let of_the_cluster = *context.cluster.borrow();
    let Some(line) = against.line.or(of_the_cluster) else {
        report.advise(
            TOPIC,
            Verdict::Unknown,
            "the cluster's ClusterInformation names no release of Calico",
            "say with --dialect as an agent of which release to compare",
        );
        return Ok(());
    };
    report.fact("compared_as", line.as_str());
    let theirs: Vec<Theirs> =
        SyncerType::ALL.iter().map(|syncer| Theirs::follow(&against, *syncer, line)).collect::<Result<_, _>>()?;
    for server in &theirs {
        if timeout_at(deadline, server.in_sync()).await.is_err() {
            let text = format!("{} of {} is not in sync: {}", server.syncer, against.server, server.progress());
            report.add(TOPIC, Verdict::Unknown, text);
            return Ok(());
        }
    }
    let mut seen: BTreeMap<(SyncerType, Key), Instant> = BTreeMap::new();
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
        let mut hub = KindHub::new(source.datastore.clone(), rand::random()).in_cluster_of(context.cluster.subscribe());
        let build = |spec: pipelines::PipelineSpec| {
            let metrics = SyncerMetrics::new(&registry, spec.syncer);
            SyncerPipeline::new(spec, MAX_BATCH_SIZE, &metrics, &mut hub)
        };
        let built: Vec<SyncerPipeline> = pipelines::calico(source.flavour, context).into_iter().map(build).collect();
        let views = built.iter().map(SyncerPipeline::view).collect();
        let kinds = hub.statuses();
        for pipeline in built {
            pipeline.start(&tasks, &health, stop);
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
    syncer: SyncerType,
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
        report.fact(fact_name(*syncer), told);
        if unknown.is_empty() {
            report.add(
                TOPIC,
                Verdict::Ok,
                format!("{syncer} as {line}: {ours} keys, equal but for {known} known differences"),
            );
        } else {
            let text =
                format!("{syncer} as {line}: {} of {theirs} keys there, {ours} here are different", unknown.len());
            report.add(TOPIC, Verdict::Obstacle, text);
        }
        for (key, difference) in unknown.iter().take(MOST_FINDINGS) {
            let still = if moving(key) { " (still changing)" } else { "" };
            report.add(TOPIC, Verdict::Obstacle, format!("{syncer} {}: {difference}{still}", key.as_str()));
        }
        if unknown.len() > MOST_FINDINGS {
            let rest = unknown.len() - MOST_FINDINGS;
            report.add(TOPIC, Verdict::Obstacle, format!("{syncer}: {rest} more, which --output json lists"));
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in differences.values().filter_map(Difference::known) {
            *reasons.entry(reason).or_default() += 1;
        }
        for (reason, count) in reasons {
            report.add(TOPIC, Verdict::Note, format!("{syncer}: {count} keys differ by {reason}"));
        }
    }
}

fn fact_name(syncer: SyncerType) -> &'static str {
    match syncer {
        SyncerType::Felix => "felix",
        SyncerType::Bgp => "bgp",
        SyncerType::TunnelIpAllocation => "tunnel-ip-allocation",
        SyncerType::NodeStatus => "node-status",
    }
}
