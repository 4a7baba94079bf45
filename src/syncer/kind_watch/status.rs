//! The state of a kind's watch, for people and programs.

use tokio::time::Instant;

use crate::model::Revision;

/// State of the watch of a kind, for the status endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// The kind, as text, and which of its objects if not all.
    pub kind: String,
    /// Its phase.
    pub phase: Phase,
    /// When the phase began.
    pub since: Instant,
    /// The last revision seen; empty before the first list.
    pub revision: Revision,
    /// Its last failure, while it has not gone well again.
    pub error: Option<String>,
}

/// See [`KindStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the whole list, or waiting for the datastore to answer.
    Listing,
    /// In step with the datastore.
    Watching,
    /// Pausing after a failure.
    Retrying,
    /// The datastore does not know the kind; looking again now and then.
    Absent,
    /// The datastore has not answered for long; trying on.
    Lost,
}
