//! The old versions of the map that slow clients hold, and the clients that have to go when these are too many.
//!
//! A client holds the map that it was given last, until it has more. Versions that the ring still leads on from are in memory anyway; older
//! ones are there for slow clients alone. A version costs what has changed since the one before it, up to the whole map.

use std::collections::BTreeMap;

use super::ring::Mark;

/// Versions that slow clients of a feed may hold. A snapshot is shared by all that come within 5 s, so agents that start one
/// after another and each take 160 s for their snapshots are still served; a healthy fleet needs a handful.
const MAX_VERSIONS: usize = 32;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pinned {
    /// The oldest segment that the ring has.
    first: u64,
    /// The clients that hold an old version, by its sequence number.
    holders: BTreeMap<u64, Vec<u64>>,
}

impl Pinned {
    /// Nobody holds an old version yet, where the ring begins with segment `first`.
    pub(super) fn new(first: u64) -> Self {
        Self { first, holders: BTreeMap::new() }
    }

    /// A client stands at a mark.
    pub(super) fn note(&mut self, mark: &Mark, client: u64) {
        if mark.is_before(self.first) {
            self.holders.entry(mark.sequence).or_default().push(client);
        }
    }

    /// The clients that have to go: those at the oldest versions, if there are too many of these.
    pub(super) fn excess(self) -> Vec<u64> {
        let excess = self.holders.len().saturating_sub(MAX_VERSIONS);
        self.holders.into_values().take(excess).flatten().collect()
    }
}
