//! Turns the objects of one source (one or several kinds, one processor) into the updates of one syncer.
//!
//! It takes the events of a [`kind_watch`](super::kind_watch), and its outputs go to the merger of a
//! [`watcher_syncer`](super::watcher_syncer). A state machine without I/O and clock. Its methods are named after events, and
//! append the outputs of an event to `out`.
//!
//! Phases of each kind, with their meaning for the source's status:
//!
//! ```text
//!  Waiting (wait-for-ready) ── list started ──► Listing (resync) ── list ended ──► Synced (in-sync)
//!     ▲                                            ▲                                  │   │
//!     │                                            └────────── list started ──────────┘   │
//!     └─────────────── lost, from any state ──────────────────────────────────────────────┘
//!  any ── absent ──► Absent (in-sync) ── list ended ──► Synced; a list of an absent kind does not disturb the status
//! ```
//!
//! Invariants:
//! - the updates of a key are New, then any number of Updated, then Deleted, and so on. A key whose object still has the
//!   revision that was sent is not sent again, as in Calico. In a list the value has to be the same as well, because a datastore
//!   that was restored from a backup uses revisions a second time. So after a new list exactly the differences are sent;
//! - a key is deleted only if its object is gone or no longer has it, by a list without it or by an event; never because the
//!   kind or the datastore is away;
//! - there is no output while the source is in wait-for-ready;
//! - an object that cannot be converted is reported and affects only its own keys.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::processor::{ConvertError, ObjectEvent, Processor};
use crate::datastore::{Event, Kind, Malformed, Object, ObjectId, WatchBatch};
use crate::metrics::SyncerMetrics;
use crate::model::{AsOf, Key, KvPair, Origin, SyncStatus, Update, UpdateType};
use crate::problems::{Novelty, ProblemBook, shortened};

/// An output of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheItem {
    /// Changes of keys, in order.
    Updates(Vec<Update>),
    /// The status of the source, after all updates before it.
    Status(SyncStatus),
    /// The latest time for which the source vouches, after all updates before it.
    Vouch(Vouch),
}

/// The freshness of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vouch {
    /// Nothing is vouched for yet.
    #[default]
    None,
    /// There is nothing to vouch for: the datastore does not know the kind.
    Exempt,
    /// The data is complete up to this time.
    At(AsOf),
}

impl Vouch {
    /// The weaker of two: both together vouch for no more than that.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Exempt, vouch) | (vouch, Self::Exempt) => vouch,
            (Self::At(one), Self::At(two)) => Self::At(if two.at < one.at { two } else { one }),
        }
    }
}

/// Calico's rule for the status of several sources: the status that all of them have, else resync.
#[must_use]
pub fn merge_statuses(statuses: impl IntoIterator<Item = SyncStatus>) -> SyncStatus {
    let mut statuses = statuses.into_iter();
    let Some(first) = statuses.next() else { return SyncStatus::InSync };
    if statuses.all(|status| status == first) { first } else { SyncStatus::ResyncInProgress }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindPhase {
    Waiting,
    Listing,
    Synced,
    Absent,
}

impl KindPhase {
    fn status(self) -> SyncStatus {
        match self {
            Self::Waiting => SyncStatus::WaitForDatastore,
            Self::Listing => SyncStatus::ResyncInProgress,
            Self::Synced | Self::Absent => SyncStatus::InSync,
        }
    }
}

#[derive(Debug)]
struct TrackedKind {
    kind: Kind,
    phase: KindPhase,
    /// Number of the present list; a key from an older list may be gone.
    list: u32,
    as_of: Option<AsOf>,
    /// Objects that cannot be converted, each with the number of the last list in which that was so.
    bad: HashMap<ObjectId, u32>,
}

#[derive(Debug)]
struct Known {
    /// Digests of the revision and of the value that were sent. Two texts have the same digest by accident in one of 2^64 cases.
    revision: u64,
    value: u64,
    /// Index of the kind whose object has the key; [`NO_KIND`] for pairs that belong to no object. Only 32 bits, because every
    /// key has one.
    kind: u32,
    list: u32,
}

/// The way in which the datastore reported an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    List,
    Watch,
}

/// Owner of keys that belong to no object. No list removes them.
const NO_KIND: u32 = u32::MAX;

/// The index of a kind in [`Known`].
fn owner(kind: usize) -> u32 {
    u32::try_from(kind).expect("a source has a handful of kinds")
}

/// The cache of one source. See the module's text.
pub struct WatcherCache {
    name: Arc<str>,
    kinds: Vec<TrackedKind>,
    processor: Box<dyn Processor>,
    /// Of deletions.
    origin: Option<Arc<Origin>>,
    known: HashMap<Key, Known>,
    digests: RandomState,
    status: SyncStatus,
    vouch: Vouch,
    pairs: Vec<KvPair>,
    metrics: SyncerMetrics,
    problems: ProblemBook,
}

impl std::fmt::Debug for WatcherCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatcherCache").field("name", &self.name).field("status", &self.status).finish_non_exhaustive()
    }
}

impl WatcherCache {
    /// The cache of a source with these kinds. `name` is used in logs and for problems.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        kinds: Vec<Kind>,
        processor: Box<dyn Processor>,
        metrics: SyncerMetrics,
        problems: ProblemBook,
    ) -> Self {
        let new = |kind| TrackedKind { kind, phase: KindPhase::Waiting, list: 0, as_of: None, bad: HashMap::new() };
        Self {
            name: name.into(),
            kinds: kinds.into_iter().map(new).collect(),
            origin: processor.origin(),
            processor,
            known: HashMap::new(),
            digests: RandomState::new(),
            status: SyncStatus::WaitForDatastore,
            vouch: Vouch::None,
            pairs: Vec::new(),
            metrics,
            problems,
        }
    }

    /// The source's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source's kinds; events name them by their index.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().map(|state| &state.kind)
    }

    /// Number of known keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no keys are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The only kind is watched in this version from now on, and listed from the beginning, which does not disturb the status once it was in
    /// sync. All its objects are put out again. `processor` makes the processor of another version.
    pub fn again(&mut self, version: &Kind, processor: impl FnOnce() -> Box<dyn Processor>) {
        let [tracked] = &mut self.kinds[..] else { return };
        if tracked.kind != *version {
            tracked.kind = version.clone();
            self.processor = processor();
        }
        if tracked.phase == KindPhase::Synced {
            tracked.phase = KindPhase::Absent;
        }
        // No digest is the same from now on.
        self.digests = RandomState::new();
    }

    /// A list of the kind begins.
    pub fn list_started(&mut self, kind: usize, out: &mut Vec<CacheItem>) {
        self.kinds[kind].list = self.kinds[kind].list.wrapping_add(1);
        if self.kinds[kind].phase != KindPhase::Absent {
            self.kinds[kind].phase = KindPhase::Listing;
        }
        let others_have_objects = self
            .kinds
            .iter()
            .enumerate()
            .any(|(other, state)| other != kind && matches!(state.phase, KindPhase::Listing | KindPhase::Synced));
        if !others_have_objects {
            self.processor.on_resync();
        }
        self.tell_status(out);
    }

    /// Objects of the list that began.
    pub fn objects_listed(&mut self, kind: usize, objects: &[Object], out: &mut Vec<CacheItem>) {
        let mut updates = Vec::new();
        for object in objects {
            self.process(kind, ObjectEvent::Put(object), &object.id, Told::List, &mut updates);
        }
        push_updates(updates, out);
    }

    /// Objects of the list that began that could not be read. They count as absent.
    pub fn malformed_listed(&mut self, kind: usize, malformed: &[Malformed]) {
        for Malformed { id, reason } in malformed {
            self.keep_last_good(kind, id);
            self.went_bad(kind, id, reason);
        }
    }

    /// The list is complete: keys that are not in it are gone.
    pub fn list_ended(&mut self, kind: usize, as_of: Option<AsOf>, out: &mut Vec<CacheItem>) {
        let mut updates = Vec::new();
        self.kinds[kind].phase = KindPhase::Synced;
        self.kinds[kind].as_of = as_of;
        self.add_own_pairs(&mut updates);
        let list = self.kinds[kind].list;
        let mut gone: Vec<Key> = Vec::new();
        self.known.retain(|key, known| {
            let stays = known.kind != owner(kind) || known.list == list;
            if !stays {
                gone.push(key.clone());
            }
            stays
        });
        // The map has no order. A fixed order makes runs comparable.
        gone.sort_unstable();
        updates.extend(gone.into_iter().map(|key| deleted(key, self.origin.as_ref())));
        push_updates(updates, out);
        self.forget_problems_of_gone_objects(kind);
        self.tell_status(out);
        self.tell_vouch(out);
    }

    /// Changes seen by watching, in order.
    pub fn changed(&mut self, kind: usize, events: &[Event], out: &mut Vec<CacheItem>) {
        let mut updates = Vec::new();
        for event in events {
            match event {
                Event::Put(object) => {
                    self.process(kind, ObjectEvent::Put(object), &object.id, Told::Watch, &mut updates);
                }
                Event::Delete { id, last } => {
                    self.process(kind, ObjectEvent::Delete(id, last.as_ref()), id, Told::Watch, &mut updates);
                }
                Event::Malformed(Malformed { id, reason }) => {
                    if self.processor.keeps_last_good(id).is_none() {
                        self.process(kind, ObjectEvent::Delete(id, None), id, Told::Watch, &mut updates);
                    }
                    self.went_bad(kind, id, reason);
                }
            }
        }
        push_updates(updates, out);
    }

    /// All changes of this batch were passed to [`Self::changed`]. The watch advanced to the batch's revision.
    pub fn advanced(&mut self, kind: usize, batch: &WatchBatch, out: &mut Vec<CacheItem>) {
        if batch.events.is_empty() {
            self.processor.on_progress(&self.kinds[kind].kind.name, &batch.revision);
        }
        if batch.as_of.is_some() {
            self.kinds[kind].as_of.clone_from(&batch.as_of);
            self.tell_vouch(out);
        }
    }

    /// The datastore does not know the kind. Known keys stay.
    pub fn absent(&mut self, kind: usize, out: &mut Vec<CacheItem>) {
        if self.kinds[kind].phase == KindPhase::Waiting {
            // Before in-sync the status is resync, as agents expect.
            self.kinds[kind].phase = KindPhase::Listing;
            self.tell_status(out);
        }
        self.kinds[kind].phase = KindPhase::Absent;
        let mut updates = Vec::new();
        self.add_own_pairs(&mut updates);
        push_updates(updates, out);
        self.tell_status(out);
        self.tell_vouch(out);
    }

    /// The datastore has been away for long. Known keys stay.
    pub fn lost(&mut self, kind: usize, out: &mut Vec<CacheItem>) {
        self.kinds[kind].phase = KindPhase::Waiting;
        self.tell_status(out);
    }

    fn add_own_pairs(&mut self, updates: &mut Vec<Update>) {
        if self.kinds.iter().all(|kind| matches!(kind.phase, KindPhase::Synced | KindPhase::Absent)) {
            self.processor.on_list_end(&mut self.pairs);
            self.take_pairs(NO_KIND, 0, Told::List, updates);
        }
    }

    fn process(&mut self, kind: usize, event: ObjectEvent<'_>, id: &ObjectId, told: Told, updates: &mut Vec<Update>) {
        let result = self.processor.process(event, &mut self.pairs);
        self.take_pairs(owner(kind), self.kinds[kind].list, told, updates);
        match result {
            Ok(()) => self.went_well(kind, id),
            Err(ConvertError { reason }) => {
                self.keep_last_good(kind, id);
                self.went_bad(kind, id, &reason);
            }
        }
    }

    /// The object is there, but cannot be read: a list does not remove its key if the processor keeps its last good value.
    fn keep_last_good(&mut self, kind: usize, id: &ObjectId) {
        if let Some(key) = self.processor.keeps_last_good(id)
            && let Some(known) = self.known.get_mut(&key)
        {
            known.list = self.kinds[kind].list;
        }
    }

    /// Compares the processor's pairs with the ones that were sent before.
    fn take_pairs(&mut self, kind: u32, list: u32, told: Told, updates: &mut Vec<Update>) {
        for KvPair { key, value, revision, v3_resource_version, origin } in self.pairs.drain(..) {
            let Some(value) = value else {
                if self.known.remove(&key).is_some() {
                    updates.push(deleted(key, self.origin.as_ref()));
                }
                continue;
            };
            let now = Known {
                revision: self.digests.hash_one(&*revision),
                value: self.digests.hash_one(&*value.bytes),
                kind,
                list,
            };
            let same = |before: &Known| {
                !revision.is_empty()
                    && before.revision == now.revision
                    && (told == Told::Watch || before.value == now.value)
            };
            let update_type = match self.known.get_mut(&key) {
                Some(before) if same(before) => {
                    (before.kind, before.list) = (kind, list);
                    continue;
                }
                Some(before) => {
                    *before = now;
                    UpdateType::Updated
                }
                None => {
                    self.known.insert(key.clone(), now);
                    UpdateType::New
                }
            };
            let value = Some(value);
            updates.push(Update {
                key,
                value,
                revision,
                v3_resource_version,
                ttl: Duration::ZERO,
                update_type,
                origin,
            });
        }
    }

    fn went_well(&mut self, kind: usize, id: &ObjectId) {
        let state = &mut self.kinds[kind];
        if !state.bad.is_empty() && state.bad.remove(id).is_some() {
            self.problems.clear(&self.name, problem_name(&state.kind, id));
        }
    }

    fn went_bad(&mut self, kind: usize, id: &ObjectId, reason: &str) {
        self.metrics.objects_unconvertible.inc();
        let state = &mut self.kinds[kind];
        let kind = state.kind.to_string();
        let novelty = self.problems.report(&self.name, &kind, problem_name(&state.kind, id), reason);
        if matches!(novelty, Novelty::New | Novelty::Quiet | Novelty::Known) {
            // Bounded, because the book is: every object here has its entry there.
            state.bad.insert(id.clone(), state.list);
        }
        let (syncer, source) = (self.problems.syncer(), &*self.name);
        match novelty {
            Novelty::New => {
                let (object, reason) = (id.to_string(), shortened(reason));
                let object = shortened(&object);
                warn!(%syncer, source, kind, %object, %reason, "object cannot be converted");
            }
            Novelty::FullNow => {
                warn!(%syncer, source, "too many objects cannot be converted; further ones are only counted");
            }
            Novelty::Quiet | Novelty::Known | Novelty::Full => {}
        }
    }

    fn forget_problems_of_gone_objects(&mut self, kind: usize) {
        let TrackedKind { kind, list, bad, .. } = &mut self.kinds[kind];
        bad.retain(|id, seen| {
            let stays = seen == list;
            if !stays {
                self.problems.clear(&self.name, problem_name(kind, id));
            }
            stays
        });
    }

    fn tell_status(&mut self, out: &mut Vec<CacheItem>) {
        let status = merge_statuses(self.kinds.iter().map(|kind| kind.phase.status()));
        if status != self.status {
            self.status = status;
            out.push(CacheItem::Status(status));
        }
    }

    fn tell_vouch(&mut self, out: &mut Vec<CacheItem>) {
        let vouch = self.kinds.iter().fold(Vouch::Exempt, |vouch, kind| {
            vouch.and(match (kind.phase, &kind.as_of) {
                (KindPhase::Absent, _) => Vouch::Exempt,
                (_, Some(as_of)) => Vouch::At(as_of.clone()),
                (_, None) => Vouch::None,
            })
        });
        if vouch != self.vouch {
            self.vouch = vouch.clone();
            out.push(CacheItem::Vouch(vouch));
        }
    }
}

fn deleted(key: Key, origin: Option<&Arc<Origin>>) -> Update {
    Update { origin: origin.cloned(), ..Update::deletion(key) }
}

fn push_updates(updates: Vec<Update>, out: &mut Vec<CacheItem>) {
    if !updates.is_empty() {
        out.push(CacheItem::Updates(updates));
    }
}

fn problem_name(kind: &Kind, id: &ObjectId) -> String {
    format!("{kind} {id}")
}

#[cfg(test)]
mod tests;
