//! The composition root: from a configuration to a running daemon, and back to nothing.
//!
//! Starts the stages in the data's order (datastore, pipelines, server, endpoints) and stops them in reverse. Only this module
//! knows all parts; each part gets the others that it needs by its constructor.
//!
//! ```text
//!  Running ──SIGTERM, SIGINT──► Draining ──all connections ended──► end, status 0
//!     │                            └──second signal, time over────► end at once, status 0 / 1
//!     └──a long-lived task ends or panics──────────────────────────► end, status 1
//! ```

mod doors;
mod facts;
mod folder;
mod schemas;
mod sharing;
mod signals;
pub(crate) mod source;
mod status;
mod stores;
mod syncers;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::doors::{Doors, failed};
use self::facts::Facts;
use self::schemas::Schemas;
use self::sharing::Sharing;
use self::signals::{Request, Signals};
use self::source::Source;
use self::stores::Store;
use self::syncers::Pipelines;
use crate::calico::processors::Context;
use crate::config::{Config, GLOBAL};
use crate::debug::heap;
use crate::health::HealthAggregator;
use crate::http::{self, Endpoints, Services};
use crate::logging::LogHandle;
use crate::metrics::{CertificateMetrics, ServerMetrics, register_process_metrics};
use crate::outlet::Listening;
use crate::pipeline::SyncerPipeline;
use crate::snapcache::Reader;
use crate::syncserver::{self, Server};
use crate::tasks::{TaskInfo, TaskRegistry};
use crate::tls::{Expiry, ServerTls, ServerTlsConfig};

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The output of `bulrush version`: three lines, as in Typha.
#[must_use]
pub fn version() -> String {
    let known = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
    let (date, commit) = (known(option_env!("BULRUSH_BUILD_DATE")), known(option_env!("BULRUSH_GIT_COMMIT")));
    format!("Version:    {VERSION}\nBuild date: {date}\nGit commit: {commit}\n")
}

/// Time after the shutdown time until the process ends with connections left. In it the last connections get their goodbye, and
/// the log its last lines.
const DRAIN_SLACK: Duration = Duration::from_secs(5);
/// Longest wait for cancelled stages to end.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// The parts that the process sets up before there is a configuration.
#[derive(Debug)]
pub struct Early {
    /// The registry of all metrics.
    pub registry: Registry,
    /// Reads and changes log levels.
    pub log: LogHandle,
    /// Surroundings that influence conversion: `USE_POD_CIDR`, `FELIX_INTERFACEPREFIX`.
    pub context: Context,
    /// The runtime of connections to agents, apart from everything else. Thousands of new connections (handshakes, snapshots) keep
    /// its threads busy for seconds. Pipelines and pumps have threads of their own, so connected agents still get their changes.
    pub agents: Handle,
    /// Addresses of this pod from the environment, if set: `POD_IP`, `POD_IPS`.
    pub own_addresses: Vec<IpAddr>,
}

/// The addresses in the variables `POD_IP` and `POD_IPS` (the downward API's `status.podIP` and `status.podIPs`).
#[must_use]
pub fn own_addresses(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<IpAddr> {
    let named = environment.into_iter().filter(|(name, _)| name == "POD_IP" || name == "POD_IPS");
    let texts: Vec<String> = named.map(|(_, value)| value.to_string_lossy().into_owned()).collect();
    texts.iter().flat_map(|text| text.split(',')).filter_map(|ip| ip.trim().parse().ok()).collect()
}

/// Raises the soft limit of open files to the hard one, as Go's runtime does for Typha: every agent is a descriptor, and
/// many systems start processes with 1,024.
fn raise_file_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => info!(limit, "limit of open files, which all connections and files share"),
        Err(error) => {
            warn!(%error, "cannot raise the limit of open files; it stays as it was when the process started")
        }
    }
}

/// Runs until told to end.
///
/// # Errors
/// An obstacle at the start (an address in use, a certificate that does not load), or a part that failed while running. A
/// datastore that is away is no error.
pub async fn run(config: Config, early: Early) -> anyhow::Result<()> {
    let started = Instant::now();
    raise_file_limit();
    let mut signals = Signals::listen().context("listen for signals")?;
    let tasks = TaskRegistry::new();
    let health = HealthAggregator::new();
    let stop = CancellationToken::new();

    if config.metrics.process {
        register_process_metrics(&early.registry).context("register the metrics of the process")?;
    }
    let schemas = Arc::new(Schemas::load(&config.syncers)?);
    let catalog = Arc::new(schemas.catalog());
    let mut stores = Store::open_all(&config.datastores, &early.context.cluster, &catalog)?;
    let sync_tls = load_sync_tls(&config)?;
    let metrics_tls = load_metrics_tls(&config)?;

    // Pipelines: built before anything runs, so that every kind's subscribers are known.
    let built = Pipelines::build(&config, &mut stores, (&schemas, &catalog), &early.context, &early.registry)?;
    let views: Vec<_> = built.all().map(SyncerPipeline::view).collect();
    let sharing = Sharing::subscribe(&config, &mut stores);
    let store_views: Vec<_> = stores.iter().map(Store::view).collect();

    // The server listens before it has data: agents connect and wait, and are told the status.
    let readers: BTreeMap<_, Reader> = views.iter().map(|view| (view.syncer, view.reader.clone())).collect();
    let metrics = syncserver::Metrics {
        server: ServerMetrics::new(&early.registry),
        syncers: views.iter().map(|view| (view.syncer, view.metrics.clone())).collect(),
    };
    let acceptor = sync_tls.clone().map(|tls| -> syncserver::TlsSource { Arc::new(move || tls.acceptor()) });
    let bound =
        Server::bind(config.server.clone(), readers, metrics, acceptor).await.context("start the sync server")?;
    let server = bound.outlet();
    let listening = doors::address(&bound)?;
    let doors: Vec<Box<dyn Listening>> = vec![Box::new(bound)];
    for store in &stores {
        tasks.include(&store.source.tasks);
    }
    let open = Doors::of(&doors, &tasks);
    info!(address = %listening, tls = sync_tls.is_some(), datastore = stores::locations(&store_views), "listening for agents");

    let nodes = views.iter().find_map(|view| view.nodes.clone());
    if let Some((sharing, nodes)) = sharing.zip(nodes) {
        let own = early.own_addresses.iter().map(|ip| SocketAddr::new(*ip, listening.port())).collect();
        // Agents of other syncers are not counted by nodes.
        sharing.start(&tasks, &stop, nodes, built.calico.len(), server, own);
    }
    for pipeline in built.calico {
        pipeline.start(&tasks, &health, true, &stop);
    }
    for (pipeline, ready) in built.others {
        pipeline.start(&tasks, &health, ready, &stop);
    }
    let sources: Vec<Source> = stores.into_iter().map(|store| store.start(&tasks, &stop)).collect();
    let certificates = CertificateMetrics::new(&early.registry);
    for (name, tls, own, authorities) in [
        ("sync-certificates", &sync_tls, "ServerCertFile", "CAFile"),
        ("metrics-certificates", &metrics_tls, "PrometheusMetricsCertFile", "PrometheusMetricsCAFile"),
    ] {
        if let Some(tls) = tls.clone() {
            let metrics = certificates.clone();
            let told = move |expiry: Expiry| {
                metrics.set(own, expiry.own);
                metrics.set(authorities, expiry.authorities);
            };
            tasks.spawn(name, tls.keep_fresh(stop.clone(), told));
        }
    }

    folder::report_all(&store_views, |datastore| datastore == GLOBAL, &health, &early.registry, &tasks, &stop);

    let facts = Facts {
        views: views.clone(),
        stores: store_views.clone(),
        cluster: early.context.cluster.subscribe(),
        tls: sync_tls.is_some(),
    };
    tasks.spawn_passing(&Handle::current(), "facts".to_owned(), facts.tell(stop.clone()));

    let (phase, phase_now) = watch::channel("running");
    let status = status::Sources {
        started,
        listening: listening.to_string(),
        stores: store_views,
        pipelines: views,
        doors: open.clone(),
        phase: phase_now,
    };
    let metrics_source = metrics_tls.clone().map(|tls| -> http::TlsSource { Arc::new(move || tls.acceptor()) });
    let services = Services {
        health: health.clone(),
        registry: early.registry.clone(),
        tasks: tasks.clone(),
        log: early.log.clone(),
        status: Arc::new(move |listed| status.snapshot(listed)),
    };
    let endpoints =
        http::start(Endpoints::new(&config, metrics_source), services).context("start the HTTP endpoints")?;

    let mut serving = pin!(doors::serve(doors, health.clone(), early.agents.clone()));
    let profile = config.debug.memory_profile_path.clone();
    let mut drain_deadline = None;
    let ended = loop {
        let overdue = async {
            match drain_deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = &mut serving => break served,
            failure = tasks.failure() => break Err(failed(failure)),
            failure = stores::failure(&sources) => break Err(failed(failure)),
            () = overdue => {
                warn!("connections are left after the shutdown time: ending without them");
                open.stop();
                drain_deadline = None;
            }
            request = signals.next() => match request {
                Request::End if drain_deadline.is_none() => {
                    info!("told to end: draining");
                    phase.send_replace("draining");
                    drain_deadline = Some(Instant::now() + config.server.shutdown_timeout + DRAIN_SLACK);
                    open.drain();
                }
                Request::End => {
                    warn!(connections = open.connections(), "told to end again: ending at once");
                    open.stop();
                }
                Request::Profile if profile.is_some() => write_heap_profile(profile.clone()),
                Request::Reload | Request::Profile => {
                    info!("told to reload");
                    let schemas = Arc::clone(&schemas);
                    drop(tokio::task::spawn_blocking(move || schemas.reload()));
                    for reload in sources.iter().filter_map(|source| source.reload.as_ref()) {
                        reload();
                    }
                    for tls in [&sync_tls, &metrics_tls].into_iter().flatten() {
                        reload_certificates(tls.clone());
                    }
                }
            },
        }
    };
    tasks.stopping();
    stop.cancel();
    // The wait below includes the endpoints' tasks, so these have to end first.
    endpoints.stop();
    if tokio::time::timeout(STOP_LIMIT, tasks.all_ended()).await.is_err() {
        let alive = |task: &TaskInfo| task.state == "idle" || task.state == "running";
        let left: Vec<String> = tasks.dump().into_iter().filter(alive).map(|task| task.name).collect();
        warn!(?left, "some tasks did not stop in time");
    }
    info!("ended");
    ended
}

fn write_heap_profile(path: Option<std::path::PathBuf>) {
    let Some(path) = path else { return };
    // Detached on purpose: a slow profile must not hold up anything, and it logs its own failure.
    drop(tokio::spawn(async move {
        match heap::write(&path, SystemTime::now()).await {
            Ok(path) => info!(path = %path.display(), "wrote a heap profile"),
            Err(error) => error!(%error, "no heap profile"),
        }
    }));
}

fn reload_certificates(tls: ServerTls) {
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = tls.reload() {
            error!(%error, "read the certificates again: the old ones stay in use");
        }
    }));
}

fn load_sync_tls(config: &Config) -> anyhow::Result<Option<ServerTls>> {
    let load = |tls| ServerTlsConfig::sync_port(tls).and_then(ServerTls::load);
    config.tls.as_ref().map(load).transpose().context("load TLS for agents")
}

fn load_metrics_tls(config: &Config) -> anyhow::Result<Option<ServerTls>> {
    let configured = config.metrics.tls.as_ref().filter(|_| config.metrics.enabled);
    let load = |tls| ServerTlsConfig::metrics_port(tls).and_then(ServerTls::load);
    configured.map(load).transpose().context("load TLS for metrics")
}
