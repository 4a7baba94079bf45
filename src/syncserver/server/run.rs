//! Accepts connections, tracks them, and ends them when there are too many or the server stops.
//!
//! ```text
//!  Running ──drain──► Draining (listener closed, one connection after the other ends) ──none left────► Stopped
//!      └───────────────────────────────stop──────────────────────────────────────────────────────────────▲
//! ```
//!
//! No single connection can hold up the loop here: TLS and hello happen in the connection's own task, under a time-out.
//! [`super::accepting`] brings the next connection, and tries again after a failure.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::calls::Order;
use super::super::client::connection::{ConnectionContext, Counted, serve};
use super::super::client::liveness::Timeouts;
use super::super::client::outgoing::Patience;
use super::super::client::places::Places;
use super::super::client::places::sleep_or_never;
use super::super::client::record::Client;
use super::super::client::transport::{Listener, TcpInlet, TlsSource};
use super::super::config::{Config, RANDOM_SEED};
use super::super::feed::registry::Feeds;
use super::super::feed::ring::Limits;
use super::super::feed::shared::FeedConfig;
use super::super::reason::CloseReason;
use super::super::wire::Wire;
use super::accepting::{Accepting, next_connection};
use super::governor::{Drain, Governor};
use super::slots::Slots;
use super::tracker::Tracker;
use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::SyncerName;
use crate::outlet::peers::Peers;
use crate::outlet::status::ClientStatus;
use crate::outlet::{Listening, Outlet};
use crate::snapcache::Reader;
use crate::syncproto::format::WireFormat;
use crate::tasks::{TaskFailure, TaskRegistry, panic_message};

/// Least interval of anything periodic: a setting of zero must not make a loop spin.
const TICK: Duration = Duration::from_millis(1);

/// How often the server shows that its loop is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Time for connections, and then feeds, to end after a task has failed. The end of the server does not wait for them
/// longer.
const FAILED_STOP: Duration = Duration::from_secs(1);

/// A feed that has been out of order for this long costs the server its liveness. It checks itself each second.
const FEED_STUCK: Duration = Duration::from_secs(5);

/// The metrics that a server writes.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Of the server as a whole.
    pub server: ServerMetrics,
    /// Of the syncers that it serves; the same handles that their pipelines write.
    pub syncers: BTreeMap<SyncerName, SyncerMetrics>,
}

/// Makes servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Listens on the configured address. Clients may connect from now on, and are served as soon as [`Bound::run`] runs.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        config: Config,
        caches: BTreeMap<SyncerName, Reader>,
        metrics: Metrics,
        tls: Option<TlsSource>,
    ) -> io::Result<Bound<TcpInlet>> {
        let listener = TcpInlet::bind(&config.host, config.port, config.send_buffer).await?;
        Ok(Self::with_listener(listener, config, caches, metrics, tls))
    }

    /// Serves the connections of a listener.
    ///
    /// Feeds and the pumps that write to clients run on the runtime on which this is called, connections on the one
    /// that runs [`Bound::run`]; they may be the same.
    ///
    /// # Panics
    /// When a cache has no metrics beside it, and outside of a runtime.
    #[must_use]
    pub fn with_listener<L: Listener>(
        listener: L,
        config: Config,
        caches: BTreeMap<SyncerName, Reader>,
        metrics: Metrics,
        tls: Option<TlsSource>,
    ) -> Bound<L> {
        Self::with_formats(listener, config, caches, metrics, tls, Wire::format)
    }

    /// The same, with encoders of the caller's choice.
    pub(crate) fn with_formats<L: Listener>(
        listener: L,
        config: Config,
        caches: BTreeMap<SyncerName, Reader>,
        metrics: Metrics,
        tls: Option<TlsSource>,
        format: fn(Wire) -> Arc<dyn WireFormat>,
    ) -> Bound<L> {
        CloseReason::begin_series(&metrics.server.connections_closed);
        let seed = if config.seed == RANDOM_SEED { rand::random() } else { config.seed };
        let feed_config = FeedConfig {
            max_message_size: config.max_message_size.max(1),
            min_batching_age: config.min_batching_age,
            limits: Limits { bytes: config.max_lag_bytes, updates: config.max_lag_updates },
            // A new client must not be far behind from the start.
            snapshot_max_age: config.snapshot_max_age.min(config.max_fall_behind / 2),
            pace_max: config.pace_max,
            pace_per_client: config.pace_per_client,
            pumps: config.pumps,
            format,
        };
        let (tasks, stop_feeds) = (TaskRegistry::new(), CancellationToken::new());
        let context = ConnectionContext {
            feeds: Feeds::new(feed_config, caches, &metrics.syncers, tasks.clone(), stop_feeds.clone()),
            tls,
            handshake_timeout: config.handshake_timeout,
            timeouts: Timeouts {
                ping_interval: config.ping_interval.max(TICK),
                pong: config.pong_timeout,
                write: config.write_timeout,
            },
            handshake_places: Places::new(),
            places: Places::new(),
            streams: Arc::new(Semaphore::new(most_streams(&config))),
            patience: Patience { max_fall_behind: config.max_fall_behind, grace: config.new_client_grace },
            epoch: seed.rotate_left(17) | 1,
            seed,
            peers: Arc::default(),
            of_unknown_versions: config.of_unknown_versions,
        };
        let (phase, _) = watch::channel(RunPhase::Running);
        let state = Arc::new(ServerState {
            tracker: Tracker::default(),
            max_connections: AtomicUsize::new(config.max_connections),
            limit_shown: metrics.server.connections_limit.clone(),
            peers: context.peers.clone(),
            phase,
        });
        state.show_limit();
        Bound { listener, config, seed, metrics: metrics.server, context: Arc::new(context), state, tasks, stop_feeds }
    }
}

/// Most connections that may stream: twice the number that the governor allows at first, or that number plus the most
/// handshakes if that is more. The governor is slow, one connection a second: when the other servers end, all their
/// clients must find room here. But memory must have a bound. Connections in their handshake do not count, so silent
/// strangers take no room from clients that come back.
fn most_streams(config: &Config) -> usize {
    let room = config.max_connections.max(config.max_handshakes);
    config.max_connections.saturating_add(room).min(Semaphore::MAX_PERMITS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RunPhase {
    Running,
    Draining,
    Stopped,
}

#[derive(Debug)]
struct ServerState {
    tracker: Tracker,
    max_connections: AtomicUsize,
    limit_shown: IntGauge,
    peers: Arc<ArcSwap<Peers>>,
    phase: watch::Sender<RunPhase>,
}

impl ServerState {
    fn show_limit(&self) {
        let limit = self.max_connections.load(Ordering::Relaxed);
        self.limit_shown.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    fn advance(&self, to: RunPhase) {
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            *phase = (*phase).max(to);
            later
        });
    }
}

/// Controls a running server, and shows its state.
#[derive(Clone, Debug)]
pub struct Handle(Arc<ServerState>);

impl Handle {
    /// The number of connections that the governor allows.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.0.max_connections.load(Ordering::Relaxed)
    }
}

impl Outlet for Handle {
    fn drain(&self) {
        self.0.advance(RunPhase::Draining);
    }

    fn stop(&self) {
        self.0.advance(RunPhase::Stopped);
    }

    fn connections(&self) -> usize {
        self.0.tracker.len()
    }

    fn clients(&self) -> Vec<ClientStatus> {
        self.0.tracker.status(Instant::now())
    }

    fn set_max_connections(&self, max: usize) {
        self.0.max_connections.store(max, Ordering::Relaxed);
        self.0.show_limit();
    }

    fn set_peers(&self, peers: Peers) {
        self.0.peers.store(Arc::new(peers));
    }
}

impl<L: Listener> Listening for Bound<L> {
    fn name(&self) -> &'static str {
        "SyncServer"
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn outlet(&self) -> Arc<dyn Outlet> {
        Arc::new(self.handle())
    }

    fn tasks(&self) -> TaskRegistry {
        Self::tasks(self)
    }

    fn run(self: Box<Self>, alive: Box<dyn Fn() + Send>) -> BoxFuture<'static, Result<(), TaskFailure>> {
        Self::run(*self, alive).boxed()
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Bound<L> {
    listener: L,
    config: Config,
    seed: u64,
    metrics: ServerMetrics,
    context: Arc<ConnectionContext>,
    state: Arc<ServerState>,
    tasks: TaskRegistry,
    stop_feeds: CancellationToken,
}

impl<L: Listener> Bound<L> {
    /// The address on which it listens, with the port that the system chose.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle to control the server with.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(self.state.clone())
    }

    /// The server's tasks, for display: feeds, pumps, producers of snapshots. Connections are not among them.
    #[must_use]
    pub fn tasks(&self) -> TaskRegistry {
        self.tasks.clone()
    }

    /// Serves until a drain is complete or the server is stopped. `alive` is called every few seconds from the loop
    /// that accepts connections, as long as that and all feeds make progress.
    ///
    /// # Errors
    /// A feed, a pump or the producer of a snapshot panicked. Agents would keep their old data without noticing, so all
    /// connections are ended before this returns, and the caller should end the process. A panic in a connection ends
    /// only that one, with [`CloseReason::Panicked`].
    ///
    /// # Cancel safety
    /// Dropping the future ends neither connections nor feeds; use [`Outlet::stop`].
    pub async fn run(self, alive: impl Fn() + Send) -> Result<(), TaskFailure> {
        let Self { listener, config, seed, metrics, context, state, tasks, stop_feeds } = self;
        context.feeds.connections_run_here();
        let connections = TaskTracker::new();
        let slots = Slots::new(config.max_handshakes);
        let mut accepting = Some(Accepting::new(listener, slots));
        // The upper half is random, so that two lives of the server do not use the same numbers in one log.
        let mut next_id = (seed & 0xffff_ffff_0000_0000) | 1;
        let mut phase = state.phase.subscribe();
        let mut governor = Governor::new(config.drop_interval.max(TICK), seed);
        let mut look_at = Instant::now() + governor.next_look();
        let mut drain: Option<(Drain, Instant)> = None;
        let mut failed = None;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now_phase = *phase.borrow_and_update();
            match now_phase {
                // Running => Draining
                RunPhase::Draining if accepting.is_some() => {
                    accepting = None;
                    let n = state.tracker.len();
                    let (within, apart) = (config.shutdown_timeout, config.shutdown_drop_interval_max);
                    tracing::info!(
                        connections = n,
                        ?within,
                        "draining: no new connections, present ones end one by one"
                    );
                    let Some(mut spread) = Drain::new(n, within, apart, seed) else { break };
                    let first = Instant::now() + spread.next_drop();
                    drain = Some((spread, first));
                }
                RunPhase::Running | RunPhase::Draining => {}
                RunPhase::Stopped => break,
            }
            let drop_at = drain.as_ref().map(|(_, at)| *at);
            tokio::select! {
                _ = phase.changed() => {}
                failure = tasks.failure() => {
                    failed = Some(failure);
                    break;
                }
                _ = heartbeat.tick() => match context.feeds.stuck(Instant::now(), FEED_STUCK) {
                    None => alive(),
                    Some((feed, stuck_for)) => tracing::error!(
                        feed,
                        ?stuck_for,
                        "a feed makes no progress, so its agents get nothing: not live; /debug/tasks shows the task that blocks its thread"
                    ),
                },
                accepted = next_connection(accepting.as_mut(), &metrics) => {
                    let (stream, peer, slot) = accepted;
                    metrics.connections_accepted.inc();
                    let client = state.tracker.add(next_id, peer, L::near_end(&stream), Instant::now());
                    next_id += 1;
                    if let Some(accepting) = &mut accepting {
                        accepting.slots.given_to(&client);
                    }
                    let task = one_connection::<L>(stream, client, slot, context.clone(), state.clone(), metrics.clone());
                    connections.spawn(task);
                }
                () = sleep_until(look_at) => {
                    look_at = Instant::now() + governor.next_look();
                    let (n, max) = (state.tracker.established(), state.max_connections.load(Ordering::Relaxed));
                    // The newest go: they have just come here and find another server most easily, and long-lived
                    // connections stay.
                    if Governor::must_drop(n, max) && state.tracker.end_newest(Order::Rebalance).is_some() {
                        metrics.connections_dropped.inc();
                    }
                }
                () = sleep_or_never(drop_at) => {
                    let Some((spread, at)) = &mut drain else { continue };
                    let n = state.tracker.len();
                    let _ended = state.tracker.end_nth(spread.choose(n), Order::Drain);
                    if n <= 1 {
                        break;
                    }
                    *at = Instant::now() + spread.next_drop();
                }
            }
        }
        // Draining, Running => Stopped
        drop(accepting);
        state.advance(RunPhase::Stopped);
        state.tracker.end_all(Order::Stop);
        connections.close();
        end_of(failed.is_some(), connections.wait()).await;
        tasks.stopping();
        stop_feeds.cancel();
        end_of(failed.is_some(), tasks.all_ended()).await;
        tracing::info!("server has stopped");
        match failed.or_else(|| tasks.failure().now_or_never()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Waits for the end of something, but only for a moment when a task has `failed`.
async fn end_of(failed: bool, end: impl Future<Output = ()>) {
    if !failed {
        end.await;
    } else if timeout(FAILED_STOP, end).await.is_err() {
        tracing::warn!("parts of the server did not end in time after a task had failed");
    }
}

/// A connection that is counted until it ends, even by a panic.
struct Tracked {
    id: u64,
    state: Arc<ServerState>,
    _active: Counted,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.state.tracker.remove(self.id);
    }
}

async fn one_connection<L: Listener>(
    stream: L::Stream,
    client: Arc<Client>,
    slot: OwnedSemaphorePermit,
    context: Arc<ConnectionContext>,
    state: Arc<ServerState>,
    metrics: ServerMetrics,
) {
    let tracked = Tracked { id: client.id, state, _active: Counted::new(&metrics.connections_active) };
    let reason = match AssertUnwindSafe(serve(stream, client.clone(), context, slot)).catch_unwind().await {
        Ok(reason) => reason,
        Err(panic) => CloseReason::Panicked(panic_message(&*panic)),
    };
    drop(tracked);
    metrics.connections_closed.with_label_values(&[reason.label()]).inc();
    let lasted = client.accepted_at.elapsed();
    let (conn, peer) = (client.id, client.peer);
    let agent = client.agent.get().map_or("", |agent| agent.name.as_str());
    if let CloseReason::Panicked(_) = reason {
        tracing::error!(conn, %peer, agent, ?lasted, %reason, "client disconnected");
    } else if reason.is_ordinary() {
        tracing::info!(conn, %peer, agent, ?lasted, %reason, "client left");
    } else {
        tracing::warn!(conn, %peer, agent, ?lasted, %reason, "client disconnected");
    }
}
