//! Counts of events in the runs of a test, and the least counts that are required.

use super::ledger::Counts;

/// Name of the count of moves to a server that is behind. A script in `scripted.rs` shows one at every run of the tests.
const STEPS_BACK: &str = "steps back";
/// Number of seeds that include at least one step back. It takes a crash, a partition and a deletion at the right moments, which
/// no seed repeats exactly.
const SEEDS_WITH_A_STEP_BACK: u64 = 200;

/// Counts of events, which show that runs were not empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    /// Lines of the log.
    pub(super) events: u64,
    pub(super) changes: u64,
    pub(super) crumbs: u64,
    pub(super) server_lives: u64,
    pub(super) catch_ups: u64,
    pub(super) faults: u64,
    /// Runs with two servers, with a folder, and with large values.
    pub(super) pairs: u64,
    pub(super) folders: u64,
    pub(super) large: u64,
    pub(super) counts: Counts,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.all().into_iter().zip(other.all_of()) {
            *sum.1 += more;
        }
    }

    fn all_of(mut self) -> Vec<u64> {
        self.all().into_iter().map(|(_, count, _)| *count).collect()
    }

    /// All counts, with the least number that all seeds of a test together have to reach.
    fn all(&mut self) -> [(&'static str, &mut u64, u64); 18] {
        let counts = &mut self.counts;
        [
            ("events", &mut self.events, 1000),
            ("changes", &mut self.changes, 100),
            ("crumbs", &mut self.crumbs, 100),
            ("server lives", &mut self.server_lives, 10),
            ("catch-ups", &mut self.catch_ups, 10),
            ("faults", &mut self.faults, 10),
            ("runs with two servers", &mut self.pairs, 1),
            ("runs with a folder", &mut self.folders, 1),
            ("runs with large values", &mut self.large, 1),
            ("connections", &mut counts.connections, 10),
            ("in-syncs", &mut counts.in_syncs, 10),
            ("deletions", &mut counts.deletions, 10),
            (STEPS_BACK, &mut counts.step_backs, 1),
            ("moves", &mut counts.moves, 10),
            ("goodbyes", &mut counts.goodbyes, 10),
            ("leaves", &mut counts.leaves, 10),
            ("cuts of agents that do not read", &mut counts.deaf_cut, 5),
            ("large values", &mut counts.large, 5),
        ]
    }

    /// Panics unless every count of this number of seeds is large enough.
    pub(super) fn demand_coverage(mut self, seeds: u64) {
        let words = format!("{self:?}");
        for (what, count, least) in self.all() {
            let due = what != STEPS_BACK || seeds >= SEEDS_WITH_A_STEP_BACK;
            assert!(*count >= least || !due, "only {count} {what} in {seeds} seeds: {words}");
        }
    }
}
