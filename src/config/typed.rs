//! The configuration as the program uses it: durations, paths and choices instead of texts.
//!
//! [`super::table`] makes it from checked options, so all values go together. Each part of the program gets its own part; the
//! server's is in [`super::server`].

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::server::ServerConfig;
use crate::datastore::Pattern;
use crate::datastore::kubernetes::KubernetesConfig;
use crate::model::SyncerName;
use crate::replicas::Service;
use crate::validate::filter::OnInvalid;

/// Name of the datastore that is described by options outside of named sections. Calico's syncers are fed from it, and other
/// syncers may be.
pub const GLOBAL: &str = "global";

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The datastore that is described by options outside of named sections, whether or not it is used.
    pub global: DatastoreConfig,
    /// True if Calico's syncers run.
    pub calico_syncers: bool,
    /// The datastores that are used: first that of Calico's syncers if it is one of them, then those of sections, in the file's order. Each
    /// has another name.
    pub datastores: Vec<DatastoreConfig>,
    /// The syncers of other kinds, in the file's order. Each has another name, and none the name of one of Calico's.
    pub syncers: Vec<SyncerConfig>,
    /// Destinations of log lines.
    pub logging: LoggingConfig,
    /// The health endpoint.
    pub health: HealthConfig,
    /// The metrics endpoint.
    pub metrics: MetricsConfig,
    /// The cache of each syncer.
    pub cache: CacheConfig,
    /// The server.
    pub server: ServerConfig,
    /// TLS of the server; `None`: plain TCP.
    pub tls: Option<TlsConfig>,
    /// The sharing of connections among instances.
    pub connections: ConnectionsConfig,
    /// The debug port and profiles.
    pub debug: DebugConfig,
    /// Number of worker threads; `None`: one for each processor that the process may use.
    pub worker_threads: Option<usize>,
}

impl Config {
    /// The datastore that Calico's syncers are fed from if they run.
    #[must_use]
    pub fn of_calico(&self) -> &DatastoreConfig {
        &self.global
    }
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

/// A datastore.
#[derive(Clone, Debug, PartialEq)]
pub struct DatastoreConfig {
    /// Its name in this configuration.
    pub name: String,
    /// The kind of datastore; only the settings of this kind count.
    pub datastore_type: DatastoreType,
    /// Settings of etcd.
    pub etcd: EtcdConfig,
    /// Settings of the Kubernetes API.
    pub kubernetes: KubernetesConfig,
    /// Settings of a folder.
    pub file: FileConfig,
    /// True if the datastore is never written to.
    pub read_only: bool,
    /// True if no syncer is in sync without it.
    pub required: bool,
    /// How long syncers wait for a datastore that is not required. They are in sync without it then.
    pub sync_timeout: Duration,
}

/// Address and TLS files of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs, all of one scheme; at least one when etcd is the datastore.
    pub endpoints: Vec<String>,
    /// Key of our client certificate; set if and only if `cert_file` is.
    pub key_file: Option<PathBuf>,
    /// Our client certificate.
    pub cert_file: Option<PathBuf>,
    /// Certificates of the authorities that may sign the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// The documents to read there; `None`: Calico's objects.
    pub documents: Option<Documents>,
}

/// Documents in etcd, of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    /// Keys that begin with it are documents. Ends in `/`.
    pub prefix: String,
    /// True if values are bytes, each an object of the kind `bulrush.io/v1/Bytes`; otherwise they are JSON or YAML, and tell their kind.
    pub raw: bool,
}

/// A folder that is a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Its path; set when a folder is the datastore.
    pub path: Option<PathBuf>,
    /// Time that it must be quiet before it is read again.
    pub quiet: Duration,
    /// True if it is served at start even when it has no files, or files that cannot be read.
    pub serve_incomplete: bool,
    /// True if it is held when most of its objects go at once, until someone confirms that.
    pub mass_delete_guard: bool,
}

/// A syncer of any kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncerConfig {
    /// Its name, under which agents ask for it.
    pub name: SyncerName,
    /// Names of the datastores that feed it, all of [`Config::datastores`]; of one object that several have, the first one's counts.
    pub sources: Vec<String>,
    /// The kinds that it serves; at least one pattern.
    pub kinds: Vec<Pattern>,
    /// The namespaces whose objects it serves; none: all.
    pub namespaces: Vec<String>,
    /// The label selector of its objects, checked; empty: all.
    pub selector: String,
    /// The part of folders whose files it serves, relative to each; empty: all.
    pub folder: PathBuf,
    /// Files and folders with the schemas that objects are checked with. They existed when the configuration was read.
    pub schemas: Vec<PathBuf>,
    /// The fate of invalid objects.
    pub on_invalid: OnInvalid,
    /// Changes are published after this much quiet; at most `max_delay`.
    pub quiet: Duration,
    /// Changes wait at most this long.
    pub max_delay: Duration,
    /// True if `metadata.managedFields`, `metadata.resourceVersion` and `status` are sent, and count as changes.
    pub status: bool,
    /// True if the program is not ready before it is in sync.
    pub ready: bool,
}

/// Severity of log lines, in Calico's words. A destination takes lines of its severity and more severe ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The process ends.
    Critical,
    /// An operator must act.
    Error,
    /// Unexpected, and the program goes on.
    Warning,
    /// A change of state.
    Info,
    /// Details of each batch.
    Debug,
    /// Everything, also from libraries. No option accepts it; it is set at run time.
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

    /// The severity with this name, in any case. The names of Go's loggers are known too.
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

/// Destinations of log lines. A destination without a severity is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingConfig {
    /// Severity for standard output.
    pub screen: Option<Severity>,
    /// Severity for the log file, which is also off when `file_path` is `None`.
    pub file: Option<Severity>,
    /// Path of the log file.
    pub file_path: Option<PathBuf>,
    /// Severity for the local syslog.
    pub sys: Option<Severity>,
    /// Form of lines.
    pub format: LogFormat,
    /// True if a slow destination makes the program wait, instead of losing lines.
    pub disable_dropping: bool,
}

/// The health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// True if there is one.
    pub enabled: bool,
    /// Host name or address; empty means all.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// True if it has /status.
    pub status: bool,
    /// True if other hosts and pods get /status too.
    pub status_remote: bool,
}

/// The certificate that a scraper must show. Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsClientAuth {
    /// A certificate that the CA signed.
    RequireAndVerifyClientCert,
    /// Any certificate.
    RequireAnyClientCert,
    /// No certificate, or one that the CA signed.
    VerifyClientCertIfGiven,
    /// No certificate.
    NoClientCert,
}

/// TLS of the metrics endpoint. The files have not been read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsTlsConfig {
    /// Certificate.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// Authorities for scrapers' certificates.
    pub ca_file: PathBuf,
    /// The certificate that scrapers must show.
    pub client_auth: MetricsClientAuth,
    /// Oldest accepted version.
    pub min_version: TlsVersion,
    /// IANA names of the cipher suites, separated by commas, not checked yet; empty: a safe choice.
    pub cipher_suites: String,
}

/// The metrics endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// True if there is one.
    pub enabled: bool,
    /// Host name or address; empty means all.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// True if process_* are included.
    pub process: bool,
    /// `None`: HTTP without TLS.
    pub tls: Option<MetricsTlsConfig>,
}

/// The cache of each syncer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Most updates in a crumb; at least one.
    pub max_batch_size: usize,
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

/// TLS of the server. The files exist; their content is checked when they are loaded.
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
    /// IANA names of the cipher suites, separated by commas, not checked yet; empty: a safe choice.
    pub cipher_suites: String,
}

/// Rebalancing of connections among the instances that the Kubernetes API lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebalancing {
    /// Time between two counts of the instances; more than zero.
    pub poll_interval: Duration,
    /// The service whose endpoints are the instances.
    pub service: Service,
    /// Settings of the API.
    pub kubernetes: KubernetesConfig,
}

/// The sharing of connections among instances.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionsConfig {
    /// Number of connections below which rebalancing never goes; may be zero.
    pub lower_limit: usize,
    /// Rebalancing; `None`: off.
    pub rebalancing: Option<Rebalancing>,
}

/// Looking into a running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugConfig {
    /// Host name or address of the debug port; empty means all.
    pub host: String,
    /// The debug port; `None`: off.
    pub port: Option<u16>,
    /// Path where SIGUSR1 writes a heap profile; `None`: the signal reloads.
    pub memory_profile_path: Option<PathBuf>,
}

/// The level of the log before the configuration is read: that of `TYPHA_EARLYLOGSEVERITYSCREEN`, else that of
/// `TYPHA_LOGSEVERITYSCREEN`, in exactly this spelling as Typha does, else ERROR. [`load`](super::load) reports a wrong level.
#[must_use]
pub fn early_level(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Severity {
    let (mut early, mut screen) = (None, None);
    for (name, text) in environment.into_iter().filter(|(_, text)| !text.is_empty()) {
        match name.to_str() {
            Some("TYPHA_EARLYLOGSEVERITYSCREEN") => early = Some(text),
            Some("TYPHA_LOGSEVERITYSCREEN") => screen = Some(text),
            _ => {}
        }
    }
    early.or(screen).and_then(|text| Severity::from_name(text.to_str()?)).unwrap_or(Severity::Error)
}
