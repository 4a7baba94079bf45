//! The reasons for which TLS cannot be set up.

use std::path::PathBuf;

/// The reason for which TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read {what} file {path}: {reason}", path = path.display())]
    Read {
        /// The kind of the file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The reason.
        reason: std::io::Error,
    },
    /// A file has the wrong content.
    #[error("parse {what} file {path}: {reason}", path = path.display())]
    Parse {
        /// The kind of the file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Key and certificate were read, but cannot be used (together).
    #[error("use certificate file {cert} with key file {key}: {reason}", cert = cert.display(), key = key.display())]
    KeyPair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A setting that is missing or does not fit the others.
    #[error("{0}")]
    Settings(String),
}
