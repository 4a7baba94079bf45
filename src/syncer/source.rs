//! Runs one source: takes the events of its kinds, has its cache turn them into updates, and hands these on.
//!
//! Fed by [kind watches](super::kind_watch), feeds the merger of a [`watcher_syncer`](super::watcher_syncer) or an [inlet](super::inlet). Tasks of their own convert
//! pages of lists, several kinds at once.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::kind_watch::KindEvent;
use super::watcher_cache::{CacheItem, WatcherCache};
use crate::datastore::Object;

/// Events of kinds (pages, batches) that may wait for a source: one in work, one ready, one arriving.
pub(super) const KIND_EVENTS: usize = 3;
/// Number of objects that are converted before other tasks get a turn: about a millisecond of work.
pub(super) const CHUNK: usize = 100;

/// Feeds one cache with the events of its kinds until the watches or the receiver of its outputs are gone; or until `over`: then it gives
/// the cache back.
pub(super) async fn run_source(
    index: usize,
    mut cache: WatcherCache,
    mut events: mpsc::Receiver<(usize, KindEvent)>,
    items: mpsc::Sender<(usize, CacheItem)>,
    over: impl Future<Output = ()>,
) -> Option<WatcherCache> {
    let mut out = Vec::new();
    let mut over = pin!(over);
    loop {
        let (kind, event) = tokio::select! {
            biased;
            event = events.recv() => event?,
            () = &mut over => return Some(cache),
        };
        match event {
            KindEvent::ListStart => cache.list_started(kind, &mut out),
            KindEvent::Objects(objects) if objects.len() > CHUNK => {
                let page =
                    AbortOnDropHandle::new(tokio::spawn(convert_page(index, cache, kind, objects, items.clone())));
                match page.await {
                    Ok(Some(converted)) => cache = converted,
                    Ok(None) => return None,
                    Err(ended) => {
                        pass_on_panic(ended);
                        return None;
                    }
                }
            }
            KindEvent::Objects(objects) => cache.objects_listed(kind, &objects, &mut out),
            KindEvent::Malformed(malformed) => cache.malformed_listed(kind, &malformed),
            KindEvent::ListEnd { revision: _, as_of } => cache.list_ended(kind, as_of, &mut out),
            KindEvent::Changes(batch) => {
                for chunk in batch.events.chunks(CHUNK) {
                    cache.changed(kind, chunk, &mut out);
                    if !send_all(index, &mut out, &items).await {
                        return None;
                    }
                }
                cache.advanced(kind, &batch, &mut out);
            }
            KindEvent::Absent => cache.absent(kind, &mut out),
            KindEvent::Lost => cache.lost(kind, &mut out),
        }
        if !send_all(index, &mut out, &items).await {
            return None;
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
