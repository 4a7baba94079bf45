//! The servers of one service, from the `EndpointSlice`s of a cluster as they come and go.
//!
//! Fed with the [`KindEvent`]s of the kind `EndpointSlice` (of the whole cluster: other services' are sorted out here); read
//! by [`crate::rebalance`] for the number of servers and their addresses, and by the client's discovery.
//!
//! ```text
//!  Unknown ──list complete──► Known ──kind absent, datastore lost──► Unknown
//!                              │  ▲
//!                      list begins │ list complete: slices that it lacked are gone
//!                              ▼  │
//!                             Known, earlier slices still count
//! ```
//!
//! Invariants: nothing is known before a whole list; a list in progress takes nothing away; a replica with addresses of both
//! families, or in several slices, is one replica; no I/O, no clock.

mod endpoints;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use self::endpoints::{Endpoint, Identity};
pub use self::endpoints::{Service, Unreadable};
use crate::datastore::{Event, Malformed, Object, ObjectId};
use crate::syncer::kind_watch::KindEvent;

/// One server that takes connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its addresses, one per family. Never empty.
    pub addresses: Vec<SocketAddr>,
    /// The node that it is on.
    pub node: Option<String>,
    /// The zone that it is in.
    pub zone: Option<String>,
    /// Zones whose clients should come to it, as the control plane advises.
    pub for_zones: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Replicas {
    service: Service,
    slices: BTreeMap<Arc<str>, Vec<Endpoint>>,
    known: bool,
    /// Slices that the current list has shown so far.
    listed: Option<BTreeSet<Arc<str>>>,
}

/// A slice of the service's namespace that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("endpoint slice {id}: {reason}")]
pub struct BadSlice {
    /// The slice.
    pub id: ObjectId,
    /// The reason.
    pub reason: Unreadable,
}

impl Replicas {
    /// Nothing known yet.
    #[must_use]
    pub fn new(service: Service) -> Self {
        Self { service, slices: BTreeMap::new(), known: false, listed: None }
    }

    /// The service of these servers.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Takes an event in. Returns the slices that cannot be read, for the log; they count as absent.
    pub fn on_event(&mut self, event: &KindEvent) -> Vec<BadSlice> {
        let mut bad = Vec::new();
        match event {
            KindEvent::ListStart => self.listed = Some(BTreeSet::new()),
            KindEvent::Objects(objects) => {
                for object in objects.iter() {
                    if self.put(object, &mut bad)
                        && let Some(listed) = &mut self.listed
                    {
                        listed.insert(object.id.name.clone());
                    }
                }
            }
            KindEvent::Malformed(_) => {}
            KindEvent::ListEnd { .. } => {
                if let Some(listed) = self.listed.take() {
                    self.slices.retain(|name, _| listed.contains(name));
                }
                self.known = true;
            }
            KindEvent::Changes(batch) => {
                for event in &batch.events {
                    match event {
                        Event::Put(object) => {
                            self.put(object, &mut bad);
                        }
                        Event::Delete { id, .. } | Event::Malformed(Malformed { id, .. }) => self.remove(id),
                    }
                }
            }
            KindEvent::Absent | KindEvent::Lost => self.known = false,
        }
        bad
    }

    /// Takes a slice in. Returns whether it is there now.
    fn put(&mut self, object: &Object, bad: &mut Vec<BadSlice>) -> bool {
        if *object.id.namespace != *self.service.namespace {
            return false;
        }
        match endpoints::read(&object.body, &self.service) {
            Ok(endpoints) if !endpoints.is_empty() => {
                self.slices.insert(object.id.name.clone(), endpoints);
                return true;
            }
            Ok(_) => {}
            Err(reason) => bad.push(BadSlice { id: object.id.clone(), reason }),
        }
        self.remove(&object.id);
        false
    }

    fn remove(&mut self, id: &ObjectId) {
        if *id.namespace == *self.service.namespace {
            self.slices.remove(&id.name);
        }
    }

    /// The servers that take connections, in a stable order; `None` while that is not known.
    #[must_use]
    pub fn known(&self) -> Option<Vec<Replica>> {
        self.known.then(|| self.group())
    }

    fn group(&self) -> Vec<Replica> {
        let mut members: BTreeMap<&Identity, BTreeMap<SocketAddr, &Endpoint>> = BTreeMap::new();
        for endpoint in self.slices.values().flatten() {
            members.entry(&endpoint.identity).or_default().entry(endpoint.address).or_insert(endpoint);
        }
        members
            .into_iter()
            .flat_map(|(identity, endpoints)| match identity {
                Identity::Target(_) | Identity::Hostname(_) | Identity::Address(_) => {
                    vec![Replica::of(endpoints.into_values())]
                }
                // Several servers of one node cannot be told apart; as many as it has addresses of one family.
                Identity::Node(_) => pairs(endpoints),
            })
            .collect()
    }
}

/// Pairs the addresses of both families of one node.
fn pairs(endpoints: BTreeMap<SocketAddr, &Endpoint>) -> Vec<Replica> {
    let (v4, v6): (Vec<&Endpoint>, Vec<&Endpoint>) =
        endpoints.into_values().partition(|endpoint| endpoint.address.is_ipv4());
    let count = v4.len().max(v6.len());
    let nth = |index: usize| Replica::of(v4.get(index).into_iter().chain(v6.get(index)).copied());
    (0..count).map(nth).collect()
}

impl Replica {
    fn of<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Self {
        let mut replica = Self { addresses: Vec::new(), node: None, zone: None, for_zones: Vec::new() };
        for endpoint in endpoints {
            replica.addresses.push(endpoint.address);
            replica.node = replica.node.or_else(|| endpoint.node.clone());
            replica.zone = replica.zone.or_else(|| endpoint.zone.clone());
            for zone in &endpoint.for_zones {
                if !replica.for_zones.contains(zone) {
                    replica.for_zones.push(zone.clone());
                }
            }
        }
        replica
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::datastore::{Dialect, WatchBatch};
    use crate::model::no_revision;

    fn service() -> Service {
        Service { namespace: "kube-system".into(), name: "calico-typha".into(), port_name: "calico-typha".into() }
    }

    fn id(namespace: &str, name: &str) -> ObjectId {
        ObjectId { namespace: namespace.into(), name: name.into() }
    }

    fn object(namespace: &str, name: &str, body: &Value) -> Object {
        Object {
            id: id(namespace, name),
            revision: no_revision(),
            dialect: Dialect::Kubernetes,
            body: body.to_string().into(),
            place: None,
        }
    }

    /// A slice of the service with endpoints at addresses; the second word, if any, is the UID of the pod.
    fn slice(name: &str, endpoints: &[&str]) -> Object {
        let v6 = endpoints.first().is_some_and(|endpoint| endpoint.contains(':'));
        let endpoint = |text: &&str| {
            let (address, uid) = text.split_once(' ').map_or((*text, None), |(address, uid)| (address, Some(uid)));
            json!({"addresses": [address], "targetRef": uid.map(|uid| json!({"uid": uid}))})
        };
        let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
        object(
            "kube-system",
            name,
            &json!({
                "metadata": {"labels": {"kubernetes.io/service-name": "calico-typha"}},
                "addressType": if v6 { "IPv6" } else { "IPv4" },
                "ports": [{"name": "calico-typha", "port": 5473}],
                "endpoints": endpoints,
            }),
        )
    }

    fn objects(objects: Vec<Object>) -> KindEvent {
        KindEvent::Objects(Arc::new(objects))
    }

    fn end() -> KindEvent {
        KindEvent::ListEnd { revision: no_revision(), as_of: None }
    }

    fn changes(events: Vec<Event>) -> KindEvent {
        KindEvent::Changes(Arc::new(WatchBatch { events, revision: no_revision(), as_of: None }))
    }

    fn after(events: impl IntoIterator<Item = KindEvent>) -> Replicas {
        let mut replicas = Replicas::new(service());
        for event in events {
            assert!(replicas.on_event(&event).is_empty(), "all slices can be read");
        }
        replicas
    }

    fn listed(slices: Vec<Object>) -> Replicas {
        after([KindEvent::ListStart, objects(slices), end()])
    }

    fn count(replicas: &Replicas) -> Option<usize> {
        replicas.known().map(|replicas| replicas.len())
    }

    #[test]
    fn nothing_is_known_before_a_whole_list() {
        let mut replicas = Replicas::new(service());
        assert_eq!(replicas.known(), None);
        replicas.on_event(&KindEvent::ListStart);
        replicas.on_event(&objects(vec![slice("a", &["10.0.0.1 one"])]));
        assert_eq!(replicas.known(), None);
        replicas.on_event(&end());
        assert_eq!(count(&replicas), Some(1));
        assert_eq!(count(&listed(Vec::new())), Some(0));
    }

    #[test]
    fn changes_are_followed() {
        let mut replicas = listed(vec![slice("a", &["10.0.0.1 one"])]);
        replicas.on_event(&changes(vec![Event::Put(slice("a", &["10.0.0.1 one", "10.0.0.2 two"]))]));
        assert_eq!(count(&replicas), Some(2));
        replicas.on_event(&changes(vec![Event::Put(slice("b", &["10.0.0.3 three"]))]));
        assert_eq!(count(&replicas), Some(3));
        replicas.on_event(&changes(vec![Event::Delete { id: id("kube-system", "a"), last: None }]));
        assert_eq!(count(&replicas), Some(1));
        let reason = "not JSON".to_owned();
        replicas.on_event(&changes(vec![Event::Malformed(Malformed { id: id("kube-system", "b"), reason })]));
        assert_eq!(count(&replicas), Some(0));
        replicas.on_event(&changes(Vec::new()));
        assert_eq!(count(&replicas), Some(0));
    }

    #[test]
    fn a_list_in_progress_takes_nothing_away_and_a_whole_one_does() {
        let mut replicas = listed(vec![slice("a", &["10.0.0.1 one"]), slice("b", &["10.0.0.2 two"])]);
        replicas.on_event(&KindEvent::ListStart);
        assert_eq!(count(&replicas), Some(2));
        replicas.on_event(&objects(vec![slice("b", &["10.0.0.2 two"])]));
        // It failed half-way and begins again.
        replicas.on_event(&KindEvent::ListStart);
        replicas.on_event(&objects(vec![slice("c", &["10.0.0.3 three"])]));
        assert_eq!(count(&replicas), Some(3));
        replicas.on_event(&end());
        let left: Vec<String> =
            replicas.known().into_iter().flatten().map(|replica| replica.addresses[0].to_string()).collect();
        assert_eq!(left, ["10.0.0.3:5473"]);
    }

    #[test]
    fn without_the_datastore_or_the_kind_nothing_is_known() {
        for event in [KindEvent::Lost, KindEvent::Absent] {
            let mut replicas = listed(vec![slice("a", &["10.0.0.1 one"])]);
            replicas.on_event(&event);
            assert_eq!(replicas.known(), None, "{event:?}");
            // Earlier slices are in question until a whole list has come.
            replicas.on_event(&KindEvent::ListStart);
            assert_eq!(replicas.known(), None, "{event:?}");
            replicas.on_event(&end());
            assert_eq!(count(&replicas), Some(0), "{event:?}");
        }
    }

    #[test]
    fn other_namespaces_and_services_do_not_count() {
        let mut elsewhere = slice("a", &["10.0.0.1 one"]);
        elsewhere.id = id("default", "a");
        let other = object("kube-system", "x", &json!({"metadata": {"labels": {}}}));
        let mut replicas = listed(vec![slice("a", &["10.0.0.2 two"]), elsewhere.clone(), other]);
        assert_eq!(count(&replicas), Some(1));
        replicas.on_event(&changes(vec![Event::Delete { id: elsewhere.id, last: None }]));
        assert_eq!(count(&replicas), Some(1), "one of that name in another namespace went");
        // Another service takes the slice over.
        let taken = object("kube-system", "a", &json!({"metadata": {"labels": {Service::LABEL: "web"}}}));
        replicas.on_event(&changes(vec![Event::Put(taken)]));
        assert_eq!(count(&replicas), Some(0));
    }

    #[test]
    fn each_replica_counts_once_in_dual_stack() {
        let replicas =
            listed(vec![slice("v4", &["10.0.0.1 one", "10.0.0.2 two"]), slice("v6", &["fd00::2 two", "fd00::1 one"])]);
        let addresses: Vec<Vec<String>> = replicas
            .known()
            .into_iter()
            .flatten()
            .map(|replica| replica.addresses.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(addresses, [["10.0.0.1:5473", "[fd00::1]:5473"], ["10.0.0.2:5473", "[fd00::2]:5473"]]);
        // While a slice is being replaced, an endpoint is in two.
        assert_eq!(count(&listed(vec![slice("a", &["10.0.0.1 one"]), slice("b", &["10.0.0.1 one"])])), Some(1));
        // Without anything that ties them together, each address counts, as with Typha.
        assert_eq!(count(&listed(vec![slice("v4", &["10.0.0.1"]), slice("v6", &["fd00::1"])])), Some(2));
    }

    #[test]
    fn nodes_pair_the_families_when_nothing_better_is_known() {
        let slice = |name: &str, family: &str, addresses: &[&str]| {
            let endpoints: Vec<Value> =
                addresses.iter().map(|address| json!({"addresses": [address], "nodeName": "n"})).collect();
            object(
                "kube-system",
                name,
                &json!({
                    "metadata": {"labels": {Service::LABEL: "calico-typha"}}, "addressType": family,
                    "ports": [{"name": "calico-typha", "port": 5473}], "endpoints": endpoints,
                }),
            )
        };
        let replicas = listed(vec![
            slice("v4", "IPv4", &["10.0.0.1", "10.0.0.2"]),
            slice("v6", "IPv6", &["fd00::1", "fd00::2", "fd00::3"]),
        ]);
        let sizes: Vec<usize> = replicas.known().into_iter().flatten().map(|replica| replica.addresses.len()).collect();
        assert_eq!(sizes, [2, 2, 1]);
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_reported_and_absent() {
        let mut replicas = listed(vec![slice("a", &["10.0.0.1 one"]), slice("b", &["10.0.0.2 two"])]);
        let bad = replicas.on_event(&changes(vec![Event::Put(object("kube-system", "a", &json!({"ports": 1})))]));
        assert_eq!(bad.len(), 1);
        let text = bad[0].to_string();
        assert!(text.starts_with("endpoint slice kube-system/a: invalid type"), "{text}");
        assert_eq!(count(&replicas), Some(1));
    }

    proptest! {
        /// However the slices came (lists, changes, in which order), the same slices mean the same replicas.
        #[test]
        fn the_way_does_not_matter(steps in proptest::collection::vec((0_u8..4, proptest::collection::vec(1_u8..6, 0..4)), 1..20)) {
            let mut followed = listed(Vec::new());
            let mut now: BTreeMap<String, Object> = BTreeMap::new();
            for (name, members) in steps {
                let name = format!("s{name}");
                let endpoints: Vec<String> = members.iter().map(|n| format!("10.0.0.{n} pod{n}")).collect();
                let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
                if members.is_empty() {
                    now.remove(&name);
                    followed.on_event(&changes(vec![Event::Delete { id: id("kube-system", &name), last: None }]));
                } else {
                    now.insert(name.clone(), slice(&name, &endpoints));
                    followed.on_event(&changes(vec![Event::Put(slice(&name, &endpoints))]));
                }
            }
            let pods: BTreeSet<u8> = followed.known().into_iter().flatten()
                .filter_map(|replica| replica.addresses[0].to_string().as_bytes().get(7).copied()).collect();
            prop_assert_eq!(count(&followed), Some(pods.len()));
            prop_assert_eq!(followed.known(), listed(now.into_values().collect()).known());
        }
    }
}
