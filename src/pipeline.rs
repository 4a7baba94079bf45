//! One syncer's stages, wired: syncer → decoupler → validation → decoupler → (publication →) snapshot cache.
//!
//! The struct [`Stages`] lists the stages up to validation in the data's order.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::decoupler;
use crate::decoupler::MAX_BATCH;
use crate::demand::Demand;
use crate::health::{HealthAggregator, REPORT_TIMEOUT, Reports};
use crate::metrics::SyncerMetrics;
use crate::model::{Key, SyncerName};
use crate::problems::{self, ProblemBook};
use crate::publish;
use crate::publish::candidates::{Candidates, Conflicts};
use crate::publish::stage::Publisher;
use crate::publish::strategy::Strategy;
use crate::snapcache::{self, Reader, SnapCache};
use crate::syncer::inlet::InletStatus;
use crate::syncer::kind_watch::KindHub;
use crate::syncer::spec::{PipelineSpec, Source};
use crate::syncer::watcher_cache::WatcherCache;
use crate::syncer::watcher_syncer::WatcherSyncer;
use crate::tasks::TaskRegistry;
use crate::validate::filter::{Held, Rules, ValidationFilter};
use crate::validate::key_counter::KeyCounter;

/// Updates that may wait between two stages: one batch in work and one ready. So neither stage idles while the other one
/// has updates, and a burst waits in the datastore, where that costs least memory.
const HAND_OVER: usize = 2 * MAX_BATCH;

/// A pipeline as other parts see it.
#[derive(Clone, Debug)]
pub struct PipelineView {
    /// The syncer that it feeds.
    pub syncer: SyncerName,
    /// Its newest content.
    pub reader: Reader,
    /// The present problems of objects and values.
    pub problems: ProblemBook,
    /// Its metrics.
    pub metrics: SyncerMetrics,
    /// The number of keys that the pipeline counts (of Calico's: nodes), once in sync.
    pub nodes: Option<watch::Receiver<Option<usize>>>,
    /// The datastores whose kinds are found while it runs, the one that counts most first.
    pub inlets: Vec<watch::Receiver<InletStatus>>,
    /// The keys that several of these datastores have.
    pub conflicts: Conflicts,
}

/// A syncer's stages up to its checked updates: syncer → decoupler → validation. Not started yet.
#[derive(Debug)]
pub struct Stages {
    syncer: WatcherSyncer,
    unchecked: decoupler::Receiver,
    filter: ValidationFilter,
    checked: decoupler::Sender,
    problems: ProblemBook,
    nodes: Option<watch::Receiver<Option<usize>>>,
    inlets: Vec<watch::Receiver<InletStatus>>,
}

impl Stages {
    /// Builds the stages and subscribes to the kinds of its sources at `hub`, which must not have been started; inlets need none. The
    /// returned receiver gives the checked updates. Its reader tells by `demand` when it can use them.
    #[must_use]
    pub fn new<'a>(
        spec: PipelineSpec,
        metrics: &SyncerMetrics,
        hub: impl Into<Option<&'a mut KindHub>>,
        demand: Demand,
    ) -> (Self, decoupler::Receiver) {
        let problems = ProblemBook::new(spec.syncer).shown_by(metrics.problems.clone());
        let cache_of = |source: Source| {
            WatcherCache::new(source.name, source.kinds, source.processor, metrics.clone(), problems.clone())
        };
        let caches = spec.sources.into_iter().map(cache_of).collect();
        let (unchecked_in, unchecked) = decoupler::channel(HAND_OVER);
        let syncer = WatcherSyncer::new(spec.syncer, caches, hub.into(), unchecked_in.for_demand(demand));
        let (syncer, inlets) = syncer.with_inlets(spec.inlets, metrics, &problems);
        let (counter, nodes) = spec.counts.map(KeyCounter::new).unzip();
        let filter = ValidationFilter::new(spec.rules, metrics.clone(), problems.clone(), counter);
        let (checked, received) = decoupler::channel(HAND_OVER);
        (Self { syncer, unchecked, filter, checked, problems, nodes, inlets }, received)
    }

    /// The same, where changes of values are checked against the values that agents have.
    fn with_held(self, held: Held) -> Self {
        Self { filter: self.filter.with_held(held), ..self }
    }

    /// The objects and values that are wrong now.
    #[must_use]
    pub fn problems(&self) -> &ProblemBook {
        &self.problems
    }

    /// Runs the stages until cancelled, or until nobody receives any more.
    pub async fn run(self, cancel: CancellationToken) {
        let checking = self.filter.run(self.unchecked, self.checked, cancel.clone());
        tokio::join!(self.syncer.run(cancel.clone()), checking);
    }
}

/// All stages of one syncer, not started yet.
#[derive(Debug)]
pub struct SyncerPipeline {
    view: PipelineView,
    stages: Stages,
    checked: decoupler::Receiver,
    last: Last,
}

/// The last stage.
#[derive(Debug)]
enum Last {
    /// All changes are published at once.
    Cache(Box<SnapCache>),
    /// Changes are gathered, and published as a whole.
    Publisher(Box<Publisher>),
}

impl SyncerPipeline {
    /// Builds the stages and subscribes to the kinds of its sources at `hub`, which must not have been started; inlets need none.
    #[must_use]
    pub fn new<'a>(
        spec: PipelineSpec,
        max_batch_size: usize,
        metrics: &SyncerMetrics,
        hub: impl Into<Option<&'a mut KindHub>>,
    ) -> Self {
        let PipelineSpec { syncer, publishing, rules: Rules { family, .. }, .. } = spec;
        // A publication is one crumb.
        let batch = if publishing.is_some() { usize::MAX } else { max_batch_size };
        let (cache, reader) = SnapCache::new(batch, metrics.clone());
        // Publications need no gathering in the watches before.
        let demand = if publishing.is_some() { Demand::default() } else { reader.demand().clone() };
        let (mut stages, checked) = Stages::new(spec, metrics, hub, demand);
        let candidates = Candidates::new(metrics.conflicts.clone());
        let conflicts = candidates.conflicts();
        let last = match publishing {
            None => Last::Cache(Box::new(cache)),
            Some(publishing) => {
                let content = reader.clone();
                let held =
                    move |key: &Key| content.newest().map.get(key)?.value.as_ref().map(|value| value.bytes.clone());
                stages = stages.with_held(Arc::new(held));
                let strategy = Strategy::new(publishing);
                Last::Publisher(Box::new(Publisher::new(syncer, cache.with_kinds(family), candidates, strategy)))
            }
        };
        let (problems, nodes, inlets) = (stages.problems.clone(), stages.nodes.clone(), stages.inlets.clone());
        let view = PipelineView { syncer, reader, problems, metrics: metrics.clone(), nodes, inlets, conflicts };
        Self { view, stages, checked, last }
    }

    /// This pipeline as other parts see it.
    #[must_use]
    pub fn view(&self) -> PipelineView {
        self.view.clone()
    }

    /// Starts the stages, each supervised. They run until cancelled. They are one task, so that a single change passes
    /// through all of them at once. For slow work, the conversion of whole lists, the syncer starts tasks of its own.
    /// `ready`: the process is ready only when this syncer is in sync.
    pub fn start(self, tasks: &TaskRegistry, health: &HealthAggregator, ready: bool, cancel: &CancellationToken) {
        let name = self.view.syncer;
        let Stages { syncer, unchecked, filter, checked, .. } = self.stages;
        let rest = problems::log_rest(self.view.problems, cancel.clone());
        tasks.spawn(format!("{name}-problems"), rest);
        // The reporter's name is Typha's; dashboards and people look for it.
        let reports = if ready { Reports::LiveAndReady } else { Reports::Live };
        let reporter = health.register(&format!("{name}-cache"), reports, REPORT_TIMEOUT);
        let report = move |state: snapcache::CacheHealth| {
            reporter.report_live(state.status == crate::model::SyncStatus::InSync);
        };
        let last = match self.last {
            Last::Cache(cache) => snapcache::run(*cache, self.checked, report, cancel.clone()).boxed(),
            Last::Publisher(publisher) => publish::stage::run(*publisher, self.checked, report, cancel.clone()).boxed(),
        };
        tasks.spawn_together([
            (format!("{name}-syncer"), syncer.run(cancel.clone()).boxed()),
            (format!("{name}-validation"), filter.run(unchecked, checked, cancel.clone()).boxed()),
            (format!("{name}-cache"), last),
        ]);
    }
}
