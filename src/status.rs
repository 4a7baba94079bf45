//! The state of a running Bulrush as one JSON document: what `/status` serves and `bulrush status` prints.
//!
//! The composition root implements [`StatusSource`] from the structures that metrics read too. Field names are an
//! interface: tools read them. Fields are only ever added, and every field has a default, so that a newer program can
//! read an older server's document.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many clients a snapshot lists when nobody asks for another number: those that one looks at first. A server may have
/// tens of thousands, and the document of all of them has megabytes.
pub const DEFAULT_CLIENTS: usize = 10;

/// Which clients a snapshot lists. As text, for queries and options: a number, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// At most so many, those that are furthest behind.
    Slowest(usize),
    /// Every one.
    All,
}

impl Listed {
    /// How many of `present` clients are listed.
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

/// Makes snapshots of the state.
pub trait StatusSource: Send + Sync + 'static {
    /// The state now, with these clients. Called on the HTTP thread: must not wait for anything but short locks.
    fn snapshot(&self, listed: Listed) -> Snapshot;
}

impl<F: Fn(Listed) -> Snapshot + Send + Sync + 'static> StatusSource for F {
    fn snapshot(&self, listed: Listed) -> Snapshot {
        self(listed)
    }
}

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
    /// Where agents connect to.
    pub listening: String,
    /// The datastore.
    pub datastore: Datastore,
    /// The syncers, in Typha's order.
    pub syncers: Vec<Syncer>,
    /// How many clients are connected, by their state.
    pub client_states: BTreeMap<String, u64>,
    /// The clients that are furthest behind, the slowest first: as many as were asked for.
    pub clients: Vec<Client>,
}

/// The datastore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Datastore {
    /// `etcdv3`, `file`, …
    #[serde(rename = "type")]
    pub datastore_type: String,
    /// Where it is: endpoints or a path.
    pub location: String,
    /// `connected`, `away`, … in a word.
    pub state: String,
    /// The last error, while it matters; empty otherwise.
    pub last_error: String,
    /// Files that could not be read, for a folder.
    pub file_errors: Vec<FileError>,
    /// Kinds that may not be listed and are not missed, with the reason.
    pub spared: Vec<String>,
    /// Why the content of a folder is held back, when it is; empty otherwise.
    pub held: String,
}

/// A file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileError {
    /// Its path.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<u64>,
    /// What is wrong.
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
    /// How many there are, as far as they are remembered.
    pub problem_count: u64,
}

/// Most problems of one syncer that a snapshot holds: enough to see the pattern.
pub const MAX_PROBLEMS: usize = 100;

/// An object that cannot be converted, or a value that is not valid: agents see it as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Who found it: the source that reads the object, or `validation`.
    pub found_by: String,
    /// Kind and name of the object, or the key.
    pub name: String,
    /// Field, value and what is accepted.
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
    /// What it calls itself.
    pub agent: String,
    /// The syncer that it follows.
    pub syncer: String,
    /// How it is served, for example `gob-snappy`.
    pub format: String,
    /// The release of Calico in whose dialect it is served, for example `v3.31`; `master` for the newest, and for clients of Bulrush's own
    /// protocol.
    pub dialect: String,
    /// The version of its build, as it says.
    pub version: String,
    /// `handshake`, `awaiting-ack`, `snapshot`, `following`, `catch-up` or `closing`.
    pub state: String,
    /// The crumb that it has reached.
    pub sequence: u64,
    /// How much older the first change that it lacks is than the newest change, in seconds.
    pub lag_secs: f64,
    /// Updates that it lacks.
    pub lag_updates: u64,
    /// The crumb up to which it says it has applied everything; `None` when its protocol cannot say so, or it has not.
    pub applied: Option<u64>,
    /// Keys that it said it could not apply. The log has the first of each of its messages, with the reason.
    pub failed_keys: u64,
    /// Bytes written to it.
    pub bytes_sent: u64,
    /// Seconds since it connected.
    pub connected_secs: f64,
}
