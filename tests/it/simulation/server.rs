//! A simulated server: pipelines over the memory datastore or a folder, and the real fan-out, connected as in the daemon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::calico::syncers::{BGP, FELIX};
use bulrush::datastore::file::FileStore;
use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Datastore, Error, ListPage, Selection, WatchBatch};
use bulrush::health::HealthAggregator;
use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::model::Revision;
use bulrush::model::SyncerName;
use bulrush::outlet::Outlet as _;
use bulrush::outlet::peers::Peers;
use bulrush::pipeline::SyncerPipeline;
use bulrush::snapcache::Reader;
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncserver::{Config, Handle, Metrics, Pumps, Server};
use bulrush::tasks::TaskRegistry;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use prometheus::Registry;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::files::Files;
use super::ledger::{Ledger, Name};
use super::lines::{Defect, Inlet, PORT};

/// The running syncers, which share a kind.
const SYNCERS: [SyncerName; 2] = [FELIX, BGP];

/// Longest time for which changes are held back.
pub(super) const PACE_MAX: Duration = Duration::from_millis(30);

/// Largest batch of a crumb: small, so that a run has many crumbs.
const MAX_BATCH_SIZE: usize = 10;

/// Longest time until the stages of a drained server stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Connections that a crowded server keeps.
const FEW_CONNECTIONS: usize = 3;

/// The orders of the script to servers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// Number of orders to drain.
    pub(super) drains: u64,
    /// Number of orders to read the folder.
    pub(super) reloads: u64,
    /// The server has more connections than its limit.
    pub(super) crowded: bool,
    /// Watches are silent, unnoticed by the server.
    pub(super) stalled: bool,
}

/// The servers' datastore.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Memory(MemoryStore),
    Folder(Files),
}

/// The parts that a server needs.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) seed: u64,
    pub(super) name: Name,
    /// All servers.
    pub(super) servers: &'static [Name],
    pub(super) ledger: Ledger,
    pub(super) source: Source,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) max_write: usize,
    pub(super) defect: Option<Defect>,
}

/// Settings that make rare events common: short time-outs, little history, small messages, rounds far apart, few
/// agents for a pump. The same for all lives of all servers of a run.
fn config(seed: u64, generation: u64) -> Config {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5e77_1265);
    let pumps = rng.random_range(0..4);
    Config {
        max_message_size: 7,
        ping_interval: Duration::from_millis(300),
        pong_timeout: Duration::from_millis(2500),
        handshake_timeout: Duration::from_millis(1500),
        write_timeout: Duration::from_millis(2500),
        drop_interval: Duration::from_millis(200),
        shutdown_timeout: Duration::from_millis(800),
        shutdown_drop_interval_max: Duration::from_millis(100),
        snapshot_max_age: Duration::from_secs(2),
        max_lag_bytes: if rng.random() { 2 << 10 } else { 64 << 10 },
        max_lag_updates: if rng.random_ratio(1, 3) { 15 } else { 1000 },
        max_fall_behind: if rng.random_ratio(1, 5) { Duration::from_millis(800) } else { Duration::from_secs(300) },
        new_client_grace: Duration::from_millis(500),
        pace_max: PACE_MAX,
        pace_per_client: Duration::from_millis(rng.random_range(0..4) * 4),
        pumps: (pumps > 0).then_some(Pumps { count: pumps, row: rng.random_range(1..4) }),
        seed: seed * 1000 + generation,
        ..Config::default()
    }
}

/// A datastore whose watches can be made silent for a server, as by a network that loses everything without an error.
#[derive(Debug)]
struct Stalling {
    inner: Arc<dyn Datastore>,
    orders: watch::Receiver<Orders>,
}

impl Datastore for Stalling {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        self.inner.list(selection)
    }

    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        let orders = self.orders.clone();
        let held_up = move |batch| {
            let mut orders = orders.clone();
            async move {
                // After the script's end nothing stalls any more.
                let _ = orders.wait_for(|orders| !orders.stalled).await;
                batch
            }
        };
        self.inner.watch(selection, from).then(held_up).boxed()
    }
}

/// Obeys the script until it is over.
async fn obey(
    handle: Handle,
    folder: Option<FileStore>,
    name: Name,
    ledger: Ledger,
    mut orders: watch::Receiver<Orders>,
) {
    let normal = handle.max_connections();
    let mut done = *orders.borrow_and_update();
    while orders.changed().await.is_ok() {
        let now = *orders.borrow_and_update();
        if now.drains != done.drains {
            ledger.log(name, "drains");
            handle.drain();
        }
        if now.reloads != done.reloads
            && let Some(folder) = &folder
        {
            folder.reload();
        }
        handle.set_max_connections(if now.crowded { FEW_CONNECTIONS } else { normal });
        done = now;
    }
}

/// Runs one life of the server after the other: a drain ends a life.
pub(super) async fn live(site: Site) -> turmoil::Result {
    loop {
        one_life(&site).await?;
    }
}

async fn one_life(site: &Site) -> turmoil::Result {
    let Site { seed, name, ledger, orders, .. } = site;
    let (seed, name) = (*seed, *name);
    let generation = ledger.book().begin(name);
    let (tasks, health, stop) = (TaskRegistry::new(), HealthAggregator::new(), CancellationToken::new());
    let (inner, folder): (Arc<dyn Datastore>, _) = match &site.source {
        Source::Memory(store) => (Arc::new(store.clone()), None),
        Source::Folder(files) => {
            let store = FileStore::open(files.config());
            (Arc::new(store.clone()), Some(store))
        }
    };
    let datastore = Arc::new(Stalling { inner, orders: orders.clone() });
    let mut hub = KindHub::new(datastore, seed + generation);
    let built: Vec<SyncerPipeline> = pipelines::calico(Flavour::Etcd, &Context::default())
        .into_iter()
        .filter(|spec| SYNCERS.contains(&spec.syncer))
        .map(|spec| {
            let metrics = SyncerMetrics::unregistered();
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
            record(ledger.clone(), name, generation, view.syncer, view.reader.clone(), stop.clone()),
        );
    }
    let readers = views.iter().map(|view| (view.syncer, view.reader.clone())).collect();
    let inlet = Inlet::bind(seed, site.max_write, site.defect).await?;
    let bound = Server::with_listener(inlet, config(seed, generation), readers, metrics, None);
    let handle = bound.handle();
    let address = |server: Name| SocketAddr::new(turmoil::lookup(server), PORT);
    handle.set_peers(Peers::new(site.servers.iter().map(|server| vec![address(server)]), &[address(name)]));
    for pipeline in built {
        pipeline.start(&tasks, &health, true, &stop);
    }
    let cancel = stop.clone();
    tasks.spawn("watches", async move { hub.run(cancel).await });

    tokio::select! {
        served = bound.run(|| {}) => served?,
        failure = tasks.failure() => return Err(failure.into()),
        () = obey(handle, folder, name, ledger.clone(), orders.clone()) => return Err("the script is gone".into()),
    }
    tasks.stopping();
    stop.cancel();
    tokio::time::timeout(STOP_LIMIT, tasks.all_ended()).await.map_err(|_| "stages do not stop")?;
    Ok(())
}

/// Writes every crumb into the ledger, in the tick in which it is published: it cannot be on the network earlier.
async fn record(
    ledger: Ledger,
    name: Name,
    generation: u64,
    syncer: SyncerName,
    reader: Reader,
    stop: CancellationToken,
) {
    let mut trail = reader.follow();
    let mut crumb = Some(trail.position().clone());
    while let Some(now) = crumb {
        ledger.book().publish(name, syncer, generation, now);
        crumb = tokio::select! {
            () = stop.cancelled() => return,
            next = trail.next() => next,
        };
    }
}
