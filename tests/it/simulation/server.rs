//! The simulated server: pipelines over the memory datastore and the real fan-out, as the daemon wires them.

use std::sync::Arc;
use std::time::Duration;

use bulrush::datastore::memory::MemoryStore;
use bulrush::health::HealthAggregator;
use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::pipeline::SyncerPipeline;
use bulrush::snapcache::Reader;
use bulrush::syncer::SyncerType;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::pipelines::{self, Flavour};
use bulrush::syncer::processors::Context;
use bulrush::syncserver::{Config, Metrics, Server};
use bulrush::tasks::TaskRegistry;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, Note};
use super::lines::{Defect, Inlet};

/// The syncers that run: two that share a kind.
const SYNCERS: [SyncerType; 2] = [SyncerType::Felix, SyncerType::Bgp];

/// Changes are held back by at most this.
pub(super) const PACE_MAX: Duration = Duration::from_millis(30);

/// Small, so that a run sees many crumbs.
const MAX_BATCH_SIZE: usize = 10;

/// How long the stages of a server that was drained may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Settings that make rare things common: short time-outs, little history, small messages, rounds far apart, short patience.
fn config(seed: u64, generation: u64) -> Config {
    Config {
        max_message_size: 7,
        ping_interval: Duration::from_millis(300),
        pong_timeout: Duration::from_millis(2500),
        handshake_timeout: Duration::from_millis(1500),
        write_timeout: Duration::from_millis(2500),
        shutdown_timeout: Duration::from_millis(800),
        shutdown_drop_interval_max: Duration::from_millis(100),
        snapshot_max_age: Duration::from_secs(2),
        max_lag_bytes: if seed.is_multiple_of(2) { 2 << 10 } else { 64 << 10 },
        max_lag_updates: if seed.is_multiple_of(3) { 15 } else { 1000 },
        max_fall_behind: if seed.is_multiple_of(5) { Duration::from_millis(800) } else { Duration::from_secs(300) },
        new_client_grace: Duration::from_millis(500),
        pace_max: PACE_MAX,
        pace_per_client: Duration::from_millis(seed % 4 * 4),
        seed: seed * 1000 + generation,
        ..Config::default()
    }
}

/// Runs one server after the other: a drain ends one life and begins the next.
pub(super) async fn live(
    seed: u64,
    ledger: Ledger,
    store: MemoryStore,
    mut drains: watch::Receiver<u64>,
    defect: Option<Defect>,
) -> turmoil::Result {
    loop {
        drains.mark_unchanged();
        one_life(seed, &ledger, &store, drains.clone(), defect).await?;
    }
}

async fn one_life(
    seed: u64,
    ledger: &Ledger,
    store: &MemoryStore,
    mut drains: watch::Receiver<u64>,
    defect: Option<Defect>,
) -> turmoil::Result {
    let generation = {
        let mut book = ledger.book();
        book.generation += 1;
        let generation = book.generation;
        book.log("server", &format!("life {generation} begins"));
        generation
    };
    let (tasks, health, stop) = (TaskRegistry::new(), HealthAggregator::new(), CancellationToken::new());
    let mut hub = KindHub::new(Arc::new(store.clone()), seed + generation);
    let built: Vec<SyncerPipeline> = pipelines::calico(Flavour::Etcd, &Context::default())
        .into_iter()
        .filter(|spec| SYNCERS.contains(&spec.syncer))
        .map(|spec| {
            let metrics = SyncerMetrics::unregistered(spec.syncer);
            SyncerPipeline::new(spec, MAX_BATCH_SIZE, &metrics, &mut hub)
        })
        .collect();
    let views: Vec<_> = built.iter().map(SyncerPipeline::view).collect();
    let metrics = Metrics {
        server: ServerMetrics::new(&Registry::new()),
        syncers: views.iter().map(|view| (view.syncer, view.metrics.clone())).collect(),
    };
    for view in &views {
        ledger.book().metrics.push(view.metrics.clone());
        tasks.spawn(
            format!("{}-record", view.syncer),
            record(ledger.clone(), generation, view.syncer, view.reader.clone(), stop.clone()),
        );
    }
    let readers = views.iter().map(|view| (view.syncer, view.reader.clone())).collect();
    let inlet = Inlet::bind(seed, defect).await?;
    let bound = Server::with_listener(inlet, config(seed, generation), readers, metrics, None);
    let handle = bound.handle();
    for pipeline in built {
        pipeline.start(&tasks, &health, &stop);
    }
    let cancel = stop.clone();
    tasks.spawn("watches", async move { hub.run(cancel).await });

    let serve = bound.run(|| {});
    tokio::pin!(serve);
    loop {
        tokio::select! {
            served = &mut serve => break served?,
            failure = tasks.failure() => return Err(failure.into()),
            changed = drains.changed() => {
                changed?;
                ledger.log("server", "drains");
                handle.drain();
            }
        }
    }
    tasks.stopping();
    stop.cancel();
    tokio::time::timeout(STOP_LIMIT, tasks.all_ended()).await.map_err(|_| "stages do not stop")?;
    Ok(())
}

/// Writes every crumb into the ledger, in the tick in which it is published: nobody on the network can know it earlier.
async fn record(ledger: Ledger, generation: u64, syncer: SyncerType, reader: Reader, stop: CancellationToken) {
    let mut trail = reader.follow();
    let mut crumb = Some(trail.position().clone());
    while let Some(now) = crumb {
        {
            let mut book = ledger.book();
            let sizes = format!(
                "{syncer} crumb {}: {} keys, {} changes, {}",
                now.sequence,
                now.map.len(),
                now.deltas.len(),
                now.status
            );
            book.log("server", &sizes);
            let at = turmoil::sim_elapsed().unwrap_or_default();
            book.crumbs.entry(syncer).or_default().push(Note { generation, at, crumb: now });
        }
        crumb = tokio::select! {
            () = stop.cancelled() => return,
            next = trail.next() => next,
        };
    }
}
