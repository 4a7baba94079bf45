//! The seam between the driver and a protocol.

use bytes::BytesMut;

use crate::model::{AsOf, SyncStatus, Update};
use crate::syncclient::error::Error;
use crate::syncclient::event::ServerInfo;
use crate::syncproto::native::{Goodbye, KeyError};

/// A message of the server, as far as it concerns the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// The server took the client. Always first.
    Hello(ServerInfo),
    /// Changes, and the client's sequence number after them, where the protocol has one.
    Updates(Vec<Update>, Option<u64>),
    /// The status after them.
    Status(SyncStatus),
    /// A sign of life, answered by the session where that is due.
    Progress {
        /// The freshness of the server's data, if it says so.
        as_of: Option<AsOf>,
        /// The client's sequence number, if it changed.
        seq: Option<u64>,
    },
    /// The server is about to close.
    Goodbye(Goodbye),
}

impl Incoming {
    /// A sign of life that says nothing else.
    pub(in crate::syncclient) const ALIVE: Self = Self::Progress { as_of: None, seq: None };
}

/// The server breaks the protocol.
pub(super) fn protocol(reason: impl Into<String>) -> Error {
    Error::Protocol { reason: reason.into() }
}

/// The client's side of a protocol.
pub trait Session: Send {
    /// Appends the client's first bytes.
    fn start(&mut self, out: &mut BytesMut);

    /// Takes bytes from `input` and returns the next message that is whole. `None`: more input is needed. Appends
    /// answers to `out`; they are to be sent before more is read.
    ///
    /// # Errors
    /// The connection is of no further use.
    fn on_input(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Incoming>, Error>;

    /// Appends an acknowledgement. Returns false where the protocol has none.
    fn acknowledge(&mut self, applied: u64, errors: Vec<KeyError>, out: &mut BytesMut) -> bool;

    /// Appends a goodbye, where the protocol has one.
    fn goodbye(&mut self, reason: &str, out: &mut BytesMut);
}
