//! What happened in a simulation, seen from outside: the datastore's history, every crumb of every cache, the agents, a log.
//!
//! Written by all parts of a run, read by [`super::invariants`]. Not a part of what is simulated.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulrush::metrics::SyncerMetrics;
use bulrush::model::{Key, SyncStatus};
use bulrush::snapcache::Breadcrumb;
use bulrush::syncer::SyncerType;
use bytes::Bytes;

/// What an agent holds.
pub(super) type State = BTreeMap<Key, Bytes>;

/// A change of the datastore. Versions count all changes of a run, deletions included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    /// Whether agents should have the key afterwards.
    pub(super) present: bool,
}

/// A crumb that a server has published.
#[derive(Clone, Debug)]
pub(super) struct Note {
    /// Which life of the server.
    pub(super) generation: u64,
    /// When it was seen.
    pub(super) at: Duration,
    pub(super) crumb: Arc<Breadcrumb>,
}

/// An agent, as it sees the world.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) syncer: SyncerType,
    pub(super) prefixes: Vec<String>,
    pub(super) state: State,
    pub(super) status: SyncStatus,
    /// Newest version of each key on this connection, deleted keys included.
    pub(super) seen: BTreeMap<Key, u64>,
    /// When its present connection was asked for.
    pub(super) since: Duration,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) truth: BTreeMap<Key, Vec<Change>>,
    pub(super) crumbs: BTreeMap<SyncerType, Vec<Note>>,
    pub(super) agents: BTreeMap<String, Agent>,
    pub(super) generation: u64,
    pub(super) connections: u64,
    pub(super) in_syncs: u64,
    pub(super) deletions: u64,
    /// Of all caches that there have been.
    pub(super) metrics: Vec<SyncerMetrics>,
    pub(super) violation: Option<String>,
    pub(super) log: String,
}

impl Book {
    /// Appends a line to the log.
    pub(super) fn log(&mut self, who: &str, what: &str) {
        let now = turmoil::sim_elapsed().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(self.log, "{:9.3} {who}: {what}", now.as_secs_f64());
    }

    /// Keeps the first broken invariant, which ends the run.
    pub(super) fn judge(&mut self, who: &str, verdict: Result<(), String>) {
        if let Err(words) = verdict {
            self.log(who, &format!("VIOLATION: {words}"));
            let now = turmoil::sim_elapsed().unwrap_or_default();
            self.violation.get_or_insert_with(|| format!("at {:.3} s, {who}: {words}", now.as_secs_f64()));
        }
    }

    /// The newest crumb of a syncer's cache, of the present life of the server.
    pub(super) fn newest(&self, syncer: SyncerType) -> Option<&Note> {
        self.crumbs.get(&syncer)?.last().filter(|note| note.generation == self.generation)
    }
}

/// The book, shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self, who: &str, what: &str) {
        self.book().log(who, what);
    }

    /// The log as it goes into a file.
    pub(super) fn text(&self) -> String {
        self.book().log.clone()
    }
}
