//! What the server tells about its clients, for the status endpoint and for tests.

use std::net::SocketAddr;
use std::time::Duration;

use super::handshake::Agent;
use super::wire::Wire;
use crate::model::SyncerType;
use crate::model::release::Release;

/// How far a connection has come.
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
    /// It lagged by more than is kept, and gets last values.
    CatchUp = 4,
    /// It is being closed.
    Closing = 5,
}

impl ClientState {
    pub(super) fn from_number(number: u8) -> Self {
        let all = [Self::Handshake, Self::AwaitingAck, Self::Snapshot, Self::Following, Self::CatchUp, Self::Closing];
        all.into_iter().find(|state| *state as u8 == number).unwrap_or(Self::Closing)
    }

    /// A word for it.
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
    /// Who it says it is.
    pub agent: Agent,
    /// What it follows; `None` during the handshake.
    pub syncer: Option<SyncerType>,
    /// How it is encoded; `None` during the handshake.
    pub wire: Option<Wire>,
    /// The release of Calico in whose dialect it is served; `None` during the handshake.
    pub dialect: Option<Release>,
    /// How far it has come.
    pub state: ClientState,
    /// Sequence number of the last crumb that was handed to it.
    pub sequence: u64,
    /// How long ago the first change that it lacks was published.
    pub lag: Duration,
    /// Updates that it lacks.
    pub lag_updates: u64,
    /// Bytes that were written to it.
    pub bytes_sent: u64,
    /// How long it has been there.
    pub connected_for: Duration,
    /// Sequence number up to which the agent says it has applied; `None` when its protocol cannot say, or it has not.
    pub applied: Option<u64>,
    /// Keys that the agent said it could not apply.
    pub failed_keys: u64,
}
