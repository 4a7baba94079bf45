//! Accepts connections, tracks them, and ends them when there are too many or the server goes.
//!
//! ```text
//!  Running ──drain──► Draining (listener closed, one connection after the other ends) ──nobody left──► Stopped
//!      └───────────────────────────────stop──────────────────────────────────────────────────────────────▲
//! ```
//!
//! Nothing that a single connection does can hold up the loop here: TLS and hello happen in the connection's own task, under
//! a time-out. [`super::accepting`] brings the next connection, and tries again where that fails.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accepting::{Accepting, next_connection};
use super::calls::Order;
use super::config::{Config, RANDOM_SEED};
use super::connection::{Counted, Shared, serve};
use super::feed::FeedConfig;
use super::feeds::Feeds;
use super::governor::{Drain, Governor};
use super::liveness::Timeouts;
use super::peers::Peers;
use super::places::Places;
use super::reason::CloseReason;
use super::ring::Limits;
use super::sender::Patience;
use super::slots::{Slots, sleep_or_never};
use super::status::ClientStatus;
use super::tracker::{Client, Tracker};
use super::transport::{Listener, TcpInlet, TlsSource};
use super::wire::Wire;
use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::SyncerType;
use crate::snapcache::Reader;
use crate::syncproto::format::WireFormat;
use crate::tasks::{TaskFailure, TaskRegistry, panic_message};

/// Least interval of anything periodic: a setting of nothing at all must not make a loop spin.
const TICK: Duration = Duration::from_millis(1);

/// How often the server shows that its loop is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long connections, and then feeds, may take to end after a task has failed. Whatever it was that failed, the end of the
/// server does not wait for it.
const FAILED_STOP: Duration = Duration::from_secs(1);

/// A feed that is not in order for this long costs the server its liveness. It looks at itself each second.
const FEED_STUCK: Duration = Duration::from_secs(5);

/// The metrics that a server writes.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Of the server as a whole.
    pub server: ServerMetrics,
    /// Of the syncers that it serves; the same handles that their pipelines write.
    pub syncers: BTreeMap<SyncerType, SyncerMetrics>,
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
        caches: BTreeMap<SyncerType, Reader>,
        metrics: Metrics,
        tls: Option<TlsSource>,
    ) -> io::Result<Bound<TcpInlet>> {
        let listener = TcpInlet::bind(&config.host, config.port, config.send_buffer).await?;
        Ok(Self::with_listener(listener, config, caches, metrics, tls))
    }

    /// Serves whatever a listener brings.
    ///
    /// Feeds and the pumps that write to clients run on the runtime that this is called on, connections on the one that runs
    /// [`Bound::run`]; they may be the same.
    ///
    /// # Panics
    /// When a cache has no metrics beside it, and outside of a runtime.
    #[must_use]
    pub fn with_listener<L: Listener>(
        listener: L,
        config: Config,
        caches: BTreeMap<SyncerType, Reader>,
        metrics: Metrics,
        tls: Option<TlsSource>,
    ) -> Bound<L> {
        Self::with_formats(listener, config, caches, metrics, tls, Wire::format)
    }

    /// The same, with encoders of the caller's choice.
    pub(super) fn with_formats<L: Listener>(
        listener: L,
        config: Config,
        caches: BTreeMap<SyncerType, Reader>,
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
        let shared = Shared {
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
        let (phase, _) = watch::channel(Phase::Running);
        let state = Arc::new(State {
            tracker: Tracker::default(),
            max_connections: AtomicUsize::new(config.max_connections),
            limit_shown: metrics.server.connections_limit.clone(),
            peers: shared.peers.clone(),
            phase,
        });
        state.show_limit();
        Bound { listener, config, seed, metrics: metrics.server, shared: Arc::new(shared), state, tasks, stop_feeds }
    }
}

/// The number of connections that may stream: twice what the governor allows at first, and at least so many more than that as may be in
/// their handshake. The governor is gentle, one connection a second: when the other servers end, all their clients are to find
/// a place here. But memory must have a bound. Connections in their handshake do not count, so strangers that are silent take no
/// place from clients that come back.
fn most_streams(config: &Config) -> usize {
    let room = config.max_connections.max(config.max_handshakes);
    config.max_connections.saturating_add(room).min(Semaphore::MAX_PERMITS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    Draining,
    Stopped,
}

#[derive(Debug)]
struct State {
    tracker: Tracker,
    max_connections: AtomicUsize,
    limit_shown: IntGauge,
    peers: Arc<ArcSwap<Peers>>,
    phase: watch::Sender<Phase>,
}

impl State {
    fn show_limit(&self) {
        let limit = self.max_connections.load(Ordering::Relaxed);
        self.limit_shown.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            *phase = (*phase).max(to);
            later
        });
    }
}

/// Steers a running server, and looks into it.
#[derive(Clone, Debug)]
pub struct Handle(Arc<State>);

impl Handle {
    /// Stops listening and ends all connections one after the other, spread over the shutdown time. [`Bound::run`] returns
    /// when the last one has ended. Calling it again changes nothing.
    pub fn drain(&self) {
        self.0.advance(Phase::Draining);
    }

    /// Ends all connections at once.
    pub fn stop(&self) {
        self.0.advance(Phase::Stopped);
    }

    /// Sets how many connections the governor allows. Those above it are closed one by one, the newest first.
    pub fn set_max_connections(&self, max: usize) {
        self.0.max_connections.store(max, Ordering::Relaxed);
        self.0.show_limit();
    }

    /// The number of connections that the governor allows.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.0.max_connections.load(Ordering::Relaxed)
    }

    /// Sets where clients are sent that have to leave.
    pub fn set_peers(&self, peers: Peers) {
        self.0.peers.store(Arc::new(peers));
    }

    /// Connections now, in handshake or later, without those that are about to end.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.tracker.len()
    }

    /// The status of every connection, oldest first.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.0.tracker.status(Instant::now())
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Bound<L> {
    listener: L,
    config: Config,
    seed: u64,
    metrics: ServerMetrics,
    shared: Arc<Shared>,
    state: Arc<State>,
    tasks: TaskRegistry,
    stop_feeds: CancellationToken,
}

impl<L: Listener> Bound<L> {
    /// Where it listens, with the port that the system chose.
    ///
    /// # Errors
    /// The system's own words.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle to steer the server with.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(self.state.clone())
    }

    /// The server's tasks, for people to look at: feeds, pumps, producers of snapshots. Connections are not among them.
    #[must_use]
    pub fn tasks(&self) -> TaskRegistry {
        self.tasks.clone()
    }

    /// Serves until a drain is complete or the server is stopped. `alive` is called every few seconds from the loop that
    /// accepts connections, for as long as that and all feeds get on.
    ///
    /// # Errors
    /// A feed, a pump or the producer of a snapshot panicked. Agents would keep what they have and not notice, so all
    /// connections are ended before this returns, and the caller should end the process. A panic in a connection ends that
    /// one alone, with [`CloseReason::Panicked`].
    ///
    /// # Cancel safety
    /// Dropping the future ends neither connections nor feeds; use [`Handle::stop`].
    pub async fn run(self, alive: impl Fn() + Send) -> Result<(), TaskFailure> {
        let Self { listener, config, seed, metrics, shared, state, tasks, stop_feeds } = self;
        shared.feeds.connections_run_here();
        let connections = TaskTracker::new();
        let slots = Slots::new(config.max_handshakes);
        let mut accepting = Some(Accepting::new(listener, slots));
        // The upper half is random so that numbers of different lives of the server do not meet in one log.
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
                Phase::Draining if accepting.is_some() => {
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
                Phase::Running | Phase::Draining => {}
                Phase::Stopped => break,
            }
            let drop_at = drain.as_ref().map(|(_, at)| *at);
            tokio::select! {
                _ = phase.changed() => {}
                failure = tasks.failure() => {
                    failed = Some(failure);
                    break;
                }
                _ = heartbeat.tick() => match shared.feeds.stuck(Instant::now(), FEED_STUCK) {
                    None => alive(),
                    Some((feed, stuck_for)) => tracing::error!(
                        feed,
                        ?stuck_for,
                        "a feed does not get on, so its agents get nothing: not live; /debug/tasks shows which task blocks its thread"
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
                    let task = one_connection::<L>(stream, client, slot, shared.clone(), state.clone(), metrics.clone());
                    connections.spawn(task);
                }
                () = sleep_until(look_at) => {
                    look_at = Instant::now() + governor.next_look();
                    let (n, max) = (state.tracker.established(), state.max_connections.load(Ordering::Relaxed));
                    // The newest go: they have just come here and find another server most easily, and long-lived
                    // connections stay long-lived.
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
        state.advance(Phase::Stopped);
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

/// Waits for the end of something; not for ever when a task has `failed`.
async fn end_of(failed: bool, end: impl Future<Output = ()>) {
    if !failed {
        end.await;
    } else if timeout(FAILED_STOP, end).await.is_err() {
        tracing::warn!("parts of the server did not end in time after a task had failed");
    }
}

/// A connection that is counted, even if its task should panic.
struct Tracked {
    id: u64,
    state: Arc<State>,
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
    shared: Arc<Shared>,
    state: Arc<State>,
    metrics: ServerMetrics,
) {
    let tracked = Tracked { id: client.id, state, _active: Counted::new(&metrics.connections_active) };
    let reason = match AssertUnwindSafe(serve(stream, client.clone(), shared, slot)).catch_unwind().await {
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
