//! Our own protocol: length-delimited frames of bincode-format messages. No sockets, no clock.
//!
//! The feed encodes with the [`crate::syncproto::format::WireFormat`]s of [`mod@format`], the server's driver
//! reads clients with [`decode_client`], the client library reads servers with [`decode_server`]. The bytes are described
//! in `docs/protocol.md`; [`codec`] makes frames, [`payload`] makes their content, [`messages`] are the values.
//!
//! Invariants:
//! - a frame never depends on an earlier one, so encode-once holds and a reader may join at any frame boundary;
//! - whatever a peer sends, no more is held than the limits below, and a count is checked against the bytes that are
//!   there before anything is allocated for it.

pub mod codec;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod format;
pub mod messages;
mod payload;

pub use codec::{Compression, decode_client, decode_server, encode_client, encode_goodbye, encode_server_hello};
pub use format::{Native, NativePlain, NativeSnappy, NativeZstd};
pub use messages::{Ack, ClientFrame, ClientHello, Goodbye, KeyError, Limits, Position, ServerFrame, ServerHello};

/// The first bytes from a client of this protocol.
///
/// 0x89 starts no gob stream: gob's first byte is a length of at most 0x7f, or 0xf8 to 0xff. Nor does it start a TLS
/// record (0x14 to 0x18) or text.
pub const MAGIC: [u8; 8] = *b"\x89bulrsh\n";

/// The only version so far. A peer offers a range; the highest common version is used.
pub const VERSION: u16 = 1;

/// The largest frame that a server accepts from a client, and so the most bytes that it buffers for one: enough for a hello with
/// the most key prefixes, of 500 bytes each, or for an acknowledgement with the most errors, of 1,000 bytes each. A client with
/// more or longer errors sends several acknowledgements.
pub const MAX_CLIENT_FRAME_BYTES: usize = 64 << 10;

/// The largest frame that a client accepts from a server, on the wire and decompressed. Servers cut at
/// [`TARGET_FRAME_BYTES`], so only a single large value can make a larger frame; by default etcd accepts 1.5 MiB.
pub const MAX_SERVER_FRAME_BYTES: usize = 64 << 20;

/// Once a frame has this number of bytes before compression, a server starts another one. Large enough to compress well, small
/// enough for slow lines: each frame restarts the client's read time-out.
pub const TARGET_FRAME_BYTES: usize = 512 << 10;

/// After this number of updates a server starts another frame, so that a client's callback gets batches of a bounded size.
pub const MAX_UPDATES_PER_FRAME: usize = 1000;

/// Most updates that a client accepts in a frame. More than our servers send, to allow for others; and a limit on the memory
/// that a small compressed frame can take.
pub const MAX_UPDATES_ACCEPTED: usize = 10 * MAX_UPDATES_PER_FRAME;

/// Longest name, version, key prefix and reason. Real ones are shorter; they end up in logs.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Most compressions that a hello may offer. There are three.
pub const MAX_COMPRESSIONS: usize = 16;

/// Most key prefixes that a hello may ask for: each update is compared with each of them.
pub const MAX_PREFIXES: usize = 128;

/// Most per-key errors in one acknowledgement; a client sends several acknowledgements if it has more.
pub const MAX_ACK_ERRORS: usize = 64;

/// Longest key in a per-key error. Kubernetes names are far shorter.
pub const MAX_KEY_BYTES: usize = 2048;

/// Most alternatives in a goodbye.
pub const MAX_ALTERNATIVES: usize = 64;

/// The beginning of the reason in a goodbye to a client whose syncer the server does not run. The name follows, and those
/// of the syncers that it does run. Clients may give up at once: other addresses of the same service run the same ones.
pub const NO_SUCH_SYNCER: &str = "no such syncer";

/// The protocol that the first bytes of a connection show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Unknown yet: the bytes so far are the start of [`MAGIC`].
    NeedMore,
    /// Ours: [`MAGIC`] has come, and native frames follow.
    Native,
    /// Another protocol, such as gob.
    Other,
}

/// Tells our protocol from others by the bytes received so far. Reads at most the length of [`MAGIC`].
#[must_use]
pub fn detect(received: &[u8]) -> Detection {
    let seen = received.len().min(MAGIC.len());
    if received[..seen] != MAGIC[..seen] {
        Detection::Other
    } else if seen == MAGIC.len() {
        Detection::Native
    } else {
        Detection::NeedMore
    }
}

/// The version to speak with a peer that understands `min..=max`. `None`: there is no common version.
#[must_use]
pub fn negotiate(min: u16, max: u16) -> Option<u16> {
    (min..=max).contains(&VERSION).then_some(VERSION)
}

/// The reason why a peer's bytes are refused. Each of them ends the connection, because the stream cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A frame announces more bytes than the limit. None of them was buffered.
    #[error("read frame: it announces {announced} bytes, the limit is {limit}; not our protocol, or a broken peer")]
    FrameTooLarge {
        /// Bytes that the frame's header announces.
        announced: usize,
        /// The limit for this direction.
        limit: usize,
    },
    /// A frame of zero length has no type.
    #[error("read frame: it is empty and so has no type")]
    EmptyFrame,
    /// A frame type that does not exist in this direction and version.
    #[error("read frame: type {0} is not known in this direction; the peer may speak a newer version")]
    UnknownType(u8),
    /// Compression bits that are unknown, or not allowed in this direction.
    #[error("read frame of type {frame_type}: compression {number} is not allowed here")]
    UnknownCompression {
        /// The frame's type.
        frame_type: u8,
        /// The number in its compression bits.
        number: u8,
    },
    /// The payload does not decompress, or exceeds the limit.
    #[error("decompress {algorithm} frame of {bytes} bytes: {reason}")]
    Decompress {
        /// The algorithm.
        algorithm: &'static str,
        /// Size of the compressed payload.
        bytes: usize,
        /// The reason.
        reason: String,
    },
    /// The payload does not decode.
    #[error("decode {what}: {reason}")]
    Payload {
        /// The message.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// More elements than allowed, or more than fit in the bytes that are left.
    #[error("decode {what}: it announces {announced} elements, at most {limit} are possible here")]
    Count {
        /// The message with the list.
        what: &'static str,
        /// The count that was announced.
        announced: u64,
        /// The most that is allowed or fits.
        limit: usize,
    },
    /// A text beyond its limit.
    #[error("decode {what}: it has {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// The message with the text.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes follow the end of a message.
    #[error("decode {what}: {bytes} bytes follow its end")]
    TrailingBytes {
        /// The message.
        what: &'static str,
        /// Number of bytes.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests;
