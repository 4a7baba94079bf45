//! The connections to etcd: one per endpoint, and which of them to use.
//!
//! Feeds lists, watches and the initialisation. A request goes to the preferred endpoint; when that fails as an endpoint
//! (not as a request) the next one is tried, and the one that answers becomes preferred. A connection that failed is
//! dropped and built afresh, which also re-reads the TLS files: renewed certificates need no restart.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::config::{ConfigError, EtcdConfig};
use super::failure::Failure;

/// How long a TCP and TLS connection may take. Within a cluster it takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one request may take. A page of a list is milliseconds; a member that replays its log answers late.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How often an open connection is probed. etcd refuses probes more often than every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a probe may stay unanswered before the connection counts as dead.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// From these versions on an answer to a requested progress notification never overtakes events (etcd issue 15220).
const PROGRESS_FIXED_IN: [(u32, u32, u32); 2] = [(3, 4, 25), (3, 5, 8)];

/// All endpoints of a cluster.
pub(super) struct Endpoints {
    all: Vec<Endpoint>,
    tls: TlsFiles,
    preferred: AtomicUsize,
}

struct Endpoint {
    url: Arc<str>,
    connection: Mutex<Option<Connection>>,
}

/// A connection to one endpoint. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) url: Arc<str>,
    index: usize,
    progress_is_safe: Arc<OnceCell<bool>>,
}

impl Connection {
    /// Whether the member's requested progress notifications can be believed. Asks it once per connection.
    pub(super) async fn progress_is_safe(&self) -> bool {
        let ask = async {
            match timeout(REQUEST_TIMEOUT, self.client.maintenance_client().status()).await {
                Ok(Ok(status)) => Ok(version_has_safe_progress(status.version())),
                _ => Err(()),
            }
        };
        self.progress_is_safe.get_or_try_init(|| ask).await.copied().unwrap_or(false)
    }
}

fn version_has_safe_progress(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor)), Some(Some(patch))) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    match PROGRESS_FIXED_IN.iter().find(|fixed| (fixed.0, fixed.1) == (major, minor)) {
        Some(fixed) => patch >= fixed.2,
        None => (major, minor) > (3, 5),
    }
}

#[derive(Clone, Debug)]
struct TlsFiles {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
        fs::read(path).map_err(|error| bad_file(option, path, error.to_string()))
    }

    /// Reads and checks everything that is named.
    fn load(&self) -> Result<TlsOptions, ConfigError> {
        let mut options = TlsOptions::new();
        match &self.ca {
            None => options = options.with_enabled_roots(),
            Some(path) => {
                let pem = Self::read("EtcdCaFile", path)?;
                check_certificates("EtcdCaFile", path, &pem)?;
                options = options.ca_certificate(Certificate::from_pem(pem));
            }
        }
        if let Some((cert_path, key_path)) = &self.identity {
            let cert = Self::read("EtcdCertFile", cert_path)?;
            check_certificates("EtcdCertFile", cert_path, &cert)?;
            let key = Self::read("EtcdKeyFile", key_path)?;
            PrivateKeyDer::from_pem_slice(&key)
                .map_err(|error| bad_file("EtcdKeyFile", key_path, format!("no private key in PEM form: {error}")))?;
            options = options.identity(Identity::from_pem(cert, key));
        }
        Ok(options)
    }
}

fn bad_file(option: &'static str, path: &Path, reason: String) -> ConfigError {
    ConfigError::BadFile { option, path: path.to_owned(), reason }
}

fn check_certificates(option: &'static str, path: &Path, pem: &[u8]) -> Result<(), ConfigError> {
    let mut certificates = CertificateDer::pem_slice_iter(pem);
    match certificates.next() {
        None => Err(bad_file(option, path, "no certificate in PEM form".to_owned())),
        Some(Err(error)) => Err(bad_file(option, path, format!("no certificate in PEM form: {error}"))),
        Some(Ok(_)) => Ok(()),
    }
}

impl Endpoints {
    pub(super) fn new(config: EtcdConfig) -> Result<Self, ConfigError> {
        if config.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoints);
        }
        for url in &config.endpoints {
            check_url(url).map_err(|reason| ConfigError::BadEndpoint { url: url.clone(), reason })?;
        }
        let identity = match (config.cert_file, config.key_file) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(ConfigError::HalfIdentity),
        };
        let tls = TlsFiles { ca: config.ca_file, identity };
        tls.load()?;
        let all = config
            .endpoints
            .into_iter()
            .map(|url| Endpoint { url: Arc::from(url), connection: Mutex::new(None) })
            .collect();
        Ok(Self { all, tls, preferred: AtomicUsize::new(0) })
    }

    /// The addresses, for logs.
    pub(super) fn urls(&self) -> String {
        self.all.iter().map(|endpoint| &*endpoint.url).collect::<Vec<_>>().join(", ")
    }

    async fn connection(&self, index: usize) -> Result<Connection, Failure> {
        let endpoint = &self.all[index];
        let open = endpoint.connection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(connection) = open {
            return Ok(connection);
        }
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if endpoint.url.starts_with("https://") {
            let tls = self.tls.load().map_err(|error| Failure::Endpoint(error.to_string()))?;
            options = options.with_tls(tls);
        }
        let client = Client::connect([&*endpoint.url], Some(options)).await.map_err(|error| Failure::of(&error))?;
        let connection = Connection { client, url: Arc::clone(&endpoint.url), index, progress_is_safe: Arc::default() };
        // Two callers may have come here at once; the first one's connection is kept.
        let mut slot = endpoint.connection.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(slot.get_or_insert(connection).clone())
    }

    /// Tells that a connection turned out to be bad, and prefers the next endpoint if this one was preferred.
    pub(super) fn failed(&self, connection: &Connection) {
        let mut slot = self.all[connection.index].connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Callers that share a connection all notice; only the first one drops it.
        if slot.as_ref().is_some_and(|open| Arc::ptr_eq(&open.progress_is_safe, &connection.progress_is_safe)) {
            *slot = None;
        }
        let next = (connection.index + 1) % self.all.len();
        let _ = self.preferred.compare_exchange(connection.index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes a request, on the next endpoint when one fails. Gives up when each was tried once.
    ///
    /// # Errors
    /// The failure of the request itself at once; otherwise what is wrong with each endpoint.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request.
    pub(super) async fn request<T, F, R>(&self, request: F) -> Result<T, Failure>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = Result<T, Failure>>,
    {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut reasons = Vec::new();
        for offset in 0..self.all.len() {
            let index = (first + offset) % self.all.len();
            let connection = match self.connection(index).await {
                Ok(connection) => connection,
                Err(failure) => {
                    reasons.push(self.named(index, &failure));
                    continue;
                }
            };
            let result = match timeout(REQUEST_TIMEOUT, pin!(request(connection.clone()))).await {
                Ok(result) => result,
                Err(_) => Err(Failure::Endpoint(format!(
                    "no answer within {REQUEST_TIMEOUT:?}; check the load of this etcd member and the network"
                ))),
            };
            match result {
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(failure @ Failure::Endpoint(_)) => {
                    self.failed(&connection);
                    reasons.push(self.named(index, &failure));
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Endpoint(reasons.join("; ")))
    }

    fn named(&self, index: usize, failure: &Failure) -> String {
        let url = &self.all[index].url;
        let reason = match failure {
            Failure::Endpoint(reason)
            | Failure::Refused(reason)
            | Failure::Forbidden(reason)
            | Failure::TooLarge(reason)
            | Failure::PositionGone(reason) => reason,
        };
        // With TLS 1.3 a server that refuses our certificate just closes the connection.
        if url.starts_with("https://") && reason.contains("connection closed") {
            format!("{url}: {reason}, and that it accepts the certificate in EtcdCertFile")
        } else {
            format!("{url}: {reason}")
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.urls())
    }
}

fn check_url(url: &str) -> Result<(), String> {
    let Some(authority) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return Err("it has no scheme".to_owned());
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let Some((host, port)) = authority.rsplit_once(':') else {
        return Err("it has no port".to_owned());
    };
    if host.is_empty() || host.contains(['/', '@', '?', '#']) || host.contains(char::is_whitespace) {
        return Err(format!("{host:?} is no host"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(()),
        _ => Err(format!("{port:?} is no port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked_before_anything_is_sent() {
        for good in ["http://127.0.0.1:2379", "https://etcd-1.example:2379/", "http://[::1]:2379"] {
            assert!(Endpoints::new(EtcdConfig::new([good])).is_ok(), "{good}");
        }
        for bad in
            ["127.0.0.1:2379", "http://host", "http://:1", "http://h:0", "http://h:99999", "ftp://h:1", "http://a b:1"]
        {
            let error = Endpoints::new(EtcdConfig::new([bad])).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
        assert!(matches!(Endpoints::new(EtcdConfig::new::<String>([])), Err(ConfigError::NoEndpoints)));
    }

    #[test]
    fn tls_files_are_checked_by_name() {
        let mut config = EtcdConfig::new(["https://h:1"]);
        config.cert_file = Some("x".into());
        assert!(matches!(Endpoints::new(config.clone()), Err(ConfigError::HalfIdentity)));
        config.cert_file = None;
        config.ca_file = Some("no-such-file".into());
        let error = Endpoints::new(config.clone()).unwrap_err().to_string();
        assert!(error.contains("EtcdCaFile") && error.contains("no-such-file"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        fs::write(&path, "no pem").unwrap();
        config.ca_file = Some(path);
        let error = Endpoints::new(config).unwrap_err().to_string();
        assert!(error.contains("no certificate"), "{error}");
    }

    #[test]
    fn progress_is_believed_from_the_fixed_versions_on() {
        for (version, safe) in [
            ("3.4.24", false),
            ("3.4.25", true),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.5.20-rc.1", true),
            ("3.6.16", true),
            ("4.0.0", true),
            ("3.3.99", false),
            ("", false),
            ("x.y.z", false),
        ] {
            assert_eq!(version_has_safe_progress(version), safe, "{version}");
        }
    }
}
