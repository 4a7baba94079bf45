//! Limits on the memory and work that a peer can cause in a [`Decoder`](super::Decoder).
//!
//! Every limit has a value for servers, whose peers send a hello and pongs, and one for clients, whose peer sends all data of
//! a cluster.

/// Most bytes of a client's hello, with its definitions and in all its frames. Calico's clients send 404 bytes with short host
/// names. Typha accepts 1 MiB, but then strangers could make us hold that for each of their connections.
pub const MAX_HELLO_BYTES: usize = 64 << 10;

/// Most bytes of a message that a client sends after its hello. An acknowledgement has 80 bytes with its definition, a pong fewer than 200.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 4 << 10;

/// Bounds on one decoder. Exceeding one is an error of class `limit`, before the memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message, with the definitions before it. A frame that announces more is refused when its length is read.
    pub max_message_bytes: usize,
    /// Type definitions over the decoder's life.
    pub max_types: usize,
    /// Fields of all struct definitions together.
    pub max_fields: usize,
    /// Bytes of the name of an interface value's type.
    pub max_name: usize,
    /// Elements of one slice: updates of a message, algorithms of a hello, parts of a revision.
    pub max_elements: usize,
    /// Nesting depth of a value of an unknown field, which is skipped.
    pub max_depth: usize,
}

impl Limits {
    /// For the hello of a client. Its later messages are [shorter](MAX_CLIENT_MESSAGE_BYTES).
    #[must_use]
    pub const fn server() -> Self {
        Self {
            max_message_bytes: MAX_HELLO_BYTES,
            // A client needs six, with some twenty fields. This leaves room for later versions, and the definitions, which are
            // kept as long as the connection, take at most 3 KiB.
            max_types: 32,
            max_fields: 256,
            // Go's bound.
            max_name: 1024,
            // Names of the few compression algorithms. An element may have one byte on the wire and 200 in memory.
            max_elements: 256,
            // Go allows 10,000 on stacks that grow. Real values nest fewer than ten deep.
            max_depth: 64,
        }
    }

    /// For the messages of a server.
    #[must_use]
    pub const fn client() -> Self {
        Self {
            // Typha puts up to 1,000 updates in a message, and a value may have etcd's 1.5 MiB. Real messages are far below
            // 1 MiB; this is for clusters with huge network sets.
            max_message_bytes: 256 << 20,
            // A server needs nine, with some thirty fields.
            max_types: 128,
            max_fields: 1024,
            // 200 bytes each in memory. Typha sends 1,000 in a snapshot, 199 in a delta.
            max_elements: 1 << 20,
            ..Self::server()
        }
    }
}
