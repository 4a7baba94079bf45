//! The status of the server's clients, for the status endpoint and for tests.

use std::net::SocketAddr;
use std::time::Duration;

use crate::model::SyncerName;

/// A client as it describes itself. For logs and status only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Host name, or the agent's name in our own protocol.
    pub name: String,
    /// Free text.
    pub info: String,
    /// Build version.
    pub version: String,
    /// The client's own number for the connection.
    pub conn_id: u64,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClientState {
    /// TLS handshake, or waiting for the hello.
    Handshake = 0,
    /// Waiting for the acknowledgement of the decoder restart.
    AwaitingAck = 1,
    /// A snapshot is on its way.
    Snapshot = 2,
    /// It gets changes as they come.
    Following = 3,
    /// It lagged by more than the history, and gets last values.
    CatchUp = 4,
    /// It is being closed.
    Closing = 5,
}

impl ClientState {
    pub(crate) fn from_number(number: u8) -> Self {
        let all = [Self::Handshake, Self::AwaitingAck, Self::Snapshot, Self::Following, Self::CatchUp, Self::Closing];
        all.into_iter().find(|state| *state as u8 == number).unwrap_or(Self::Closing)
    }

    /// The name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::AwaitingAck => "awaiting-ack",
            Self::Snapshot => "snapshot",
            Self::Following => "following",
            Self::CatchUp => "catch-up",
            Self::Closing => "closing",
        }
    }
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// The server's number for it, as in the log and in the server's hello.
    pub id: u64,
    /// The other end.
    pub peer: SocketAddr,
    /// The client as it describes itself.
    pub agent: Agent,
    /// Its syncer; `None` during the handshake.
    pub syncer: Option<SyncerName>,
    /// Protocol and compression; `None` during the handshake.
    pub wire: Option<&'static str>,
    /// The release of Calico in whose dialect it is served; `None` during the handshake.
    pub dialect: Option<&'static str>,
    /// Its state.
    pub state: ClientState,
    /// Sequence number of the last crumb that was handed to it.
    pub sequence: u64,
    /// Time since the first change that it lacks was published.
    pub lag: Duration,
    /// Updates that it lacks.
    pub lag_updates: u64,
    /// Bytes that were written to it.
    pub bytes_sent: u64,
    /// Time since it was accepted.
    pub connected_for: Duration,
    /// Sequence number up to which the agent has applied everything, as it says; `None` when its protocol cannot say,
    /// or it has not.
    pub applied: Option<u64>,
    /// Number of keys that the agent could not apply, as it says.
    pub failed_keys: u64,
}
