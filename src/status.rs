//! The state of a running Bulrush as one JSON document. `/status` serves it, and `bulrush status` prints it.
//!
//! The composition root makes it ([`StatusSource`]) from the structures that metrics read too. Tools read the fields by their
//! names, so fields are only added, never changed. Every field has a default, so that a newer program can read an older
//! server's document.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Number of clients that a snapshot lists by default. A server may have tens of thousands, and the document with all of them
/// has megabytes.
pub const DEFAULT_CLIENTS: usize = 10;

/// The clients that a snapshot lists. As text, in queries and options: a number, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The clients that are furthest behind, at most this number.
    Slowest(usize),
    /// Every one.
    All,
}

impl Listed {
    /// Number of clients that are listed if `present` are connected.
    #[must_use]
    pub fn of(self, present: usize) -> usize {
        match self {
            Self::Slowest(most) => most.min(present),
            Self::All => present,
        }
    }
}

impl Default for Listed {
    fn default() -> Self {
        Self::Slowest(DEFAULT_CLIENTS)
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slowest(most) => most.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Listed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        text.parse().map(Self::Slowest).map_err(|_| format!("clients must be a whole number or all, and not {text:?}"))
    }
}

/// Makes a snapshot of the present state, with these clients. Called on the HTTP thread: must not wait for anything but short locks.
pub type StatusSource = Arc<dyn Fn(Listed) -> Snapshot + Send + Sync>;

/// The state of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_secs: f64,
    /// `running` or `draining`.
    pub phase: String,
    /// The address for agents.
    pub listening: String,
    /// The datastore; of several, all as one.
    pub datastore: Datastore,
    /// Each datastore by itself, in the order of the configuration.
    pub datastores: Vec<Datastore>,
    /// The syncers, in Typha's order.
    pub syncers: Vec<Syncer>,
    /// Number of connected clients by state.
    pub client_states: BTreeMap<String, u64>,
    /// The clients that are furthest behind, slowest first: the number that was asked for.
    pub clients: Vec<Client>,
}

/// A datastore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Datastore {
    /// Its name in the configuration; empty for several as one.
    pub name: String,
    /// `etcdv3`, `file`, …
    #[serde(rename = "type")]
    pub datastore_type: String,
    /// Its endpoints or its path.
    pub location: String,
    /// `connected`, `away`, … in a word.
    pub state: String,
    /// The last error, while it matters; empty otherwise.
    pub last_error: String,
    /// Files that could not be read, for a folder.
    pub file_errors: Vec<FileError>,
    /// Kinds that may not be listed and are not needed, with the reason.
    pub spared: Vec<String>,
    /// The reason why the content of a folder is held back; empty if it is not.
    pub held: String,
}

/// A file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileError {
    /// Its path.
    pub file: String,
    /// The line, from 1, if it is known.
    pub line: Option<u64>,
    /// The error.
    pub reason: String,
}

/// A syncer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Syncer {
    /// Calico's name for it.
    pub name: String,
    /// `wait-for-datastore`, `resync` or `in-sync`.
    pub status: String,
    /// Keys in its cache.
    pub keys: u64,
    /// Sequence number of its newest crumb.
    pub sequence: u64,
    /// Seconds since the datastore last vouched that nothing is missing; `None` before it ever did.
    pub as_of_age_secs: Option<f64>,
    /// Values that validation blanked since the start.
    pub invalid: u64,
    /// Objects that could not be converted since the start.
    pub unconvertible: u64,
    /// Objects and values that are bad now; the first [`MAX_PROBLEMS`] of them.
    pub problems: Vec<Problem>,
    /// Number of bad objects and values, as far as they are remembered.
    pub problem_count: u64,
    /// For syncers of any kind: sequence number of the last crumb that changed each kind.
    pub kinds: BTreeMap<String, u64>,
    /// For syncers of any kind: their datastores, the one that counts most first.
    pub sources: Vec<Source>,
    /// Keys that several of these have; the first [`MAX_PROBLEMS`] of them.
    pub conflicts: Vec<Conflict>,
    /// Their number.
    pub conflict_count: u64,
}

/// A datastore that a syncer of any kind reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// Its name in the configuration.
    pub datastore: String,
    /// Number of kinds that are watched.
    pub kinds: u64,
    /// Kinds that are asked for and are not there, each with the reason.
    pub unknown: Vec<String>,
    /// Why the kinds could not be looked up the last time; empty: they were.
    pub error: String,
    /// The syncer is in sync without it, for it is away and not required.
    pub missed: bool,
}

/// A key that several datastores have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conflict {
    /// The object.
    pub object: String,
    /// The origin of the value that agents see: datastore and place.
    pub shown: String,
    /// The origins of the others.
    pub hidden: Vec<String>,
}

/// Most problems of one syncer that a snapshot holds: enough to see the pattern.
pub const MAX_PROBLEMS: usize = 100;

/// An object that cannot be converted, or a value that is not valid: agents see it as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The finder: the source that reads the object, or `validation`.
    pub found_by: String,
    /// Kind and name of the object, or the key.
    pub name: String,
    /// Field, value, and the values that are accepted.
    pub reason: String,
}

/// A connected client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Number of the connection, as in the log.
    pub id: u64,
    /// Its address.
    pub peer: String,
    /// Its own name for itself.
    pub agent: String,
    /// The syncer that it follows.
    pub syncer: String,
    /// The wire format, for example `gob-snappy`.
    pub format: String,
    /// The release of Calico in whose dialect it is served, for example `v3.31`; `master` for the newest, and for clients of Bulrush's own
    /// protocol.
    pub dialect: String,
    /// The version of its build, from its hello.
    pub version: String,
    /// `handshake`, `awaiting-ack`, `snapshot`, `following`, `catch-up` or `closing`.
    pub state: String,
    /// The crumb that it has reached.
    pub sequence: u64,
    /// Age difference between the first change that it lacks and the newest change, in seconds.
    pub lag_secs: f64,
    /// Updates that it lacks.
    pub lag_updates: u64,
    /// The last crumb that it has reported as applied; `None` if it has not reported any, or its protocol cannot.
    pub applied: Option<u64>,
    /// Keys that it said it could not apply. The log has the first of each of its messages, with the reason.
    pub failed_keys: u64,
    /// Bytes written to it.
    pub bytes_sent: u64,
    /// Seconds since it connected.
    pub connected_secs: f64,
}
