//! The average speed at which a client takes its snapshot or catch-up. No I/O; the time is passed in.
//!
//! A client that takes a few bytes now and then never runs into the write time-out, and until it has its snapshot it
//! owes no answer to pings. Each such client holds a version of the map, so there has to be an end. Only the time
//! counts during which we wait for the client: a busy server is not its fault.

use std::time::Duration;

use tokio::time::Instant;

use super::super::reason::LOWEST_BYTES_PER_SEC;

/// Write time-outs that pass before the average counts. A client may pause for almost one of them at any time; that
/// alone must never suffice to cut it.
const GRACE_WRITE_TIMEOUTS: u32 = 2;

/// The bytes that a client has taken, and how long that took.
#[derive(Debug, Default)]
pub(crate) struct Average {
    taken: u64,
    waited: Duration,
    /// When the present wait for the client began.
    since: Option<Instant>,
}

impl Average {
    /// There is something to write.
    pub(crate) fn on_pending(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// The client took this number of bytes; `all` says whether nothing is left to write.
    pub(crate) fn on_taken(&mut self, bytes: u64, all: bool, now: Instant) {
        self.taken += bytes;
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
            self.since = (!all).then_some(now);
        }
    }

    /// The moment from which the client is too slow, unless it takes some bytes before.
    pub(crate) fn too_slow_at(&self, write_timeout: Duration) -> Option<Instant> {
        let enough = Duration::from_secs(self.taken / LOWEST_BYTES_PER_SEC).max(GRACE_WRITE_TIMEOUTS * write_timeout);
        self.since.map(|since| since + enough.saturating_sub(self.waited))
    }
}
