//! The configuration as the program uses it: durations, paths and choices instead of texts.
//!
//! `build` makes it from options that have been checked, so everything here is consistent. Each part of the program gets its
//! part.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::datastore::kubernetes::KubernetesConfig;
use crate::dialect::choice::OfUnknownVersions;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the data comes from.
    pub datastore: DatastoreConfig,
    /// Where log lines go.
    pub logging: LoggingConfig,
    /// The health endpoint.
    pub health: HealthConfig,
    /// The metrics endpoint.
    pub metrics: MetricsConfig,
    /// The cache and the server.
    pub server: ServerConfig,
    /// TLS of the server; `None`: plain TCP.
    pub tls: Option<TlsConfig>,
    /// Numbers of connections, rebalancing and shutdown.
    pub connections: ConnectionsConfig,
    /// The debug port and profiles.
    pub debug: DebugConfig,
    /// Worker threads; `None`: as many as the process may use processors.
    pub worker_threads: Option<usize>,
}

/// The kinds of datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatastoreType {
    /// The Kubernetes API.
    Kubernetes,
    /// etcd v3.
    Etcdv3,
    /// A folder of YAML and JSON files.
    File,
}

impl fmt::Display for DatastoreType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "kubernetes",
            Self::Etcdv3 => "etcdv3",
            Self::File => "file",
        })
    }
}

/// Where the data comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct DatastoreConfig {
    /// Which kind of datastore.
    pub datastore_type: DatastoreType,
    /// For etcd.
    pub etcd: EtcdConfig,
    /// For the Kubernetes API, whatever is read from it.
    pub kubernetes: KubernetesConfig,
    /// For a folder.
    pub file: FileConfig,
    /// Never write to the datastore.
    pub read_only: bool,
}

/// How to reach etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs, at least one when etcd is the datastore; all of one scheme.
    pub endpoints: Vec<String>,
    /// Key of our client certificate, set with `cert_file` or not at all.
    pub key_file: Option<PathBuf>,
    /// Our client certificate.
    pub cert_file: Option<PathBuf>,
    /// Authorities for the servers' certificates.
    pub ca_file: Option<PathBuf>,
}

/// Which folder to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// The folder; set when a folder is the datastore.
    pub path: Option<PathBuf>,
    /// How long it must be quiet before it is read again.
    pub quiet: Duration,
    /// Whether it is served at start although files of it cannot be read, or it has none.
    pub serve_incomplete: bool,
}

/// Least severe lines that a log destination takes. Calico's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Only what ends the process.
    Critical,
    /// A human must look.
    Error,
    /// Odd, and we go on.
    Warning,
    /// Changes of state.
    Info,
    /// Per batch.
    Debug,
    /// Everything, also of the libraries. Not an option's value; set at run time.
    Trace,
}

impl Severity {
    /// All severities, the most severe first.
    pub const ALL: [Self; 6] = [Self::Critical, Self::Error, Self::Warning, Self::Info, Self::Debug, Self::Trace];

    /// Calico's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "CRITICAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
        }
    }

    /// The severity with this name, in any case; also by the names that Go's loggers use.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "warn" => Some(Self::Warning),
            "fatal" | "panic" => Some(Self::Critical),
            _ => Self::ALL.into_iter().find(|severity| severity.as_str().eq_ignore_ascii_case(name)),
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where log lines go. A destination without a severity is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// For standard output.
    pub screen: Option<Severity>,
    /// For the log file; off too when `file_path` is `None`.
    pub file: Option<Severity>,
    /// Path of the log file.
    pub file_path: Option<PathBuf>,
    /// For the local syslog.
    pub sys: Option<Severity>,
    /// Form of lines.
    pub format: LogFormat,
    /// Wait for slow destinations instead of dropping lines.
    pub disable_dropping: bool,
}

/// The health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// Host name or address; empty means all.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Whether it has /status.
    pub status: bool,
    /// Whether that is told to other hosts and pods, too.
    pub status_remote: bool,
}

/// Whether a scraper must show a certificate. Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsClientAuth {
    /// One that the CA signed.
    RequireAndVerifyClientCert,
    /// Any.
    RequireAnyClientCert,
    /// None, or one that the CA signed.
    VerifyClientCertIfGiven,
    /// None.
    NoClientCert,
}

impl MetricsClientAuth {
    pub(super) const ALL: [Self; 4] = [
        Self::RequireAndVerifyClientCert,
        Self::RequireAnyClientCert,
        Self::VerifyClientCertIfGiven,
        Self::NoClientCert,
    ];

    /// As in the option.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequireAndVerifyClientCert => "RequireAndVerifyClientCert",
            Self::RequireAnyClientCert => "RequireAnyClientCert",
            Self::VerifyClientCertIfGiven => "VerifyClientCertIfGiven",
            Self::NoClientCert => "NoClientCert",
        }
    }
}

/// TLS of the metrics endpoint. Files are not looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsTlsConfig {
    /// Certificate.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// Authorities for scrapers' certificates.
    pub ca_file: PathBuf,
    /// Whether scrapers must show one.
    pub client_auth: MetricsClientAuth,
    /// Oldest accepted version.
    pub min_version: TlsVersion,
    /// IANA names of the suites, separated by commas, not yet looked at; empty: a safe choice.
    pub cipher_suites: String,
}

/// The metrics endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// Host name or address; empty means all.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Whether process_* are included.
    pub process: bool,
    /// `None`: HTTP without TLS.
    pub tls: Option<MetricsTlsConfig>,
}

/// The cache and the server. All durations and counts are more than zero unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Host name or address to listen on; empty means all.
    pub host: String,
    /// Port to listen on.
    pub port: u16,
    /// Most updates in a crumb.
    pub max_batch_size: usize,
    /// Updates in a message before the next is begun.
    pub max_message_size: usize,
    /// Age of a crumb from which on deltas are joined.
    pub min_batching_age: Duration,
    /// How far a client may fall behind.
    pub max_fall_behind: Duration,
    /// For how long after its snapshot it may be further behind.
    pub new_client_grace: Duration,
    /// Pause between pings.
    pub ping_interval: Duration,
    /// Longest time without a pong; more than twice `ping_interval`.
    pub pong_timeout: Duration,
    /// Longest time for each step of the handshake.
    pub handshake_timeout: Duration,
    /// Longest time for a write without progress.
    pub write_timeout: Duration,
    /// Most bytes of encoded history kept per feed.
    pub max_lag_bytes: usize,
    /// Most updates of history kept per feed.
    pub max_lag_updates: usize,
    /// Oldest encoded snapshot that another client is given.
    pub snapshot_max_age: Duration,
    /// The system's send buffer per connection in bytes; `None` leaves it to the system.
    pub send_buffer: Option<usize>,
    /// Most connections in the handshake at once.
    pub max_handshakes: usize,
    /// Longest wait of changes to be sent together; may be zero.
    pub pace_max: Duration,
    /// The dialect of agents whose version says nothing.
    pub of_unknown_versions: OfUnknownVersions,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    /// As in the option.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// TLS of the server. The files exist; whether they hold what they should is found out when they are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Private key.
    pub key_file: PathBuf,
    /// Certificate.
    pub cert_file: PathBuf,
    /// Authorities for clients.
    pub ca_file: PathBuf,
    /// Common name that a client may have. One of the two names is set; with both, either will do.
    pub client_cn: Option<String>,
    /// URI alternative name that a client may have.
    pub client_uri_san: Option<String>,
    /// Oldest accepted version.
    pub min_version: TlsVersion,
    /// IANA names of the suites, separated by commas, not yet looked at; empty: a safe choice.
    pub cipher_suites: String,
}

/// How connections are shared out among instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalancing {
    /// How often instances are counted; more than zero.
    pub poll_interval: Duration,
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of its port.
    pub port_name: String,
}

/// Numbers of connections, rebalancing and shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// Most connections.
    pub upper_limit: usize,
    /// Rebalancing does not go below.
    pub lower_limit: usize,
    /// Pause between drops when there are too many.
    pub drop_interval: Duration,
    /// Over which time connections are closed at the end.
    pub shutdown_timeout: Duration,
    /// Longest pause between two of them.
    pub shutdown_drop_interval_max: Duration,
    /// By the Kubernetes API; `None`: not at all.
    pub rebalancing: Option<Rebalancing>,
}

/// For whoever looks into a running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugConfig {
    /// Host name or address of the debug port; empty means all.
    pub host: String,
    /// The debug port; `None`: off.
    pub port: Option<u16>,
    /// Where SIGUSR1 writes a heap profile; `None`: the signal is free.
    pub memory_profile_path: Option<PathBuf>,
}

/// The level of the log before the configuration is read, and what is odd about the variable that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyLevel {
    /// The level.
    pub severity: Severity,
    /// A variable whose text is not a level, with that text. `load` reports it as well.
    pub odd: Option<(String, String)>,
}

/// Reads `TYPHA_EARLYLOGSEVERITYSCREEN`, then `TYPHA_LOGSEVERITYSCREEN`, in exactly this spelling as Typha does.
#[must_use]
pub fn early_level(environment: impl IntoIterator<Item = (OsString, OsString)>) -> EarlyLevel {
    let mut texts = [None, None];
    for (name, text) in environment {
        let place = match name.to_str() {
            Some("TYPHA_EARLYLOGSEVERITYSCREEN") => 0,
            Some("TYPHA_LOGSEVERITYSCREEN") => 1,
            _ => continue,
        };
        texts[place] = Some((name, text)).filter(|(_, text)| !text.is_empty());
    }
    let Some((name, text)) = texts.into_iter().flatten().next() else {
        return EarlyLevel { severity: Severity::Error, odd: None };
    };
    let text = text.to_string_lossy().into_owned();
    match Severity::from_name(&text) {
        Some(severity) => EarlyLevel { severity, odd: None },
        None => EarlyLevel { severity: Severity::Error, odd: Some((name.to_string_lossy().into_owned(), text)) },
    }
}
