//! A server in memory, the cache behind it, and feeds without a server. Clients of it are in [`super::client`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use prometheus::Registry;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::calico::release::Release;
use crate::calico::syncers::{BGP, FELIX};
use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::{Key, SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
use crate::outlet::filter::Filter;
use crate::snapcache::SnapCache;
use crate::syncproto::format::WireFormat;
use crate::syncserver::feed::follow;
use crate::syncserver::feed::registry::Feeds;
use crate::syncserver::feed::ring::Limits;
use crate::syncserver::feed::shared::{FeedConfig, FeedKey, Lease};
use crate::syncserver::wire::Wire;
use crate::syncserver::{Config, Handle, Listener, Metrics, Server, TlsSource};
use crate::tasks::{TaskFailure, TaskRegistry};

pub(super) use super::client::{Client, Heard, Speech, gob_bytes, gob_hello};

/// Longer than any test waits, in the test's time.
pub(super) const PATIENCE: Duration = Duration::from_secs(1000);

/// Connections through memory.
pub(super) struct Inlet(mpsc::Receiver<DuplexStream>);

static NEXT_PEER: AtomicU16 = AtomicU16::new(1);

impl Listener for Inlet {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> std::io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, ([10, 0, 0, 1], NEXT_PEER.fetch_add(1, Ordering::Relaxed)).into())),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 5473).into())
    }
}

/// A server with a felix and a bgp cache.
pub(super) struct World {
    pub(super) felix: SnapCache,
    pub(super) bgp: SnapCache,
    pub(super) handle: Handle,
    pub(super) server_metrics: ServerMetrics,
    pub(super) felix_metrics: SyncerMetrics,
    pub(super) run: JoinHandle<Result<(), TaskFailure>>,
    dial: mpsc::Sender<DuplexStream>,
}

/// A fixed seed; everything else as by default.
pub(super) fn config() -> Config {
    Config { seed: 42, ..Config::default() }
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        Self::with(config, None, |inlet| inlet)
    }

    /// A world behind TLS, or behind a listener made of the one in memory.
    pub(super) fn with<L: Listener>(config: Config, tls: Option<TlsSource>, listener: impl FnOnce(Inlet) -> L) -> Self {
        Self::with_formats(config, tls, listener, Wire::format)
    }

    /// A world whose felix cache makes one crumb of each batch, whatever its size.
    pub(super) fn of_large_crumbs(config: Config) -> Self {
        Self::with_all(config, None, |inlet| inlet, Wire::format, usize::MAX)
    }

    /// The same, with encoders of the test's choice.
    pub(super) fn with_formats<L: Listener>(
        config: Config,
        tls: Option<TlsSource>,
        listener: impl FnOnce(Inlet) -> L,
        format: fn(Wire) -> Arc<dyn WireFormat>,
    ) -> Self {
        Self::with_all(config, tls, listener, format, 100)
    }

    fn with_all<L: Listener>(
        config: Config,
        tls: Option<TlsSource>,
        listener: impl FnOnce(Inlet) -> L,
        format: fn(Wire) -> Arc<dyn WireFormat>,
        crumb: usize,
    ) -> Self {
        let felix_metrics = SyncerMetrics::unregistered();
        let bgp_metrics = SyncerMetrics::unregistered();
        let (felix, felix_reader) = SnapCache::new(crumb, felix_metrics.clone());
        let (bgp, bgp_reader) = SnapCache::new(100, bgp_metrics.clone());
        let server_metrics = ServerMetrics::new(&Registry::new());
        let metrics = Metrics {
            server: server_metrics.clone(),
            syncers: BTreeMap::from([(FELIX, felix_metrics.clone()), (BGP, bgp_metrics)]),
        };
        let caches = BTreeMap::from([(FELIX, felix_reader), (BGP, bgp_reader)]);
        let (dial, inlet) = mpsc::channel(1024);
        let bound = Server::with_formats(listener(Inlet(inlet)), config, caches, metrics, tls, format);
        let handle = bound.handle();
        let run = tokio::spawn(bound.run(|| {}));
        Self { felix, bgp, handle, server_metrics, felix_metrics, run, dial }
    }

    /// A raw connection whose pipe holds this number of bytes each way.
    pub(super) async fn dial(&self, buffer: usize) -> DuplexStream {
        let (ours, theirs) = duplex(buffer);
        self.dial.send(theirs).await.expect("the server takes connections");
        ours
    }

    /// A client that has said hello.
    pub(super) async fn connect(&self, speech: Speech) -> Client {
        let mut client = Client::new(self.dial(64 << 10).await, speech);
        client.hello("felix").await;
        client
    }

    /// The number of connections that were closed for a reason.
    pub(super) fn closed(&self, reason: &str) -> u64 {
        self.server_metrics.connections_closed.with_label_values(&[reason]).get()
    }

    /// Puts keys into the felix cache, all in one batch.
    pub(super) fn put(&mut self, entries: &[(&str, &str)]) {
        let updates = entries.iter().map(|(key, value)| update(key, Some(value.as_bytes()))).collect();
        self.felix.apply(vec![SyncerEvent::Updates(updates)]);
    }

    pub(super) fn delete(&mut self, key: &str) {
        self.felix.apply(vec![SyncerEvent::Updates(vec![update(key, None)])]);
    }

    pub(super) fn status(&mut self, status: SyncStatus) {
        self.felix.apply(vec![SyncerEvent::Status(status)]);
    }
}

/// Waits until `holds` is true, and lets other tasks run in between.
pub(in super::super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// A cache and a feed of it for plain clients of Calico's protocol, without a server around it and without a pace.
pub(in super::super) fn lone_feed() -> (SnapCache, Lease) {
    lone_feed_with_pace(Duration::ZERO)
}

/// The same, with this time between two rounds for its client.
pub(in super::super) fn lone_feed_with_pace(pace: Duration) -> (SnapCache, Lease) {
    let (cache, feeds) = feeds_with(1 << 20, pace, pace);
    let (syncer, dialect) = (FELIX, Release::Master);
    let key = FeedKey { syncer, dialect, wire: Wire::GobPlain, filter: Filter::default() };
    let lease = follow::lease(&feeds, key).now_or_never().expect("no table is made");
    (cache, lease.expect("there is a felix cache"))
}

/// A cache and feeds of it that keep this number of bytes of its history.
pub(in super::super) fn feeds(history: usize) -> (SnapCache, Arc<Feeds>) {
    feeds_with(history, Duration::ZERO, Duration::ZERO)
}

/// The same, with rounds that each client delays by this.
pub(in super::super) fn paced_feeds(per_client: Duration) -> (SnapCache, Arc<Feeds>) {
    feeds_with(1 << 20, PATIENCE, per_client)
}

fn feeds_with(history: usize, pace_max: Duration, pace_per_client: Duration) -> (SnapCache, Arc<Feeds>) {
    let metrics = SyncerMetrics::unregistered();
    let (cache, reader) = SnapCache::new(10, metrics.clone());
    let config = FeedConfig {
        max_message_size: 100,
        min_batching_age: Duration::ZERO,
        limits: Limits { bytes: history, updates: 1000 },
        snapshot_max_age: PATIENCE,
        pace_max,
        pace_per_client,
        pumps: None,
        format: Wire::format,
    };
    let (caches, metrics) = (BTreeMap::from([(FELIX, reader)]), BTreeMap::from([(FELIX, metrics)]));
    (cache, Feeds::new(config, caches, &metrics, TaskRegistry::new(), CancellationToken::new()))
}

pub(in super::super) fn update(key: &str, value: Option<&[u8]>) -> Update {
    Update {
        key: Key::from(key),
        value: value.map(|value| Value::raw(value.to_vec())),
        revision: if value.is_some() { Arc::from("1") } else { no_revision() },
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: if value.is_some() { UpdateType::Updated } else { UpdateType::Deleted },
        origin: None,
    }
}
