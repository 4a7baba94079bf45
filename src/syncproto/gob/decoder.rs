//! The decoder: takes the bytes of one direction, in any pieces, and gives envelopes.
//!
//! It holds the pushed bytes that are not yet part of a complete frame, the complete frames of an incomplete message, and the
//! peer's type definitions. It compares a frame's announced length with the limit before it waits for the frame, and allocates
//! nothing because of that length.

use bytes::{Bytes, BytesMut};

use super::super::messages::Message;
use super::decode::Walk;
use super::error::{Error, Halt};
use super::limits::Limits;
use super::number;
use super::reader::Reader;
use super::types::Types;

/// Least frame length that Go refuses, and so do we.
const FRAME_LENGTH_END: u64 = 8 << 30;

/// Number of times that the largest message may be read again because it goes on in a further frame. Go's encoders split
/// messages only for definitions, which are few. Without a limit, a message of many small frames would cost the square of its size.
const MOST_REREADS: usize = 4;

/// The envelope of a message. `None` is a nil message.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope(pub Option<Message>);

/// Decodes one direction of a connection, up to a decoder restart if there is one.
///
/// Byte strings in its messages share memory with the pushed bytes: copy a string that is to be kept for long.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// Unread bytes, from the start of a frame.
    unread: BytesMut,
    /// Frames, without their lengths, of a message that goes on in the next one.
    frames: Vec<Bytes>,
    types: Types,
    /// Bytes of this message that have been taken out of `unread`.
    message_bytes: usize,
    /// Bytes of this message that were read in vain and have to be read again.
    reread: usize,
    /// True if the input may end before the message's next frame. As in Go, it may unless a definition was just read.
    may_end: bool,
    failed: Option<Error>,
}

impl Decoder {
    /// A decoder for a stream that begins now.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            unread: BytesMut::new(),
            frames: Vec::new(),
            types: Types::default(),
            message_bytes: 0,
            reread: 0,
            may_end: false,
            failed: None,
        }
    }

    /// Limits the size of messages, from the next one on.
    pub fn limit_messages(&mut self, max_message_bytes: usize) {
        self.limits.max_message_bytes = max_message_bytes;
    }

    /// Hands over bytes that have arrived. Call [`Decoder::next`] until it returns `None` before pushing more: until then the
    /// bytes are kept.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.unread.extend_from_slice(bytes);
        }
    }

    /// The next message; `None` when more input is needed.
    ///
    /// # Errors
    ///
    /// When the stream is not gob, not of this protocol, or exceeds a limit. An error is final and returned again by every
    /// later call.
    #[expect(clippy::should_implement_trait, reason = "an iterator that ends at None could not go on after more input")]
    pub fn next(&mut self) -> Result<Option<Envelope>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance();
        match &result {
            Err(error) => {
                self.failed = Some(error.clone());
                self.unread = BytesMut::new();
                self.frames = Vec::new();
                self.types = Types::default();
                self.message_bytes = 0;
            }
            // An idle stream should not hold a buffer.
            Ok(_) if self.unread.is_empty() => self.unread = BytesMut::new(),
            Ok(_) => {}
        }
        result
    }

    /// Tells the decoder that the input has ended, after [`Decoder::next`] has returned `None`.
    ///
    /// # Errors
    ///
    /// When the input ended inside a message, or after definitions without a value, or the stream had failed before. As in Go,
    /// an end between two frames of a message is no error unless a definition stands before it.
    pub fn finish(&self) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.buffered() == 0 || (self.may_end && self.unread.is_empty()) => Ok(()),
            None => Err(Error::Truncated { held: self.buffered() }),
        }
    }

    /// Number of pushed bytes that belong to no returned message.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.unread.len() + self.message_bytes
    }

    /// Ends this decoder's stream. Returns the bytes after the last returned message, which belong to the next decoder.
    #[must_use]
    pub fn take_buffered(&mut self) -> Bytes {
        debug_assert!(self.message_bytes == 0, "a restart follows a whole message");
        self.types = Types::default();
        std::mem::take(&mut self.unread).freeze()
    }

    /// Bytes of memory that the decoder holds, for tests and status.
    #[must_use]
    pub fn held(&self) -> usize {
        size_of::<Self>() + self.unfinished() + self.types.held()
    }

    /// Bytes of memory that the decoder holds for an incomplete message.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let frames: usize = self.frames.iter().map(Bytes::len).sum();
        self.unread.capacity() + frames + self.frames.capacity() * size_of::<Bytes>()
    }

    fn advance(&mut self) -> Result<Option<Envelope>, Error> {
        while let Some(frame) = self.take_frame()? {
            self.may_end = false;
            self.frames.push(frame);
            match self.read_message() {
                Ok(Some(envelope)) => {
                    self.types.keep();
                    self.frames = Vec::new();
                    self.message_bytes = 0;
                    self.reread = 0;
                    return Ok(Some(envelope));
                }
                Ok(None) => {
                    self.types.keep();
                    self.frames.clear();
                }
                Err(Halt::NextFrame { defined }) => {
                    self.may_end = !defined;
                    self.types.take_back();
                    self.reread += self.message_bytes;
                    let limit = MOST_REREADS.saturating_mul(self.limits.max_message_bytes);
                    if self.reread > limit {
                        let (value, limit) = (self.reread as u64, limit as u64);
                        return Err(Error::Limit {
                            what: "the bytes read again of a message in many frames",
                            value,
                            limit,
                        });
                    }
                }
                Err(Halt::Bad(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Takes the next frame out of the unread bytes once it is complete.
    fn take_frame(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(first) = self.unread.first() else { return Ok(None) };
        let prefix = number::announced_len(*first)?;
        let Some(length) = self.unread.get(..prefix).map(number::uint_value) else { return Ok(None) };
        if length == 0 {
            return Err(Error::EmptyFrame);
        }
        if length >= FRAME_LENGTH_END {
            return Err(Error::MessageLength { length });
        }
        let limit = self.limits.max_message_bytes as u64;
        let message = (self.message_bytes + prefix) as u64 + length;
        if message > limit {
            return Err(Error::Limit { what: "the bytes of a message", value: message, limit });
        }
        let whole = usize::try_from(length).map_or(usize::MAX, |length| prefix.saturating_add(length));
        if self.unread.len() < whole {
            return Ok(None);
        }
        self.message_bytes += whole;
        let mut frame = self.unread.split_to(whole).freeze();
        Ok(Some(frame.split_off(prefix)))
    }

    /// Reads the frames held: `None` for a definition.
    fn read_message(&mut self) -> Result<Option<Envelope>, Halt> {
        let mut reader = Reader::new(&self.frames);
        let type_id = reader.int()?;
        if type_id < 0 {
            let id = type_id.saturating_neg();
            self.types.define(id, &mut reader, &self.limits)?;
            return match reader.left() {
                0 => Ok(None),
                left => Err(Error::ExtraData { id, left }.into()),
            };
        }
        let type_id = i32::try_from(type_id).map_err(|_| Error::UnknownType { place: "a message", id: type_id })?;
        Walk { reader, types: &mut self.types, limits: &self.limits }
            .envelope(type_id)
            .map(|message| Some(Envelope(message)))
    }
}
