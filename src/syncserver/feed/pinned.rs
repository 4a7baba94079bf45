//! The old versions of the map that slow clients hold, and the clients that have to go when there are too many of
//! these.
//!
//! A client holds the map of its mark until it gets more. Versions whose later segments the ring still has are in
//! memory anyway; older ones are there for slow clients alone. A version costs the memory of what has changed since the
//! one before it, up to the whole map.

use std::collections::BTreeMap;

use super::ring::Mark;

/// Versions that slow clients of a feed may hold. Clients that come within 5 s share a snapshot, so agents that start
/// one after another and each take 160 s for their snapshots are still served; a healthy fleet needs a handful.
const MAX_VERSIONS: usize = 32;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The oldest segment that the ring has.
    first: u64,
    /// The clients that hold an old version, by its sequence number.
    holders: BTreeMap<u64, Vec<u64>>,
}

impl Pinned {
    /// No client holds an old version yet; the ring begins with segment `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self { first, holders: BTreeMap::new() }
    }

    /// A client stands at a mark.
    pub(crate) fn note(&mut self, mark: &Mark, client: u64) {
        if mark.is_before(self.first) {
            self.holders.entry(mark.sequence).or_default().push(client);
        }
    }

    /// The clients that have to go: if there are too many old versions, those with the oldest.
    pub(crate) fn excess(self) -> Vec<u64> {
        let excess = self.holders.len().saturating_sub(MAX_VERSIONS);
        self.holders.into_values().take(excess).flatten().collect()
    }
}
