//! Frames: a length, a type with the payload's compression, the payload. No frame depends on another one.
//!
//! ```text
//!  0        4      5
//!  | length | type | payload …             length: u32, big-endian, counts type and payload
//!                                          type: bits 0–5 the frame's type, bits 6–7 the payload's compression
//! ```
//!
//! The framing is that of tokio-util's `LengthDelimitedCodec` (a test compares them). But that codec reserves the memory that
//! a header announces; here bytes are buffered only as they arrive.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::messages::{ClientFrame, Goodbye, ServerFrame, ServerHello};
use super::payload::{self, Reader};
use super::{Error, MAX_CLIENT_FRAME_BYTES, MAX_SERVER_FRAME_BYTES};

/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;
/// Bytes before the payload.
const HEADER_BYTES: usize = LENGTH_BYTES + 1;
const TYPE_MASK: u8 = 0x3f;
const COMPRESSION_SHIFT: u8 = 6;

/// Clients' types are below 16, servers' types are 16 and above, so that a frame in the wrong direction is noticed.
const CLIENT_HELLO: u8 = 1;
const CLIENT_ACK: u8 = 2;
const CLIENT_PONG: u8 = 3;
const CLIENT_GOODBYE: u8 = 4;
const SERVER_HELLO: u8 = 16;
pub(super) const SNAPSHOT_BEGIN: u8 = 17;
pub(super) const SNAPSHOT_CHUNK: u8 = 18;
pub(super) const SNAPSHOT_END: u8 = 19;
pub(super) const UPDATES: u8 = 20;
pub(super) const STATUS: u8 = 21;
pub(super) const PING: u8 = 22;
const SERVER_GOODBYE: u8 = 23;

/// Compression of server frames' payloads. A frame that would not get smaller is sent uncompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// A raw snappy block.
    Snappy,
    /// One zstd frame that states its content size.
    Zstd,
}

impl Compression {
    /// All compressions, the one with the smallest result first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Snappy, Self::None];

    /// Its name in hellos.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// The compression with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.as_str() == name)
    }

    /// The compression that a server chooses: the first of the client's offers that it knows, else none.
    #[must_use]
    pub fn choose(offers: &[String]) -> Self {
        offers.iter().find_map(|name| Self::from_name(name)).unwrap_or_default()
    }

    pub(super) fn bits(self) -> u8 {
        let number: u8 = match self {
            Self::None => 0,
            Self::Snappy => 1,
            Self::Zstd => 2,
        };
        number << COMPRESSION_SHIFT
    }

    fn from_bits(byte: u8) -> Option<Self> {
        Some(match byte >> COMPRESSION_SHIFT {
            0 => Self::None,
            1 => Self::Snappy,
            2 => Self::Zstd,
            _ => return None,
        })
    }
}

/// A frame with the payload that `put` appends.
pub(super) fn frame(frame_type: u8, capacity: usize, put: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut frame = FrameBuilder::new(frame_type, capacity);
    put(frame.payload());
    frame.finish().into()
}

/// A frame under construction; the length is filled in at the end.
pub(super) struct FrameBuilder {
    bytes: Vec<u8>,
}

impl FrameBuilder {
    pub(super) fn new(frame_type: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + capacity);
        bytes.put_bytes(0, LENGTH_BYTES);
        bytes.push(frame_type);
        Self { bytes }
    }

    /// The buffer to append the payload to.
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The payload so far.
    pub(super) fn payload_bytes(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The frame's type.
    pub(super) fn frame_type(&self) -> u8 {
        self.bytes[LENGTH_BYTES] & TYPE_MASK
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len() - LENGTH_BYTES).expect("senders keep frames below 64 MiB");
        self.bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }
}

/// Takes one whole frame from the start of `input`, and returns it without its length. `None`: more input is needed, and nothing
/// was taken.
fn split_frame(input: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, Error> {
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let announced = u32::from_be_bytes(*length) as usize;
    if announced > limit {
        return Err(Error::FrameTooLarge { announced, limit });
    }
    if announced == 0 {
        return Err(Error::EmptyFrame);
    }
    if input.len() < LENGTH_BYTES + announced {
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    Ok(Some(input.split_to(announced)))
}

/// Decodes the next frame of a client. `None`: more input is needed. Takes exactly the frame's bytes from `input`.
///
/// # Errors
/// The client's bytes break the protocol; the stream cannot be read on.
pub fn decode_client(input: &mut BytesMut) -> Result<Option<ClientFrame>, Error> {
    let Some(frame) = split_frame(input, MAX_CLIENT_FRAME_BYTES)? else { return Ok(None) };
    let (head, payload) = (frame[0], &frame[1..]);
    let frame_type = head & TYPE_MASK;
    if head != frame_type {
        return Err(Error::UnknownCompression { frame_type, number: head >> COMPRESSION_SHIFT });
    }
    let frame = match frame_type {
        CLIENT_HELLO => return Reader::new(payload, "client hello").client_hello().map(ClientFrame::Hello).map(Some),
        CLIENT_ACK => whole(payload, "acknowledgement", |reader| reader.ack().map(ClientFrame::Ack)),
        CLIENT_PONG => whole(payload, "pong", |reader| Ok(ClientFrame::Pong { ping_at: reader.timed()? })),
        CLIENT_GOODBYE => whole(payload, "client goodbye", |reader| reader.goodbye().map(ClientFrame::Goodbye)),
        other => Err(Error::UnknownType(other)),
    };
    frame.map(Some)
}

/// Decodes the next frame of a server. `None`: more input is needed. Takes exactly the frame's bytes from `input`.
///
/// # Errors
/// The server's bytes break the protocol; the stream cannot be read on.
pub fn decode_server(input: &mut BytesMut) -> Result<Option<ServerFrame>, Error> {
    let Some(frame) = split_frame(input, MAX_SERVER_FRAME_BYTES)? else { return Ok(None) };
    let (head, packed) = (frame[0], &frame[1..]);
    let frame_type = head & TYPE_MASK;
    let compression = Compression::from_bits(head)
        .ok_or(Error::UnknownCompression { frame_type, number: head >> COMPRESSION_SHIFT })?;
    let unpacked;
    let payload = match compression {
        Compression::None => packed,
        Compression::Snappy => {
            unpacked = unpack_snappy(packed)?;
            &unpacked[..]
        }
        Compression::Zstd => {
            unpacked = unpack_zstd(packed)?;
            &unpacked[..]
        }
    };
    let frame = match frame_type {
        SERVER_HELLO => return Reader::new(payload, "server hello").server_hello().map(ServerFrame::Hello).map(Some),
        SNAPSHOT_BEGIN => whole(payload, "snapshot begin", |reader| {
            Ok(ServerFrame::SnapshotBegin { seq: reader.number()?, entries: reader.number()? })
        }),
        SNAPSHOT_CHUNK => {
            whole(payload, "snapshot chunk", |reader| Ok(ServerFrame::SnapshotChunk { updates: reader.updates()? }))
        }
        SNAPSHOT_END => whole(payload, "snapshot end", |reader| {
            Ok(ServerFrame::SnapshotEnd { seq: reader.number()?, as_of: reader.as_of()? })
        }),
        UPDATES => whole(payload, "updates", |reader| {
            Ok(ServerFrame::Updates { after: reader.number()?, upto: reader.number()?, updates: reader.updates()? })
        }),
        STATUS => whole(payload, "status", |reader| {
            Ok(ServerFrame::Status { seq: reader.number()?, status: reader.status()?, as_of: reader.as_of()? })
        }),
        PING => whole(payload, "ping", |reader| Ok(ServerFrame::Ping { at: reader.timed()?, as_of: reader.as_of()? })),
        SERVER_GOODBYE => whole(payload, "server goodbye", |reader| reader.goodbye().map(ServerFrame::Goodbye)),
        other => Err(Error::UnknownType(other)),
    };
    frame.map(Some)
}

/// Reads a payload that must end where its message ends.
fn whole<'a, T>(
    payload: &'a [u8],
    what: &'static str,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut reader = Reader::new(payload, what);
    let message = read(&mut reader)?;
    reader.end()?;
    Ok(message)
}

fn unpack_snappy(packed: &[u8]) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Decompress { algorithm: "snappy", bytes: packed.len(), reason };
    let size = snap::raw::decompress_len(packed).map_err(|error| failed(error.to_string()))?;
    if size > MAX_SERVER_FRAME_BYTES {
        return Err(failed(format!("it announces {size} bytes, the limit is {MAX_SERVER_FRAME_BYTES}")));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(|error| failed(error.to_string()))
}

fn unpack_zstd(packed: &[u8]) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Decompress { algorithm: "zstd", bytes: packed.len(), reason };
    let size = match zstd::zstd_safe::get_frame_content_size(packed) {
        Ok(Some(size)) => size,
        Ok(None) => return Err(failed("it does not state its content size".to_owned())),
        Err(_) => return Err(failed("it does not start with a zstd frame header".to_owned())),
    };
    let size = usize::try_from(size)
        .ok()
        .filter(|size| *size <= MAX_SERVER_FRAME_BYTES)
        .ok_or_else(|| failed(format!("it announces {size} bytes, the limit is {MAX_SERVER_FRAME_BYTES}")))?;
    zstd::bulk::decompress(packed, size).map_err(|error| failed(error.to_string()))
}

/// Appends a client's frame. Texts and lists beyond their limits are cut, because peers refuse longer ones.
pub fn encode_client(sent: &ClientFrame, out: &mut BytesMut) {
    out.extend_from_slice(&match sent {
        ClientFrame::Hello(hello) => frame(CLIENT_HELLO, 256, |out| payload::put_client_hello(out, hello)),
        ClientFrame::Ack(ack) => frame(CLIENT_ACK, 16, |out| payload::put_ack(out, ack)),
        ClientFrame::Pong { ping_at } => frame(CLIENT_PONG, 9, |out| payload::put_time(out, *ping_at)),
        ClientFrame::Goodbye(Goodbye { reason, alternatives }) => goodbye(CLIENT_GOODBYE, reason, alternatives),
    });
}

/// A server's hello as a frame.
#[must_use]
pub fn encode_server_hello(hello: &ServerHello) -> Bytes {
    frame(SERVER_HELLO, 256, |out| payload::put_server_hello(out, hello))
}

/// A server's goodbye as a frame. A server refuses a hello with it, too.
#[must_use]
pub fn encode_goodbye(reason: &str, alternatives: &[String]) -> Bytes {
    goodbye(SERVER_GOODBYE, reason, alternatives)
}

fn goodbye(frame_type: u8, reason: &str, alternatives: &[String]) -> Bytes {
    frame(frame_type, reason.len() + 8, |out| payload::put_goodbye(out, reason, alternatives))
}
