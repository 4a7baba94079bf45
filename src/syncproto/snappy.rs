//! Snappy's framing format, as Go's reader and writer treat it.
//!
//! [`frame`] makes whole chunks from a message; they may be sent on any number of streams. [`Decoder`] takes a stream in any
//! pieces and gives the content of its chunks one at a time. [`super::gob`] encodes and decodes that content. A chunk has at
//! most 64 KiB unpacked, so a peer cannot make us hold more than one packed and one unpacked chunk besides the pushed bytes.

use std::cell::RefCell;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The chunk that every stream begins with.
pub const STREAM_IDENTIFIER: &[u8; 10] = b"\xff\x06\x00\x00sNaPpY";

/// Most bytes of a chunk's content before compression.
const MAX_BLOCK: usize = 1 << 16;
/// Type and length of a chunk.
const HEADER: usize = 4;
const CHECKSUM: usize = 4;
/// Longest chunk that Go's reader accepts: the worst case of a compressed block, and the checksum.
const MAX_CHUNK: usize = 76_490 + CHECKSUM;

const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const IDENTIFIER: u8 = 0xff;
const FIRST_SKIPPABLE: u8 = 0x80;

thread_local! {
    /// Kept, because a new encoder clears a table of 32 KiB, which for a small message is most of the work.
    /// Boxed, because thread-local values lie on the stack of every thread, even of one that never encodes.
    static ENCODER: RefCell<Box<snap::raw::Encoder>> = RefCell::new(Box::new(snap::raw::Encoder::new()));
}

/// A stream that is not framed snappy. Final.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream does not begin with the identifier.
    #[error(
        "reading snappy: the stream begins with a chunk of type {found:#04x} instead of its identifier: is it compressed at all?"
    )]
    NoIdentifier {
        /// The first byte.
        found: u8,
    },
    /// An identifier of another format.
    #[error("reading snappy: a stream identifier that is not snappy's")]
    WrongIdentifier,
    /// A chunk that is longer than any block.
    #[error("reading snappy: a chunk of type {kind:#04x} and {length} bytes, at most {MAX_CHUNK} are possible")]
    ChunkTooLong {
        /// Its type.
        kind: u8,
        /// The announced length.
        length: usize,
    },
    /// A data chunk that is too short for its checksum.
    #[error("reading snappy: a data chunk of {length} bytes has no room for its checksum")]
    ChunkTooShort {
        /// The announced length.
        length: usize,
    },
    /// A chunk of a type that readers must not skip.
    #[error("reading snappy: a chunk of the reserved type {kind:#04x}")]
    ReservedChunk {
        /// Its type.
        kind: u8,
    },
    /// More content than a chunk may have.
    #[error("reading snappy: a chunk unpacks to {length} bytes, at most {MAX_BLOCK} are allowed")]
    BlockTooLong {
        /// Unpacked size.
        length: usize,
    },
    /// Content that cannot be decompressed.
    #[error("reading snappy: a compressed chunk is corrupt: {fault}")]
    Corrupt {
        /// The decompressor's reason.
        fault: String,
    },
    /// Content that was changed on the way.
    #[error("reading snappy: a chunk's checksum is {computed:#010x} instead of {sent:#010x}: the stream is corrupt")]
    Checksum {
        /// The sender's.
        sent: u32,
        /// Ours.
        computed: u32,
    },
    /// The end of input came inside a chunk.
    #[error("reading snappy: input ended inside a chunk, after {held} bytes of it: the peer closed early")]
    Truncated {
        /// Bytes of the chunk that had come.
        held: usize,
    },
}

/// Calls `run` with this thread's encoder. `run` must not call this function.
pub(super) fn with_encoder<T>(run: impl FnOnce(&mut snap::raw::Encoder) -> T) -> T {
    ENCODER.with_borrow_mut(|encoder| run(encoder))
}

/// Appends `raw` as whole chunks, preceded by the stream identifier if the stream begins here.
///
/// As in Go, a block is stored as it is unless compression saves an eighth.
pub fn frame(raw: &[u8], out: &mut BytesMut, with_identifier: bool) {
    if with_identifier {
        out.put_slice(STREAM_IDENTIFIER);
    }
    for block in raw.chunks(MAX_BLOCK) {
        let start = out.len();
        let content = start + HEADER + CHECKSUM;
        out.resize(content + snap::raw::max_compress_len(block.len()), 0);
        let packed = with_encoder(|encoder| encoder.compress(block, &mut out[content..]));
        let packed = packed.expect("there is room for the worst case of 64 KiB");
        let (kind, length) = if packed < block.len() - block.len() / 8 {
            out.truncate(content + packed);
            (COMPRESSED, packed)
        } else {
            out.truncate(content);
            out.put_slice(block);
            (UNCOMPRESSED, block.len())
        };
        let length = u32::try_from(CHECKSUM + length).expect("a chunk is below 16 MiB").to_le_bytes();
        out[start..start + HEADER].copy_from_slice(&[kind, length[0], length[1], length[2]]);
        out[start + HEADER..content].copy_from_slice(&checksum(block).to_le_bytes());
    }
}

/// Unpacks one stream, or several in a row, each with its identifier.
#[derive(Debug, Default)]
pub struct Decoder {
    unread: BytesMut,
    identified: bool,
    failed: Option<Error>,
}

impl Decoder {
    /// A decoder for a stream that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands over bytes that have arrived. Call [`Decoder::next_chunk`] until it returns `None` before pushing more: until then
    /// the bytes are kept.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.unread.extend_from_slice(bytes);
        }
    }

    /// The content of the next chunk that has any, at most 64 KiB; `None` when more input is needed.
    ///
    /// # Errors
    ///
    /// On the streams that Go's reader refuses. An error is final and returned again by every later call.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        if result.is_err() || self.unread.is_empty() {
            // An idle stream should not hold a buffer.
            self.unread = BytesMut::new();
        }
        result
    }

    /// Tells the decoder that the input has ended, after [`Decoder::next_chunk`] has returned `None`.
    ///
    /// # Errors
    ///
    /// When the end came inside a chunk, or the stream had failed before.
    pub fn finish(&self) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.unread.is_empty() => Ok(()),
            None => Err(Error::Truncated { held: self.unread.len() }),
        }
    }

    /// Number of pushed bytes that belong to no returned chunk.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.unread.len()
    }

    /// Ends this decoder's stream. Returns the bytes after the last returned chunk, which belong to the next decoder.
    #[must_use]
    pub fn take_buffered(&mut self) -> Bytes {
        self.identified = false;
        std::mem::take(&mut self.unread).freeze()
    }

    fn advance(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(kind) = self.unread.first().copied() else { return Ok(None) };
            if !self.identified && kind != IDENTIFIER {
                return Err(Error::NoIdentifier { found: kind });
            }
            let Some([_, low, middle, high]) = self.unread.first_chunk::<HEADER>().copied() else { return Ok(None) };
            let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
            if length > MAX_CHUNK {
                return Err(Error::ChunkTooLong { kind, length });
            }
            match kind {
                COMPRESSED | UNCOMPRESSED if length < CHECKSUM => return Err(Error::ChunkTooShort { length }),
                UNCOMPRESSED if length - CHECKSUM > MAX_BLOCK => {
                    return Err(Error::BlockTooLong { length: length - CHECKSUM });
                }
                IDENTIFIER if length != STREAM_IDENTIFIER.len() - HEADER => return Err(Error::WrongIdentifier),
                COMPRESSED | UNCOMPRESSED | FIRST_SKIPPABLE.. => {}
                _ => return Err(Error::ReservedChunk { kind }),
            }
            if self.unread.len() < HEADER + length {
                return Ok(None);
            }
            let chunk = self.unread.split_to(HEADER + length);
            match kind {
                COMPRESSED | UNCOMPRESSED => {
                    let content = unpack(kind, chunk.freeze().split_off(HEADER))?;
                    if !content.is_empty() {
                        return Ok(Some(content));
                    }
                }
                IDENTIFIER if chunk[..] != STREAM_IDENTIFIER[..] => return Err(Error::WrongIdentifier),
                IDENTIFIER => self.identified = true,
                _ => {}
            }
        }
    }
}

/// The content of a data chunk, whose checksum comes first.
fn unpack(kind: u8, mut chunk: Bytes) -> Result<Bytes, Error> {
    let sent = chunk.get_u32_le();
    let content = if kind == UNCOMPRESSED {
        chunk
    } else {
        let corrupt = |error: snap::Error| Error::Corrupt { fault: error.to_string() };
        let length = snap::raw::decompress_len(&chunk).map_err(corrupt)?;
        if length > MAX_BLOCK {
            return Err(Error::BlockTooLong { length });
        }
        Bytes::from(snap::raw::Decoder::new().decompress_vec(&chunk).map_err(corrupt)?)
    };
    match checksum(&content) {
        computed if computed == sent => Ok(content),
        computed => Err(Error::Checksum { sent, computed }),
    }
}

/// CRC-32C, masked as the format requires.
fn checksum(content: &[u8]) -> u32 {
    crc32c::crc32c(content).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The fuzz target's check of one input; tests replay its corpus with it.
#[cfg(any(test, fuzzing))]
pub mod exercise {
    use super::{Decoder, Error, MAX_BLOCK, MAX_CHUNK};

    /// Unpacks `input` whole and in pieces, and panics when the results differ or bounds are broken. The first byte of the
    /// input chooses the size of the pieces.
    pub fn decode(input: &[u8]) {
        let Some((size, stream)) = input.split_first() else { return };
        let whole = run(stream, stream.len().max(1));
        let pieces = run(stream, usize::from(*size).max(1));
        assert_eq!(whole, pieces, "the size of the pieces must not matter");
    }

    fn run(stream: &[u8], size: usize) -> (Vec<u8>, Option<Error>) {
        let mut decoder = Decoder::new();
        let mut content = Vec::new();
        for piece in stream.chunks(size) {
            decoder.push(piece);
            loop {
                match decoder.next_chunk() {
                    Ok(Some(chunk)) => {
                        assert!(chunk.len() <= MAX_BLOCK);
                        content.extend_from_slice(&chunk);
                    }
                    Ok(None) => break,
                    Err(error) => return (content, Some(error)),
                }
            }
            assert!(decoder.buffered() < MAX_CHUNK + super::HEADER);
        }
        (content, decoder.finish().err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        [&[kind, length[0], length[1], length[2]], body].concat()
    }

    fn stored(content: &[u8]) -> Vec<u8> {
        chunk(UNCOMPRESSED, &[&checksum(content).to_le_bytes()[..], content].concat())
    }

    fn compressed(block: &[u8], content: &[u8]) -> Vec<u8> {
        chunk(COMPRESSED, &[&checksum(content).to_le_bytes()[..], block].concat())
    }

    fn read(chunks: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
        let mut decoder = Decoder::new();
        let mut content = Vec::new();
        decoder.push(&chunks.concat());
        while let Some(chunk) = decoder.next_chunk()? {
            content.extend_from_slice(&chunk);
        }
        decoder.finish().map(|()| content)
    }

    #[test]
    fn what_go_accepts_is_accepted() {
        let start = STREAM_IDENTIFIER.to_vec();
        let longest = vec![7; MAX_BLOCK];
        let block = snap::raw::Encoder::new().compress_vec(&[b'a'; 1000]).unwrap();
        for (chunks, content) in [
            (vec![], &b""[..]),
            (vec![start.clone()], b""),
            (vec![start.clone(), start.clone(), start.clone(), stored(b"a")], b"a"),
            (vec![start.clone(), stored(b"a"), start.clone(), stored(b"b")], b"ab"),
            (vec![start.clone(), stored(b"a"), stored(b""), stored(b"bcd")], b"abcd"),
            (vec![start.clone(), chunk(0xfe, b"padding"), chunk(0x80, b"x"), chunk(0xfd, b""), stored(b"a")], b"a"),
            (vec![start.clone(), compressed(&block, &[b'a'; 1000])], &[b'a'; 1000]),
            (vec![start.clone(), stored(&longest)], &longest),
        ] {
            assert_eq!(read(&chunks).unwrap(), content);
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let start = STREAM_IDENTIFIER.to_vec();
        let too_long = snap::raw::Encoder::new().compress_vec(&vec![b'a'; MAX_BLOCK + 1]).unwrap();
        let mut wrong = start.clone();
        wrong[9] = b'y';
        let mut damaged = stored(b"abc");
        damaged[9] ^= 1;
        for (chunks, expected) in [
            (vec![stored(b"a")], Error::NoIdentifier { found: UNCOMPRESSED }),
            (vec![wrong.clone()], Error::WrongIdentifier),
            (vec![start.clone(), wrong], Error::WrongIdentifier),
            (vec![start.clone(), chunk(0xff, b"sNaPp")], Error::WrongIdentifier),
            (vec![start.clone(), chunk(0x02, b"")], Error::ReservedChunk { kind: 0x02 }),
            (vec![start.clone(), chunk(0x7f, b"")], Error::ReservedChunk { kind: 0x7f }),
            (
                vec![start.clone(), chunk(0xfe, &vec![0; MAX_CHUNK + 1])],
                Error::ChunkTooLong { kind: 0xfe, length: 76_495 },
            ),
            (vec![start.clone(), chunk(UNCOMPRESSED, b"abc")], Error::ChunkTooShort { length: 3 }),
            (vec![start.clone(), stored(&vec![7; MAX_BLOCK + 1])], Error::BlockTooLong { length: 65_537 }),
            (vec![start.clone(), compressed(&too_long, b"")], Error::BlockTooLong { length: 65_537 }),
            (vec![start.clone(), stored(b"abc")[..9].to_vec()], Error::Truncated { held: 9 }),
            (vec![start.clone(), vec![1, 2, 0]], Error::Truncated { held: 3 }),
        ] {
            assert_eq!(read(&chunks), Err(expected));
        }
        assert!(matches!(read(&[start.clone(), damaged]), Err(Error::Checksum { .. })));
        assert!(matches!(read(&[start, compressed(b"\x05\xff", b"")]), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_block_is_stored_unless_an_eighth_is_saved() {
        let kind = |raw: &[u8]| {
            let mut out = BytesMut::new();
            frame(raw, &mut out, false);
            out[0]
        };
        assert_eq!(kind(b"a short message"), UNCOMPRESSED);
        assert_eq!(kind(&[b'a'; 200]), COMPRESSED);
    }

    #[test]
    fn a_long_message_becomes_several_chunks() {
        let raw = vec![b'x'; 3 * MAX_BLOCK + 1];
        let mut out = BytesMut::new();
        frame(&raw, &mut out, true);
        let mut decoder = Decoder::new();
        decoder.push(&out);
        let sizes: Vec<usize> = std::iter::from_fn(|| decoder.next_chunk().unwrap()).map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [MAX_BLOCK, MAX_BLOCK, MAX_BLOCK, 1]);
    }

    #[test]
    fn the_unread_rest_goes_to_the_next_decoder() {
        let mut decoder = Decoder::new();
        decoder.push(&[&STREAM_IDENTIFIER[..], &stored(b"a"), &STREAM_IDENTIFIER[..], &stored(b"b")].concat());
        assert_eq!(decoder.next_chunk().unwrap().unwrap(), "a");
        let rest = decoder.take_buffered();
        let mut next = Decoder::new();
        next.push(&rest);
        assert_eq!(next.next_chunk().unwrap().unwrap(), "b");
    }
}
