//! One client, from accept to close: its handshake, its clocks, its outgoing messages, its socket.

pub(crate) mod average;
pub(crate) mod connection;
pub(crate) mod guarded;
pub(crate) mod handshake;
pub(crate) mod inbound;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod liveness;
pub(crate) mod outgoing;
pub(crate) mod phase;
pub(crate) mod places;
pub(crate) mod record;
pub(crate) mod transport;
