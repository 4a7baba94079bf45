//! Errors of byte streams that are not gob, or not of this protocol.

use super::number::Excess;

/// Coarse reason of an [`Error`]. The test vectors know errors by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Bytes that mean the orderly end of the stream to Go, at any place.
    EndOfStream,
    /// Input ended inside a message.
    Truncated,
    /// A frame length that gob does not allow.
    BadMessageLength,
    /// An integer of more than eight bytes.
    BadUint,
    /// A length, count or integer that does not fit its frame, or a name that is too long.
    BadInnerLength,
    /// A type id without a definition.
    UnknownTypeId,
    /// An interface value of an unknown type.
    UnregisteredName,
    /// A definition for an id that is reserved or already defined.
    DuplicateOrReservedTypeId,
    /// A definition followed by other bytes in its frame.
    ExtraDataAfterTypeDefinition,
    /// A definition that contradicts itself or is incomplete.
    BadDefinition,
    /// A field number that the definition does not have.
    BadFieldNumber,
    /// A value that is not a struct, without the zero byte that must stand before it.
    BadSingletonMarker,
    /// A field or value of another kind than in our protocol.
    TypeMismatch,
    /// A number that is too big for its field.
    IntegerOverflow,
    /// A time in a form unknown to Go.
    BadTime,
    /// One of our own [`Limits`](super::Limits).
    Limit,
}

/// A stream that cannot be decoded. Final: gob has no way to find the next message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The end of input came inside a message.
    #[error("decoding gob: input ended inside a message, after {held} bytes of it: the peer closed early")]
    Truncated {
        /// Bytes of the message that had come.
        held: usize,
    },
    /// A frame length that no gob encoder writes.
    #[error(
        "decoding gob: a frame announces {length} bytes, and gob allows less than 8 GiB: does the peer speak Typha's protocol?"
    )]
    MessageLength {
        /// The announced length.
        length: u64,
    },
    /// An empty frame, which means the end of the stream to Go decoders.
    #[error("decoding gob: a frame of no bytes, which ends a stream for Go peers too")]
    EmptyFrame,
    /// A frame that ends before a value, which means the end of the stream to Go decoders too.
    #[error("decoding gob: a frame ends where {what} should begin, which ends a stream for Go peers too")]
    FrameEnds {
        /// The missing value.
        what: &'static str,
    },
    /// See [`ErrorClass::BadUint`].
    #[error(
        "decoding gob: an integer begins with {first:#04x}, which announces more than 8 bytes: the stream is corrupt or not gob"
    )]
    BadUint {
        /// The integer's first byte.
        first: u8,
    },
    /// See [`ErrorClass::BadInnerLength`].
    #[error(
        "decoding gob: {what} of length {length} does not fit the {left} bytes left in its frame: the stream is corrupt"
    )]
    InnerLength {
        /// The value that has the length.
        what: &'static str,
        /// Its length, in bytes or elements.
        length: u64,
        /// Bytes left.
        left: usize,
    },
    /// A name of an interface value's type that is too long.
    #[error("decoding gob: the name of a type has {length} bytes, the limit is {limit}")]
    NameTooLong {
        /// Its length in bytes.
        length: u64,
        /// The limit.
        limit: usize,
    },
    /// See [`ErrorClass::UnknownTypeId`].
    #[error("decoding gob: {place} has type id {id}, which the peer has not defined")]
    UnknownType {
        /// The place of the id.
        place: &'static str,
        /// The id.
        id: i64,
    },
    /// See [`ErrorClass::UnregisteredName`].
    #[error("decoding gob: {place} holds a {name:?}, which is no type of this protocol: is the peer a newer version?")]
    UnregisteredName {
        /// The interface field.
        place: &'static str,
        /// The type's name, cut to a readable length.
        name: String,
    },
    /// See [`ErrorClass::DuplicateOrReservedTypeId`].
    #[error(
        "decoding gob: a definition for type id {id}, which is reserved or has been defined before: does the peer speak Typha's protocol?"
    )]
    DuplicateType {
        /// The id.
        id: i64,
    },
    /// See [`ErrorClass::ExtraDataAfterTypeDefinition`].
    #[error("decoding gob: {left} bytes follow the definition of type id {id} in its frame")]
    ExtraData {
        /// The defined id.
        id: i64,
        /// Number of bytes that follow.
        left: usize,
    },
    /// See [`ErrorClass::BadDefinition`].
    #[error("decoding gob: the definition of type id {id} {fault}")]
    Definition {
        /// The defined id.
        id: i64,
        /// The fault, as the end of a sentence.
        fault: &'static str,
    },
    /// See [`ErrorClass::BadFieldNumber`].
    #[error("decoding gob: a field number is {delta} above field {after}, and {place} has {count} fields")]
    FieldNumber {
        /// The struct.
        place: &'static str,
        /// Difference to the last field's number.
        delta: u64,
        /// Number of the last field; -1 before the first.
        after: i64,
        /// Fields in the definition.
        count: usize,
    },
    /// See [`ErrorClass::BadSingletonMarker`].
    #[error("decoding gob: {place} begins with {marker} instead of the 0 that announces a single value")]
    SingletonMarker {
        /// The interface field.
        place: &'static str,
        /// The number found there.
        marker: u64,
    },
    /// See [`ErrorClass::TypeMismatch`].
    #[error(
        "decoding gob: {place} should be {wanted}, and the peer defines it as type id {id}, which is something else"
    )]
    TypeMismatch {
        /// The field or struct.
        place: String,
        /// The kind that we need, in words.
        wanted: &'static str,
        /// The peer's type id.
        id: i32,
    },
    /// A struct that has nothing in common with ours.
    #[error("decoding gob: type id {id} is sent as {place}, and not one of its fields is known")]
    NoFieldMatches {
        /// Our struct.
        place: &'static str,
        /// The peer's type.
        id: i32,
    },
    /// See [`ErrorClass::IntegerOverflow`].
    #[error("decoding gob: {place} is {value}, which is out of its range")]
    Overflow {
        /// The field.
        place: &'static str,
        /// The value, as text.
        value: String,
    },
    /// See [`ErrorClass::BadTime`].
    #[error(
        "decoding gob: a time of version {version} and {length} bytes; known are version 1 of 15 and version 2 of 16 bytes"
    )]
    Time {
        /// Its first byte; 0 where there is none.
        version: u8,
        /// Its length.
        length: usize,
    },
    /// See [`ErrorClass::Limit`].
    #[error("decoding gob: {what} would be {value}, the limit is {limit}")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The value that it would get.
        value: u64,
        /// The limit.
        limit: u64,
    },
}

impl Error {
    /// The coarse reason.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Truncated { .. } => ErrorClass::Truncated,
            Self::EmptyFrame | Self::FrameEnds { .. } => ErrorClass::EndOfStream,
            Self::MessageLength { .. } => ErrorClass::BadMessageLength,
            Self::BadUint { .. } => ErrorClass::BadUint,
            Self::InnerLength { .. } | Self::NameTooLong { .. } => ErrorClass::BadInnerLength,
            Self::UnknownType { .. } => ErrorClass::UnknownTypeId,
            Self::UnregisteredName { .. } => ErrorClass::UnregisteredName,
            Self::DuplicateType { .. } => ErrorClass::DuplicateOrReservedTypeId,
            Self::ExtraData { .. } => ErrorClass::ExtraDataAfterTypeDefinition,
            Self::Definition { .. } => ErrorClass::BadDefinition,
            Self::FieldNumber { .. } => ErrorClass::BadFieldNumber,
            Self::SingletonMarker { .. } => ErrorClass::BadSingletonMarker,
            Self::TypeMismatch { .. } | Self::NoFieldMatches { .. } => ErrorClass::TypeMismatch,
            Self::Overflow { .. } => ErrorClass::IntegerOverflow,
            Self::Time { .. } => ErrorClass::BadTime,
            Self::Limit { .. } => ErrorClass::Limit,
        }
    }

    /// A name for use in an error: readable, and no longer than a line.
    pub(super) fn readable(name: &[u8]) -> String {
        const SHOWN: usize = 80;
        let text = String::from_utf8_lossy(&name[..name.len().min(SHOWN)]).into_owned();
        if name.len() > SHOWN { text + "…" } else { text }
    }
}

impl From<Excess> for Error {
    fn from(Excess { first }: Excess) -> Self {
        Self::BadUint { first }
    }
}

/// The reason why reading a message stopped.
#[derive(Debug)]
pub(super) enum Halt {
    /// The message goes on in a frame that has not come yet.
    NextFrame {
        /// True after a definition, which a value has to follow.
        defined: bool,
    },
    /// The stream is bad.
    Bad(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}
