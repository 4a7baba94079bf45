//! Where etcd is and how to speak to it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::datastore::catalog::Catalog;

/// Keys that a page of a list asks for at first.
///
/// Small pages of a big kind are slow: 100,000 endpoints took 3.6 s in pages of 1,000 and 1.2 s in pages of 10,000, while our CPU
/// time stayed the same (docs/performance.md). Probably etcd counts what is left behind the start of each page; not profiled. A page of 10,000 endpoints is
/// about eight megabytes. A page that would not fit the message limit is asked for again in halves.
pub const DEFAULT_PAGE_LIMIT: u32 = 10_000;

/// The largest message that is accepted from etcd, in bytes.
///
/// etcd refuses requests above 1.5 MiB unless told otherwise, and sends watch responses in fragments of that size. Pages
/// of a list shrink until they fit. The rest is a single huge value, for which this is ample.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// Where etcd is and how to speak to it. The options `EtcdEndpoints`, `EtcdCaFile`, `EtcdCertFile`, `EtcdKeyFile`.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// URLs of the members, `http://host:port` or `https://host:port`. Tried in this order.
    pub endpoints: Vec<String>,
    /// PEM file with the authorities that may have signed the servers' certificates. Empty: those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with our certificate chain; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Knowledge about kinds.
    pub catalog: Arc<Catalog>,
    /// Keys per page of a list, at least 1. [`DEFAULT_PAGE_LIMIT`] unless a test wants many pages.
    pub page_limit: u32,
}

impl EtcdConfig {
    /// A configuration without TLS files.
    #[must_use]
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            catalog: Arc::default(),
            page_limit: DEFAULT_PAGE_LIMIT,
        }
    }
}

/// Why an etcd datastore cannot be set up. All of it is configuration: an etcd that is away is no such error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No endpoint at all.
    #[error("no etcd endpoint given: set EtcdEndpoints, or EtcdScheme and EtcdAddr")]
    NoEndpoints,
    /// An endpoint that is no URL of a server.
    #[error("etcd endpoint {url:?} is not usable: {reason}; write http://host:port or https://host:port")]
    BadEndpoint {
        /// The endpoint as given.
        url: String,
        /// Its fault.
        reason: String,
    },
    /// Only one of certificate and key is given.
    #[error("only one of EtcdCertFile and EtcdKeyFile is set: a client certificate needs both")]
    HalfIdentity,
    /// A TLS file cannot be used.
    #[error("{option} {path:?} is not usable: {reason}")]
    BadFile {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Its fault.
        reason: String,
    },
}
