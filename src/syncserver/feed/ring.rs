//! The recent history of a feed as encoded segments, and the marks at which clients stand. No I/O, no clock.
//!
//! A [`Mark`] is a position between two segments, together with the map and status at that position. A client holds
//! only one mark: from it, it can go on along the segments while the ring still has them, and otherwise by the
//! difference between the mark's map and the newest one. So the ring may forget at any time, and no client loses
//! anything.
//!
//! Invariants:
//! - segments join without gap or overlap: the mark before one is the mark after its predecessor;
//! - the ring is bounded in bytes, updates and time, whatever clients do (the newest segment always stays);
//! - a large publication is never a segment: the ring skips it, and begins anew after it.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::model::{AsOf, SyncStatus};
use crate::snapcache::{Breadcrumb, Map};

/// Time for which a segment is kept. A client that lags for longer is better served with last values only. Longer than
/// the age of a snapshot, so that a new client on a healthy network goes straight from its snapshot to the segments.
const KEEP: Duration = Duration::from_secs(15);

/// A position in a feed's history.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Sequence number of the last crumb before this position.
    pub(crate) sequence: u64,
    /// The whole content at this position. Pins only what has changed since.
    pub(crate) map: Map,
    /// The status at this position.
    pub(crate) status: SyncStatus,
    /// When the last crumb before this position was published.
    pub(crate) at: Instant,
    /// The last moment for which the datastore had vouched by then.
    pub(crate) as_of: Option<AsOf>,
    /// Number of the segment that follows.
    next: u64,
    /// Updates that the feed has encoded up to here.
    updates: u64,
    /// Number of status changes up to here.
    status_changes: u64,
    /// Number of large publications up to here, which the ring has skipped.
    skipped: u64,
    /// When the first crumb after this position was published.
    outdated_at: Arc<OnceLock<Instant>>,
}

impl Mark {
    /// The mark at the crumb with which a feed begins.
    fn first(crumb: &Breadcrumb) -> Arc<Self> {
        Arc::new(Self::at(crumb, 0, 0, 0, 0))
    }

    /// The mark at `crumb`, the next one after this. This number of updates leads to it, in a segment or `skipped`.
    fn to(&self, crumb: &Breadcrumb, updates: usize, skipped: bool) -> Arc<Self> {
        let status_changes = self.status_changes + u64::from(self.status != crumb.status);
        let skipped = self.skipped + u64::from(skipped);
        Arc::new(Self::at(crumb, self.next + 1, self.updates + updates as u64, status_changes, skipped))
    }

    fn at(crumb: &Breadcrumb, next: u64, updates: u64, status_changes: u64, skipped: u64) -> Self {
        Self {
            sequence: crumb.sequence,
            map: crumb.map.clone(),
            status: crumb.status,
            at: crumb.at,
            as_of: crumb.as_of.clone(),
            next,
            updates,
            status_changes,
            skipped,
            outdated_at: Arc::default(),
        }
    }

    /// When this position ceased to be the newest.
    pub(crate) fn outdated_at(&self) -> Option<Instant> {
        self.outdated_at.get().copied()
    }

    /// Time since the first change after this position was published. Zero when there is none.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.outdated_at().map_or(Duration::ZERO, |first| now.saturating_duration_since(first))
    }

    /// Whether this is the same position.
    pub(crate) fn is_same(&self, other: &Mark) -> bool {
        self.next == other.next
    }

    /// Whether a ring whose oldest segment is `first` has forgotten the changes after this position.
    pub(crate) fn is_before(&self, first: u64) -> bool {
        self.next < first
    }

    /// Whether the status did not change between this position and a later one.
    pub(crate) fn has_status_of(&self, later: &Mark) -> bool {
        self.status_changes == later.status_changes
    }

    /// Whether a large publication lies between this position and a later one.
    pub(crate) fn is_before_large(&self, later: &Mark) -> bool {
        self.skipped != later.skipped
    }

    /// Number of updates between this position and a later one.
    pub(crate) fn updates_until(&self, later: &Mark) -> u64 {
        later.updates.saturating_sub(self.updates)
    }
}

/// Some crumbs as bytes.
#[derive(Debug)]
struct Segment {
    bytes: Bytes,
    updates: usize,
    end: Arc<Mark>,
}

/// The limits of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    pub(crate) updates: usize,
}

/// The result of [`Ring::copy_after`].
#[derive(Debug)]
pub(crate) enum Copied {
    /// There is nothing after the mark.
    Nothing,
    /// Segments were copied; this is the mark after them.
    UpTo(Arc<Mark>),
    /// The ring has forgotten the segments after the mark. This is the newest mark.
    Forgotten(Arc<Mark>),
}

/// The segments, oldest first.
#[derive(Debug)]
pub(crate) struct Ring {
    segments: VecDeque<Segment>,
    first: u64,
    head: Arc<Mark>,
    bytes: usize,
    updates: usize,
    limits: Limits,
}

impl Ring {
    /// An empty ring whose only mark is at this crumb.
    pub(crate) fn new(start: &Breadcrumb, limits: Limits) -> Self {
        let head = Mark::first(start);
        Self { segments: VecDeque::new(), first: 0, head, bytes: 0, updates: 0, limits }
    }

    /// The newest mark.
    pub(crate) fn head(&self) -> &Arc<Mark> {
        &self.head
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of the oldest segment held, or of the next one.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Limits the ring to this from now on.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
        self.forget_excess();
    }

    /// Whether the ring has all segments after a mark.
    pub(crate) fn leads_on_from(&self, mark: &Mark) -> bool {
        !mark.is_before(self.first)
    }

    /// Appends the bytes of all crumbs after the newest mark up to `last`; the oldest of them was published at
    /// `first_at`.
    pub(crate) fn push(&mut self, bytes: Bytes, updates: usize, first_at: Instant, last: &Breadcrumb) {
        let end = self.head.to(last, updates, false);
        let _already_set = self.head.outdated_at.set(first_at);
        self.bytes += bytes.len();
        self.updates += updates;
        self.segments.push_back(Segment { bytes, updates, end: end.clone() });
        self.head = end;
        self.forget_excess();
    }

    /// Moves on past crumbs that are too large for a segment, the oldest of which was published at `first_at`: forgets
    /// everything before them. Clients at older marks get them otherwise.
    pub(crate) fn skip(&mut self, updates: usize, first_at: Instant, last: &Breadcrumb) {
        let end = self.head.to(last, updates, true);
        let _already_set = self.head.outdated_at.set(first_at);
        self.segments.clear();
        (self.bytes, self.updates, self.first) = (0, 0, end.next);
        self.head = end;
    }

    fn forget_excess(&mut self) {
        while self.segments.len() > 1 && (self.bytes > self.limits.bytes || self.updates > self.limits.updates) {
            self.forget_oldest();
        }
    }

    /// Forgets segments that are too old.
    pub(crate) fn forget_before(&mut self, now: Instant) {
        while self.segments.front().is_some_and(|oldest| now.saturating_duration_since(oldest.end.at) > KEEP) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.segments.pop_front() {
            self.first += 1;
            self.bytes -= oldest.bytes.len();
            self.updates -= oldest.updates;
        }
    }

    /// Appends the segments after a mark to `out`: at least one, then as many as fit in `max_bytes`.
    pub(crate) fn copy_after(&self, from: &Mark, max_bytes: usize, out: &mut VecDeque<Bytes>) -> Copied {
        if from.next == self.head.next {
            return Copied::Nothing;
        }
        if !self.leads_on_from(from) {
            return Copied::Forgotten(self.head.clone());
        }
        let skip = usize::try_from(from.next - self.first).unwrap_or(usize::MAX);
        let mut taken = 0;
        let mut end = None;
        for segment in self.segments.iter().skip(skip) {
            if end.is_some() && taken + segment.bytes.len() > max_bytes {
                break;
            }
            taken += segment.bytes.len();
            if !segment.bytes.is_empty() {
                out.push_back(segment.bytes.clone());
            }
            end = Some(&segment.end);
        }
        end.map_or(Copied::Nothing, |end| Copied::UpTo(end.clone()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::SyncerMetrics;
    use crate::model::SyncerEvent;
    use crate::snapcache::SnapCache;

    /// Crumbs to push: the status changes each time, which is enough to get one more.
    fn crumbs(count: usize) -> Vec<Arc<Breadcrumb>> {
        let (mut cache, reader) = SnapCache::new(10, SyncerMetrics::unregistered());
        let mut trail = reader.follow();
        for n in 0..count {
            let status = if n % 2 == 0 { SyncStatus::InSync } else { SyncStatus::ResyncInProgress };
            cache.apply(vec![SyncerEvent::Status(status)]);
        }
        std::iter::once(trail.position().clone()).chain(std::iter::from_fn(move || trail.try_next())).collect()
    }

    fn bytes(n: usize, len: usize) -> Bytes {
        Bytes::from(vec![u8::try_from(n % 251).unwrap_or(0); len])
    }

    proptest! {
        /// From any mark, a client gets all later segments in order, or is told that they are forgotten.
        #[test]
        fn segments_join_without_gap_and_memory_is_bounded(
            lens in proptest::collection::vec(0_usize..50, 1..40), room in 0_usize..120, limit in 0_usize..300,
        ) {
            let crumbs = crumbs(lens.len());
            let mut ring = Ring::new(&crumbs[0], Limits { bytes: limit, updates: 1000 });
            let mut marks = vec![ring.head().clone()];
            for (n, len) in lens.iter().enumerate() {
                ring.push(bytes(n, *len), 1, crumbs[n + 1].at, &crumbs[n + 1]);
                marks.push(ring.head().clone());
                prop_assert!(ring.bytes() <= limit.max(*len));
            }
            for (n, start) in marks.iter().enumerate() {
                let (mut at, mut out) = (start.clone(), VecDeque::new());
                let complete = loop {
                    let had: usize = out.iter().map(Bytes::len).sum();
                    match ring.copy_after(&at, room, &mut out) {
                        Copied::Nothing => break true,
                        Copied::Forgotten(head) => {
                            prop_assert!(Arc::ptr_eq(&head, ring.head()));
                            break false;
                        }
                        Copied::UpTo(end) => {
                            prop_assert!(end.sequence > at.sequence);
                            let took = out.iter().map(Bytes::len).sum::<usize>() - had;
                            prop_assert!(took <= room.max(lens[usize::try_from(at.sequence).unwrap_or(0)]));
                            at = end;
                        }
                    }
                };
                if complete {
                    prop_assert!(Arc::ptr_eq(&at, ring.head()));
                    let got: Vec<u8> = out.iter().flatten().copied().collect();
                    let expected: Vec<u8> = lens.iter().enumerate().skip(n).flat_map(|(n, len)| bytes(n, *len)).collect();
                    prop_assert_eq!(got, expected);
                } else {
                    prop_assert!(out.is_empty(), "forgotten is forgotten as a whole");
                    let after: usize = lens[n..].iter().sum();
                    prop_assert!(after > limit || lens.len() - n > 1000, "nothing is forgotten without need");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_segments_are_forgotten_and_a_mark_ages_from_the_first_change_after_it() {
        let first = crumbs(0).swap_remove(0);
        let mut ring = Ring::new(&first, Limits { bytes: 1000, updates: 1000 });
        let start = ring.head().clone();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(start.age(Instant::now()), Duration::ZERO, "nothing happened, so nothing is missing");
        let crumbs = crumbs(2);
        ring.push(bytes(1, 1), 1, crumbs[1].at, &crumbs[1]);
        assert_eq!(start.age(Instant::now()), Duration::ZERO, "it was published just now");
        assert_eq!(start.age(Instant::now() + KEEP), KEEP, "only the newest is missing, and ages like any other");
        assert_eq!(ring.head().age(Instant::now() + KEEP), Duration::ZERO);
        ring.forget_before(Instant::now() + KEEP);
        assert_eq!(ring.bytes(), 1);
        ring.forget_before(Instant::now() + KEEP + Duration::from_millis(1));
        assert_eq!(ring.bytes(), 0);
        assert!(matches!(ring.copy_after(&start, 10, &mut VecDeque::new()), Copied::Forgotten(_)));
    }
}
