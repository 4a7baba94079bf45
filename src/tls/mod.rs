//! TLS for the sync port, the client library and the metrics port: rustls with ring, certificates from files.
//!
//! The configuration feeds [`ServerTlsConfig`], the command line and users of the library [`ClientTlsConfig`]; the server's accept path takes
//! [`ServerTls::acceptor`], the client library [`ClientTls::connector`]. [`files`] re-reads files that changed, [`policy`] maps
//! the version and cipher options, [`identity`] holds Calico's peer rule, `leaf` verifies what Go takes and rustls does not.
//!
//! Invariants:
//! - a peer is accepted only if its chain leads to the CA file's certificates (never the system's) *and* its name fits;
//! - sessions are never resumed: a resumed session would skip both checks;
//! - files that cannot be used leave what was loaded before in place.

pub mod client;
pub mod files;
pub mod identity;
mod leaf;
pub mod policy;
pub mod server;

use std::io;
use std::path::PathBuf;

pub use client::{ClientTls, ClientTlsConfig};
pub use files::{RELOAD_INTERVAL, Reload};
pub use identity::PeerIdentity;
pub use policy::Policy;
pub use server::{ServerTls, ServerTlsConfig};
use tokio_rustls::rustls::{self, CertificateError, InvalidMessage};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read {what} file {path}: {source}", path = path.display())]
    Read {
        /// What the file holds.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
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

/// A failed handshake in words, for the log: who the peer is instead of who it should be, and usual causes.
#[must_use]
pub fn handshake_error(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => other.0.to_string(),
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the peer's certificate does not lead to the CA file's certificates".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "the peer's certificate has expired".to_owned(),
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the peer does not speak TLS".to_owned()
        }
        Some(rustls::Error::NoCertificatesPresented) => "the peer shows no certificate".to_owned(),
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("the peer refused with TLS alert {alert:?}; its log says why")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
