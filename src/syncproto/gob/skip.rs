//! Skips values of unknown fields.

use super::decode::Walk;
use super::error::{Error, Halt};
use super::schema::id;
use super::types::Shape;

const PLACE: &str = "an unknown field";

impl Walk<'_> {
    /// Skips a value of this type. `depth` is its nesting depth in a skipped field.
    pub(super) fn skip(&mut self, type_id: i32, depth: usize) -> Result<(), Halt> {
        if depth > self.limits.max_depth {
            let limit = self.limits.max_depth as u64;
            return Err(Error::Limit { what: "the nesting of an unknown field", value: depth as u64, limit }.into());
        }
        match type_id {
            id::BOOL | id::INT | id::UINT | id::FLOAT => {
                self.reader.uint()?;
            }
            id::COMPLEX => {
                self.reader.uint()?;
                self.reader.uint()?;
            }
            id::BYTES | id::STRING => {
                self.reader.str_bytes(PLACE)?;
            }
            id::INTERFACE => self.skip_interface(depth)?,
            _ => match self.types.shape(type_id) {
                None => return Err(Error::UnknownType { place: PLACE, id: type_id.into() }.into()),
                Some(shape) => self.skip_shape(shape, depth + 1)?,
            },
        }
        Ok(())
    }

    fn skip_shape(&mut self, shape: Shape, depth: usize) -> Result<(), Halt> {
        match shape {
            Shape::GobEncoder | Shape::OtherEncoder => {
                self.reader.str_bytes(PLACE)?;
            }
            Shape::Struct { first, count } => {
                let mut next = 0;
                while let Some(number) = self.reader.field_number(PLACE, count as usize, next)? {
                    self.skip(self.types.field(first, number).type_id, depth)?;
                    next = number + 1;
                }
            }
            Shape::Slice { elem } => {
                let count = self.reader.count(PLACE)?;
                self.skip_elements(count, &[elem], depth)?;
            }
            Shape::Array { elem, len } => {
                let count = self.reader.count(PLACE)?;
                if count as u64 != len {
                    let left = self.reader.left();
                    return Err(Error::InnerLength { what: "an array of another length", length: len, left }.into());
                }
                self.skip_elements(count, &[elem], depth)?;
            }
            Shape::Map { key, elem } => {
                let count = self.reader.count(PLACE)?;
                self.skip_elements(count, &[key, elem], depth)?;
            }
        }
        Ok(())
    }

    /// Skips one value of each type, `count` times. A value has at least one byte, so a count beyond the data ends soon.
    fn skip_elements(&mut self, count: usize, types: &[i32], depth: usize) -> Result<(), Halt> {
        for done in 0..count {
            if self.reader.frame_is_done() {
                return Err(Error::InnerLength { what: PLACE, length: (count - done) as u64, left: 0 }.into());
            }
            for type_id in types {
                self.skip(*type_id, depth)?;
            }
        }
        Ok(())
    }

    /// Skips an interface value by its structure, because its byte count is too small when it contains definitions.
    /// Only a value of unknown type is skipped by its byte count, as in Go.
    fn skip_interface(&mut self, depth: usize) -> Result<(), Halt> {
        if self.interface_name()?.is_empty() {
            return Ok(());
        }
        let type_id = self.interface_type()?;
        match self.types.shape(type_id) {
            Some(shape @ Shape::Struct { .. }) => {
                self.reader.uint()?;
                self.skip_shape(shape, depth + 1)
            }
            None if !(id::BOOL..=id::INTERFACE).contains(&type_id) => {
                self.reader.str_bytes(PLACE)?;
                Ok(())
            }
            _ => {
                self.reader.uint()?;
                self.singleton_marker(PLACE)?;
                self.skip(type_id, depth + 1)
            }
        }
    }

    /// Reads the zero byte before a value that is not a struct.
    pub(super) fn singleton_marker(&mut self, place: &'static str) -> Result<(), Error> {
        match self.reader.uint()? {
            0 => Ok(()),
            marker => Err(Error::SingletonMarker { place, marker }),
        }
    }
}
