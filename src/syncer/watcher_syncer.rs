//! Runs the watcher caches of one syncer, and hands on their outputs as one ordered stream.
//!
//! Kind watches feed it through a [`KindHub`], and it feeds a [`decoupler`]. [Sources](super::source), [inlets](super::inlet) and [merger](super::merger) are
//! legs of one [`Relay`].

use std::future::pending;

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::inlet::{InletLeg, InletStatus};
use super::kind_watch::{KindEvent, KindHub, Subscriber};
use super::merger::Merger;
use super::source::{KIND_EVENTS, run_source};
use super::spec::Inlet;
use super::watcher_cache::{CacheItem, WatcherCache};
use crate::decoupler::{self, MAX_BATCH};
use crate::metrics::SyncerMetrics;
use crate::model::SyncerEvent;
use crate::model::SyncerName;
use crate::problems::ProblemBook;
use crate::tasks::Relay;

/// Outputs of sources that may wait for the merger. Each one is from at most [`CHUNK`](super::source::CHUNK) objects.
const CACHE_ITEMS: usize = 32;

/// One syncer: its sources and the merger.
#[derive(Debug)]
pub struct WatcherSyncer {
    syncer: SyncerName,
    sources: Vec<(WatcherCache, mpsc::Receiver<(usize, KindEvent)>)>,
    inlets: Vec<InletLeg>,
    out: decoupler::Sender,
}

impl WatcherSyncer {
    /// A syncer with these sources, subscribed to their kinds at `hub`, which must not have been started. Without sources it needs none.
    #[must_use]
    pub fn new<'a>(
        syncer: SyncerName,
        caches: Vec<WatcherCache>,
        hub: impl Into<Option<&'a mut KindHub>>,
        out: decoupler::Sender,
    ) -> Self {
        let mut hub = hub.into();
        debug_assert!(hub.is_some() || caches.is_empty(), "sources have a hub");
        let subscribe = |cache: WatcherCache| {
            let (events, receiver) = mpsc::channel(KIND_EVENTS);
            for (tag, kind) in cache.kinds().enumerate() {
                let subscriber = Subscriber { tag, events: events.clone(), demand: out.demand().clone() };
                if let Some(hub) = &mut hub {
                    hub.subscribe(kind.clone(), subscriber);
                }
            }
            (cache, receiver)
        };
        Self { syncer, sources: caches.into_iter().map(subscribe).collect(), inlets: Vec::new(), out }
    }

    /// Reads these datastores, too, whose kinds are found while it runs. Returns the state of each.
    #[must_use]
    pub fn with_inlets(
        self,
        inlets: Vec<Inlet>,
        metrics: &SyncerMetrics,
        problems: &ProblemBook,
    ) -> (Self, Vec<watch::Receiver<InletStatus>>) {
        let leg =
            |inlet| InletLeg::new(self.syncer, inlet, self.out.demand().clone(), metrics.clone(), problems.clone());
        let (inlets, statuses) = inlets.into_iter().map(leg).unzip();
        (Self { inlets, ..self }, statuses)
    }

    /// Runs until cancelled, or until the next stage or the kinds' watches are gone.
    ///
    /// # Panics
    /// Passes on a panic of a source, which the composition root handles.
    pub async fn run(self, cancel: CancellationToken) {
        let (items_in, items) = mpsc::channel(CACHE_ITEMS);
        let count = self.sources.len();
        let merger = Merger::new(count + self.inlets.len());
        let sources = self.sources.into_iter().enumerate();
        let mut legs: Vec<_> = sources
            .map(|(index, (cache, events))| {
                run_source(index, cache, events, items_in.clone(), pending()).map(drop).boxed()
            })
            .collect();
        let inlets = self.inlets.into_iter().zip(count..);
        legs.extend(inlets.map(|(inlet, index)| inlet.run(index, items_in.clone()).boxed()));
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

#[cfg(test)]
mod tests;
