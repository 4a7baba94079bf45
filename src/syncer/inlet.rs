//! Follows one datastore of a syncer whose kinds are found while it runs: subscribes to each kind as it comes, and hands on the outputs of
//! their caches as those of one source.
//!
//! ```text
//!  no kinds told yet (wait-for-ready) ── kinds told ──► the status of all kinds together ── in sync once ──► that of the kinds that
//!                                                                                                           are no newcomers
//!  a datastore that may be spared: in sync for good after its time, or once it was in sync
//! ```
//!
//! Invariants: a kind that goes keeps its subscription, whose watch tells that its objects are gone; a kind whose version
//! changes is listed again and loses nothing, and so are all when they have to go through the pipeline again; a kind that comes later does not
//! disturb the status.

use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::kind_watch::Subscriber;
use super::source::{KIND_EVENTS, run_source};
use super::spec::Inlet;
use super::watcher_cache::{CacheItem, Vouch, WatcherCache, merge_statuses};
use crate::datastore::{Error, Kind, KindsNow};
use crate::demand::Demand;
use crate::metrics::SyncerMetrics;
use crate::model::{SyncStatus, SyncerName};
use crate::problems::ProblemBook;

/// Most kinds of one inlet. A watch costs a connection; further kinds are named in the log and left out.
pub const MAX_KINDS: usize = 1_000;
/// Outputs of kinds that may wait for the inlet.
const ITEMS: usize = 32;

/// The state of an inlet, for the status endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InletStatus {
    /// The datastore's name.
    pub datastore: String,
    /// The number of kinds that are watched.
    pub kinds: usize,
    /// Patterns for which there is no kind, each with the reason.
    pub unknown: Vec<(String, String)>,
    /// Why the kinds could not be looked up the last time; `None`: they were.
    pub error: Option<String>,
    /// The syncer does without the datastore, which is not in sync.
    pub spared: bool,
}

/// The part of an inlet that decides the status: no I/O and no clock.
#[derive(Debug, Default)]
pub(super) struct Standing {
    told: bool,
    kinds: Vec<KindStanding>,
    was_in_sync: bool,
    may_be_spared: bool,
    spared: bool,
    status: SyncStatus,
    vouch: Vouch,
}

#[derive(Debug)]
struct KindStanding {
    status: SyncStatus,
    vouch: Vouch,
    /// It came when all others were in sync, and has not been since.
    newcomer: bool,
}

impl Standing {
    pub(super) fn new(may_be_spared: bool) -> Self {
        Self { may_be_spared, ..Self::default() }
    }

    /// The kinds were told, of which `new` are new.
    pub(super) fn kinds_told(&mut self, new: usize, out: &mut Vec<CacheItem>) {
        self.told = true;
        let newcomer = self.was_in_sync;
        let standing = || KindStanding { status: SyncStatus::WaitForDatastore, vouch: Vouch::None, newcomer };
        self.kinds.extend(std::iter::repeat_with(standing).take(new));
        self.tell(out);
    }

    /// A kind's cache put something out.
    pub(super) fn take(&mut self, kind: usize, item: CacheItem, out: &mut Vec<CacheItem>) {
        match item {
            CacheItem::Updates(_) => out.push(item),
            CacheItem::Status(status) => {
                let kind = &mut self.kinds[kind];
                kind.status = status;
                kind.newcomer &= status != SyncStatus::InSync;
                self.tell(out);
            }
            CacheItem::Vouch(vouch) => {
                self.kinds[kind].vouch = vouch;
                self.tell(out);
            }
        }
    }

    /// The time is over after which the datastore is spared, if it may be.
    pub(super) fn time_is_over(&mut self, out: &mut Vec<CacheItem>) {
        self.spared = self.may_be_spared && !self.was_in_sync;
        self.tell(out);
    }

    /// Whether the syncer does without it now.
    pub(super) fn is_missed(&self) -> bool {
        (self.spared || self.may_be_spared && self.was_in_sync) && self.real() != SyncStatus::InSync
    }

    /// The status by the kinds alone.
    fn real(&self) -> SyncStatus {
        if !self.told {
            return SyncStatus::WaitForDatastore;
        }
        merge_statuses(self.kinds.iter().filter(|kind| !kind.newcomer).map(|kind| kind.status))
    }

    fn tell(&mut self, out: &mut Vec<CacheItem>) {
        let real = self.real();
        self.was_in_sync |= real == SyncStatus::InSync;
        let status = if self.is_missed() { SyncStatus::InSync } else { real };
        let vouch = if self.is_missed() {
            Vouch::Exempt
        } else if self.told {
            let counted = self.kinds.iter().filter(|kind| !kind.newcomer);
            counted.fold(Vouch::Exempt, |all, kind| all.and(kind.vouch.clone()))
        } else {
            Vouch::None
        };
        if status != self.status {
            if self.status == SyncStatus::WaitForDatastore && status == SyncStatus::InSync {
                // Before in-sync the status is resync, as agents expect.
                out.push(CacheItem::Status(SyncStatus::ResyncInProgress));
            }
            self.status = status;
            out.push(CacheItem::Status(status));
        }
        if vouch != self.vouch {
            self.vouch = vouch.clone();
            out.push(CacheItem::Vouch(vouch));
        }
    }
}

/// An inlet that is ready to run.
#[derive(Debug)]
pub(super) struct InletLeg {
    syncer: SyncerName,
    inlet: Inlet,
    demand: Demand,
    metrics: SyncerMetrics,
    problems: ProblemBook,
    status: watch::Sender<InletStatus>,
}

/// The kinds that are followed, and their caches at work.
struct Followed {
    /// By group and name; each with its present version.
    kinds: HashMap<(String, String), watch::Sender<Kind>>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    items: mpsc::Sender<(usize, CacheItem)>,
}

impl InletLeg {
    pub(super) fn new(
        syncer: SyncerName,
        inlet: Inlet,
        demand: Demand,
        metrics: SyncerMetrics,
        problems: ProblemBook,
    ) -> (Self, watch::Receiver<InletStatus>) {
        let datastore = inlet.name.to_string();
        let (status, reader) = watch::channel(InletStatus { datastore, ..InletStatus::default() });
        (Self { syncer, inlet, demand, metrics, problems, status }, reader)
    }

    /// Runs until the receiver of `to` is gone, or until the datastore is shut down.
    pub(super) async fn run(self, index: usize, to: mpsc::Sender<(usize, CacheItem)>) {
        let Inlet { datastore, patterns, fixed, spared_after, .. } = &self.inlet;
        let mut told: BoxStream<'static, Result<KindsNow, Error>> = match fixed {
            Some(kinds) => {
                let now = KindsNow { kinds: kinds.clone(), unknown: Vec::new() };
                stream::iter([Ok(now)]).chain(stream::pending()).boxed()
            }
            None => datastore.kinds(patterns),
        };
        let mut standing = Standing::new(spared_after.is_some());
        let mut patience = pin!(async {
            match spared_after {
                Some(after) => tokio::time::sleep(*after).await,
                None => pending().await,
            }
        });
        let mut is_patient = true;
        let (items, mut of_kinds) = mpsc::channel(ITEMS);
        let mut followed = Followed { kinds: HashMap::new(), running: FuturesUnordered::new(), items };
        let (mut out, mut again) = (Vec::new(), self.inlet.again.clone());
        loop {
            let was_missed = standing.is_missed();
            tokio::select! {
                () = to.closed() => return,
                now = told.next() => match now {
                    Some(Ok(now)) => standing.kinds_told(self.follow(now, &mut followed), &mut out),
                    Some(Err(error)) => self.look_failed(&error),
                    None => return,
                },
                Some((kind, item)) = of_kinds.recv() => standing.take(kind, item, &mut out),
                () = &mut patience, if is_patient => {
                    is_patient = false;
                    standing.time_is_over(&mut out);
                }
                // Each kind is listed again.
                Ok(()) = again.changed() => followed.kinds.values().for_each(|kind| kind.send_modify(|_| {})),
                Some(()) = followed.running.next() => {}
            }
            if was_missed != standing.is_missed() {
                self.tell_missed(standing.is_missed());
            }
            for item in out.drain(..) {
                if to.send((index, item)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Follows kinds that are new, and those that have another version in that. Returns the number of new ones.
    fn follow(&self, now: KindsNow, followed: &mut Followed) -> usize {
        let (syncer, datastore) = (self.syncer, &*self.inlet.name);
        let before = followed.kinds.len();
        for kind in now.kinds.iter().take(MAX_KINDS) {
            let name = (kind.group.to_string(), kind.name.to_string());
            if let Some(known) = followed.kinds.get(&name) {
                let other = known.send_if_modified(|known| {
                    let other = known != kind;
                    known.clone_from(kind);
                    other
                });
                if other {
                    info!(%syncer, datastore, %kind, "the kind is followed in another version");
                }
                continue;
            }
            let index = followed.kinds.len();
            let (known, version) = watch::channel(kind.clone());
            followed.running.push(self.follow_kind(index, kind, version, followed.items.clone()).boxed());
            followed.kinds.insert(name, known);
        }
        if now.kinds.len() > MAX_KINDS {
            let kinds = now.kinds.len();
            warn!(%syncer, datastore, kinds, "there are more kinds than {MAX_KINDS}: the others are left out; name the kinds one by one");
        }
        for unknown in &now.unknown {
            warn!(%syncer, datastore, kind = %unknown.pattern, reason = unknown.reason, "the datastore has no such kind");
        }
        let unknown = now.unknown.into_iter().map(|unknown| (unknown.pattern.to_string(), unknown.reason)).collect();
        self.status.send_modify(|status| {
            status.kinds = now.kinds.len();
            status.unknown = unknown;
            status.error = None;
        });
        followed.kinds.len() - before
    }

    /// Feeds the cache of one kind, from the beginning whenever `version` is sent.
    fn follow_kind(
        &self,
        index: usize,
        kind: &Kind,
        mut version: watch::Receiver<Kind>,
        items: mpsc::Sender<(usize, CacheItem)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let source = format!("{} {kind}", self.inlet.name);
        let processor = (self.inlet.processor)(kind);
        let (metrics, problems) = (self.metrics.clone(), self.problems.clone());
        let mut cache = WatcherCache::new(source, vec![kind.clone()], processor, metrics, problems);
        let (joiner, demand) = (self.inlet.joiner.clone(), self.demand.clone());
        let (select, make_processor) = (Arc::clone(&self.inlet.select), Arc::clone(&self.inlet.processor));
        async move {
            loop {
                let kind = version.borrow_and_update().clone();
                let (events_in, events) = mpsc::channel(KIND_EVENTS);
                let subscriber = Subscriber { tag: 0, events: events_in, demand: demand.clone() };
                // Otherwise the process is ending, and the events end at once.
                let _ = joiner.subscribe(select(kind), subscriber).await;
                let mut changes = version.clone();
                let over = async {
                    if changes.changed().await.is_err() {
                        pending::<()>().await;
                    }
                };
                let Some(back) = run_source(index, cache, events, items.clone(), over).await else { return };
                cache = back;
                let now = version.borrow().clone();
                cache.again(&now, || make_processor(&now));
            }
        }
    }

    fn look_failed(&self, error: &Error) {
        let words = error.to_string();
        let is_news = self.status.send_if_modified(|status| status.error.replace(words.clone()) != Some(words));
        if is_news {
            warn!(syncer = %self.syncer, datastore = %self.inlet.name, %error, "cannot look up the kinds; trying on");
        }
    }

    fn tell_missed(&self, missed: bool) {
        let (syncer, datastore) = (self.syncer, &*self.inlet.name);
        self.status.send_modify(|status| status.spared = missed);
        if missed {
            warn!(%syncer, datastore, "agents are in sync without this datastore, which is not required");
        } else {
            info!(%syncer, datastore, "the datastore is in sync");
        }
    }
}

#[cfg(test)]
mod tests;
