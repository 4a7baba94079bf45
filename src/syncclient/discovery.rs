//! Finds the servers of a Kubernetes service, nearest first, and keeps finding them. Feature `discovery`.
//!
//! Reads `EndpointSlice`s through a [`Datastore`] (the Kubernetes API, or a test's) and gives the client's driver a list
//! of addresses that is right at every moment.
//!
//! ```text
//!  EndpointSlices ─► Replicas ─► order(node, zone, seed) ─► Found ─► driver
//! ```
//!
//! Invariants: only endpoints that are ready, by the port of the given name; those on the client's own node come first, then
//! those of its zone, then all others, each group in a random order, so that clients spread; the addresses stay when the API
//! server goes away; the list changes only when the servers do.

use std::net::SocketAddr;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::builder::ClientBuilder;
use super::error::Error;
use super::finder::{Finder, Found, Servers};
use crate::calico::kinds::ENDPOINT_SLICE;
use crate::datastore::kubernetes::KubernetesStore;
use crate::datastore::labels::BadSelector;
use crate::datastore::{Datastore, Selection};
use crate::replicas::{Replica, Replicas};
use crate::syncer::kind_watch::{KindEvent, KindHub, KindStatus, Subscriber};

pub use crate::datastore::kubernetes::KubernetesConfig;
pub use crate::replicas::Service;

/// Events that may wait between the watch and us. Each is taken in at once.
const EVENTS: usize = 4;

/// The service whose servers are looked for, and the client's own place.
#[derive(Clone, Debug)]
pub struct Discovery {
    datastore: Arc<dyn Datastore>,
    service: Service,
    node: Option<String>,
    zone: Option<String>,
}

impl Discovery {
    /// Looks for the servers of `service` in a datastore that holds `EndpointSlice`s.
    #[doc(hidden)]
    #[must_use]
    pub fn new(datastore: Arc<dyn Datastore>, service: Service) -> Self {
        Self { datastore, service, node: None, zone: None }
    }

    /// Looks for them in the Kubernetes API. Needs the rights to list and watch `endpointslices` in the service's namespace.
    ///
    /// # Errors
    /// The configuration makes no client. An API server that is away is an event later.
    pub fn connect(config: KubernetesConfig, service: Service) -> Result<Self, Error> {
        let failed = |reason: String| Error::Discovery { service: service.to_string(), reason };
        slices(&service).map_err(|error| failed(error.to_string()))?;
        let store = KubernetesStore::connect(config).map_err(|error| failed(error.to_string()))?;
        Ok(Self::new(Arc::new(store), service))
    }

    /// The node that the client runs on: servers there come first.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// The zone that the client runs in: servers there come before those of other zones. Default: that of a server on the
    /// client's own node, if there is one.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    async fn follow(
        &self,
        mut events: mpsc::Receiver<(usize, KindEvent)>,
        found: &watch::Sender<Option<Found>>,
        seed: u64,
        stop: &CancellationToken,
    ) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut replicas = Replicas::new(self.service.clone());
        let mut known: Option<Vec<Replica>> = None;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                () = found.closed() => return,
                event = events.recv() => event,
            };
            let Some((_, event)) = event else { return };
            for bad in replicas.on_event(&event) {
                warn!(%bad, "cannot read an endpoint slice of the service");
            }
            if matches!(event, KindEvent::Absent) && known.is_none() {
                found.send_replace(Some(Err("the API server has no EndpointSlices".to_owned())));
            }
            let now = replicas.known();
            if now.is_none() || now == known {
                continue;
            }
            known = now;
            let addresses = order(known.iter().flatten(), self.node.as_deref(), self.zone.as_deref(), &mut rng);
            debug!(service = %self.service, ?addresses, "servers of the service");
            found.send_replace(Some(if addresses.is_empty() { Err(self.none_ready()) } else { Ok(addresses) }));
        }
    }

    fn none_ready(&self) -> String {
        format!(
            "no ready endpoint with a TCP port named {:?}; check the names of service, namespace and port, and whether its \
             pods are ready",
            self.service.port_name
        )
    }
}

/// The slices of a service and no others.
///
/// # Errors
/// The name is none that a service can have.
pub fn slices(service: &Service) -> Result<Selection, BadSelector> {
    let selection = Selection::from(ENDPOINT_SLICE).in_namespaces([service.namespace.as_str()]);
    selection.with_labels(&format!("{}={}", Service::LABEL, service.name))
}

impl Finder for Discovery {
    fn start(&self, seed: u64, cancel: &CancellationToken) -> Servers {
        let (found, result) = watch::channel(None);
        let (events_in, events) = mpsc::channel(EVENTS);
        let mut hub = KindHub::new(self.datastore.clone(), seed);
        match slices(&self.service) {
            Ok(slices) => hub.subscribe(slices, Subscriber::new(0, events_in)),
            Err(error) => drop(found.send_replace(Some(Err(error.to_string())))),
        }
        let watches = hub.statuses();
        let stop = cancel.child_token();
        let _watching = tokio::spawn(hub.run(stop.clone()));
        let this = self.clone();
        let _following = tokio::spawn(async move {
            this.follow(events, &found, seed, &stop).await;
            stop.cancel();
        });
        Servers::new(self.service.to_string(), result, move || trouble(&watches.borrow()))
    }
}

/// The reason why the API server has not answered yet.
fn trouble(watches: &[watch::Receiver<KindStatus>]) -> String {
    let error = watches.iter().find_map(|watch| watch.borrow().error.clone());
    error.unwrap_or_else(|| "the API server has not answered yet".to_owned())
}

impl ClientBuilder {
    /// Finds servers by their Kubernetes service, if no addresses are given. Feature `discovery`.
    #[must_use]
    pub fn discovery(self, discovery: Discovery) -> Self {
        self.finder(discovery)
    }
}

/// Addresses in the order to try them: same node, same zone, all others; each group shuffled. All addresses of a server stay
/// together.
fn order<'a>(
    replicas: impl Iterator<Item = &'a Replica> + Clone,
    node: Option<&str>,
    zone: Option<&str>,
    rng: &mut SmallRng,
) -> Vec<String> {
    let here = |replica: &&Replica| node.is_some() && replica.node.as_deref() == node;
    let zone = zone.or_else(|| replicas.clone().find(here).and_then(|replica| replica.zone.as_deref()));
    let distance = |replica: &&Replica| {
        let advised = zone.is_some_and(|zone| replica.for_zones.iter().any(|for_zone| for_zone == zone));
        if here(replica) {
            0_u8
        } else if advised || (zone.is_some() && replica.zone.as_deref() == zone) {
            1
        } else {
            2
        }
    };
    let mut nearest: Vec<&Replica> = replicas.clone().collect();
    nearest.shuffle(rng);
    // Stable: servers that are equally far stay shuffled.
    nearest.sort_by_key(distance);
    nearest.into_iter().flat_map(|replica| &replica.addresses).map(SocketAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::datastore::memory::{MemoryStore, WatchFault};
    use crate::datastore::{Dialect, Object, ObjectId};
    use crate::model::no_revision;

    fn replica(host: u8, node: &str, zone: Option<&str>, for_zones: &[&str]) -> Replica {
        Replica {
            addresses: vec![SocketAddr::from(([10, 0, 0, host], 5473))],
            node: Some(node.to_owned()),
            zone: zone.map(str::to_owned),
            for_zones: for_zones.iter().map(|&zone| zone.to_owned()).collect(),
        }
    }

    /// The last digits of the addresses, in order.
    fn hosts(replicas: &[Replica], node: Option<&str>, zone: Option<&str>, seed: u64) -> Vec<String> {
        let addresses = order(replicas.iter(), node, zone, &mut SmallRng::seed_from_u64(seed));
        let host = |address: &String| address.trim_start_matches("10.0.0.").trim_end_matches(":5473").to_owned();
        addresses.iter().map(host).collect()
    }

    fn cluster() -> Vec<Replica> {
        vec![
            replica(1, "n1", Some("west"), &[]),
            replica(2, "n2", Some("west"), &[]),
            replica(3, "n3", Some("east"), &[]),
            replica(4, "n4", Some("east"), &["west"]),
            replica(5, "n5", None, &[]),
        ]
    }

    #[test]
    fn same_node_then_same_zone_then_the_others() {
        for seed in 0..50 {
            let near = hosts(&cluster(), Some("n2"), Some("west"), seed);
            assert_eq!(near[0], "2");
            assert_eq!(near[1..3].iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"1".to_owned(), &"4".to_owned()]));
            assert_eq!(near.len(), 5);
            let inferred = hosts(&cluster(), Some("n2"), None, seed);
            assert_eq!(inferred, near, "the zone of a server on our node is ours");
            let east = hosts(&cluster(), Some("elsewhere"), Some("east"), seed);
            assert_eq!(east[..2].iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"3".to_owned(), &"4".to_owned()]));
        }
    }

    #[test]
    fn without_node_and_zone_every_server_is_first_for_some_client() {
        let firsts: BTreeSet<String> = (0..200).map(|seed| hosts(&cluster(), None, None, seed)[0].clone()).collect();
        assert_eq!(firsts.len(), 5, "{firsts:?}");
        assert_eq!(hosts(&cluster(), None, None, 3), hosts(&cluster(), None, None, 3));
    }

    proptest! {
        #[test]
        fn no_server_is_lost_and_the_near_come_first(
            servers in proptest::collection::vec((0_u8..4, 0_u8..3), 0..20), node in 0_u8..4, zone in 0_u8..3, seed: u64,
        ) {
            let replicas: Vec<Replica> = servers.iter().enumerate()
                .map(|(host, (node, zone))| {
                    replica(u8::try_from(host).unwrap_or(0), &format!("n{node}"), Some(&format!("z{zone}")), &[])
                })
                .collect();
            let (node, zone) = (format!("n{node}"), format!("z{zone}"));
            let ordered = hosts(&replicas, Some(&node), Some(&zone), seed);
            prop_assert_eq!(ordered.iter().collect::<BTreeSet<_>>().len(), servers.len());
            let far = |host: &String| {
                let replica = &replicas[host.parse::<usize>().unwrap_or(0)];
                if replica.node.as_deref() == Some(&*node) { 0 } else { 1 + u8::from(replica.zone.as_deref() != Some(&*zone)) }
            };
            prop_assert!(ordered.iter().map(far).collect::<Vec<u8>>().is_sorted());
        }
    }

    fn service() -> Service {
        Service { namespace: "kube-system".into(), name: "calico-typha".into(), port_name: "calico-typha".into() }
    }

    fn slice(name: &str, hosts: &[u8]) -> Object {
        let endpoints: Vec<Value> = hosts
            .iter()
            .map(|host| json!({"addresses": [format!("10.0.0.{host}")], "nodeName": format!("n{host}")}))
            .collect();
        let body = json!({
            "metadata": {"labels": {(Service::LABEL): "calico-typha"}}, "addressType": "IPv4",
            "ports": [{"name": "calico-typha", "port": 5473}], "endpoints": endpoints,
        });
        Object {
            id: ObjectId { namespace: "kube-system".into(), name: name.into() },
            revision: no_revision(),
            dialect: Dialect::Kubernetes,
            body: body.to_string().into(),
            place: None,
        }
    }

    fn start(store: &MemoryStore) -> Servers {
        Discovery::new(Arc::new(store.clone()), service()).node("n2").start(7, &CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_is_kept_fresh_and_outlives_the_api_server() {
        let store = MemoryStore::new();
        store.put(&ENDPOINT_SLICE, slice("a", &[1, 2]));
        let mut servers = start(&store);
        assert_eq!(servers.addresses().await, Ok(vec!["10.0.0.2:5473".to_owned(), "10.0.0.1:5473".to_owned()]));
        store.put(&ENDPOINT_SLICE, slice("a", &[3]));
        servers.changed().await;
        assert_eq!(servers.addresses().await, Ok(vec!["10.0.0.3:5473".to_owned()]));
        store.refuse(&ENDPOINT_SLICE, usize::MAX);
        store.end_watches(&ENDPOINT_SLICE, WatchFault::Breaks);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(servers.addresses().await, Ok(vec!["10.0.0.3:5473".to_owned()]));
        store.refuse(&ENDPOINT_SLICE, 0);
        store.put(&ENDPOINT_SLICE, slice("b", &[2]));
        servers.changed().await;
        assert_eq!(servers.addresses().await.map(|addresses| addresses.len()), Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_for_no_server_is_told() {
        let store = MemoryStore::new();
        let mut servers = start(&store);
        let none = servers.addresses().await.expect_err("there is no server").to_string();
        assert!(none.starts_with("find servers of service kube-system/calico-typha: no ready endpoint"), "{none}");

        let store = MemoryStore::new();
        store.set_absent(&ENDPOINT_SLICE, true);
        let absent = start(&store).addresses().await.expect_err("there is no server").to_string();
        assert!(absent.contains("no EndpointSlices"), "{absent}");

        let store = MemoryStore::new();
        store.set_forbidden(&ENDPOINT_SLICE, true);
        let forbidden = start(&store).addresses().await.expect_err("not permitted").to_string();
        assert!(forbidden.contains("not permitted"), "{forbidden}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_its_reader() {
        let store = MemoryStore::new();
        store.put(&ENDPOINT_SLICE, slice("a", &[1]));
        let mut servers = start(&store);
        servers.addresses().await.expect("a server");
        store.open_watches(&ENDPOINT_SLICE, 1).await;
        drop(servers);
        store.open_watches(&ENDPOINT_SLICE, 0).await;
    }
}
