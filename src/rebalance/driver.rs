//! The task that keeps a server's limit of connections and its list of peers right.
//!
//! Fed by the watch of `EndpointSlice` and by the node counter; steers a server. Changes are let settle for a moment and then
//! count all at once; besides, everything is looked at again once per interval, as Typha does. A watch that has been failing
//! for [`DISTRUST_AFTER`] counts as knowing nothing: servers may have gone unseen, and clients must not be closed on their
//! account.
//!
//! Invariants: at most one evaluation per [`SETTLE`]; the server is told only values that differ from the last;
//! ends only when cancelled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::formula::{Figures, Limits, max_connections};
use crate::calico::kinds::ENDPOINT_SLICE;
use crate::outlet::Outlet;
use crate::outlet::peers::Peers;
use crate::replicas::{Replica, Replicas, Service};
use crate::syncer::kind_watch::{KindEvent, KindStatus};

/// Time for changes to settle before they count. A rollout changes a slice several times in a row, and nodes come one by one;
/// connections should move once. Short enough that a replica that goes is known to the others within a second.
const SETTLE: Duration = Duration::from_millis(500);

/// Time that the watch may fail before its last answer counts no more. Longer than the minute between two bookmarks
/// of an API server: without changes, only they show that a watch that was opened again works.
const DISTRUST_AFTER: Duration = Duration::from_secs(120);

/// A rebalancer's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service whose servers share the connections.
    pub service: Service,
    /// The limits of the target.
    pub limits: Limits,
    /// Number of syncers that a node may follow.
    pub syncers: usize,
    /// Time between two looks at everything; more than zero.
    pub interval: Duration,
    /// Our own addresses as the service lists them, as far as they are known.
    pub own: Vec<SocketAddr>,
}

/// The steered server.
pub trait Steered: Send + 'static {
    /// Number of connections that it may keep from now on.
    fn set_max_connections(&self, max: usize);
    /// The servers that its goodbyes name from now on.
    fn set_peers(&self, peers: Peers);
}

impl Steered for Arc<dyn Outlet> {
    fn set_max_connections(&self, max: usize) {
        (**self).set_max_connections(max);
    }

    fn set_peers(&self, peers: Peers) {
        (**self).set_peers(peers);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Rebalancer<S> {
    settings: Settings,
    replicas: Replicas,
    events: mpsc::Receiver<(usize, KindEvent)>,
    nodes: watch::Receiver<Option<usize>>,
    watches: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
    /// When the watch was first seen to fail.
    failing_since: Option<Instant>,
    server: S,
    /// The last limit that the server was told.
    told: (usize, Vec<Replica>),
}

impl<S: Steered> Rebalancer<S> {
    /// A rebalancer of `server`, which has the upper limit now. `events` are those of the kind `EndpointSlice`, and `watches`
    /// are the states of the hub that they come from; `nodes` is the number of nodes, `None` while that is not known.
    #[must_use]
    pub fn new(
        settings: Settings,
        events: mpsc::Receiver<(usize, KindEvent)>,
        watches: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
        nodes: watch::Receiver<Option<usize>>,
        server: S,
    ) -> Self {
        let (service, upper) = (settings.service.clone(), settings.limits.upper);
        Self {
            settings,
            replicas: Replicas::new(service),
            events,
            nodes,
            watches,
            failing_since: None,
            server,
            told: (upper, Vec::new()),
        }
    }

    /// Runs until cancelled.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the server keeps its last limit.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut due = Instant::now() + self.settings.interval;
        // A stage that has ended says nothing more; its last value stays true until the process ends, too.
        let (mut events_end, mut nodes_end) = (false, false);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                event = self.events.recv(), if !events_end => match event {
                    Some((_, event)) => {
                        for bad in self.replicas.on_event(&event) {
                            warn!(%bad, "cannot read an endpoint slice of our service");
                        }
                        due = due.min(Instant::now() + SETTLE);
                    }
                    None => events_end = true,
                },
                changed = self.nodes.changed(), if !nodes_end => match changed {
                    Ok(()) => due = due.min(Instant::now() + SETTLE),
                    Err(_) => nodes_end = true,
                },
                () = sleep_until(due) => {
                    let now = Instant::now();
                    self.evaluate(now);
                    due = now + self.settings.interval;
                }
            }
        }
    }

    fn evaluate(&mut self, now: Instant) {
        self.failing_since = self.watch_fails().then(|| self.failing_since.unwrap_or(now));
        let trusted = self.failing_since.is_none_or(|since| now - since < DISTRUST_AFTER);
        let replicas = self.replicas.known().filter(|_| trusted);
        let figures = Figures { nodes: *self.nodes.borrow(), replicas: replicas.as_ref().map(Vec::len) };
        let limit = max_connections(figures, self.settings.syncers, self.settings.limits);
        let (before, listed) = &mut self.told;
        if limit != *before {
            info!(
                limit,
                before = *before,
                nodes = known(figures.nodes),
                replicas = known(figures.replicas),
                service = %self.settings.service,
                "new limit of connections"
            );
            *before = limit;
            self.server.set_max_connections(limit);
        }
        // Addresses that were good a moment ago are better than none: they stay while nothing is known.
        if let Some(replicas) = replicas
            && replicas != *listed
        {
            debug!(replicas = replicas.len(), service = %self.settings.service, "servers of our service have changed");
            let addresses = replicas.iter().map(|replica| replica.addresses.clone());
            self.server.set_peers(Peers::new(addresses, &self.settings.own));
            *listed = replicas;
        }
    }

    fn watch_fails(&self) -> bool {
        let kind = ENDPOINT_SLICE.to_string();
        let watches = self.watches.borrow();
        watches.iter().map(|status| status.borrow()).any(|status| status.kind == kind && status.error.is_some())
    }
}

fn known(figure: Option<usize>) -> String {
    figure.map_or_else(|| "unknown".to_owned(), |figure| figure.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::datastore::memory::{MemoryStore, WatchFault};
    use crate::datastore::{Dialect, Object, ObjectId};
    use crate::model::no_revision;
    use crate::syncer::kind_watch::{KindHub, Subscriber};

    /// A value that a server was told, with the time.
    #[derive(Clone, Debug, PartialEq)]
    enum Told {
        Limit(usize),
        Peers(Peers),
    }

    impl Steered for mpsc::Sender<(Instant, Told)> {
        fn set_max_connections(&self, max: usize) {
            self.try_send((Instant::now(), Told::Limit(max))).expect("the test listens");
        }

        fn set_peers(&self, peers: Peers) {
            self.try_send((Instant::now(), Told::Peers(peers))).expect("the test listens");
        }
    }

    struct World {
        store: MemoryStore,
        nodes: watch::Sender<Option<usize>>,
        told: mpsc::Receiver<(Instant, Told)>,
        cancel: CancellationToken,
    }

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 5473))
    }

    fn slice(name: &str, hosts: impl IntoIterator<Item = u8>) -> Object {
        let endpoints: Vec<Value> =
            hosts.into_iter().map(|host| json!({"addresses": [format!("10.0.0.{host}")]})).collect();
        let body = json!({
            "metadata": {"labels": {(Service::LABEL): "calico-typha"}},
            "addressType": "IPv4",
            "ports": [{"name": "calico-typha", "port": 5473}],
            "endpoints": endpoints,
        });
        Object {
            id: ObjectId { namespace: "kube-system".into(), name: name.into() },
            revision: no_revision(),
            dialect: Dialect::Kubernetes,
            body: body.to_string().into(),
            place: None,
        }
    }

    impl World {
        /// Five servers, and a rebalancer with the limits of Typha's tests.
        fn new() -> Self {
            let store = MemoryStore::new();
            store.put(&ENDPOINT_SLICE, slice("a", 1..=5));
            let (nodes, counted) = watch::channel(None);
            let (events_in, events) = mpsc::channel(4);
            let (tell, told) = mpsc::channel(16);
            let mut hub = KindHub::new(Arc::new(store.clone()), 1);
            hub.subscribe(ENDPOINT_SLICE, Subscriber::new(0, events_in));
            let watches = hub.statuses();
            let settings = Settings {
                service: Service {
                    namespace: "kube-system".into(),
                    name: "calico-typha".into(),
                    port_name: "calico-typha".into(),
                },
                limits: Limits { lower: 11, upper: 101 },
                syncers: 3,
                interval: Duration::from_secs(30),
                own: vec![at(1)],
            };
            let cancel = CancellationToken::new();
            tokio::spawn(hub.run(cancel.clone()));
            tokio::spawn(Rebalancer::new(settings, events, watches, counted, tell).run(cancel.clone()));
            Self { store, nodes, told, cancel }
        }

        /// With a hundred nodes, and the first limit and peers told.
        async fn settled() -> Self {
            let mut world = Self::new();
            world.nodes.send_replace(Some(100));
            assert_eq!([world.next().await, world.next().await], [Told::Limit(93), peers(1..=5)]);
            world
        }

        async fn next(&mut self) -> Told {
            let told = tokio::time::timeout(Duration::from_secs(1000), self.told.recv()).await;
            told.expect("it says something").expect("the rebalancer runs").1
        }

        /// Nothing is said for three intervals.
        async fn silence(&mut self) {
            let heard = tokio::time::timeout(Duration::from_secs(90), self.told.recv()).await;
            assert!(heard.is_err(), "{heard:?}");
        }
    }

    fn peers(hosts: impl IntoIterator<Item = u8>) -> Told {
        Told::Peers(Peers::new(hosts.into_iter().map(|host| vec![at(host)]), &[at(1)]))
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_follows_nodes_and_replicas_within_a_second() {
        let mut world = World::new();
        assert_eq!(world.next().await, peers(1..=5));
        world.silence().await;

        let changed = Instant::now();
        world.nodes.send_replace(Some(100));
        assert_eq!(world.next().await, Told::Limit(93));
        assert!(changed.elapsed() <= Duration::from_secs(1), "{:?}", changed.elapsed());

        let changed = Instant::now();
        world.store.put(&ENDPOINT_SLICE, slice("b", 6..=9));
        assert_eq!([world.next().await, world.next().await], [Told::Limit(48), peers(1..=9)]);
        assert!(changed.elapsed() <= Duration::from_secs(1), "{:?}", changed.elapsed());

        // The same again says nothing.
        world.store.put(&ENDPOINT_SLICE, slice("b", 6..=9));
        world.nodes.send_replace(Some(100));
        world.silence().await;

        // All others go: a lone server keeps all connections.
        world.store.delete(&ENDPOINT_SLICE, &slice("a", []).id);
        world.store.put(&ENDPOINT_SLICE, slice("b", [1]));
        assert_eq!([world.next().await, world.next().await], [Told::Limit(101), peers([1])]);
        world.cancel.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_moves_the_limit_once() {
        let mut world = World::settled().await;
        for hosts in 6..=9 {
            world.store.put(&ENDPOINT_SLICE, slice("a", 1..=hosts));
            world.nodes.send_replace(Some(usize::from(hosts)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!([world.next().await, world.next().await], [Told::Limit(11), peers(1..=9)]);
        world.silence().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_known_means_the_upper_limit_and_keeps_the_peers() {
        let mut world = World::settled().await;
        let away = Instant::now();
        world.store.refuse(&ENDPOINT_SLICE, usize::MAX);
        world.store.end_watches(&ENDPOINT_SLICE, WatchFault::Breaks);
        assert_eq!(world.next().await, Told::Limit(101));
        let took = away.elapsed();
        assert!(took >= DISTRUST_AFTER && took < DISTRUST_AFTER + Duration::from_secs(61), "{took:?}");
        world.store.refuse(&ENDPOINT_SLICE, 0);
        world.store.bookmark(&ENDPOINT_SLICE, None, None);
        assert_eq!(world.next().await, Told::Limit(93));
        world.nodes.send_replace(None);
        assert_eq!(world.next().await, Told::Limit(101));
        world.silence().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_breaks_and_comes_back_changes_nothing() {
        let mut world = World::settled().await;
        for fault in [WatchFault::Breaks, WatchFault::Expires, WatchFault::Ends] {
            world.store.refuse(&ENDPOINT_SLICE, 3);
            world.store.end_watches(&ENDPOINT_SLICE, fault);
            tokio::time::sleep(Duration::from_secs(60)).await;
            world.store.bookmark(&ENDPOINT_SLICE, None, None);
            world.silence().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_its_sources_does_not_end_it() {
        let (nodes, counted) = watch::channel(Some(100));
        let (_, events) = mpsc::channel(1);
        let (tell, mut told) = mpsc::channel(16);
        let service = Service { namespace: "n".into(), name: "s".into(), port_name: "p".into() };
        let limits = Limits { lower: 11, upper: 101 };
        let settings = Settings { service, limits, syncers: 3, interval: Duration::from_secs(30), own: Vec::new() };
        let cancel = CancellationToken::new();
        let (_, watches) = watch::channel(Vec::new());
        let task = tokio::spawn(Rebalancer::new(settings, events, watches, counted, tell).run(cancel.clone()));
        drop(nodes);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(!task.is_finished() && told.try_recv().is_err());
        cancel.cancel();
        task.await.expect("it ends well");
    }
}
