//! Merges the watcher caches of one syncer into one ordered stream.
//!
//! Fed by the kind watches through a [`KindHub`], feeds a [`decoupler`]. Sources and merger are legs of one [`Relay`]; pages of
//! lists are converted by tasks of their own, several kinds at once. The merger puts their output in one order.
//!
//! Invariants: order is kept per source (there is none between sources); updates go out before the status or the progress
//! that follows them; wait-for-ready is announced once at the start, later only changes are; an `Updates` event holds at
//! most [`MAX_BATCH`] updates.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::kind_watch::{KindEvent, KindHub, Subscriber};
use super::watcher_cache::{CacheItem, Vouch, WatcherCache, merge_statuses};
use crate::datastore::Object;
use crate::decoupler::{self, MAX_BATCH};
use crate::model::SyncerType;
use crate::model::{SyncStatus, SyncerEvent, Update};
use crate::tasks::Relay;

/// Events of kinds (pages, batches) that may wait for a source: one in work, one ready, one arriving.
const KIND_EVENTS: usize = 3;
/// Outputs of sources that may wait for the merger. Each is at most what follows from [`CHUNK`] objects.
const CACHE_ITEMS: usize = 32;
/// Objects that are converted before others get a turn: about a millisecond of work.
const CHUNK: usize = 100;

/// One syncer: its sources and the merger.
#[derive(Debug)]
pub struct WatcherSyncer {
    syncer: SyncerType,
    sources: Vec<(WatcherCache, mpsc::Receiver<(usize, KindEvent)>)>,
    out: decoupler::Sender,
}

impl WatcherSyncer {
    /// A syncer with these sources, subscribed to their kinds at `hub`, which must not have been started.
    #[must_use]
    pub fn new(syncer: SyncerType, caches: Vec<WatcherCache>, hub: &mut KindHub, out: decoupler::Sender) -> Self {
        let subscribe = |cache: WatcherCache| {
            let (events, receiver) = mpsc::channel(KIND_EVENTS);
            for (tag, kind) in cache.kinds().enumerate() {
                let demand = out.demand().clone();
                hub.subscribe(kind.clone(), Subscriber { tag, events: events.clone(), demand });
            }
            (cache, receiver)
        };
        Self { syncer, sources: caches.into_iter().map(subscribe).collect(), out }
    }

    /// Runs until cancelled, or until the next stage or the kinds' watches are gone.
    ///
    /// # Panics
    /// Passes on a panic of a source: the composition root decides what then.
    pub async fn run(self, cancel: CancellationToken) {
        let (items_in, items) = mpsc::channel(CACHE_ITEMS);
        let merger = Merger::new(self.sources.len());
        let sources = self.sources.into_iter().enumerate();
        let mut legs: Vec<_> = sources
            .map(|(index, (cache, events))| run_source(index, cache, events, items_in.clone()).boxed())
            .collect();
        // Without sources the statuses are all there is, and nothing follows.
        let kept = legs.is_empty().then_some(items_in);
        legs.push(merge(self.syncer, merger, items, kept, self.out).boxed());
        let _ = cancel.run_until_cancelled(Relay::new(legs).until_last_ends()).await;
    }
}

/// Puts what the sources say in one order, and hands it on, until they or the next stage are gone.
async fn merge(
    syncer: SyncerType,
    mut merger: Merger,
    mut items: mpsc::Receiver<(usize, CacheItem)>,
    _kept: Option<mpsc::Sender<(usize, CacheItem)>>,
    out: decoupler::Sender,
) {
    let mut received = Vec::new();
    let mut events = merger.start();
    loop {
        for event in events.drain(..) {
            match &event {
                SyncerEvent::Status(status) => info!(%syncer, %status, "status"),
                SyncerEvent::Updates(updates) => debug!(%syncer, updates = updates.len(), "updates"),
                SyncerEvent::Progress(_) => {}
            }
            if out.send(event).await.is_err() {
                return;
            }
        }
        let count = tokio::select! {
            biased;
            () = out.closed() => return,
            count = items.recv_many(&mut received, MAX_BATCH) => count,
        };
        if count == 0 {
            // All sources have ended: their kinds are no longer watched.
            return;
        }
        for (source, item) in received.drain(..) {
            merger.take(source, item, &mut events);
        }
        merger.flush(&mut events);
    }
}

/// Feeds one cache with the events of its kinds until the watches or the merger are gone.
async fn run_source(
    index: usize,
    mut cache: WatcherCache,
    mut events: mpsc::Receiver<(usize, KindEvent)>,
    items: mpsc::Sender<(usize, CacheItem)>,
) {
    let mut out = Vec::new();
    while let Some((kind, event)) = events.recv().await {
        match event {
            KindEvent::ListStart => cache.list_started(kind, &mut out),
            KindEvent::Objects(objects) if objects.len() > CHUNK => {
                let page =
                    AbortOnDropHandle::new(tokio::spawn(convert_page(index, cache, kind, objects, items.clone())));
                match page.await {
                    Ok(Some(converted)) => cache = converted,
                    Ok(None) => return,
                    Err(ended) => return pass_on_panic(ended),
                }
            }
            KindEvent::Objects(objects) => cache.objects_listed(kind, &objects, &mut out),
            KindEvent::Malformed(malformed) => cache.malformed_listed(kind, &malformed),
            KindEvent::ListEnd { revision: _, as_of } => cache.list_ended(kind, as_of, &mut out),
            KindEvent::Changes(batch) => {
                for chunk in batch.events.chunks(CHUNK) {
                    cache.changed(kind, chunk, &mut out);
                    if !send_all(index, &mut out, &items).await {
                        return;
                    }
                }
                cache.advanced(kind, &batch, &mut out);
            }
            KindEvent::Absent => cache.absent(kind, &mut out),
            KindEvent::Lost => cache.lost(kind, &mut out),
        }
        if !send_all(index, &mut out, &items).await {
            return;
        }
    }
}

/// Converts a page of a list, for a task of its own: that takes long enough for others to be converted, and what is converted
/// to be checked and stored, beside it. Returns the cache unless the merger is gone.
async fn convert_page(
    index: usize,
    mut cache: WatcherCache,
    kind: usize,
    objects: Arc<Vec<Object>>,
    items: mpsc::Sender<(usize, CacheItem)>,
) -> Option<WatcherCache> {
    let mut out = Vec::new();
    for chunk in objects.chunks(CHUNK) {
        cache.objects_listed(kind, chunk, &mut out);
        if !send_all(index, &mut out, &items).await {
            return None;
        }
        tokio::task::yield_now().await;
    }
    Some(cache)
}

fn pass_on_panic(ended: JoinError) {
    if ended.is_panic() {
        std::panic::resume_unwind(ended.into_panic());
    }
}

/// Sends all items; false when the merger is gone.
async fn send_all(index: usize, out: &mut Vec<CacheItem>, items: &mpsc::Sender<(usize, CacheItem)>) -> bool {
    for item in out.drain(..) {
        if items.send((index, item)).await.is_err() {
            return false;
        }
    }
    true
}

/// Puts the output of several caches in one order. No I/O.
#[derive(Debug)]
struct Merger {
    statuses: Vec<SyncStatus>,
    status: SyncStatus,
    vouches: Vec<Vouch>,
    /// What the sources together vouch for, last announced.
    vouch: Vouch,
    pending: Vec<Update>,
}

impl Merger {
    fn new(sources: usize) -> Self {
        Self {
            statuses: vec![SyncStatus::WaitForDatastore; sources],
            status: SyncStatus::WaitForDatastore,
            vouches: vec![Vouch::None; sources],
            vouch: Vouch::None,
            pending: Vec::new(),
        }
    }

    /// What is announced before anything has happened.
    fn start(&self) -> Vec<SyncerEvent> {
        let mut events = vec![SyncerEvent::Status(SyncStatus::WaitForDatastore)];
        if self.statuses.is_empty() {
            // Nothing to wait for; agents expect the usual statuses all the same.
            events.extend([SyncStatus::ResyncInProgress, SyncStatus::InSync].map(SyncerEvent::Status));
        }
        events
    }

    /// A cache said something.
    fn take(&mut self, source: usize, item: CacheItem, out: &mut Vec<SyncerEvent>) {
        match item {
            CacheItem::Updates(updates) => {
                if self.pending.is_empty() {
                    self.pending = updates;
                } else {
                    self.pending.extend(updates);
                }
                while self.pending.len() >= MAX_BATCH {
                    let rest = self.pending.split_off(MAX_BATCH);
                    out.push(SyncerEvent::Updates(std::mem::replace(&mut self.pending, rest)));
                }
            }
            CacheItem::Status(status) => {
                self.statuses[source] = status;
                let merged = merge_statuses(self.statuses.iter().copied());
                if merged != self.status {
                    self.status = merged;
                    self.flush_updates(out);
                    out.push(SyncerEvent::Status(merged));
                }
            }
            CacheItem::Vouch(vouch) => self.vouches[source] = vouch,
        }
    }

    /// Everything that waits was taken: let it go.
    fn flush(&mut self, out: &mut Vec<SyncerEvent>) {
        self.flush_updates(out);
        let vouch = self.vouches.iter().cloned().fold(Vouch::Exempt, Vouch::and);
        if vouch != self.vouch {
            self.vouch = vouch;
            if let Vouch::At(as_of) = &self.vouch {
                out.push(SyncerEvent::Progress(as_of.clone()));
            }
        }
    }

    fn flush_updates(&mut self, out: &mut Vec<SyncerEvent>) {
        if !self.pending.is_empty() {
            out.push(SyncerEvent::Updates(std::mem::take(&mut self.pending)));
        }
    }
}

#[cfg(test)]
mod tests;
