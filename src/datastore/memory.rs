//! A datastore in memory, for tests: scripted content, scripted faults, no clock.
//!
//! Fed by the test, feeds kind watches. Behaves as a real datastore does: lists show one revision in pages, a watch delivers
//! what happened after the revision it is given, a position that is no longer known is answered with
//! [`Error::Relist`]. Every kind exists and is empty until a test says otherwise.
//!
//! Invariants: a list and the watch from its revision together miss nothing and repeat nothing; nothing happens unless the
//! test calls for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{Semaphore, watch};

mod kinds;

use super::filter;
use super::selection::Selection;
use crate::datastore::inlet::{Datastore, Error, Event, ListPage, Malformed, WatchBatch};
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::model::object::{Kind, Object, ObjectId};
use crate::model::{AsOf, Revision, no_revision};

/// The store. Clones share the content.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Counts changes of anything, so that open watches and waiting tests look again.
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct State {
    kinds: HashMap<Kind, KindState>,
    page_size: usize,
    /// Revisions given out automatically count from here.
    next_revision: u64,
}

#[derive(Debug, Default)]
struct KindState {
    objects: BTreeMap<ObjectId, Object>,
    /// Objects that cannot be read, and why.
    malformed: BTreeMap<ObjectId, String>,
    /// Revision of the next list.
    revision: Option<Revision>,
    as_of: Option<AsOf>,
    /// Batches since the last expiry.
    log: Vec<WatchBatch>,
    /// Where in the log a revision stands: index of the first batch after it.
    positions: HashMap<Revision, usize>,
    /// Watches of an older term are broken.
    term: u64,
    /// How watches of the last term ended.
    ended_by: WatchFault,
    refusals: usize,
    absent: bool,
    /// Whether the absence is vouched for.
    gone: bool,
    forbidden: bool,
    /// Permits for pages, where a test holds pages back.
    page_gate: Option<Arc<Semaphore>>,
    lists: usize,
    watches: usize,
    open_watches: usize,
}

/// How open watches are ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchFault {
    /// In an orderly way; the position stays good.
    #[default]
    Ends,
    /// With [`Error::Retry`]; the position stays good.
    Breaks,
    /// With [`Error::Relist`].
    Expires,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::must_use_candidate, reason = "few tests need the revision of what they do")]
impl MemoryStore {
    /// An empty store. Pages hold 500 objects unless told otherwise.
    #[must_use]
    pub fn new() -> Self {
        let state = State { kinds: HashMap::new(), page_size: 500, next_revision: 1 };
        Self { state: Arc::new(Mutex::new(state)), changes: Arc::new(watch::channel(0).0) }
    }

    /// Creates or changes an object; its revision is the one it carries, or the next automatic one if that is empty.
    /// Returns the revision.
    pub fn put(&self, kind: &Kind, object: Object) -> Revision {
        self.batch(kind, vec![Event::Put(object)], None)
    }

    /// Deletes an object; the event carries its last form. Returns the revision of the deletion.
    pub fn delete(&self, kind: &Kind, id: &ObjectId) -> Revision {
        self.batch(kind, vec![Event::Delete { id: id.clone(), last: None }], None)
    }

    /// Advances the position without a change.
    pub fn bookmark(&self, kind: &Kind, revision: Option<Revision>, as_of: Option<AsOf>) -> Revision {
        self.with(kind, |kind_state, next| {
            let revision = revision.unwrap_or_else(|| automatic(next));
            kind_state.append(WatchBatch { events: Vec::new(), revision: revision.clone(), as_of });
            revision
        })
    }

    /// Applies changes that arrive as one batch. Without a revision, the batch has that of its last object, or the next
    /// automatic one. A deletion without a last form gets the stored one. Returns the batch's revision.
    pub fn batch(&self, kind: &Kind, events: Vec<Event>, revision: Option<Revision>) -> Revision {
        self.with(kind, |kind_state, next| {
            let mut last_revision = None;
            let mut applied = Vec::with_capacity(events.len());
            for event in events {
                applied.push(match event {
                    Event::Put(mut object) => {
                        if object.revision.is_empty() {
                            object.revision = automatic(next);
                        }
                        last_revision = Some(object.revision.clone());
                        kind_state.malformed.remove(&object.id);
                        kind_state.objects.insert(object.id.clone(), object.clone());
                        Event::Put(object)
                    }
                    Event::Delete { id, last } => {
                        last_revision = None;
                        kind_state.malformed.remove(&id);
                        let stored = kind_state.objects.remove(&id);
                        Event::Delete { id, last: last.or(stored) }
                    }
                    Event::Malformed(malformed) => {
                        last_revision = None;
                        kind_state.objects.remove(&malformed.id);
                        kind_state.malformed.insert(malformed.id.clone(), malformed.reason.clone());
                        Event::Malformed(malformed)
                    }
                });
            }
            let revision = revision.or(last_revision).unwrap_or_else(|| automatic(next));
            kind_state.append(WatchBatch { events: applied, revision: revision.clone(), as_of: None });
            revision
        })
    }

    /// Replaces the content: the next list shows it at this revision. All earlier positions expire, open watches included.
    pub fn load(&self, kind: &Kind, objects: Vec<Object>, revision: Revision) {
        self.with(kind, |kind_state, next| {
            kind_state.objects = objects
                .into_iter()
                .map(|mut object| {
                    if object.revision.is_empty() {
                        object.revision = automatic(next);
                    }
                    (object.id.clone(), object)
                })
                .collect();
            kind_state.log.clear();
            kind_state.positions = HashMap::from([(revision.clone(), 0)]);
            kind_state.revision = Some(revision);
            kind_state.term += 1;
            kind_state.ended_by = WatchFault::Expires;
        });
    }

    /// Ends all open watches of a kind.
    pub fn end_watches(&self, kind: &Kind, fault: WatchFault) {
        self.with(kind, |kind_state, next| {
            kind_state.term += 1;
            kind_state.ended_by = fault;
            if fault == WatchFault::Expires {
                // The past is in the content only: no old position is good any more.
                let revision = automatic(next);
                kind_state.log.clear();
                kind_state.positions = HashMap::from([(revision.clone(), 0)]);
                kind_state.revision = Some(revision);
            }
        });
    }

    /// The next `times` calls of list or watch fail with [`Error::Retry`].
    pub fn refuse(&self, kind: &Kind, times: usize) {
        self.with(kind, |kind_state, _| kind_state.refusals = times);
    }

    /// Whether the kind is unknown to the datastore. Open watches notice.
    pub fn set_absent(&self, kind: &Kind, absent: bool) {
        self.with(kind, |kind_state, _| (kind_state.absent, kind_state.gone) = (absent, false));
    }

    /// Makes a kind unknown to the datastore, which vouches that its objects are gone.
    pub fn set_gone(&self, kind: &Kind) {
        self.with(kind, |kind_state, _| (kind_state.absent, kind_state.gone) = (true, true));
    }

    /// Whether listing and watching the kind is forbidden. Open watches notice.
    pub fn set_forbidden(&self, kind: &Kind, forbidden: bool) {
        self.with(kind, |kind_state, _| kind_state.forbidden = forbidden);
    }

    /// How fresh every list says to be, from now on.
    pub fn set_list_as_of(&self, kind: &Kind, as_of: Option<AsOf>) {
        self.with(kind, |kind_state, _| kind_state.as_of = as_of);
    }

    /// Objects in a page of a list, at least 1.
    pub fn set_page_size(&self, objects: usize) {
        self.lock().page_size = objects.max(1);
    }

    /// From now on pages of this kind come only as they are released.
    pub fn hold_pages(&self, kind: &Kind) {
        self.with(kind, |kind_state, _| {
            // The same gate for all lists that wait at it, however often pages are held.
            let gate = kind_state.page_gate.get_or_insert_with(|| Arc::new(Semaphore::new(0)));
            gate.forget_permits(usize::MAX);
        });
    }

    /// Lets `pages` more pages of a held kind go.
    pub fn release_pages(&self, kind: &Kind, pages: usize) {
        self.with(kind, |kind_state, _| {
            if let Some(gate) = &kind_state.page_gate {
                gate.add_permits(pages);
            }
        });
    }

    /// How often the kind was listed so far.
    #[must_use]
    pub fn lists(&self, kind: &Kind) -> usize {
        self.lock().kinds.get(kind).map_or(0, |kind_state| kind_state.lists)
    }

    /// How often a watch of the kind was opened so far.
    #[must_use]
    pub fn watches(&self, kind: &Kind) -> usize {
        self.lock().kinds.get(kind).map_or(0, |kind_state| kind_state.watches)
    }

    /// The objects of a kind.
    #[must_use]
    pub fn content(&self, kind: &Kind) -> Vec<Object> {
        self.lock().kinds.get(kind).map_or_else(Vec::new, |kind_state| kind_state.objects.values().cloned().collect())
    }

    /// Waits until the kind was listed at least this often.
    pub async fn listed(&self, kind: &Kind, times: usize) {
        self.until(|| self.lists(kind) >= times).await;
    }

    /// Waits until a watch of the kind was opened at least this often.
    pub async fn watched(&self, kind: &Kind, times: usize) {
        self.until(|| self.watches(kind) >= times).await;
    }

    /// Waits until `count` watches of the kind are open.
    pub async fn open_watches(&self, kind: &Kind, count: usize) {
        self.until(|| self.lock().kinds.get(kind).map_or(0, |kind_state| kind_state.open_watches) == count).await;
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        let mut changes = self.changes.subscribe();
        while !condition() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn with<T>(&self, kind: &Kind, change: impl FnOnce(&mut KindState, &mut u64) -> T) -> T {
        let result = {
            let state = &mut *self.lock();
            let kind_state = state.kinds.entry(kind.clone()).or_default();
            change(kind_state, &mut state.next_revision)
        };
        self.changes.send_modify(|count| *count += 1);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a test thread leaves whole values only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer that faults give to any call, if they do.
    fn fault(kind: &Kind, kind_state: &mut KindState, doing: &str) -> Option<Error> {
        let doing = format!("{doing} {kind} in memory");
        if kind_state.refusals > 0 {
            kind_state.refusals -= 1;
            Some(Error::Retry { doing, reason: "the test wants it so".to_owned() })
        } else if kind_state.absent {
            Some(Error::KindAbsent { kind: kind.to_string(), gone: kind_state.gone })
        } else if kind_state.forbidden {
            Some(Error::Forbidden { doing, reason: "the test wants it so".to_owned() })
        } else {
            None
        }
    }
}

impl KindState {
    fn append(&mut self, batch: WatchBatch) {
        // A position known so far stays good; one that nobody was given yet begins the log.
        let first = self.revision.clone().unwrap_or_else(no_revision);
        if self.log.is_empty() {
            self.positions.entry(first).or_insert(0);
        }
        self.revision = Some(batch.revision.clone());
        self.log.push(batch);
        self.positions.insert(self.revision.clone().unwrap_or_else(no_revision), self.log.len());
    }
}

fn automatic(next: &mut u64) -> Revision {
    *next += 1;
    (*next - 1).to_string().into()
}

/// Counts a watch as open while it lives.
#[derive(Debug)]
struct Open {
    store: MemoryStore,
    kind: Kind,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.store.with(&self.kind, |kind_state, _| kind_state.open_watches -= 1);
    }
}

/// The findings of an open watch.
enum Look {
    Batch(WatchBatch),
    Failed(Error),
    Ended,
    Nothing,
}

fn page(objects: Vec<Object>, revision: &Revision) -> ListPage {
    ListPage { objects, malformed: Vec::new(), revision: revision.clone(), as_of: None }
}

impl Datastore for MemoryStore {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        let (page_size, selection, kind) = (self.lock().page_size, selection.clone(), selection.kind());
        let answer = self.with(kind, |kind_state, next| {
            kind_state.lists += 1;
            if let Some(error) = Self::fault(kind, kind_state, "list") {
                return Err(error);
            }
            let revision = kind_state.revision.get_or_insert_with(|| automatic(next)).clone();
            let end = kind_state.log.len();
            kind_state.positions.insert(revision.clone(), end);
            let objects: Vec<Object> = kind_state.objects.values().cloned().collect();
            let mut pages: Vec<ListPage> =
                objects.chunks(page_size).map(|chunk| page(chunk.to_vec(), &revision)).collect();
            if pages.is_empty() {
                pages.push(page(Vec::new(), &revision));
            }
            if let Some(last) = pages.last_mut() {
                last.as_of.clone_from(&kind_state.as_of);
                let malformed = kind_state.malformed.iter().map(|(id, reason)| (id.clone(), reason.clone()));
                last.malformed = malformed.map(|(id, reason)| Malformed { id, reason }).collect();
            }
            Ok((pages, kind_state.page_gate.clone()))
        });
        match answer {
            Err(error) => stream::iter([Err(error)]).boxed(),
            Ok((pages, gate)) => stream::iter(pages)
                .then(move |page| {
                    let (gate, page) = (gate.clone(), filter::page(&selection, page));
                    async move {
                        if let Some(gate) = gate
                            && let Ok(permit) = gate.acquire().await
                        {
                            permit.forget();
                        }
                        Ok(page)
                    }
                })
                .boxed(),
        }
    }

    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        let (from, selection, kind) = (from.clone(), selection.clone(), selection.kind());
        let opened = self.with(kind, |kind_state, _| {
            kind_state.watches += 1;
            if let Some(error) = Self::fault(kind, kind_state, "watch") {
                return Err(error);
            }
            let Some(&position) = kind_state.positions.get(&from) else {
                let reason = "the store does not know it".to_owned();
                return Err(Error::Relist { doing: format!("watch {kind} in memory"), revision: from, reason });
            };
            kind_state.open_watches += 1;
            Ok((position, kind_state.term))
        });
        let (position, term) = match opened {
            Ok(opened) => opened,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let open = Open { store: self.clone(), kind: kind.clone() };
        let changes = self.changes.subscribe();
        let batches = stream::unfold(Some((open, changes, position)), move |state| async move {
            let (open, mut changes, position) = state?;
            loop {
                changes.mark_unchanged();
                match open.store.look(&open.kind, position, term) {
                    Look::Batch(batch) => return Some((Ok(batch), Some((open, changes, position + 1)))),
                    Look::Failed(error) => return Some((Err(error), None)),
                    Look::Ended => return None,
                    Look::Nothing => changes.changed().await.ok()?,
                }
            }
        });
        batches.map(move |batch| Ok(filter::batch(&selection, batch?))).boxed()
    }

    fn kinds(&self, patterns: &[Pattern]) -> BoxStream<'static, Result<KindsNow, Error>> {
        let (store, patterns) = (self.clone(), patterns.to_vec());
        let now = move || {
            let state = store.lock();
            let present = state.kinds.iter().filter(|(_, kind_state)| !kind_state.absent).map(|(kind, _)| kind);
            kinds::meet(&patterns, present)
        };
        kinds::follow(self.changes.subscribe(), now).boxed()
    }
}

impl MemoryStore {
    fn look(&self, kind: &Kind, position: usize, term: u64) -> Look {
        let mut state = self.lock();
        let Some(kind_state) = state.kinds.get_mut(kind) else { return Look::Nothing };
        let doing = format!("watch {kind} in memory");
        if kind_state.absent || kind_state.forbidden {
            return Self::fault(kind, kind_state, "watch").map_or(Look::Nothing, Look::Failed);
        }
        if kind_state.term != term {
            return match kind_state.ended_by {
                WatchFault::Ends => Look::Ended,
                WatchFault::Breaks => {
                    Look::Failed(Error::Retry { doing, reason: "the test broke the connection".to_owned() })
                }
                WatchFault::Expires => Look::Failed(Error::Relist {
                    doing,
                    revision: no_revision(),
                    reason: "the test let it expire".to_owned(),
                }),
            };
        }
        kind_state.log.get(position).map_or(Look::Nothing, |batch| Look::Batch(batch.clone()))
    }
}

#[cfg(test)]
mod tests;
