//! A seed's changes of the datastore: objects with a version in them are put, deleted, re-created and broken at random.

use std::sync::OnceLock;

use bulrush::calico::kinds::{BGP_PEER, GLOBAL_NETWORK_POLICY, GLOBAL_NETWORK_SET};
use bulrush::calico::release::Release;
use bulrush::calico::syncers::FELIX;
use bulrush::datastore::memory::{MemoryStore, WatchFault};
use bulrush::datastore::{Dialect, Event, Kind, Object, ObjectId};
use bulrush::model::SyncerName;
use bulrush::model::{Key, no_revision};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::files::Files;
use super::ledger::{Change, Ledger, What};

/// The kinds that change. Felix gets all, BGP the last, which is watched once and feeds two syncers. Keys of the first kind are spelt
/// differently for agents of old releases.
pub(super) const KINDS: [Kind; 3] = [GLOBAL_NETWORK_POLICY, GLOBAL_NETWORK_SET, BGP_PEER];

/// The tier of all policies, at the beginning of their names.
const TIER: &str = "sec.";

/// Objects of each kind: few, so that each changes often.
const OBJECTS: u64 = 25;

/// Text before and after the version, in a label's value and in a policy's selector.
const MARKS: [(&str, char); 2] = [("\"version\":\"v", '"'), ("version == 'v", '\'')];

/// Number of first bytes that are searched for the mark: it stands after names and networks, before the text that makes a value large.
const MARKED_BYTES: usize = 4 << 10;

/// Sizes of large values: around a piece of a snapshot, and almost the limit of an object's
/// annotations. Two of the largest are more than a pump sends at a time. [`super::scripted`] has larger values.
const LARGE_SIZES: [usize; 3] = [60 << 10, 130 << 10, 250 << 10];

/// Number of objects that may be large. Few, because each change of them goes to all agents.
const LARGE_OBJECTS: u64 = 2;

/// The version in a body or a value, if it is of this script.
pub(super) fn version(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(&bytes[..bytes.len().min(MARKED_BYTES)]).ok()?;
    MARKS.into_iter().find_map(|(before, after)| text.split_once(before)?.1.split_once(after)?.0.parse().ok())
}

fn key(kind: &Kind, name: &str) -> Key {
    if *kind == GLOBAL_NETWORK_SET {
        format!("/calico/v1/netset/{name}").into()
    } else if *kind == GLOBAL_NETWORK_POLICY {
        format!("/calico/v1/policy/GlobalNetworkPolicy//{name}").into()
    } else {
        format!("/calico/resources/v3/projectcalico.org/bgppeers/{name}").into()
    }
}

/// The key in today's spelling: keys of policies are spelt differently for agents up to 3.31.
pub(super) fn modern(key: &Key) -> Key {
    let old = key.strip_prefix("/calico/v1/policy/tier/").and_then(|rest| rest.split_once("/policy/"));
    old.map_or_else(|| key.clone(), |(_, name)| self::key(&GLOBAL_NETWORK_POLICY, name))
}

/// The name of an object by its number.
fn name(kind: &Kind, number: u64) -> String {
    let tier = if *kind == GLOBAL_NETWORK_POLICY { TIER } else { "" };
    format!("{tier}o-{number}")
}

/// The keys, in today's spelling, and versions that agents of a syncer and a release should have, in key order.
pub(super) fn content(store: &MemoryStore, syncer: SyncerName, line: Release) -> Vec<(Key, u64)> {
    let kinds = match syncer {
        // Felix gets BGP peers since 3.30.
        FELIX if line < Release::V3_30 => &KINDS[..2],
        FELIX => &KINDS[..],
        _ => &KINDS[2..],
    };
    let of_kind = |kind: &Kind| -> Vec<(Key, u64)> {
        let objects = store.content(kind);
        objects.iter().filter_map(|object| Some((key(kind, &object.id.name), version(&object.body)?))).collect()
    };
    let mut all: Vec<(Key, u64)> = kinds.iter().flat_map(of_kind).collect();
    all.sort();
    all
}

/// Text that hardly compresses.
fn noise(from: usize, len: usize) -> &'static str {
    const LONGEST: usize = 2 << 20;
    static NOISE: OnceLock<String> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut rng = SmallRng::seed_from_u64(1);
        (0..LONGEST).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
    });
    let from = from % (LONGEST - len);
    &noise[from..from + len]
}

/// An object of this version. `size`: bytes of further text in it.
fn body(kind: &Kind, name: &str, version: u64, size: usize, rng: &mut SmallRng) -> Bytes {
    let spec = if *kind == GLOBAL_NETWORK_SET {
        let nets: Vec<String> =
            (0..rng.random_range(1..30)).map(|i| format!("\"10.{i}.{}.0/24\"", version % 256)).collect();
        format!(r#"{{"nets":[{}]}}"#, nets.join(","))
    } else if *kind == GLOBAL_NETWORK_POLICY {
        format!(r#"{{"tier":"sec","order":1,"selector":"version == 'v{version}'","types":["Ingress"]}}"#)
    } else {
        r#"{"peerIP":"192.168.1.1","asNumber":64567}"#.to_owned()
    };
    let kind = &kind.name;
    let annotations = if size == 0 {
        String::new()
    } else {
        format!(r#","annotations":{{"ballast":"{}"}}"#, noise(usize::try_from(version).unwrap_or(0) * 1000, size))
    };
    format!(
        r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","labels":{{"version":"v{version}"}}{annotations}}},"spec":{spec}}}"#
    )
    .into()
}

/// An object that cannot be converted: agents do not have it.
fn spoilt(kind: &Kind, name: &str) -> Bytes {
    let kind = &kind.name;
    format!(r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":"none"}}"#)
        .into()
}

/// Changes the datastore at random, and records the changes.
#[derive(Debug)]
pub(super) struct Churn {
    store: MemoryStore,
    /// The same content as files, if servers read files.
    files: Option<Files>,
    ledger: Ledger,
    version: u64,
    /// Whether some values are large.
    large: bool,
}

impl Churn {
    pub(super) fn new(store: MemoryStore, files: Option<Files>, large: bool, ledger: Ledger) -> Self {
        Self { store, files, ledger, version: 0, large }
    }

    /// Number of changes of the datastore.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// One batch of `count` changes of one kind.
    pub(super) fn change(&mut self, rng: &mut SmallRng, count: usize) {
        let kind = &KINDS[rng.random_range(0..KINDS.len())];
        let mut events = Vec::new();
        for _ in 0..count {
            let name = name(kind, rng.random_range(0..OBJECTS));
            match rng.random_range(0..100) {
                0..60 => self.put(kind, &name, rng, &mut events),
                60..85 => self.delete(kind, &name, &mut events),
                // Deleted and put again, in one batch.
                85..95 => {
                    self.delete(kind, &name, &mut events);
                    self.put(kind, &name, rng, &mut events);
                }
                _ => self.spoil(kind, &name, rng, &mut events),
            }
        }
        self.apply(kind, events);
    }

    /// Puts `count` objects of each kind to begin with.
    pub(super) fn fill(&mut self, rng: &mut SmallRng, count: u64) {
        for kind in &KINDS {
            let mut events = Vec::new();
            for i in 0..count.min(OBJECTS) {
                self.put(kind, &name(kind, i), rng, &mut events);
            }
            self.apply(kind, events);
        }
    }

    fn apply(&self, kind: &Kind, events: Vec<Event>) {
        if let Some(files) = &self.files {
            files.apply(kind, &events);
        }
        self.store.batch(kind, events, None);
    }

    fn put(&mut self, kind: &Kind, name: &str, rng: &mut SmallRng, events: &mut Vec<Event>) {
        let version = self.note(kind, name, true);
        let may_be_large = self.large && *kind == BGP_PEER && (0..LARGE_OBJECTS).any(|i| *name == format!("o-{i}"));
        let size = if may_be_large { LARGE_SIZES[rng.random_range(0..LARGE_SIZES.len())] } else { 0 };
        events.push(Event::Put(object(name, body(kind, name, version, size, rng))));
    }

    fn delete(&mut self, kind: &Kind, name: &str, events: &mut Vec<Event>) {
        self.note(kind, name, false);
        events.push(Event::Delete { id: id(name), last: None });
    }

    /// Puts a value that cannot be converted, or not even read: agents lose the key. Folders get no unreadable file, which would keep its
    /// last good content.
    fn spoil(&mut self, kind: &Kind, name: &str, rng: &mut SmallRng, events: &mut Vec<Event>) {
        self.note(kind, name, false);
        let unreadable = self.files.is_none() && rng.random();
        let body = if unreadable { Bytes::from_static(br#"{"metadata":"none"}"#) } else { spoilt(kind, name) };
        events.push(Event::Put(object(name, body)));
    }

    fn note(&mut self, kind: &Kind, name: &str, present: bool) -> u64 {
        self.version += 1;
        let (change, key) = (Change { version: self.version, present }, key(kind, name));
        let mut book = self.ledger.book();
        book.log("datastore", What::Changes(key.clone(), change));
        book.truth.entry(key).or_default().push(change);
        change.version
    }
}

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "".into(), name: name.into() }
}

fn object(name: &str, body: Bytes) -> Object {
    Object { id: id(name), revision: no_revision(), dialect: Dialect::Etcd, body, place: None }
}

/// Faults of the datastore. They pass by themselves, or the caller ends them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// Open watches end like this.
    Watches(WatchFault),
    /// This number of calls fail.
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
                // So that a list is made, which then hangs.
                store.end_watches(kind, WatchFault::Expires);
            }
        }
    }
}
