//! The structs of the protocol in gob: registered names, fields with their kinds, and the ids that we send.

use super::super::messages::Message;

/// The start of all messages' registered names: Typha's old import path, kept for compatibility.
pub(super) const NAME_PREFIX: &str = "github.com/projectcalico/typha/pkg/syncproto.";

/// Type ids. The built-in ones are Go's. We chose the others; they and those of [`Struct`] are the same in every stream that we send.
pub(super) mod id {
    pub(crate) const BOOL: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const UINT: i32 = 3;
    pub(crate) const FLOAT: i32 = 4;
    pub(crate) const BYTES: i32 = 5;
    pub(crate) const STRING: i32 = 6;
    pub(crate) const COMPLEX: i32 = 7;
    pub(crate) const INTERFACE: i32 = 8;
    /// The lowest id that a peer may define.
    pub(crate) const FIRST_USER: i32 = 64;
    pub(crate) const TIME: i32 = 69;
    pub(crate) const UPDATES: i32 = 71;
    pub(crate) const ALGORITHMS: i32 = 74;
}

/// A struct that we know, by the type id under which we send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Struct {
    Envelope = 64,
    ServerHello = 65,
    DecoderRestart = 66,
    SyncStatus = 67,
    Ping = 68,
    Kvs = 70,
    Update = 72,
    ClientHello = 73,
    Ack = 75,
    Pong = 76,
}

impl Struct {
    /// The message of this registered name.
    pub(super) fn from_registered_name(name: &[u8]) -> Option<Self> {
        use Struct::{Ack, ClientHello, DecoderRestart, Kvs, Ping, Pong, ServerHello, SyncStatus};
        let name = name.strip_prefix(NAME_PREFIX.as_bytes())?;
        let mut messages = [Kvs, Ping, Pong, SyncStatus, Ack, ClientHello, ServerHello, DecoderRestart].into_iter();
        messages.find(|message| message.name().as_bytes() == name)
    }

    /// The struct of a message.
    pub(super) fn of(message: &Message) -> Self {
        match message {
            Message::ClientHello(_) => Self::ClientHello,
            Message::ServerHello(_) => Self::ServerHello,
            Message::DecoderRestart(_) => Self::DecoderRestart,
            Message::Ack => Self::Ack,
            Message::SyncStatus(_) => Self::SyncStatus,
            Message::Ping(_) => Self::Ping,
            Message::Pong(_) => Self::Pong,
            Message::Kvs(_) => Self::Kvs,
        }
    }

    /// Go's name, without a package.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "Envelope",
            Self::ClientHello => "MsgClientHello",
            Self::ServerHello => "MsgServerHello",
            Self::DecoderRestart => "MsgDecoderRestart",
            Self::Ack => "MsgACK",
            Self::SyncStatus => "MsgSyncStatus",
            Self::Ping => "MsgPing",
            Self::Pong => "MsgPong",
            Self::Kvs => "MsgKVs",
            Self::Update => "SerializedUpdate",
        }
    }

    /// The id under which we send it.
    pub(super) const fn id(self) -> i32 {
        self as i32
    }

    /// Its fields in the order in which we send them.
    pub(super) const fn fields(self) -> &'static [(Field, Kind)] {
        match self {
            Self::Envelope => &[(Field::Message, Kind::Interface)],
            Self::ClientHello => &[
                (Field::Hostname, Kind::String),
                (Field::Info, Kind::String),
                (Field::Version, Kind::String),
                (Field::SyncerType, Kind::String),
                (Field::SupportsDecoderRestart, Kind::Bool),
                (Field::SupportedCompressionAlgorithms, Kind::Strings),
                (Field::SupportsModernPolicyKeys, Kind::Bool),
                (Field::ClientConnId, Kind::Uint),
            ],
            Self::ServerHello => &[
                (Field::Version, Kind::String),
                (Field::SyncerType, Kind::String),
                (Field::SupportsNodeResourceUpdates, Kind::Bool),
                (Field::ServerConnId, Kind::Uint),
            ],
            Self::DecoderRestart => &[(Field::Message, Kind::String), (Field::CompressionAlgorithm, Kind::String)],
            Self::Ack => &[],
            Self::SyncStatus => &[(Field::SyncStatus, Kind::Uint)],
            Self::Ping => &[(Field::Timestamp, Kind::Time)],
            Self::Pong => &[(Field::PingTimestamp, Kind::Time), (Field::PongTimestamp, Kind::Time)],
            Self::Kvs => &[(Field::Kvs, Kind::Updates)],
            Self::Update => &[
                (Field::Key, Kind::String),
                (Field::Value, Kind::Bytes),
                (Field::Revision, Kind::Interface),
                (Field::V3ResourceVersion, Kind::String),
                (Field::Ttl, Kind::Int),
                (Field::UpdateType, Kind::Uint),
            ],
        }
    }

    /// The kind that this field has in this struct; `None` where there is no such field.
    pub(super) fn kind_of(self, field: Field) -> Option<Kind> {
        self.fields().iter().find(|(known, _)| *known == field).map(|(_, kind)| *kind)
    }
}

/// Kind of a field's value, by the type id under which we send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Kind {
    Bool = id::BOOL,
    Int = id::INT,
    Uint = id::UINT,
    String = id::STRING,
    Bytes = id::BYTES,
    Interface = id::INTERFACE,
    Time = id::TIME,
    Strings = id::ALGORITHMS,
    Updates = id::UPDATES,
}

impl Kind {
    /// The type id under which we send it.
    pub(super) const fn id(self) -> i32 {
        self as i32
    }

    /// The kind in words, for errors.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Bool => "a bool",
            Self::Int => "a signed integer",
            Self::Uint => "an unsigned integer",
            Self::String => "a string",
            Self::Bytes => "bytes",
            Self::Interface => "an interface",
            Self::Time => "a time",
            Self::Strings => "a slice of strings",
            Self::Updates => "a slice of updates",
        }
    }
}

/// Declares all known fields, each once, with its name.
macro_rules! fields {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// The name of a field. Unknown names are not kept, because unknown fields are only skipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Field {
            /// The empty name, which makes a struct unusable.
            Nameless,
            /// Any unknown name.
            Unknown,
            $($variant,)+
        }

        impl Field {
            /// The field of this name.
            pub(super) fn from_name(name: &[u8]) -> Self {
                const NAMES: &[(&[u8], Field)] = &[$(($name.as_bytes(), Field::$variant)),+];
                if name.is_empty() {
                    return Self::Nameless;
                }
                NAMES.iter().find(|(known, _)| *known == name).map_or(Self::Unknown, |(_, field)| *field)
            }

            /// Go's name of the field.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    Self::Nameless => "",
                    Self::Unknown => "(unknown)",
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

fields! {
    Message = "Message",
    Hostname = "Hostname",
    Info = "Info",
    Version = "Version",
    SyncerType = "SyncerType",
    SupportsDecoderRestart = "SupportsDecoderRestart",
    SupportedCompressionAlgorithms = "SupportedCompressionAlgorithms",
    SupportsModernPolicyKeys = "SupportsModernPolicyKeys",
    ClientConnId = "ClientConnID",
    SupportsNodeResourceUpdates = "SupportsNodeResourceUpdates",
    ServerConnId = "ServerConnID",
    CompressionAlgorithm = "CompressionAlgorithm",
    SyncStatus = "SyncStatus",
    Timestamp = "Timestamp",
    PingTimestamp = "PingTimestamp",
    PongTimestamp = "PongTimestamp",
    Kvs = "KVs",
    Key = "Key",
    Value = "Value",
    Revision = "Revision",
    V3ResourceVersion = "V3ResourceVersion",
    Ttl = "TTL",
    UpdateType = "UpdateType",
}
