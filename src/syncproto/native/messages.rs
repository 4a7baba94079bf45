//! The messages of our protocol, as values. [`super::payload`] makes them bytes.

use crate::model::{AsOf, Key, SyncStatus, Update};
use std::time::SystemTime;

/// Where a client stands: a crumb of one cache. Another epoch (restart, other server) makes the sequence meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Names one life of one cache.
    pub epoch: u64,
    /// Sequence number of the last crumb that was applied.
    pub seq: u64,
}

/// Introduces a client. Later versions may append fields, so what follows the known ones is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// Lowest protocol version that the client speaks.
    pub min_version: u16,
    /// Highest protocol version that the client speaks.
    pub max_version: u16,
    /// Name of the agent, for logs and status.
    pub agent: String,
    /// Build version of the agent, for logs.
    pub agent_version: String,
    /// Which syncer is wanted, by Calico's name. Empty means `felix`.
    pub syncer: String,
    /// Names of compressions that the client takes, best first; unknown ones are to be ignored. Empty: none.
    pub compressions: Vec<String>,
    /// Only keys that start with one of these are wanted. Empty: all keys.
    pub prefixes: Vec<String>,
    /// Where the client would like to continue. The server may always answer with a snapshot.
    pub resume: Option<Position>,
    /// For log correlation only.
    pub conn_id: u64,
}

/// What a server lets a client do, and what it expects of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame that the server accepts.
    pub max_frame_bytes: u32,
    /// How often the server pings, in milliseconds.
    pub ping_interval_ms: u64,
    /// How long the server waits for a pong, in milliseconds.
    pub pong_timeout_ms: u64,
}

/// Answers a [`ClientHello`]. Later versions may append fields, so what follows the known ones is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The version that both speak from here on.
    pub version: u16,
    /// Name of the server, for logs.
    pub server: String,
    /// Build version of the server, for logs.
    pub server_version: String,
    /// The syncer that this connection carries.
    pub syncer: String,
    /// The compression that frames of this connection may use; `none` if there is none in common.
    pub compression: String,
    /// Names the life of the cache that all sequence numbers of this connection belong to.
    pub epoch: u64,
    /// For log correlation only.
    pub conn_id: u64,
    /// True: deltas after the resume position follow. False: a snapshot follows.
    pub resumed: bool,
    /// Limits and time-outs.
    pub limits: Limits,
}

/// A key that the agent could not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key.
    pub key: Key,
    /// Why, in words.
    pub reason: String,
}

/// Says how far the agent has applied what it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sequence number of the last crumb that was applied as a whole.
    pub applied: u64,
    /// Keys that could not be applied since the last acknowledgement. At most [`super::MAX_ACK_ERRORS`].
    pub errors: Vec<KeyError>,
}

/// The last frame of a connection, either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goodbye {
    /// Why, in words.
    pub reason: String,
    /// Addresses (`host:port`) to go to instead; from servers only. May be empty.
    pub alternatives: Vec<String>,
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// First, and only once.
    Hello(ClientHello),
    /// How far the agent is.
    Ack(Ack),
    /// Answers a ping, with the ping's time.
    Pong {
        /// Copied from the ping.
        ping_at: SystemTime,
    },
    /// The client is about to close.
    Goodbye(Goodbye),
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// First, and only once; unless the server refuses with a goodbye.
    Hello(ServerHello),
    /// A snapshot follows: everything that is not in it is gone.
    SnapshotBegin {
        /// Crumb of the snapshot.
        seq: u64,
        /// Number of keys in the whole cache (before the prefix filter).
        entries: u64,
    },
    /// A part of the snapshot, in key order, every update new.
    SnapshotChunk {
        /// The entries.
        updates: Vec<Update>,
    },
    /// The snapshot is complete.
    SnapshotEnd {
        /// Crumb of the snapshot.
        seq: u64,
        /// The moment that the snapshot is known to be current for.
        as_of: Option<AsOf>,
    },
    /// Changes after crumb `after`. The position moves to `upto`; where a range takes several frames, all but the last
    /// have `upto` = `after`.
    Updates {
        /// Crumb before the changes.
        after: u64,
        /// Last crumb of the changes.
        upto: u64,
        /// The changes, in order.
        updates: Vec<Update>,
    },
    /// The status from crumb `seq` on.
    Status {
        /// The crumb.
        seq: u64,
        /// The status.
        status: SyncStatus,
        /// The moment that the status is known to be true for.
        as_of: Option<AsOf>,
    },
    /// Asks for a pong.
    Ping {
        /// The server's clock.
        at: SystemTime,
        /// The freshest moment that the datastore vouched for.
        as_of: Option<AsOf>,
    },
    /// The server is about to close.
    Goodbye(Goodbye),
}
