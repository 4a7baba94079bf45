//! What a seed does to the datastore: objects with a version in them, put, deleted, re-created and broken at random.

use bulrush::datastore::memory::{MemoryStore, WatchFault};
use bulrush::datastore::{Dialect, Event, Kind, Object, ObjectId};
use bulrush::model::{Key, no_revision};
use bulrush::syncer::SyncerType;
use bulrush::syncer::kinds::{BGP_PEER, GLOBAL_NETWORK_SET};
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;

use super::ledger::{Change, Ledger};

/// The kinds that change. Felix gets both, BGP the second: a kind that is watched once and feeds two syncers.
pub(super) const KINDS: [Kind; 2] = [GLOBAL_NETWORK_SET, BGP_PEER];

/// Objects of each kind: few, so that each of them goes through a lot.
const OBJECTS: u64 = 25;

/// What stands before the version in a label's value.
const MARK: &str = "\"version\":\"v";

/// The version that a body or a value carries, if it is one of ours.
pub(super) fn version(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once(MARK)?;
    rest.split_once('"')?.0.parse().ok()
}

fn key(kind: &Kind, name: &str) -> Key {
    if *kind == GLOBAL_NETWORK_SET {
        format!("/calico/v1/netset/{name}").into()
    } else {
        format!("/calico/resources/v3/projectcalico.org/bgppeers/{name}").into()
    }
}

/// Keys and versions that a syncer's agents should have, in key order.
pub(super) fn content(store: &MemoryStore, syncer: SyncerType) -> Vec<(Key, u64)> {
    let kinds = if syncer == SyncerType::Felix { &KINDS[..] } else { &KINDS[1..] };
    let of_kind = |kind: &Kind| -> Vec<(Key, u64)> {
        let objects = store.content(kind);
        objects.iter().filter_map(|object| Some((key(kind, &object.id.name), version(&object.body)?))).collect()
    };
    let mut all: Vec<(Key, u64)> = kinds.iter().flat_map(of_kind).collect();
    all.sort();
    all
}

fn body(kind: &Kind, name: &str, version: u64, rng: &mut SmallRng) -> Bytes {
    let spec = if *kind == GLOBAL_NETWORK_SET {
        let nets: Vec<String> =
            (0..rng.random_range(1..30)).map(|i| format!("\"10.{i}.{}.0/24\"", version % 256)).collect();
        format!(r#"{{"nets":[{}]}}"#, nets.join(","))
    } else {
        r#"{"peerIP":"192.168.1.1","asNumber":64567}"#.to_owned()
    };
    let kind = &kind.name;
    format!(
        r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","labels":{{"version":"v{version}"}}}},"spec":{spec}}}"#
    )
    .into()
}

/// Changes the datastore at random, and writes down what it did.
#[derive(Debug)]
pub(super) struct Churn {
    store: MemoryStore,
    ledger: Ledger,
    version: u64,
}

impl Churn {
    pub(super) fn new(store: MemoryStore, ledger: Ledger) -> Self {
        Self { store, ledger, version: 0 }
    }

    /// How often the datastore has changed.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// One batch of `count` changes of one kind.
    pub(super) fn change(&mut self, rng: &mut SmallRng, count: usize) {
        let kind = &KINDS[rng.random_range(0..KINDS.len())];
        let mut events = Vec::new();
        for _ in 0..count {
            let name = format!("o-{}", rng.random_range(0..OBJECTS));
            match rng.random_range(0..100) {
                0..60 => self.put(kind, &name, rng, &mut events),
                60..85 => self.delete(kind, &name, &mut events),
                // Gone and there again, in one batch.
                85..95 => {
                    self.delete(kind, &name, &mut events);
                    self.put(kind, &name, rng, &mut events);
                }
                _ => self.spoil(kind, &name, &mut events),
            }
        }
        self.store.batch(kind, events, None);
    }

    /// So many objects of each kind to begin with.
    pub(super) fn fill(&mut self, rng: &mut SmallRng, count: u64) {
        for kind in &KINDS {
            let mut events = Vec::new();
            for i in 0..count.min(OBJECTS) {
                self.put(kind, &format!("o-{i}"), rng, &mut events);
            }
            self.store.batch(kind, events, None);
        }
    }

    fn put(&mut self, kind: &Kind, name: &str, rng: &mut SmallRng, events: &mut Vec<Event>) {
        let version = self.note(kind, name, true);
        events.push(Event::Put(object(name, body(kind, name, version, rng))));
    }

    fn delete(&mut self, kind: &Kind, name: &str, events: &mut Vec<Event>) {
        self.note(kind, name, false);
        events.push(Event::Delete { id: id(name), last: None });
    }

    /// A value that does not parse: to agents, the key is gone.
    fn spoil(&mut self, kind: &Kind, name: &str, events: &mut Vec<Event>) {
        self.note(kind, name, false);
        events.push(Event::Put(object(name, Bytes::from_static(br#"{"metadata":"none"}"#))));
    }

    fn note(&mut self, kind: &Kind, name: &str, present: bool) -> u64 {
        self.version += 1;
        let (version, key) = (self.version, key(kind, name));
        let mut book = self.ledger.book();
        book.log("datastore", &format!("{}{key} v{version}", if present { "" } else { "-" }));
        book.truth.entry(key).or_default().push(Change { version, present });
        version
    }
}

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "".into(), name: name.into() }
}

fn object(name: &str, body: Bytes) -> Object {
    Object { id: id(name), revision: no_revision(), dialect: Dialect::Etcd, body }
}

/// Faults of the datastore. They pass by themselves or by what the caller does later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// Open watches end like this.
    Watches(WatchFault),
    /// So many calls fail.
    Refuses(usize),
    /// Lists stop until released.
    HoldsLists,
}

impl Trouble {
    pub(super) fn draw(rng: &mut SmallRng) -> Self {
        match rng.random_range(0..10) {
            0..2 => Self::Watches(WatchFault::Ends),
            2..4 => Self::Watches(WatchFault::Breaks),
            4..7 => Self::Watches(WatchFault::Expires),
            7..9 => Self::Refuses(rng.random_range(1..6)),
            _ => Self::HoldsLists,
        }
    }

    pub(super) fn happen(self, store: &MemoryStore, kind: &Kind) {
        match self {
            Self::Watches(fault) => store.end_watches(kind, fault),
            Self::Refuses(times) => store.refuse(kind, times),
            Self::HoldsLists => {
                store.hold_pages(kind);
                // So that the hold is felt.
                store.end_watches(kind, WatchFault::Expires);
            }
        }
    }
}
