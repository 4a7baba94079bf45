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

pub use codec::{
    ClientCodec, Compression, ServerCodec, decode_client, decode_server, encode_client, encode_goodbye,
    encode_server_hello,
};
pub use format::{Native, NativePlain, NativeSnappy, NativeZstd};
pub use messages::{Ack, ClientFrame, ClientHello, Goodbye, KeyError, Limits, Position, ServerFrame, ServerHello};

/// What a client of this protocol sends first.
///
/// 0x89 starts no gob stream: gob's first byte is a length of at most 0x7f, or 0xf8 to 0xff. Nor does it start a TLS
/// record (0x14 to 0x18) or text.
pub const MAGIC: [u8; 8] = *b"\x89bulrsh\n";

/// The only version there is. A peer offers a range; the highest common version is used.
pub const VERSION: u16 = 1;

/// The largest frame that a server accepts from a client, and so the most that is ever buffered for one: a hello with the most
/// key prefixes, of 500 bytes each, or an acknowledgement with the most errors, of 1,000 bytes each. A client that has more
/// errors to tell, or longer ones, tells them in several acknowledgements.
pub const MAX_CLIENT_FRAME_BYTES: usize = 64 << 10;

/// The largest frame that a client accepts from a server, on the wire and decompressed. Servers cut at
/// [`TARGET_FRAME_BYTES`], so only a single value beyond that gets near: etcd takes 1.5 MiB unless told otherwise.
pub const MAX_SERVER_FRAME_BYTES: usize = 64 << 20;

/// A server starts another frame once one has this many bytes before compression. Large enough to compress well, small
/// enough that a client shows progress on a slow line: each frame restarts its read time-out.
pub const TARGET_FRAME_BYTES: usize = 512 << 10;

/// A server starts another frame after this many updates, so that a client's callback sees batches of a bounded size.
pub const MAX_UPDATES_PER_FRAME: usize = 1000;

/// Most updates that a client accepts in a frame: room for servers that cut later than ours, and a bound on what a small
/// frame can unfold to.
pub const MAX_UPDATES_ACCEPTED: usize = 10 * MAX_UPDATES_PER_FRAME;

/// Longest name, version, key prefix and reason. Longer than any of them ever is; they end up in logs.
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

/// What the first bytes of a connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// So far they are a part of [`MAGIC`].
    NeedMore,
    /// [`MAGIC`]: native frames follow it.
    Native,
    /// Something else, such as gob.
    Other,
}

/// Tells our protocol from others by what has been received so far. Looks at no more than the length of [`MAGIC`].
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

/// Picks the version to speak with a peer that understands `min..=max`. `None`: there is none in common.
#[must_use]
pub fn negotiate(min: u16, max: u16) -> Option<u16> {
    (min..=max).contains(&VERSION).then_some(VERSION)
}

/// Why a peer's bytes are refused. Every one of these ends the connection: a stream cannot be picked up after it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A frame announces more than the limit; nothing of it was buffered.
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
    /// Compression bits that mean nothing, or that are not allowed in this direction.
    #[error("read frame of type {frame_type}: compression {number} is not allowed here")]
    UnknownCompression {
        /// The frame's type.
        frame_type: u8,
        /// The number in its compression bits.
        number: u8,
    },
    /// The payload does not decompress, or not within the limit.
    #[error("decompress {algorithm} frame of {bytes} bytes: {reason}")]
    Decompress {
        /// The algorithm.
        algorithm: &'static str,
        /// Size of the compressed payload.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// The payload does not decode.
    #[error("decode {what}: {reason}")]
    Payload {
        /// Which message and part.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// More elements than allowed, or than the bytes that are left could hold.
    #[error("decode {what}: it announces {announced} elements, at most {limit} are possible here")]
    Count {
        /// Which list.
        what: &'static str,
        /// The count that was announced.
        announced: u64,
        /// The most that is allowed or fits.
        limit: usize,
    },
    /// A text beyond its limit.
    #[error("decode {what}: it has {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes are left after a message that ends.
    #[error("decode {what}: {bytes} bytes follow its end")]
    TrailingBytes {
        /// Which message.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// Reading the stream failed; only the tokio codecs, which must carry it, make this.
    #[error("read frame: {0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
