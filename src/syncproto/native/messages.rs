//! The messages of our protocol, as values. [`super::payload`] makes bytes of them.

use crate::model::{AsOf, Key, SyncStatus, Update};
use std::time::SystemTime;

/// The position of a client: a crumb of one cache. In another epoch (restart, other server) the sequence means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Identifies one run of one cache.
    pub epoch: u64,
    /// Sequence number of the last applied crumb.
    pub seq: u64,
}

/// Introduces a client. Later versions may append fields, so bytes after the known fields are ignored.
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
    /// The syncer that is wanted, by Calico's name. Empty means `felix`.
    pub syncer: String,
    /// Names of compressions that the client accepts, best first; unknown ones are to be ignored. Empty: none.
    pub compressions: Vec<String>,
    /// Only keys that start with one of these are wanted. Empty: all keys.
    pub prefixes: Vec<String>,
    /// The position from which the client wants to continue. The server may always answer with a snapshot.
    pub resume: Option<Position>,
    /// For log correlation only.
    pub conn_id: u64,
}

/// Limits and time-outs that a server sets for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame that the server accepts.
    pub max_frame_bytes: u32,
    /// Time between two pings of the server, in milliseconds.
    pub ping_interval_ms: u64,
    /// Time that the server waits for a pong, in milliseconds.
    pub pong_timeout_ms: u64,
}

/// Answers a [`ClientHello`]. Later versions may append fields, so bytes after the known fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The version that both speak from now on.
    pub version: u16,
    /// Name of the server, for logs.
    pub server: String,
    /// Build version of the server, for logs.
    pub server_version: String,
    /// The syncer that this connection carries.
    pub syncer: String,
    /// The compression that frames of this connection may use; `none` if the two have none in common.
    pub compression: String,
    /// Identifies the run of the cache to which all sequence numbers of this connection belong.
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
    /// The reason, in words.
    pub reason: String,
}

/// Tells how much of the received data the agent has applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sequence number of the last crumb that was applied completely.
    pub applied: u64,
    /// Keys that could not be applied since the last acknowledgement. At most [`super::MAX_ACK_ERRORS`].
    pub errors: Vec<KeyError>,
}

/// The last frame of a connection, either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goodbye {
    /// The reason, in words.
    pub reason: String,
    /// Addresses (`host:port`) that the client may go to instead; only from servers. May be empty.
    pub alternatives: Vec<String>,
}

/// A frame from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// First, and only once.
    Hello(ClientHello),
    /// The progress of the agent.
    Ack(Ack),
    /// Answers a ping, with the ping's time.
    Pong {
        /// Copied from the ping.
        ping_at: SystemTime,
    },
    /// The client is about to close.
    Goodbye(Goodbye),
}

/// A frame from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// First, and only once; unless the server refuses with a goodbye.
    Hello(ServerHello),
    /// A snapshot follows: keys that are not in it are gone.
    SnapshotBegin {
        /// Crumb of the snapshot.
        seq: u64,
        /// Number of keys in the whole cache (before the prefix filter).
        entries: u64,
    },
    /// A part of the snapshot, in key order. The type of every update is New.
    SnapshotChunk {
        /// The entries.
        updates: Vec<Update>,
    },
    /// The snapshot is complete.
    SnapshotEnd {
        /// Crumb of the snapshot.
        seq: u64,
        /// The time at which the snapshot was known to be current.
        as_of: Option<AsOf>,
    },
    /// Changes after crumb `after`. The position moves to `upto`. If a range takes several frames, all except the last
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
        /// The time at which the status was known to be true.
        as_of: Option<AsOf>,
    },
    /// Asks for a pong.
    Ping {
        /// The server's clock.
        at: SystemTime,
        /// The latest time for which the datastore vouched.
        as_of: Option<AsOf>,
    },
    /// The server is about to close.
    Goodbye(Goodbye),
}
