//! The messages of Calico's protocol, as values. [`super::gob`] makes bytes of them.
//!
//! Every message is the only field of an `Envelope`. Their names are registered under
//! `github.com/projectcalico/typha/pkg/syncproto.`.

use bytes::Bytes;

/// A message in either direction. `None` in an envelope is a nil message, which peers treat as an error or ignore.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to server, first.
    ClientHello(ClientHello),
    /// Server to client, first.
    ServerHello(ServerHello),
    /// Server to client: a new decoder begins after the acknowledgement.
    DecoderRestart(DecoderRestart),
    /// Client to server: ready for the new decoder.
    Ack,
    /// Server to client. The number of a [`crate::model::SyncStatus`].
    SyncStatus(u8),
    /// Server to client.
    Ping(Ping),
    /// Client to server.
    Pong(Pong),
    /// Server to client.
    Kvs(Vec<SerializedUpdate>),
}

/// Introduces a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Host name of the client, for logs.
    pub hostname: String,
    /// Free text, for logs.
    pub info: String,
    /// Build version, for logs.
    pub version: String,
    /// The syncer that is wanted; empty means `felix`.
    pub syncer_type: String,
    /// True if the client understands [`DecoderRestart`].
    pub supports_decoder_restart: bool,
    /// Names of compression algorithms; unknown ones are to be ignored.
    pub supported_compression_algorithms: Vec<String>,
    /// True if the client understands policy keys that contain the kind (Calico v3.32 and later).
    pub supports_modern_policy_keys: bool,
    /// For log correlation only.
    pub client_conn_id: u64,
}

/// Answers a [`ClientHello`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// Build version, for logs.
    pub version: String,
    /// The syncer that this connection carries.
    pub syncer_type: String,
    /// Always true; clients disconnect otherwise.
    pub supports_node_resource_updates: bool,
    /// For log correlation only.
    pub server_conn_id: u64,
}

/// Announces a fresh decoder: new stream, new type definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecoderRestart {
    /// Free text, only logged.
    pub message: String,
    /// `""` or `"snappy"`.
    pub compression_algorithm: String,
}

/// A Go `time.Time` in its binary form (15 or 16 bytes), unchanged so that it can be echoed. Empty: the zero time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GobTime(pub Bytes);

/// Asks for a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ping {
    /// The server's clock.
    pub timestamp: GobTime,
}

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pong {
    /// Copied from the ping.
    pub ping_timestamp: GobTime,
    /// The client's clock; Go clients leave it zero.
    pub pong_timestamp: GobTime,
}

/// A revision as received: a Go interface that holds some basic type. We always send a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoRevision {
    /// Registered name of the Go type, for example `string`.
    pub go_type: String,
    /// The value as Go prints it (`%v`).
    pub text: String,
}

/// One change of a key, serialised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerializedUpdate {
    /// The key's path; not necessarily UTF-8 on the wire.
    pub key: Bytes,
    /// The value; empty means absent.
    pub value: Bytes,
    /// `None` is Go's nil, which a Go client prints as `<nil>`.
    pub revision: Option<GoRevision>,
    /// See [`crate::model::KvPair::v3_resource_version`].
    pub v3_resource_version: String,
    /// Nanoseconds.
    pub ttl_ns: i64,
    /// The number of a [`crate::model::UpdateType`].
    pub update_type: u8,
}
