//! One connection's protocol without its socket: bytes in, messages and answers out.
//!
//! The driver owns stream and time-outs; a [`Session`] says what to send and what arrived. A session lives as long as its
//! connection.

pub mod calico;
pub mod native;

use bytes::BytesMut;

use super::{Error, ServerInfo};
use crate::model::{AsOf, SyncStatus, Update};
use crate::syncproto::native::{Goodbye, KeyError};

/// What arrived.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// The server took the client. Always first.
    Hello(ServerInfo),
    /// Changes; after them the client stands at this sequence number, where the protocol has one.
    Updates(Vec<Update>, Option<u64>),
    /// The status after them.
    Status(SyncStatus),
    /// A sign of life, answered by the session where that is due.
    Progress {
        /// How fresh the server's data is, if it says so.
        as_of: Option<AsOf>,
        /// Where the client stands now, if that changed.
        seq: Option<u64>,
    },
    /// The server is about to close.
    Goodbye(Goodbye),
}

impl Incoming {
    /// A sign of life that says nothing else.
    pub(super) const ALIVE: Self = Self::Progress { as_of: None, seq: None };
}

/// The client's side of a protocol.
pub trait Session: Send {
    /// Appends what a client sends first.
    fn start(&mut self, out: &mut BytesMut);

    /// Takes from `input` what it can and returns the next message that is whole. `None`: more input is needed. Appends
    /// to `out` what is to be sent before more is read.
    ///
    /// # Errors
    /// The connection is of no further use.
    fn on_input(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Incoming>, Error>;

    /// Appends an acknowledgement. Returns false where the protocol has none.
    fn acknowledge(&mut self, applied: u64, errors: Vec<KeyError>, out: &mut BytesMut) -> bool;

    /// Appends a goodbye, where the protocol has one.
    fn goodbye(&mut self, reason: &str, out: &mut BytesMut);
}
