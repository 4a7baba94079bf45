//! The etcd v3 datastore: Calico's own layout below `/calico/`.
//!
//! Fed by an etcd cluster, feeds the kind watches. [`endpoints`] keeps one connection per endpoint and moves on when one
//! fails, [`list`] pages through a prefix at one revision, [`watch`] follows it from there, [`object`] turns keys and
//! values into objects, [`failure`] turns etcd's errors into what to do next, [`init`] is the little that is written.
//!
//! Invariants: a page of a list never comes from another revision than the first one; the position of a batch never
//! runs ahead of the events delivered; a value that cannot be read affects its own key only.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use self::endpoints::Endpoints;
use super::{Datastore, Error, Kind, ListPage, WatchBatch};
use crate::model::Revision;

mod endpoints;
mod failure;
mod init;
mod list;
mod object;
mod watch;

/// How many keys a page of a list asks for at first.
///
/// Small pages of a big kind are slow: 100,000 endpoints took 3.6 s in pages of 1,000 and 1.2 s in pages of 10,000, while our CPU
/// time stayed the same (docs/performance.md). Probably etcd counts what is left behind the start of each page; not profiled. A page of 10,000 endpoints is
/// about eight megabytes. A page that would not fit the message limit is asked for again in halves.
pub const DEFAULT_PAGE_LIMIT: u32 = 10_000;

/// The largest message that is accepted from etcd, in bytes.
///
/// etcd refuses requests above 1.5 MiB unless told otherwise, and sends watch responses in fragments of that size. Pages
/// of a list shrink until they fit. What is left is a single huge value, for which this is ample.
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
        /// What is wrong with it.
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
        /// What is wrong with it.
        reason: String,
    },
}

/// An etcd cluster as a datastore. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

struct Shared {
    endpoints: Endpoints,
    page_limit: u32,
    /// Cluster id that answered the last list, per prefix: a watch must not go on in another cluster's history.
    listed_from: Mutex<HashMap<String, u64>>,
}

impl Shared {
    fn note_cluster(&self, prefix: &str, cluster: u64) {
        let mut known = self.listed_from.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(prefix.to_owned(), cluster);
    }

    fn cluster_of(&self, prefix: &str) -> Option<u64> {
        self.listed_from.lock().unwrap_or_else(PoisonError::into_inner).get(prefix).copied()
    }
}

impl EtcdStore {
    /// Prepares the connections. Nothing is sent yet: an etcd that is away shows as [`Error::Retry`] of lists and watches.
    ///
    /// # Errors
    /// What is wrong with the configuration, TLS files included.
    pub fn connect(config: EtcdConfig) -> Result<Self, ConfigError> {
        let page_limit = config.page_limit.max(1);
        let endpoints = Endpoints::new(config)?;
        Ok(Self { shared: Arc::new(Shared { endpoints, page_limit, listed_from: Mutex::default() }) })
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("endpoints", &self.shared.endpoints).finish_non_exhaustive()
    }
}

impl Datastore for EtcdStore {
    fn list(&self, kind: &Kind) -> BoxStream<'static, Result<ListPage, Error>> {
        match &kind.etcd_prefix {
            Some(prefix) => list::pages(Arc::clone(&self.shared), kind.clone(), prefix.to_string()).boxed(),
            None => absent(kind),
        }
    }

    fn watch(&self, kind: &Kind, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        match &kind.etcd_prefix {
            Some(prefix) => {
                watch::batches(Arc::clone(&self.shared), kind.clone(), prefix.to_string(), from.clone()).boxed()
            }
            None => absent(kind),
        }
    }
}

fn absent<T: Send + 'static>(kind: &Kind) -> BoxStream<'static, Result<T, Error>> {
    let error = Error::KindAbsent { kind: kind.to_string(), gone: false };
    stream::once(async move { Err(error) }).boxed()
}
