//! The recent history of a feed as encoded segments, and the marks that clients stand at. No I/O, no clock.
//!
//! A [`Mark`] is a place between two segments, together with what the world looked like there. A client holds one mark and
//! nothing else: from it, it can go on along the segments while the ring still has them, and otherwise by the difference
//! between the mark's map and the newest one. So the ring may forget at any time without anybody losing anything.
//!
//! Invariants:
//! - segments join without gap or overlap: the mark before one is the mark after its predecessor;
//! - what the ring holds is bounded in bytes, updates and time, whatever clients do (the newest segment always stays).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::model::{AsOf, SyncStatus};
use crate::snapcache::{Breadcrumb, Map};

/// How long a segment is kept. Whoever lags for longer is better served with last values only. Longer than a snapshot may be
/// old, so that a new client on a healthy network goes straight from its snapshot to the segments.
const KEEP: Duration = Duration::from_secs(15);

/// A place in a feed's history.
#[derive(Debug)]
pub(super) struct Mark {
    /// Sequence number of the last crumb before this place.
    pub(super) sequence: u64,
    /// Everything there is at this place. Pins only what has changed since.
    pub(super) map: Map,
    /// The status at this place.
    pub(super) status: SyncStatus,
    /// When the last crumb before this place was published.
    pub(super) at: Instant,
    /// What the datastore had vouched for by then.
    pub(super) as_of: Option<AsOf>,
    /// Number of the segment that follows.
    next: u64,
    /// Updates that the feed has encoded up to here.
    updates: u64,
    /// When the first crumb after this place was published.
    outdated_at: OnceLock<Instant>,
}

impl Mark {
    fn new(crumb: &Breadcrumb, next: u64, updates: u64) -> Arc<Self> {
        Arc::new(Self {
            sequence: crumb.sequence,
            map: crumb.map.clone(),
            status: crumb.status,
            at: crumb.at,
            as_of: crumb.as_of.clone(),
            next,
            updates,
            outdated_at: OnceLock::new(),
        })
    }

    /// When this place ceased to be the newest.
    pub(super) fn outdated_at(&self) -> Option<Instant> {
        self.outdated_at.get().copied()
    }

    /// How much older the first change after this place is than the newest change. Zero when there is none, or one.
    pub(super) fn age(&self, head: &Mark) -> Duration {
        self.outdated_at().map_or(Duration::ZERO, |first| head.at.saturating_duration_since(first))
    }

    /// Updates between this place and a later one.
    pub(super) fn updates_until(&self, later: &Mark) -> u64 {
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

/// How much a ring may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: usize,
    pub(super) updates: usize,
}

/// What [`Ring::take`] found.
#[derive(Debug)]
pub(super) enum Taken {
    /// There is nothing after the mark.
    Nothing,
    /// Segments were taken; this is the place after them.
    UpTo(Arc<Mark>),
    /// The segments after the mark are no longer there. This is the newest place.
    Forgotten(Arc<Mark>),
}

/// The segments, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    segments: VecDeque<Segment>,
    first: u64,
    head: Arc<Mark>,
    bytes: usize,
    updates: usize,
    limits: Limits,
}

impl Ring {
    /// An empty ring that stands at a crumb.
    pub(super) fn new(start: &Breadcrumb, limits: Limits) -> Self {
        let head = Mark::new(start, 0, 0);
        Self { segments: VecDeque::new(), first: 0, head, bytes: 0, updates: 0, limits }
    }

    /// The newest place.
    pub(super) fn head(&self) -> &Arc<Mark> {
        &self.head
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the bytes of all crumbs after the newest place up to `last`; the oldest of them was published at `first_at`.
    pub(super) fn push(&mut self, bytes: Bytes, updates: usize, first_at: Instant, last: &Breadcrumb) {
        let end = Mark::new(last, self.head.next + 1, self.head.updates + updates as u64);
        let _only_once = self.head.outdated_at.set(first_at);
        self.bytes += bytes.len();
        self.updates += updates;
        self.segments.push_back(Segment { bytes, updates, end: end.clone() });
        self.head = end;
        while self.segments.len() > 1 && (self.bytes > self.limits.bytes || self.updates > self.limits.updates) {
            self.forget_oldest();
        }
    }

    /// Forgets what is too old to be kept.
    pub(super) fn forget_before(&mut self, now: Instant) {
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

    /// Appends what follows a mark to `out`: whole segments, at least one, then as many as fit in `max_bytes`.
    pub(super) fn take(&self, from: &Mark, max_bytes: usize, out: &mut VecDeque<Bytes>) -> Taken {
        if from.next == self.head.next {
            return Taken::Nothing;
        }
        if from.next < self.first {
            return Taken::Forgotten(self.head.clone());
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
        end.map_or(Taken::Nothing, |end| Taken::UpTo(end.clone()))
    }
}
