//! Health, metrics, status and debugging over HTTP.
//!
//! One thread with a runtime of its own serves all of it. So it answers even when every worker is busy or stuck, and a scrape
//! cannot hold up the data. The pages show the health aggregator, the metrics registry, the task registry and the status
//! source, to the kubelet, Prometheus and people.
//!
//! Invariants: sizes, times and numbers of requests and connections are limited (`listener`); silent peers do not keep others
//! from being answered (`places`); no input from a peer can end the thread; a listener that cannot be opened is retried every
//! second and stops nothing else.

mod listener;
mod places;
mod routes;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use prometheus::Registry;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::health::HealthAggregator;
use crate::logging::LogHandle;
use crate::status::StatusSource;
use crate::tasks::TaskRegistry;
use routes::Site;

/// Gives the acceptor for the next TLS connection, so that certificates may change.
pub type TlsSource = Arc<dyn Fn() -> TlsAcceptor + Send + Sync>;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address; empty means all, IPv4 and IPv6.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
}

/// The callers that get the status at the health endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusFor {
    /// No callers: the page does not exist.
    #[default]
    Nobody,
    /// Callers from the same host or pod.
    SameHost,
    /// All callers.
    Everybody,
}

/// The endpoints to serve. `None`: off.
#[derive(Clone, Default)]
pub struct Endpoints {
    /// `/liveness` and `/readiness`.
    pub health: Option<Endpoint>,
    /// The callers that get `/status` from the health endpoint.
    pub status: StatusFor,
    /// `/metrics`.
    pub metrics: Option<Endpoint>,
    /// TLS for `/metrics`; `None`: plain.
    pub metrics_tls: Option<TlsSource>,
    /// `/debug/…` and `/status`.
    pub debug: Option<Endpoint>,
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoints")
            .field("health", &self.health)
            .field("status", &self.status)
            .field("metrics", &self.metrics)
            .field("metrics_tls", &self.metrics_tls.is_some())
            .field("debug", &self.debug)
            .finish()
    }
}

impl Endpoints {
    /// As configured. `metrics_tls` must be given when `config.metrics.tls` is set.
    #[must_use]
    pub fn new(config: &Config, metrics_tls: Option<TlsSource>) -> Self {
        let endpoint = |host: &String, port| Endpoint { host: host.clone(), port };
        let (health, metrics, debug) = (&config.health, &config.metrics, &config.debug);
        Self {
            health: health.enabled.then(|| endpoint(&health.host, health.port)),
            status: match (health.status, health.status_remote) {
                (false, _) => StatusFor::Nobody,
                (true, false) => StatusFor::SameHost,
                (true, true) => StatusFor::Everybody,
            },
            metrics: metrics.enabled.then(|| endpoint(&metrics.host, metrics.port)),
            metrics_tls,
            debug: debug.port.map(|port| endpoint(&debug.host, port)),
        }
    }
}

/// The sources of the pages.
#[derive(Clone)]
pub struct Services {
    /// For `/liveness` and `/readiness`.
    pub health: HealthAggregator,
    /// For `/metrics`.
    pub registry: Registry,
    /// For `/debug/tasks`; the listeners are tasks of it too.
    pub tasks: TaskRegistry,
    /// For `/debug/log-level`.
    pub log: LogHandle,
    /// For `/status`.
    pub status: StatusSource,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("health", &self.health).field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// The thread that serves. Dropping this leaves it running; [`HttpServer::stop`] ends it.
#[derive(Debug)]
pub struct HttpServer {
    cancel: CancellationToken,
    thread: JoinHandle<()>,
    health: watch::Receiver<Option<SocketAddr>>,
    metrics: watch::Receiver<Option<SocketAddr>>,
    debug: watch::Receiver<Option<SocketAddr>>,
}

/// Starts the thread and returns at once; listeners that cannot be opened yet are retried.
///
/// # Errors
/// When the thread or its runtime cannot be made.
pub fn start(endpoints: Endpoints, services: Services) -> io::Result<HttpServer> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // For symbols of profiles and files of certificates; they need no more.
        .max_blocking_threads(4)
        .thread_name("http-blocking")
        .build()?;
    let cancel = CancellationToken::new();
    let stopped = cancel.clone();
    let (health, health_bound) = watch::channel(None);
    let (metrics, metrics_bound) = watch::channel(None);
    let (debug, debug_bound) = watch::channel(None);
    let serve = async move {
        let Endpoints { health: health_at, status, metrics: metrics_at, metrics_tls, debug: debug_at } = endpoints;
        let sites = [
            ("http-health", health_at, Site::Health { status }, None, health),
            ("http-metrics", metrics_at, Site::Metrics, metrics_tls, metrics),
            ("http-debug", debug_at, Site::Debug, None, debug),
        ];
        let services = Arc::new(services);
        for (name, endpoint, site, tls, bound) in sites {
            let Some(endpoint) = endpoint else { continue };
            let listener = listener::Listener { name, endpoint, site, tls, services: services.clone(), bound };
            services.tasks.spawn(name, listener.run(stopped.clone()));
        }
        stopped.cancelled().await;
    };
    let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(serve);
        // A profile that is being made need not hold up the end of the process.
        runtime.shutdown_background();
    })?;
    Ok(HttpServer { cancel, thread, health: health_bound, metrics: metrics_bound, debug: debug_bound })
}

impl HttpServer {
    /// The address of the health endpoint, once it listens; `None` if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe, as are the other two.
    pub async fn health_address(&self) -> Option<SocketAddr> {
        bound(self.health.clone()).await
    }

    /// The address of the metrics endpoint, once it listens; `None` if there is none.
    pub async fn metrics_address(&self) -> Option<SocketAddr> {
        bound(self.metrics.clone()).await
    }

    /// The address of the debug port, once it listens; `None` if there is none.
    pub async fn debug_address(&self) -> Option<SocketAddr> {
        bound(self.debug.clone()).await
    }

    /// Stops listening, drops all connections, ends the thread and waits for that. Call `TaskRegistry::stopping` before.
    pub fn stop(self) {
        self.cancel.cancel();
        if self.thread.join().is_err() {
            tracing::warn!("the HTTP thread had panicked");
        }
    }
}

async fn bound(mut address: watch::Receiver<Option<SocketAddr>>) -> Option<SocketAddr> {
    address.wait_for(Option::is_some).await.ok().and_then(|address| *address)
}
