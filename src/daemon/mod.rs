//! The composition root: from a configuration to a running daemon, and back to nothing.
//!
//! Starts the stages in the data's order (datastore, pipelines, server, endpoints) and stops them in reverse. It alone
//! knows everybody; every part gets what it needs by constructor.
//!
//! ```text
//!  Running ──SIGTERM, SIGINT──► Draining ──all connections ended──► end, status 0
//!     │                            └──second signal, time over────► end at once, status 0 / 1
//!     └──a long-lived task ends or panics──────────────────────────► end, status 1
//! ```

mod facts;
mod folder;
mod sharing;
mod signals;
pub(crate) mod source;
mod status;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::facts::Facts;
use self::sharing::Sharing;
use self::signals::{Request, Signals};
use self::source::Source;
use crate::config::Config;
use crate::datastore::init::{InitOptions, initialise};
use crate::debug::heap;
use crate::health::{HealthAggregator, REPORT_TIMEOUT, Reports};
use crate::http::{self, Endpoints, Services};
use crate::logging::LogHandle;
use crate::metrics::{CertificateMetrics, FolderMetrics, ServerMetrics, SyncerMetrics, register_process_metrics};
use crate::pipeline::SyncerPipeline;
use crate::snapcache::Reader;
use crate::syncer::kind_watch::KindHub;
use crate::syncer::pipelines;
use crate::syncer::processors::Context;
use crate::syncserver::{self, Server};
use crate::tasks::{TaskFailure, TaskInfo, TaskRegistry};
use crate::tls::{Expiry, ServerTls, ServerTlsConfig};

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `bulrush version` prints: three lines, as Typha does.
#[must_use]
pub fn version() -> String {
    let known = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
    let (date, commit) = (known(option_env!("BULRUSH_BUILD_DATE")), known(option_env!("BULRUSH_GIT_COMMIT")));
    format!("Version:    {VERSION}\nBuild date: {date}\nGit commit: {commit}\n")
}

/// How much longer than the shutdown time a drain may take before the process ends regardless: the last connections get
/// their goodbye, the log its last lines.
const DRAIN_SLACK: Duration = Duration::from_secs(5);
/// How long stages may take to notice that they are cancelled.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// What the process has set up before there was a configuration.
#[derive(Debug)]
pub struct Early {
    /// Where all metrics are registered.
    pub registry: Registry,
    /// To look at and change log levels.
    pub log: LogHandle,
    /// Surroundings that influence conversion: `USE_POD_CIDR`, `FELIX_INTERFACEPREFIX`.
    pub context: Context,
    /// Where connections to agents are served, apart from everything else. Thousands that come at the same time (handshakes,
    /// snapshots) keep its threads busy for seconds; pipelines and pumps have threads of their own, and those who are
    /// connected already get their changes meanwhile.
    pub agents: Handle,
    /// Addresses of this pod, where the environment tells them: `POD_IP`, `POD_IPS`.
    pub own_addresses: Vec<IpAddr>,
}

/// The addresses that the variables `POD_IP` and `POD_IPS` name (the downward API's `status.podIP` and `status.podIPs`).
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
        Ok(limit) => info!(limit, "open files: that many connections and files at most"),
        Err(error) => warn!(%error, "cannot raise the limit of open files; it stays as the process was started with"),
    }
}

/// Runs until told to end.
///
/// # Errors
/// What keeps the daemon from starting (an address that is taken, a certificate that does not load), or a part that
/// failed while running. Being without a datastore is neither.
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
    let source = Source::open(&config.datastore)?;
    let sync_tls = load_sync_tls(&config)?;
    let metrics_tls = load_metrics_tls(&config)?;

    // Pipelines: built before anything runs, so that every kind's subscribers are known.
    let hub = KindHub::new(source.datastore.clone(), rand::random());
    let mut hub = hub.in_cluster_of(early.context.cluster.subscribe());
    let specs = pipelines::calico(source.flavour, &early.context);
    let build = |spec: pipelines::PipelineSpec| {
        let metrics = SyncerMetrics::new(&early.registry, spec.syncer);
        SyncerPipeline::new(spec, config.server.max_batch_size, &metrics, &mut hub)
    };
    let built: Vec<SyncerPipeline> = specs.into_iter().map(build).collect();
    let views: Vec<_> = built.iter().map(SyncerPipeline::view).collect();
    let sharing = Sharing::subscribe(&config, &mut hub);
    let kinds = hub.statuses();

    // The server listens before there is anything to serve: agents wait connected, and are told the status.
    let readers: BTreeMap<_, Reader> = views.iter().map(|view| (view.syncer, view.reader.clone())).collect();
    let metrics = syncserver::Metrics {
        server: ServerMetrics::new(&early.registry),
        syncers: views.iter().map(|view| (view.syncer, view.metrics.clone())).collect(),
    };
    let acceptor = sync_tls.clone().map(|tls| -> syncserver::TlsSource { Arc::new(move || tls.acceptor()) });
    let bound =
        Server::bind(server_config(&config), readers, metrics, acceptor).await.context("start the sync server")?;
    let server = bound.handle();
    tasks.include(&source.tasks);
    tasks.include(&bound.tasks());
    let listening = bound.local_addr().context("read the sync server's address")?;
    info!(address = %listening, tls = sync_tls.is_some(), datastore = %source.location, "listening for agents");

    let nodes = views.iter().find_map(|view| view.nodes.clone());
    if let Some((sharing, nodes)) = sharing.zip(nodes) {
        let own = early.own_addresses.iter().map(|ip| SocketAddr::new(*ip, listening.port())).collect();
        sharing.start(&tasks, &stop, nodes, views.len(), server.clone(), own);
    }
    for pipeline in built {
        pipeline.start(&tasks, &health, &stop);
    }
    {
        let options =
            InitOptions { read_only: config.datastore.read_only, cluster_types: source.cluster_types.clone() };
        let writable = source.writable.clone();
        let cancel = stop.clone();
        tasks.spawn("watches", async move {
            // What components expect in a fresh datastore has to be there before anybody is told to be in sync.
            let (may_serve, told) = oneshot::channel();
            let initialising = async {
                match writable {
                    Some(store) => initialise(&*store, &options, may_serve).await,
                    None => drop(may_serve),
                }
            };
            let watching = async {
                // Told, or there is nothing to wait for.
                if cancel.run_until_cancelled(told).await.is_some() {
                    hub.run(cancel.clone()).await;
                }
            };
            tokio::join!(cancel.run_until_cancelled(initialising), watching);
        });
    }
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

    if let Some(files) = source.files.clone() {
        let reporter = health.register(folder::REPORTER, Reports::Ready, REPORT_TIMEOUT);
        let metrics = FolderMetrics::new(&early.registry);
        tasks.spawn("folder-report", folder::report(files, reporter, metrics, stop.clone()));
    }

    let facts = Facts {
        views: views.clone(),
        kinds: kinds.clone(),
        cluster: early.context.cluster.subscribe(),
        datastore_type: config.datastore.datastore_type.to_string(),
        location: source.location.clone(),
        tls: sync_tls.is_some(),
    };
    tasks.spawn_passing(&Handle::current(), "facts".to_owned(), facts.tell(stop.clone()));

    let (phase, phase_now) = watch::channel("running");
    let status = status::Sources {
        started,
        listening: listening.to_string(),
        datastore_type: config.datastore.datastore_type.to_string(),
        location: source.location.clone(),
        kinds,
        files: source.files.clone(),
        pipelines: views,
        server: server.clone(),
        phase: phase_now,
    };
    let metrics_source = metrics_tls.clone().map(|tls| -> http::TlsSource { Arc::new(move || tls.acceptor()) });
    let services = Services {
        health: health.clone(),
        registry: early.registry.clone(),
        tasks: tasks.clone(),
        log: early.log.clone(),
        status: Arc::new(status),
    };
    let endpoints =
        http::start(Endpoints::new(&config, metrics_source), services).context("start the HTTP endpoints")?;

    let alive = health.register("SyncServer", Reports::Live, REPORT_TIMEOUT);
    alive.report_live(true);
    let mut serving = early.agents.spawn(bound.run(move || alive.report_live(true)));
    let profile = config.debug.memory_profile_path.clone();
    let reload = source.reload;
    let mut drain_deadline = None;
    let ended = loop {
        let overdue = async {
            match drain_deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = &mut serving => break match served {
                Ok(served) => served.map_err(failed),
                Err(panic) => Err(anyhow::Error::new(panic).context("serve agents")),
            },
            failure = tasks.failure() => break Err(failed(failure)),
            failure = source.tasks.failure() => break Err(failed(failure)),
            () = overdue => {
                warn!("connections are left after the shutdown time: ending without them");
                server.stop();
                drain_deadline = None;
            }
            request = signals.next() => match request {
                Request::End if drain_deadline.is_none() => {
                    info!("told to end: draining");
                    phase.send_replace("draining");
                    drain_deadline = Some(Instant::now() + config.connections.shutdown_timeout + DRAIN_SLACK);
                    server.drain();
                }
                Request::End => {
                    warn!(connections = server.connections(), "told to end again: ending at once");
                    server.stop();
                }
                Request::Profile if profile.is_some() => write_heap_profile(profile.clone()),
                Request::Reload | Request::Profile => {
                    info!("told to reload");
                    if let Some(reload) = &reload {
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
    // The endpoints' tasks are supervised like all others, so they have to end before those are waited for.
    endpoints.stop();
    if tokio::time::timeout(STOP_LIMIT, tasks.all_ended()).await.is_err() {
        let alive = |task: &TaskInfo| task.state == "idle" || task.state == "running";
        let left: Vec<String> = tasks.dump().into_iter().filter(alive).map(|task| task.name).collect();
        warn!(?left, "some tasks did not stop in time");
    }
    info!("ended");
    ended
}

/// Says that a task has failed, which ends the process.
fn failed(failure: TaskFailure) -> anyhow::Error {
    error!(target: crate::logging::FATAL_TARGET, %failure, "a part of the daemon failed");
    anyhow::Error::new(failure)
}

fn write_heap_profile(path: Option<std::path::PathBuf>) {
    let Some(path) = path else { return };
    // Detached on purpose: a profile that takes long must not hold up anything, and it logs its own failure.
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

/// The sync server's part of the configuration. Every field is named, so that none keeps a default that nobody can change.
fn server_config(config: &Config) -> syncserver::Config {
    let (from, connections) = (&config.server, &config.connections);
    syncserver::Config {
        host: from.host.clone(),
        port: from.port,
        max_message_size: from.max_message_size,
        max_fall_behind: from.max_fall_behind,
        new_client_grace: from.new_client_grace,
        min_batching_age: from.min_batching_age,
        ping_interval: from.ping_interval,
        pong_timeout: from.pong_timeout,
        handshake_timeout: from.handshake_timeout,
        write_timeout: from.write_timeout,
        drop_interval: connections.drop_interval,
        shutdown_timeout: connections.shutdown_timeout,
        shutdown_drop_interval_max: connections.shutdown_drop_interval_max,
        max_connections: connections.upper_limit,
        max_lag_bytes: from.max_lag_bytes,
        max_lag_updates: from.max_lag_updates,
        snapshot_max_age: from.snapshot_max_age,
        max_handshakes: from.max_handshakes,
        send_buffer: from.send_buffer,
        pace_max: from.pace_max,
        of_unknown_versions: from.of_unknown_versions,
        pace_per_client: syncserver::Config::default().pace_per_client,
        pumps: None,
        seed: syncserver::RANDOM_SEED,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::spec::{Group, Kind, OptionSpec};
    use crate::config::table::OPTIONS;
    use crate::config::{self, Value};

    /// Options beside the sync server's that are in its groups.
    const OF_OTHERS: [&str; 8] = [
        "SnapshotCacheMaxBatchSize",
        "WorkerThreads",
        "MaxConnectionsLowerLimit",
        "ConnectionRebalancingMode",
        "K8sServicePollIntervalSecs",
        "K8sNamespace",
        "K8sServiceName",
        "K8sPortName",
    ];

    fn with(variables: &[(&str, &str)]) -> syncserver::Config {
        let variables =
            variables.iter().map(|(name, text)| (format!("TYPHA_{}", name.to_uppercase()).into(), text.into()));
        let loaded = config::load(Path::new("no-such-file.cfg"), variables);
        server_config(&loaded.config.expect("the values are good"))
    }

    /// A value that is not the default.
    fn another(spec: &OptionSpec, default: &Value) -> String {
        match (spec.kind, default) {
            (Kind::Int { .. }, Value::Int(number)) => (number + 1).to_string(),
            (Kind::Seconds, Value::Seconds(seconds)) => (seconds * 1.5).to_string(),
            (Kind::OneOf(words), Value::Text(word)) => {
                words.iter().find(|other| *other != word).expect("there is a choice").to_string()
            }
            (Kind::HostAddress | Kind::Text, _) => "elsewhere".to_owned(),
            (kind, _) => unreachable!("no other value of {} ({kind:?}) is known here", spec.name),
        }
    }

    #[test]
    fn every_option_of_the_sync_server_reaches_it() {
        let defaults = config::load(Path::new("no-such-file.cfg"), []).options;
        for option in defaults {
            let spec = option.spec;
            if ![Group::Server, Group::Connections].contains(&spec.group) || OF_OTHERS.contains(&spec.name) {
                continue;
            }
            let set = with(&[(spec.name, &another(spec, &option.value))]);
            assert_ne!(set, with(&[]), "{} changes nothing", spec.name);
        }
        assert!(OF_OTHERS.iter().all(|name| OPTIONS.iter().any(|spec| spec.name == *name)), "no name is outdated");
    }
}
