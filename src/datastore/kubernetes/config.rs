//! Where the API server is and as whom we speak to it, as data. The variables are read in [`crate::config`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::datastore::address::Address;
use crate::datastore::catalog::Catalog;

/// Requests per second unless `K8S_CLIENT_QPS` says otherwise: that of Kubernetes' own clients.
pub const DEFAULT_QPS: f32 = 5.0;
/// Requests that may come at once unless `K8S_CLIENT_BURST` says otherwise. Calico's.
pub const DEFAULT_BURST: u32 = 100;
/// Objects per page of a list that comes in pages: that of Kubernetes' own clients. A page of big pods is some megabytes.
pub const DEFAULT_PAGE_LIMIT: u32 = 500;
/// How long a connection may take to come about.
pub(super) const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// Where the API server is, and how it may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesConfig {
    /// Kubeconfig files, merged as `kubectl` merges them. `KUBECONFIG`.
    pub kubeconfig: Vec<PathBuf>,
    /// Address of the API server. `K8S_API_ENDPOINT`.
    pub endpoint: Option<Address>,
    /// The context of the kubeconfig. `K8S_CURRENT_CONTEXT`.
    pub context: Option<String>,
    /// Private key of our client certificate. `K8S_KEY_FILE`.
    pub key_file: Option<PathBuf>,
    /// Our client certificate. `K8S_CERT_FILE`.
    pub cert_file: Option<PathBuf>,
    /// Authorities for the server's certificate. `K8S_CA_FILE`.
    pub ca_file: Option<PathBuf>,
    /// Our token. `CALICO_K8SAPITOKEN`.
    pub token: Option<Token>,
    /// Do not check the server's certificate. `K8S_INSECURE_SKIP_TLS_VERIFY`.
    pub insecure: bool,
    /// Requests per second; not positive: no limit. `K8S_CLIENT_QPS`.
    pub qps: f32,
    /// Requests that may come at once. `K8S_CLIENT_BURST`.
    pub burst: u32,
    /// Knowledge about kinds; not from a variable.
    pub catalog: Arc<Catalog>,
    /// Objects per page of a list, at least 1; not from a variable.
    pub page_limit: u32,
    /// Through whom the API server is reached; a kubeconfig's `proxy-url` counts more. `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`.
    pub proxies: Proxies,
    /// The home directory, where `.kube/config` may be. `HOME`.
    pub home: Option<PathBuf>,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self {
            kubeconfig: Vec::new(),
            endpoint: None,
            context: None,
            key_file: None,
            cert_file: None,
            ca_file: None,
            token: None,
            insecure: false,
            qps: DEFAULT_QPS,
            burst: DEFAULT_BURST,
            catalog: Arc::default(),
            page_limit: DEFAULT_PAGE_LIMIT,
            proxies: Proxies::default(),
            home: None,
        }
    }
}

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The proxies of the environment. They may contain passwords, which no log shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `https` addresses. `HTTPS_PROXY`.
    pub https: Option<String>,
    /// For `http` addresses. `HTTP_PROXY`.
    pub http: Option<String>,
    /// Hosts, domains and networks that are reached directly, separated by commas. `NO_PROXY`.
    pub no: String,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |proxy: &Option<String>| proxy.as_ref().map(|_| "…");
        f.debug_struct("Proxies")
            .field("https", &shown(&self.https))
            .field("http", &shown(&self.http))
            .field("no", &self.no)
            .finish()
    }
}

/// Why there can be no client. All of it is configuration: an API server that is away is no such error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A kubeconfig that cannot be used.
    #[error("kubeconfig {path:?} is not usable: {reason}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Its fault.
        reason: String,
    },
    /// No address anywhere.
    #[error(
        "no API server is configured: {reason}; set KUBECONFIG or K8S_API_ENDPOINT, or run as a pod with a service \
         account token"
    )]
    NotInCluster {
        /// The places that were looked at.
        reason: String,
    },
    /// The settings together make no client.
    #[error("the settings for the API server do not work: {reason}")]
    Settings {
        /// Which, and why.
        reason: String,
    },
}
