//! TLS for the sync port, the client library and the metrics port: rustls with ring, certificates from files.
//!
//! The configuration feeds [`ServerTlsConfig`], the command line and users of the library [`ClientTlsConfig`]; the server's accept path takes
//! [`ServerTls::acceptor`], the client library [`ClientTls::connector`]. [`files`] re-reads files that changed, [`policy`] maps
//! the version and cipher options, [`identity`] holds Calico's peer rule, `certificate` and `authorities` decide as Go does which chains
//! count, `signatures` whose key made a signature, `words` says why a handshake failed, [`review`] whether certificates would do.
//!
//! Invariants:
//! - a peer is accepted only if its chain leads to the CA file's certificates (never the system's) *and* its name fits;
//! - sessions are never resumed: a resumed session would skip both checks;
//! - files that cannot be used leave what was loaded before in place.

mod authorities;
mod certificate;
pub mod client;
pub mod files;
pub mod identity;
pub mod policy;
pub mod review;
pub mod server;
mod signatures;
mod words;

use std::fmt;
use std::path::PathBuf;

pub use authorities::Authorities;
pub use client::{ClientTls, ClientTlsConfig};
pub use files::{RELOAD_INTERVAL, Reload};
pub use identity::PeerIdentity;
pub use policy::Policy;
pub use server::{Expiry, ServerTls, ServerTlsConfig};
pub use words::{handshake_error, stream_error};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read {what} file {path}: {reason}", path = path.display())]
    Read {
        /// What the file holds.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A file's content is not what it should be.
    #[error("parse {what} file {path}: {reason}", path = path.display())]
    Parse {
        /// What the file should hold.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Key and certificate were read, but cannot be used (together).
    #[error("use certificate file {cert} with key file {key}: {reason}", cert = cert.display(), key = key.display())]
    KeyPair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        reason: String,
    },
    /// A setting that is missing or does not fit the others.
    #[error("{0}")]
    Settings(String),
}

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

#[cfg(test)]
mod tests;
