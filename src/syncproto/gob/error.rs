//! Why a byte stream is not what we take for gob.

use super::number::Excess;

/// Coarse reason of an [`Error`]: the label of a metric, and what test vectors compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// What Go takes for the orderly end of the stream, wherever it stands.
    EndOfStream,
    /// Input ended inside a message.
    Truncated,
    /// A frame length that gob does not allow.
    BadMessageLength,
    /// An integer of more than eight bytes.
    BadUint,
    /// A length, count or integer that does not fit its frame, or a name that is too long.
    BadInnerLength,
    /// A type id that nobody defined.
    UnknownTypeId,
    /// An interface value of a type that we do not know.
    UnregisteredName,
    /// A definition for an id that is taken.
    DuplicateOrReservedTypeId,
    /// A definition with something behind it in its frame.
    ExtraDataAfterTypeDefinition,
    /// A definition that makes no sense.
    BadDefinition,
    /// A field number that the definition does not have.
    BadFieldNumber,
    /// A value that is no struct, without the zero byte that announces it.
    BadSingletonMarker,
    /// A field or value of another kind than ours.
    TypeMismatch,
    /// A number that is too big for its field.
    IntegerOverflow,
    /// A time in a form that Go does not know.
    BadTime,
    /// One of our own [`Limits`](super::Limits).
    Limit,
}

impl ErrorClass {
    /// The class as a word for labels and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndOfStream => "end_of_stream",
            Self::Truncated => "truncated",
            Self::BadMessageLength => "bad_message_length",
            Self::BadUint => "bad_uint",
            Self::BadInnerLength => "bad_inner_length",
            Self::UnknownTypeId => "unknown_type_id",
            Self::UnregisteredName => "unregistered_name",
            Self::DuplicateOrReservedTypeId => "duplicate_or_reserved_type_id",
            Self::ExtraDataAfterTypeDefinition => "extra_data_after_type_definition",
            Self::BadDefinition => "bad_definition",
            Self::BadFieldNumber => "bad_field_number",
            Self::BadSingletonMarker => "bad_singleton_marker",
            Self::TypeMismatch => "type_mismatch",
            Self::IntegerOverflow => "integer_overflow",
            Self::BadTime => "bad_time",
            Self::Limit => "limit",
        }
    }
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
    /// No gob encoder writes such a length.
    #[error(
        "decoding gob: a frame announces {length} bytes, and gob allows less than 8 GiB: does the peer speak Typha's protocol?"
    )]
    MessageLength {
        /// What was announced.
        length: u64,
    },
    /// Go decoders take an empty frame for the end of the stream.
    #[error("decoding gob: a frame of no bytes, which ends a stream for Go peers too")]
    EmptyFrame,
    /// Go decoders take that for the end of the stream as well.
    #[error("decoding gob: a frame ends where {what} should begin, which ends a stream for Go peers too")]
    FrameEnds {
        /// What is missing.
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
        /// What has the length.
        what: &'static str,
        /// Its length, in bytes or elements.
        length: u64,
        /// Bytes left.
        left: usize,
    },
    /// The name of an interface value's type.
    #[error("decoding gob: the name of a type has {length} bytes, the limit is {limit}")]
    NameTooLong {
        /// Its length in bytes.
        length: u64,
        /// What we accept.
        limit: usize,
    },
    /// See [`ErrorClass::UnknownTypeId`].
    #[error("decoding gob: {place} has type id {id}, which the peer has not defined")]
    UnknownType {
        /// Where the id was met.
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
        /// Bytes too many.
        left: usize,
    },
    /// See [`ErrorClass::BadDefinition`].
    #[error("decoding gob: the definition of type id {id} {fault}")]
    Definition {
        /// The defined id.
        id: i64,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// See [`ErrorClass::BadFieldNumber`].
    #[error("decoding gob: a field number is {delta} above field {after}, and {place} has {count} fields")]
    FieldNumber {
        /// The struct.
        place: &'static str,
        /// How far the number goes beyond the last one.
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
        /// What stood there.
        marker: u64,
    },
    /// See [`ErrorClass::TypeMismatch`].
    #[error(
        "decoding gob: {place} should be {wanted}, and the peer defines it as type id {id}, which is something else"
    )]
    TypeMismatch {
        /// The field or struct.
        place: String,
        /// What we need.
        wanted: &'static str,
        /// What the peer says.
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
        /// What was sent.
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
        /// What is limited.
        what: &'static str,
        /// What it would become.
        value: u64,
        /// What is allowed.
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

    /// A name as it may appear in an error: readable, and no longer than a line.
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

/// Why reading a message stopped.
#[derive(Debug)]
pub(super) enum Halt {
    /// The message goes on in a frame that has not come yet.
    NextFrame {
        /// After a definition, which something has to follow.
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
