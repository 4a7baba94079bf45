//! The structs of the protocol as gob sees them: registered names, fields by name and kind, and the ids that we send.

use super::super::messages::Message;

/// What the registered names of all messages begin with. Typha's old import path, kept for compatibility.
pub(super) const NAME_PREFIX: &str = "github.com/projectcalico/typha/pkg/syncproto.";

/// Type ids. Built-in ones are Go's; the others are our choice and the same in every stream we send, whatever its direction.
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
    pub(crate) const ENVELOPE: i32 = 64;
    pub(crate) const SERVER_HELLO: i32 = 65;
    pub(crate) const DECODER_RESTART: i32 = 66;
    pub(crate) const SYNC_STATUS: i32 = 67;
    pub(crate) const PING: i32 = 68;
    pub(crate) const TIME: i32 = 69;
    pub(crate) const KVS: i32 = 70;
    pub(crate) const UPDATES: i32 = 71;
    pub(crate) const UPDATE: i32 = 72;
    pub(crate) const CLIENT_HELLO: i32 = 73;
    pub(crate) const ALGORITHMS: i32 = 74;
    pub(crate) const ACK: i32 = 75;
    pub(crate) const PONG: i32 = 76;
}

/// A struct that we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Struct {
    Envelope,
    ClientHello,
    ServerHello,
    DecoderRestart,
    Ack,
    SyncStatus,
    Ping,
    Pong,
    Kvs,
    Update,
}

impl Struct {
    /// The message of this registered name.
    pub(super) fn from_registered_name(name: &[u8]) -> Option<Self> {
        Some(match name.strip_prefix(NAME_PREFIX.as_bytes())? {
            b"MsgClientHello" => Self::ClientHello,
            b"MsgServerHello" => Self::ServerHello,
            b"MsgDecoderRestart" => Self::DecoderRestart,
            b"MsgACK" => Self::Ack,
            b"MsgSyncStatus" => Self::SyncStatus,
            b"MsgPing" => Self::Ping,
            b"MsgPong" => Self::Pong,
            b"MsgKVs" => Self::Kvs,
            _ => return None,
        })
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
        match self {
            Self::Envelope => id::ENVELOPE,
            Self::ClientHello => id::CLIENT_HELLO,
            Self::ServerHello => id::SERVER_HELLO,
            Self::DecoderRestart => id::DECODER_RESTART,
            Self::Ack => id::ACK,
            Self::SyncStatus => id::SYNC_STATUS,
            Self::Ping => id::PING,
            Self::Pong => id::PONG,
            Self::Kvs => id::KVS,
            Self::Update => id::UPDATE,
        }
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

/// Kind of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Uint,
    String,
    Bytes,
    Interface,
    Time,
    Strings,
    Updates,
}

impl Kind {
    /// The type id under which we send it.
    pub(super) const fn id(self) -> i32 {
        match self {
            Self::Bool => id::BOOL,
            Self::Int => id::INT,
            Self::Uint => id::UINT,
            Self::String => id::STRING,
            Self::Bytes => id::BYTES,
            Self::Interface => id::INTERFACE,
            Self::Time => id::TIME,
            Self::Strings => id::ALGORITHMS,
            Self::Updates => id::UPDATES,
        }
    }

    /// For the operator.
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

/// Declares the names of all known fields once.
macro_rules! fields {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// The name of a field. Names that we do not know are not kept: they can only be skipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Field {
            /// The empty name, which makes a struct unusable.
            Nameless,
            /// Any name that is not ours.
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
