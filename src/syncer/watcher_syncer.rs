//! Runs the watcher caches of one syncer, and hands on their outputs as one ordered stream.
//!
//! Kind watches feed it through a [`KindHub`], and it feeds a [`decoupler`]. Sources and [merger](super::merger) are legs of one
//! [`Relay`]. Tasks of their own convert pages of lists, several kinds at once.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::kind_watch::{KindEvent, KindHub, Subscriber};
use super::merger::Merger;
use super::watcher_cache::{CacheItem, WatcherCache};
use crate::datastore::Object;
use crate::decoupler::{self, MAX_BATCH};
use crate::model::SyncerEvent;
use crate::model::SyncerName;
use crate::tasks::Relay;

/// Events of kinds (pages, batches) that may wait for a source: one in work, one ready, one arriving.
const KIND_EVENTS: usize = 3;
/// Outputs of sources that may wait for the merger. Each one is from at most [`CHUNK`] objects.
const CACHE_ITEMS: usize = 32;
/// Number of objects that are converted before other tasks get a turn: about a millisecond of work.
const CHUNK: usize = 100;

/// One syncer: its sources and the merger.
#[derive(Debug)]
pub struct WatcherSyncer {
    syncer: SyncerName,
    sources: Vec<(WatcherCache, mpsc::Receiver<(usize, KindEvent)>)>,
    out: decoupler::Sender,
}

impl WatcherSyncer {
    /// A syncer with these sources, subscribed to their kinds at `hub`, which must not have been started.
    #[must_use]
    pub fn new(syncer: SyncerName, caches: Vec<WatcherCache>, hub: &mut KindHub, out: decoupler::Sender) -> Self {
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
    /// Passes on a panic of a source, which the composition root handles.
    pub async fn run(self, cancel: CancellationToken) {
        let (items_in, items) = mpsc::channel(CACHE_ITEMS);
        let merger = Merger::new(self.sources.len());
        let sources = self.sources.into_iter().enumerate();
        let mut legs: Vec<_> = sources
            .map(|(index, (cache, events))| run_source(index, cache, events, items_in.clone()).boxed())
            .collect();
        // Without sources there are only the statuses. Keeping the sender lets the merger run until cancelled.
        let kept = legs.is_empty().then_some(items_in);
        legs.push(merge(self.syncer, merger, items, kept, self.out).boxed());
        let _ = cancel.run_until_cancelled(Relay::new(legs).until_last_ends()).await;
    }
}

/// Merges the outputs of the sources into one sequence, and hands it on, until the sources or the next stage are gone.
async fn merge(
    syncer: SyncerName,
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

/// Converts a page of a list, in a task of its own: it takes so long that other pages can be converted at the same time, and
/// converted objects be checked and stored. Returns the cache, or `None` if the merger is gone.
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

#[cfg(test)]
mod tests;
