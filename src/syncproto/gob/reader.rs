//! A cursor over the frames of one message.
//!
//! Go splits a message into several frames when it has to send a definition in its middle, so a message is a list of frames
//! (without their lengths). Only [`Reader::next_frame`] goes from one frame to the next: integers, strings and counts must lie
//! in one frame.

use bytes::Bytes;

use super::error::{Error, Halt};
use super::number;

/// Reads the complete frames of a message. More frames may follow later.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    frames: &'a [Bytes],
    frame: usize,
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of the first frame.
    pub(super) fn new(frames: &'a [Bytes]) -> Self {
        Self { frames, frame: 0, position: 0 }
    }

    /// Bytes left in the current frame.
    pub(super) fn left(&self) -> usize {
        self.rest().len()
    }

    /// Whether the current frame is used up.
    pub(super) fn frame_is_done(&self) -> bool {
        self.rest().is_empty()
    }

    /// Goes to the next frame, and drops the rest of this one. `defined`: a definition stands before the next frame.
    pub(super) fn next_frame(&mut self, defined: bool) -> Result<(), Halt> {
        if self.frame + 1 >= self.frames.len() {
            return Err(Halt::NextFrame { defined });
        }
        self.frame += 1;
        self.position = 0;
        Ok(())
    }

    /// An unsigned integer.
    pub(super) fn uint(&mut self) -> Result<u64, Error> {
        let rest = self.rest();
        let first = *rest.first().ok_or(Error::FrameEnds { what: "an integer" })?;
        let length = number::announced_len(first)?;
        let Some(bytes) = rest.get(..length) else {
            return Err(Error::InnerLength { what: "an integer", length: length as u64, left: rest.len() });
        };
        let value = number::uint_value(bytes);
        self.position += length;
        Ok(value)
    }

    /// A signed integer.
    pub(super) fn int(&mut self) -> Result<i64, Error> {
        self.uint().map(number::unfold_sign)
    }

    /// A type id of 32 bits. `place` is for errors.
    pub(super) fn type_id(&mut self, place: &'static str) -> Result<i32, Error> {
        let id = self.int()?;
        i32::try_from(id).map_err(|_| Error::UnknownType { place, id })
    }

    /// A float.
    pub(super) fn float(&mut self) -> Result<f64, Error> {
        self.uint().map(number::float)
    }

    /// A string or byte slice: its length, then its bytes. The result shares the frame's memory.
    pub(super) fn bytes(&mut self, what: &'static str) -> Result<Bytes, Error> {
        let start = self.string_start(what)?;
        Ok(self.frames[self.frame].slice(start..self.position))
    }

    /// Like [`Reader::bytes`], borrowed.
    pub(super) fn str_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let start = self.string_start(what)?;
        Ok(&self.frames[self.frame][start..self.position])
    }

    /// Text. Go does not require UTF-8; we replace bytes that are not UTF-8.
    pub(super) fn text(&mut self, what: &'static str) -> Result<String, Error> {
        self.str_bytes(what).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The number of elements of a slice or map. A number that the rest of the frame cannot hold is refused.
    pub(super) fn count(&mut self, what: &'static str) -> Result<usize, Error> {
        let length = self.uint()?;
        let left = self.left();
        match usize::try_from(length) {
            Ok(count) if count <= left => Ok(count),
            _ => Err(Error::InnerLength { what, length, left }),
        }
    }

    /// Reads a struct. Calls `field` with the number of each field that is present; it has to read the field's value.
    pub(super) fn fields<E: From<Error>>(
        &mut self,
        place: &'static str,
        count: usize,
        mut field: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = 0;
        while let Some(number) = self.field_number(place, count, next)? {
            field(self, number)?;
            next = number + 1;
        }
        Ok(())
    }

    /// The number of the next field of a struct, or `None` at its end, which may be the end of the frame.
    pub(super) fn field_number(
        &mut self,
        place: &'static str,
        count: usize,
        next: usize,
    ) -> Result<Option<usize>, Error> {
        if self.frame_is_done() {
            return Ok(None);
        }
        match self.uint()? {
            0 => Ok(None),
            delta if delta <= (count - next) as u64 => {
                Ok(Some(next + usize::try_from(delta).expect("it is at most a usize") - 1))
            }
            delta => {
                Err(Error::FieldNumber { place, delta, after: i64::try_from(next).unwrap_or(i64::MAX) - 1, count })
            }
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.frames.get(self.frame).map_or(&[], |frame| &frame[self.position..])
    }

    /// Reads a length and goes past that number of bytes. Returns their start.
    fn string_start(&mut self, what: &'static str) -> Result<usize, Error> {
        let length = self.uint()?;
        let left = self.left();
        match usize::try_from(length) {
            Ok(count) if count <= left => {
                let start = self.position;
                self.position += count;
                Ok(start)
            }
            _ => Err(Error::InnerLength { what, length, left }),
        }
    }
}
