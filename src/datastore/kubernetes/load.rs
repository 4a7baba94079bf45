//! Makes a client's configuration of a kubeconfig, single settings, or what every pod is given; reads files.
//!
//! The order is Calico's: `K8S_*` settings count more than a kubeconfig; without a kubeconfig and without an address it is
//! `~/.kube/config` if that exists, and else the pod's own service account.

use std::path::{Path, PathBuf};

use http::Uri;
use hyper_util::client::proxy::matcher::Intercept;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tracing::warn;

use super::config::{CONNECT_TIMEOUT, ConfigError, KubernetesConfig};
use super::proxy;

/// Name of the only cluster, user and context of a kubeconfig that is made of single settings.
const ONLY: &str = "environment";

/// The parts of a client.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) config: kube::Config,
    pub(super) proxy: Option<Intercept>,
}

impl KubernetesConfig {
    /// Makes the client's configuration; reads files.
    pub(super) fn load(&self) -> Result<Loaded, ConfigError> {
        let kubeconfig = self.kubeconfig()?;
        let named = kubeconfig.as_ref().and_then(named_proxy);
        let mut config = match kubeconfig {
            Some(kubeconfig) => from_kubeconfig(kubeconfig)?,
            None => self.in_cluster()?,
        };
        // The library logs and repeats the address as it is, and makes no use of a user in it.
        config.cluster_url = without_user(config.cluster_url);
        let proxy = proxy::choose(named.as_deref(), &self.proxies, &config.cluster_url)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // We retry by ourselves: with our bounds, and so that a kind's status tells of it.
        config.default_retry = false;
        Ok(Loaded { config, proxy })
    }

    /// The pod's own account with the single settings in it.
    fn in_cluster(&self) -> Result<kube::Config, ConfigError> {
        let mut config =
            kube::Config::incluster_env().map_err(|error| ConfigError::NotInCluster { reason: error.to_string() })?;
        self.override_in_cluster(&mut config)?;
        Ok(config)
    }

    fn override_in_cluster(&self, config: &mut kube::Config) -> Result<(), ConfigError> {
        let settings = |reason: String| ConfigError::Settings { reason };
        if let Some(context) = &self.context {
            warn!(context, "K8S_CURRENT_CONTEXT is set and not used: there is no kubeconfig that could have contexts");
        }
        if let Some(path) = &self.ca_file {
            let wrong = |reason: &dyn std::fmt::Display| {
                settings(format!("K8S_CA_FILE {} holds no certificates: {reason}", path.display()))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
            if certificates.is_empty() {
                return Err(wrong(&"nothing in it is one in PEM form"));
            }
            config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
            config.root_cert_file = None;
        }
        config.accept_invalid_certs |= self.insecure;
        self.override_user(&mut config.auth_info);
        Ok(())
    }

    fn override_user(&self, user: &mut AuthInfo) {
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            user.client_certificate = Some(cert.display().to_string());
            user.client_certificate_data = None;
            user.client_key = Some(key.display().to_string());
            user.client_key_data = None;
        }
        if let Some(token) = &self.token {
            user.token = Some(token.0.clone().into());
            user.token_file = None;
        }
    }

    /// The kubeconfig with the single settings in it; `None`: the pod's own account is meant.
    fn kubeconfig(&self) -> Result<Option<Kubeconfig>, ConfigError> {
        let in_home = self.home.as_ref().map(|home| home.join(".kube").join("config")).filter(|path| path.is_file());
        let paths: Vec<&Path> = match (self.kubeconfig.as_slice(), &self.endpoint, &in_home) {
            ([], None, Some(path)) => vec![path],
            ([], None, None) => return Ok(None),
            (paths, _, _) => paths.iter().map(PathBuf::as_path).collect(),
        };
        let mut merged = Kubeconfig::default();
        let among_others = paths.len() > 1;
        for path in paths {
            // A list names places to look at, as Kubernetes' own clients take it; a file that is named alone has to be there.
            if among_others && !path.exists() {
                warn!(?path, "a kubeconfig of several is missing and passed over");
                continue;
            }
            let wrong = |error: kube::config::KubeconfigError| ConfigError::Kubeconfig {
                path: path.to_owned(),
                reason: error.to_string(),
            };
            merged = merged.merge(Kubeconfig::read_from(path).map_err(wrong)?).map_err(wrong)?;
        }
        self.override_settings(&mut merged);
        Ok(Some(merged))
    }

    fn override_settings(&self, kubeconfig: &mut Kubeconfig) {
        let wanted = self.context.clone().or_else(|| kubeconfig.current_context.clone());
        if wanted.is_none() && kubeconfig.contexts.is_empty() {
            let context = Context { cluster: ONLY.to_owned(), user: Some(ONLY.to_owned()), ..Context::default() };
            kubeconfig.contexts.push(NamedContext {
                name: ONLY.to_owned(),
                context: Some(context),
                ..NamedContext::default()
            });
            let cluster =
                NamedCluster { name: ONLY.to_owned(), cluster: Some(Cluster::default()), ..NamedCluster::default() };
            kubeconfig.clusters.push(cluster);
            let user = AuthInfo::default();
            kubeconfig.auth_infos.push(NamedAuthInfo {
                name: ONLY.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            });
        }
        let current = wanted.unwrap_or_else(|| ONLY.to_owned());
        let context = kubeconfig.contexts.iter().find(|context| context.name == current);
        let (cluster, user) = context
            .and_then(|context| context.context.as_ref())
            .map(|context| (context.cluster.clone(), context.user.clone().unwrap_or_default()))
            .unwrap_or_default();
        kubeconfig.current_context = Some(current);
        let clusters = kubeconfig.clusters.iter_mut().filter(|named| named.name == cluster);
        for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
            if let Some(endpoint) = &self.endpoint {
                cluster.server = Some(endpoint.0.clone());
            }
            if let Some(path) = &self.ca_file {
                cluster.certificate_authority = Some(path.display().to_string());
                cluster.certificate_authority_data = None;
            }
            if self.insecure {
                cluster.insecure_skip_tls_verify = Some(true);
            }
        }
        let users = kubeconfig.auth_infos.iter_mut().filter(|named| named.name == user);
        for user in users.filter_map(|named| named.auth_info.as_mut()) {
            self.override_user(user);
        }
    }
}

/// The address without a user and password.
fn without_user(server: Uri) -> Uri {
    let mut parts = server.clone().into_parts();
    let host = parts.authority.as_ref().and_then(|authority| authority.as_str().rsplit_once('@')?.1.parse().ok());
    let Some(host) = host else { return server };
    warn!(
        "the address of the API server has a user in it, which is not used: give a token or a client certificate instead"
    );
    parts.authority = Some(host);
    Uri::from_parts(parts).unwrap_or(server)
}

/// The proxy of the current context's cluster.
fn named_proxy(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

fn from_kubeconfig(mut kubeconfig: Kubeconfig) -> Result<kube::Config, ConfigError> {
    // The library does not decide about proxies as Kubernetes' own clients do: see `proxy`. Where a kubeconfig names one it does
    // not look into the environment, so it is given one, which is taken away again below.
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.proxy_url = Some("http://unused".to_owned());
    }
    let settings = |reason: String| ConfigError::Settings { reason };
    // Nothing in there waits: files are read as they are.
    let options = KubeConfigOptions::default();
    let loading = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let loaded = futures_util::FutureExt::now_or_never(loading)
        .ok_or_else(|| settings("the kubeconfig could not be read at once".to_owned()))?;
    let mut config = loaded.map_err(|error| settings(error.to_string()))?;
    config.proxy_url = None;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::super::config::Token;
    use super::*;
    use crate::datastore::address::Address;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: d, user: u}}
clusters:
- {name: c, cluster: {server: "https://one:6443"}}
- {name: d, cluster: {server: "https://two:6443"}}
users:
- {name: u, user: {token: t}}
"#;

    fn with_file(content: &str) -> (tempfile::TempDir, KubernetesConfig) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, content).unwrap();
        (folder, KubernetesConfig { kubeconfig: vec![path], ..KubernetesConfig::default() })
    }

    #[test]
    fn a_kubeconfig_and_its_contexts() {
        let (_folder, mut config) = with_file(KUBECONFIG);
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "https://one:6443/");
        config.context = Some("two".to_owned());
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "https://two:6443/");
        config.context = Some("three".to_owned());
        assert!(config.load().unwrap_err().to_string().contains("three"));
    }

    #[test]
    fn a_user_in_the_servers_address_goes_no_further() {
        let (_folder, config) = with_file(&KUBECONFIG.replace("https://one", "https://someone:hush@one"));
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "https://one:6443/");
    }

    #[test]
    fn single_settings_count_more_than_the_kubeconfig() {
        let (_folder, mut config) = with_file(KUBECONFIG);
        config.endpoint = Some(Address("https://three:1".to_owned()));
        config.token = Some(Token("mine".to_owned()));
        config.insecure = true;
        let loaded = config.load().unwrap().config;
        assert_eq!(loaded.cluster_url.to_string(), "https://three:1/");
        assert!(loaded.accept_invalid_certs);
    }

    #[test]
    fn single_settings_count_more_than_the_pods_own_account() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.crt");
        let authority = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
        std::fs::write(&ca_file, authority.cert.pem()).unwrap();
        let settings = KubernetesConfig {
            token: Some(Token("mine".to_owned())),
            ca_file: Some(ca_file.clone()),
            cert_file: Some("a.crt".into()),
            key_file: Some("a.key".into()),
            insecure: true,
            ..KubernetesConfig::default()
        };
        let in_pod = || {
            let mut config = kube::Config::new("https://10.0.0.1".parse().unwrap());
            config.root_cert_file = Some("ours".into());
            config.auth_info.token_file = Some("ours".to_owned());
            config
        };
        let mut config = in_pod();
        settings.override_in_cluster(&mut config).unwrap();
        assert_eq!(config.root_cert, Some(vec![authority.cert.der().to_vec()]));
        assert!(config.accept_invalid_certs && config.root_cert_file.is_none());
        let user = &config.auth_info;
        assert!(user.token.is_some() && user.token_file.is_none());
        assert_eq!((user.client_certificate.as_deref(), user.client_key.as_deref()), (Some("a.crt"), Some("a.key")));

        let mut untouched = in_pod();
        KubernetesConfig::default().override_in_cluster(&mut untouched).unwrap();
        assert_eq!(untouched.auth_info.token_file.as_deref(), Some("ours"));
        assert!(untouched.root_cert_file.is_some() && !untouched.accept_invalid_certs);
        std::fs::write(&ca_file, "junk").unwrap();
        assert!(settings.override_in_cluster(&mut in_pod()).unwrap_err().to_string().contains("K8S_CA_FILE"));
    }

    #[test]
    fn of_several_files_some_may_be_missing() {
        let (_folder, mut config) = with_file(KUBECONFIG);
        config.kubeconfig.insert(0, "/no/such".into());
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "https://one:6443/");
        config.kubeconfig = vec!["/no/such".into(), "/nor/this".into()];
        assert!(config.load().is_err());
    }

    #[test]
    fn an_address_is_enough() {
        let config =
            KubernetesConfig { endpoint: Some("http://127.0.0.1:1".to_owned().into()), ..KubernetesConfig::default() };
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "http://127.0.0.1:1/");
    }

    #[test]
    fn the_home_directory_is_looked_into_last() {
        let home = tempfile::tempdir().unwrap();
        let config = KubernetesConfig { home: Some(home.path().to_owned()), ..KubernetesConfig::default() };
        assert!(matches!(config.load(), Err(ConfigError::NotInCluster { .. })));
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        std::fs::write(home.path().join(".kube/config"), KUBECONFIG).unwrap();
        assert_eq!(config.load().unwrap().config.cluster_url.to_string(), "https://one:6443/");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_name() {
        let missing = KubernetesConfig { kubeconfig: vec!["/no/such".into()], ..KubernetesConfig::default() };
        assert!(missing.load().unwrap_err().to_string().contains("/no/such"));
        let (_folder, config) = with_file("][");
        assert!(matches!(config.load(), Err(ConfigError::Kubeconfig { .. })));
        let (_folder, config) = with_file(&KUBECONFIG.replace("server: \"https://one:6443\"", "server: \":::\""));
        assert!(matches!(config.load(), Err(ConfigError::Settings { .. })));
        let proxied = KUBECONFIG.replace("https://one:6443\"", "https://one:6443\", proxy-url: \"ftp://p:1\"");
        let (_folder, config) = with_file(&proxied);
        assert!(config.load().unwrap_err().to_string().contains("proxy-url"));
    }

    #[test]
    fn the_proxy_is_that_of_the_context_or_of_the_environment() {
        let proxied = KUBECONFIG.replace("https://one:6443\"", "https://one:6443\", proxy-url: \"http://p:1\"");
        let (_folder, mut config) = with_file(&proxied);
        let proxy = |config: &KubernetesConfig| config.load().unwrap().proxy.map(|proxy| proxy.uri().to_string());
        assert_eq!(proxy(&config).as_deref(), Some("http://p:1/"));
        config.context = Some("two".to_owned());
        assert_eq!(proxy(&config), None);
        config.proxies.https = Some("http://q:1".to_owned());
        assert_eq!(proxy(&config).as_deref(), Some("http://q:1/"));
        config.proxies.no = "two".to_owned();
        assert_eq!(proxy(&config), None);
    }
}
