//! Merges the outputs of a syncer's watcher caches into one sequence. No I/O.
//!
//! Invariants: the order of each source is kept (sources have no order between them); updates come before the status or the
//! progress that follows them; wait-for-ready is announced once at the start, and later only changes are; an `Updates` event has
//! at most [`MAX_BATCH`] updates.

use super::watcher_cache::{CacheItem, Vouch, merge_statuses};
use crate::decoupler::MAX_BATCH;
use crate::model::{SyncStatus, SyncerEvent, Update};

/// See the module.
#[derive(Debug)]
pub(super) struct Merger {
    statuses: Vec<SyncStatus>,
    status: SyncStatus,
    vouches: Vec<Vouch>,
    /// The last announced time for which all sources vouch.
    vouch: Vouch,
    pending: Vec<Update>,
}

impl Merger {
    pub(super) fn new(sources: usize) -> Self {
        Self {
            statuses: vec![SyncStatus::WaitForDatastore; sources],
            status: SyncStatus::WaitForDatastore,
            vouches: vec![Vouch::None; sources],
            vouch: Vouch::None,
            pending: Vec::new(),
        }
    }

    /// The events that are announced before anything has happened.
    pub(super) fn start(&self) -> Vec<SyncerEvent> {
        let mut events = vec![SyncerEvent::Status(SyncStatus::WaitForDatastore)];
        if self.statuses.is_empty() {
            // There is nothing to wait for, but agents expect the usual statuses.
            events.extend([SyncStatus::ResyncInProgress, SyncStatus::InSync].map(SyncerEvent::Status));
        }
        events
    }

    /// Takes an output of a cache.
    pub(super) fn take(&mut self, source: usize, item: CacheItem, out: &mut Vec<SyncerEvent>) {
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

    /// All waiting outputs were taken: puts out the rest of the updates, and the progress.
    pub(super) fn flush(&mut self, out: &mut Vec<SyncerEvent>) {
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
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;
    use crate::model::AsOf;

    fn updates(first: usize, count: usize) -> Vec<Update> {
        let update = |n: usize| Update::deletion(n.to_string().into());
        (first..first + count).map(update).collect()
    }

    fn as_of(seconds: u64) -> AsOf {
        AsOf { revision: seconds.to_string().into(), at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    fn merge(sources: usize, items: Vec<(usize, CacheItem)>) -> Vec<SyncerEvent> {
        let mut merger = Merger::new(sources);
        let mut out = merger.start();
        for (source, item) in items {
            merger.take(source, item, &mut out);
        }
        merger.flush(&mut out);
        out
    }

    #[test]
    fn statuses_merge_by_calicos_rule_and_only_changes_are_announced() {
        use SyncStatus::{InSync, ResyncInProgress, WaitForDatastore};
        let items = [(0, ResyncInProgress), (1, ResyncInProgress), (0, InSync), (1, InSync), (1, WaitForDatastore)]
            .into_iter()
            .chain([(0, WaitForDatastore), (1, ResyncInProgress), (1, InSync), (0, InSync)])
            .map(|(source, status)| (source, CacheItem::Status(status)))
            .collect();
        let statuses: Vec<_> = merge(2, items)
            .into_iter()
            .map(|event| match event {
                SyncerEvent::Status(status) => status,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            statuses,
            [WaitForDatastore, ResyncInProgress, InSync, ResyncInProgress, WaitForDatastore, ResyncInProgress, InSync]
        );
    }

    #[test]
    fn updates_go_out_before_the_status_and_the_progress_that_follow_them() {
        let items = vec![
            (0, CacheItem::Status(SyncStatus::ResyncInProgress)),
            (0, CacheItem::Updates(updates(0, 2))),
            (0, CacheItem::Status(SyncStatus::InSync)),
            (0, CacheItem::Vouch(Vouch::At(as_of(1)))),
            (0, CacheItem::Updates(updates(2, 1))),
        ];
        let expected = [
            SyncerEvent::Status(SyncStatus::WaitForDatastore),
            SyncerEvent::Status(SyncStatus::ResyncInProgress),
            SyncerEvent::Updates(updates(0, 2)),
            SyncerEvent::Status(SyncStatus::InSync),
            SyncerEvent::Updates(updates(2, 1)),
            SyncerEvent::Progress(as_of(1)),
        ];
        assert_eq!(merge(1, items), expected);
    }

    #[test]
    fn progress_is_that_of_the_oldest_source() {
        let vouch = |source, seconds| (source, CacheItem::Vouch(Vouch::At(as_of(seconds))));
        let start = SyncerEvent::Status(SyncStatus::WaitForDatastore);
        assert_eq!(merge(2, vec![vouch(0, 5)]), std::slice::from_ref(&start));
        assert_eq!(merge(2, vec![vouch(0, 5), vouch(1, 3)]), [start.clone(), SyncerEvent::Progress(as_of(3))]);
        let exempt = (1, CacheItem::Vouch(Vouch::Exempt));
        assert_eq!(merge(2, vec![vouch(0, 5), exempt]), [start, SyncerEvent::Progress(as_of(5))]);
    }

    proptest! {
        #[test]
        fn batches_are_bounded_and_order_is_kept(sizes in proptest::collection::vec(0_usize..2500, 0..8)) {
            let mut first = 0;
            let items = sizes.iter().map(|&count| {
                first += count;
                (0, CacheItem::Updates(updates(first - count, count)))
            });
            let events = merge(1, items.collect());
            let mut got = Vec::new();
            for event in events.into_iter().skip(1) {
                let SyncerEvent::Updates(updates) = event else { panic!("only updates went in") };
                prop_assert!(!updates.is_empty() && updates.len() <= MAX_BATCH);
                got.extend(updates);
            }
            prop_assert_eq!(got, updates(0, sizes.iter().sum()));
        }
    }
}
