//! Whether a client takes its snapshot, or what it lacks, fast enough on average. No I/O; the time is passed in.
//!
//! A client that takes a few bytes now and then never runs into the write time-out, and until it has its snapshot it owes no
//! answer to pings. Each such client holds a version of the map, so there has to be an end. Only the time counts in which
//! the client keeps us waiting: a server that is busy is not its fault.

use std::time::Duration;

use tokio::time::Instant;

/// The lowest average rate. Agents on the slowest links are well above it: Calico's clients give up on a server when a message
/// of a thousand updates, some 100 KiB, takes longer than 30 s.
pub(super) const LOWEST_BYTES_PER_SEC: u64 = 4 << 10;

/// Write time-outs that pass before the average counts. A client may pause for almost one of them at any time; that alone must
/// never be enough to be cut.
const GRACE_WRITE_TIMEOUTS: u32 = 2;

/// The bytes that a client has taken, and how long that took.
#[derive(Debug, Default)]
pub(super) struct Average {
    taken: u64,
    waited: Duration,
    /// The time from which on we have been waiting for the client, if we are.
    since: Option<Instant>,
}

impl Average {
    /// There is something to write.
    pub(super) fn on_pending(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// The client took this number of bytes; `all` says whether nothing is left to write.
    pub(super) fn on_taken(&mut self, bytes: u64, all: bool, now: Instant) {
        self.taken += bytes;
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
            self.since = (!all).then_some(now);
        }
    }

    /// When the client is too slow, unless it takes something before.
    pub(super) fn too_slow_at(&self, write_timeout: Duration) -> Option<Instant> {
        let enough = Duration::from_secs(self.taken / LOWEST_BYTES_PER_SEC).max(GRACE_WRITE_TIMEOUTS * write_timeout);
        self.since.map(|since| since + enough.saturating_sub(self.waited))
    }
}
