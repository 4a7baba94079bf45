//! The history of a simulation, seen from outside: the datastore's changes, every crumb of every cache, the agents, a log.
//!
//! Written by all parts of a run, read by [`super::invariants`]. It is not part of the simulated system. The log keeps events as
//! values, which become words only if the run fails or its log is asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulrush::calico::dialect::View;
use bulrush::calico::release::Release;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::SyncerName;
use bulrush::model::{Key, SyncStatus};
use bulrush::snapcache::{Breadcrumb, Map};
use bytes::Bytes;

/// Old releases that some agents are of: one with tiers in the keys of policies, one without.
pub(super) const OLD_LINES: [Release; 2] = [Release::V3_28, Release::V3_31];

/// State of an agent.
pub(super) type State = BTreeMap<Key, Bytes>;

/// Name of a host of the simulation, or of another part that writes into the log.
pub(super) type Name = &'static str;

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
    /// Number of the server's life.
    pub(super) generation: u64,
    /// Time at which it was seen.
    pub(super) at: Duration,
    pub(super) crumb: Arc<Breadcrumb>,
    /// The crumb's map as agents of these releases get it.
    views: BTreeMap<Release, Map>,
}

impl Note {
    pub(super) fn new(generation: u64, at: Duration, syncer: SyncerName, crumb: Arc<Breadcrumb>) -> Self {
        let views = OLD_LINES.map(|line| (line, View::content(syncer, line, &crumb))).into();
        Self { generation, at, crumb, views }
    }

    /// The map as an agent gets it.
    pub(super) fn map(&self, agent: &Agent) -> &Map {
        self.views.get(&agent.line).unwrap_or(&self.crumb.map)
    }
}

/// An agent, as it sees the world.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) syncer: SyncerName,
    pub(super) prefixes: Vec<String>,
    /// Release that the agent claims to be of.
    pub(super) line: Release,
    pub(super) state: State,
    pub(super) status: SyncStatus,
    /// Newest version of each key on this connection, deleted keys included.
    pub(super) seen: BTreeMap<Key, u64>,
    /// The server of its present connection.
    pub(super) server: Name,
    /// Time at which its present connection was asked for.
    pub(super) since: Duration,
}

/// An update for an agent: the key, and `None` if it is deleted, or else the version if it has one.
pub(super) type Given = (Key, Option<Option<u64>>);

/// An event in the log.
#[derive(Debug)]
pub(super) enum What {
    Words(Cow<'static, str>),
    /// The datastore changes.
    Changes(Key, Change),
    /// A server publishes a crumb.
    Publishes {
        syncer: SyncerName,
        sequence: u64,
        keys: usize,
        changes: usize,
        status: SyncStatus,
    },
    /// An agent is given updates.
    IsGiven(Vec<Given>),
    /// An agent is told a status.
    IsTold(SyncStatus),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(words),
            Self::Changes(key, Change { version, present: true }) => write!(f, "{key} v{version}"),
            Self::Changes(key, Change { version, present: false }) => write!(f, "-{key} v{version}"),
            Self::Publishes { syncer, sequence, keys, changes, status } => {
                write!(f, "{syncer} crumb {sequence}: {keys} keys, {changes} changes, {status}")
            }
            Self::IsGiven(given) => {
                f.write_str("is given")?;
                given.iter().try_for_each(|(key, value)| match value {
                    None => write!(f, " -{key}"),
                    Some(None) => write!(f, " {key}"),
                    Some(Some(version)) => write!(f, " {key}=v{version}"),
                })
            }
            Self::IsTold(status) => write!(f, "is told {status}"),
        }
    }
}

/// Numbers of events at agents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: u64,
    pub(super) in_syncs: u64,
    pub(super) deletions: u64,
    /// Deletions by a server whose cache was behind the agent's state from another server.
    pub(super) step_backs: u64,
    /// Connections to another server than the last one.
    pub(super) moves: u64,
    /// Goodbyes of servers that the library received.
    pub(super) goodbyes: u64,
    /// Agents that left by themselves.
    pub(super) leaves: u64,
    /// Agents that did not read and were cut.
    pub(super) deaf_cut: u64,
    /// Values sent to agents that fill more than one piece of a snapshot.
    pub(super) large: u64,
}

/// The record of a run.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Simulated time, for events outside of all hosts.
    pub(super) now: Duration,
    pub(super) truth: BTreeMap<Key, Vec<Change>>,
    /// Crumbs of each server and syncer, oldest first.
    pub(super) crumbs: BTreeMap<(Name, SyncerName), Vec<Note>>,
    pub(super) agents: BTreeMap<Name, Agent>,
    /// Lives of servers so far.
    pub(super) generations: u64,
    /// The present life of each server.
    pub(super) alive: BTreeMap<Name, u64>,
    pub(super) counts: Counts,
    /// Metrics of all caches of the run.
    pub(super) metrics: Vec<SyncerMetrics>,
    pub(super) violation: Option<String>,
    log: Vec<(Duration, Name, What)>,
}

impl Book {
    fn time(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or(self.now)
    }

    pub(super) fn log(&mut self, who: Name, what: What) {
        self.log.push((self.time(), who, what));
    }

    /// Number of lines in the log.
    pub(super) fn events(&self) -> u64 {
        self.log.len() as u64
    }

    /// Keeps the first broken invariant, which ends the run.
    pub(super) fn judge(&mut self, who: Name, verdict: Result<(), String>) {
        if let Err(words) = verdict {
            let now = self.time();
            self.violation.get_or_insert_with(|| format!("at {:.3} s, {who}: {words}", now.as_secs_f64()));
            self.log(who, What::Words(format!("VIOLATION: {words}").into()));
        }
    }

    /// A server begins a life. Returns the life's number.
    pub(super) fn begin(&mut self, server: Name) -> u64 {
        self.generations += 1;
        self.alive.insert(server, self.generations);
        self.log(server, What::Words(format!("life {} begins", self.generations).into()));
        self.generations
    }

    /// A server has published a crumb.
    pub(super) fn publish(&mut self, server: Name, syncer: SyncerName, generation: u64, crumb: Arc<Breadcrumb>) {
        let (sequence, status) = (crumb.sequence, crumb.status);
        let (keys, changes) = (crumb.map.len(), crumb.deltas.len());
        self.log(server, What::Publishes { syncer, sequence, keys, changes, status });
        let note = Note::new(generation, self.time(), syncer, crumb);
        self.crumbs.entry((server, syncer)).or_default().push(note);
    }

    /// All crumbs of a server's cache, oldest first, life after life.
    pub(super) fn notes(&self, server: Name, syncer: SyncerName) -> &[Note] {
        self.crumbs.get(&(server, syncer)).map_or(&[], Vec::as_slice)
    }

    /// The crumbs of the server's present life, oldest first.
    pub(super) fn present(&self, server: Name, syncer: SyncerName) -> &[Note] {
        let notes = self.notes(server, syncer);
        let alive = self.alive.get(server).copied().unwrap_or(u64::MAX);
        &notes[notes.partition_point(|note| note.generation < alive)..]
    }
}

/// The book, shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self, who: Name, words: impl Into<Cow<'static, str>>) {
        self.book().log(who, What::Words(words.into()));
    }

    /// The log as it goes into a file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (at, who, what) in &self.book().log {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:9.3} {who}: {what}", at.as_secs_f64());
        }
        text
    }
}
