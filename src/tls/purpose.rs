//! The peer's role.

use std::fmt;

/// The purpose that a peer's certificate has to name, if it names any: the peer's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The peer is a client.
    Client,
    /// The peer is a server.
    Server,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
