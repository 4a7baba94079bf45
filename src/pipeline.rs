//! One syncer's stages, wired: syncer → decoupler → validation → decoupler → snapshot cache.
//!
//! The struct lists the stages in the data's order; that list is the best description of a pipeline that there is.

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::decoupler;
use crate::decoupler::MAX_BATCH;
use crate::health::{HealthAggregator, REPORT_TIMEOUT, Reports};
use crate::metrics::SyncerMetrics;
use crate::model::SyncerType;
use crate::problems::{self, ProblemBook};
use crate::snapcache::{self, Reader, SnapCache};
use crate::syncer::kind_watch::KindHub;
use crate::syncer::pipelines::PipelineSpec;
use crate::syncer::watcher_cache::WatcherCache;
use crate::syncer::watcher_syncer::WatcherSyncer;
use crate::tasks::TaskRegistry;
use crate::validate::filter::ValidationFilter;
use crate::validate::node_counter::NodeCounter;

/// Updates that may wait between two stages: one batch in work and one ready, so that neither stage idles while the other
/// has something, and a burst is held where it is cheap (in the datastore), not here.
const HAND_OVER: usize = 2 * MAX_BATCH;

/// What others may know of a pipeline.
#[derive(Clone, Debug)]
pub struct PipelineView {
    /// Whom it feeds.
    pub syncer: SyncerType,
    /// Its newest content.
    pub reader: Reader,
    /// What is wrong with objects and values now.
    pub problems: ProblemBook,
    /// Its metrics.
    pub metrics: SyncerMetrics,
    /// The number of nodes once in sync, where the pipeline counts them.
    pub nodes: Option<watch::Receiver<Option<usize>>>,
}

/// The stages of one syncer, not started yet.
#[derive(Debug)]
pub struct SyncerPipeline {
    view: PipelineView,
    syncer: WatcherSyncer,
    unchecked: decoupler::Receiver,
    filter: ValidationFilter,
    checked_in: decoupler::Sender,
    checked: decoupler::Receiver,
    cache: SnapCache,
}

impl SyncerPipeline {
    /// Builds the stages and subscribes to the kinds at `hub`, which must not have been started.
    #[must_use]
    pub fn new(spec: PipelineSpec, max_batch_size: usize, metrics: &SyncerMetrics, hub: &mut KindHub) -> Self {
        let problems = ProblemBook::new(spec.syncer).shown_by(metrics.problems.clone());
        let cache_of = |source: crate::syncer::pipelines::Source| {
            WatcherCache::new(source.name, source.kinds, source.processor, metrics.clone(), problems.clone())
        };
        let caches = spec.sources.into_iter().map(cache_of).collect();
        let (cache, reader) = SnapCache::new(max_batch_size, metrics.clone());
        let (unchecked_in, unchecked) = decoupler::channel(HAND_OVER);
        let unchecked_in = unchecked_in.for_demand(reader.demand().clone());
        let syncer = WatcherSyncer::new(spec.syncer, caches, hub, unchecked_in);
        let (counter, nodes) = spec.counts_nodes.then(NodeCounter::new).unzip();
        let filter = ValidationFilter::new(metrics.clone(), problems.clone(), counter);
        let (checked_in, checked) = decoupler::channel(HAND_OVER);
        let view = PipelineView { syncer: spec.syncer, reader, problems, metrics: metrics.clone(), nodes };
        Self { view, syncer, unchecked, filter, checked_in, checked, cache }
    }

    /// What others may know of this pipeline.
    #[must_use]
    pub fn view(&self) -> PipelineView {
        self.view.clone()
    }

    /// Starts the stages, in the data's order, supervised each. They run until cancelled. They are one task: a change that
    /// comes alone is handed through all of them at once. What takes long, the conversion of whole lists, the syncer has done
    /// by tasks of its own.
    pub fn start(self, tasks: &TaskRegistry, health: &HealthAggregator, cancel: &CancellationToken) {
        let name = self.view.syncer;
        let rest = problems::log_rest(self.view.problems, cancel.clone());
        tasks.spawn(format!("{name}-problems"), rest);
        // The reporter's name is Typha's; dashboards and people look for it.
        let reporter = health.register(&format!("{name}-cache"), Reports::LiveAndReady, REPORT_TIMEOUT);
        let report = move |state: snapcache::CacheHealth| {
            reporter.report_live(state.status == crate::model::SyncStatus::InSync);
        };
        tasks.spawn_together([
            (format!("{name}-syncer"), self.syncer.run(cancel.clone()).boxed()),
            (format!("{name}-validation"), self.filter.run(self.unchecked, self.checked_in, cancel.clone()).boxed()),
            (format!("{name}-cache"), snapcache::run(self.cache, self.checked, report, cancel.clone()).boxed()),
        ]);
    }
}
