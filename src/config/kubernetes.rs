//! The variables of Calico's generic datastore client for the Kubernetes API. They are not options of Typha.
//! Each is looked up as `CALICO_<NAME>` first and then as `<NAME>`, and only when the API is used.
//!
//! `DatastoreType` alone chooses the datastore: unlike in Typha, a stray `ETCD_ENDPOINTS` in the environment does not change it,
//! but causes a warning.

use std::ffi::OsString;
use std::path::PathBuf;

use super::mistake::{Mistake, Notice};
use crate::calico::catalog::{CalicoGroup, catalog};
use crate::datastore::kubernetes::config::{KubernetesConfig, Proxies, Token};

/// Reads the variables. Appends mistakes to `mistakes`, remarks to `notices`.
pub(super) fn from_environment(
    variables: &[(OsString, OsString)],
    mistakes: &mut Vec<Mistake>,
    notices: &mut Vec<Notice>,
) -> KubernetesConfig {
    let mut reader = Reader { variables, mistakes };
    let defaults = KubernetesConfig::default();
    let config = KubernetesConfig {
        kubeconfig: reader
            .text("KUBECONFIG")
            .map(|(_, paths)| std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default(),
        endpoint: reader.text("K8S_API_ENDPOINT").map(|(_, endpoint)| endpoint.into()),
        context: reader.text("K8S_CURRENT_CONTEXT").map(|(_, context)| context),
        key_file: reader.path("K8S_KEY_FILE"),
        cert_file: reader.path("K8S_CERT_FILE"),
        ca_file: reader.path("K8S_CA_FILE"),
        // The only name under which Calico's loader finds it.
        token: reader.exact("CALICO_K8SAPITOKEN").map(|token| Token(token.trim().to_owned())),
        insecure: reader
            .parsed("K8S_INSECURE_SKIP_TLS_VERIFY", "true or false", |text| match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            })
            .unwrap_or(defaults.insecure),
        qps: reader
            .parsed("K8S_CLIENT_QPS", "requests per second, for example 20", |text| {
                text.parse::<f32>().ok().filter(|qps| qps.is_finite())
            })
            // Zero means "unset" to Kubernetes' clients.
            .filter(|qps| *qps != 0.0)
            .unwrap_or(defaults.qps),
        burst: reader
            .parsed("K8S_CLIENT_BURST", "a number of requests, for example 100", |text| text.parse::<u32>().ok())
            .filter(|burst| *burst != 0)
            .unwrap_or(defaults.burst),
        catalog: catalog(reader.parsed(
            "CALICO_API_GROUP",
            "crd.projectcalico.org/v1 or projectcalico.org/v3",
            CalicoGroup::of,
        )),
        proxies: Proxies {
            https: reader.either_case("HTTPS_PROXY"),
            http: reader.either_case("HTTP_PROXY"),
            no: reader.either_case("NO_PROXY").unwrap_or_default(),
        },
        home: reader.exact("HOME").map(PathBuf::from),
        ..defaults
    };
    if config.cert_file.is_some() != config.key_file.is_some() {
        let (set, missing) = if config.cert_file.is_some() {
            ("K8S_CERT_FILE", "K8S_KEY_FILE")
        } else {
            ("K8S_KEY_FILE", "K8S_CERT_FILE")
        };
        let (name, value) = reader.text(set).unwrap_or_default();
        let (accepted, hint) = ("certificate and key together", format!("{missing} is not set"));
        reader.mistakes.push(Mistake::in_variable(&name, value, accepted, hint));
    }
    for contradicting in ["DATASTORE_TYPE", "ETCD_ENDPOINTS"] {
        if let Some((name, value)) = reader.text(contradicting)
            && value != "kubernetes"
        {
            notices.push(Notice::warning(format!(
                "{name} is set and not used: DatastoreType = kubernetes decides (Typha would go to etcd with some settings of it)"
            )));
        }
    }
    config
}

/// The settings for the API server that a kubeconfig names: of those of the environment only the ones that belong to no server.
pub(super) fn with_kubeconfig(environment: &KubernetesConfig, kubeconfig: PathBuf) -> KubernetesConfig {
    KubernetesConfig {
        kubeconfig: vec![kubeconfig],
        qps: environment.qps,
        burst: environment.burst,
        catalog: environment.catalog.clone(),
        page_limit: environment.page_limit,
        proxies: environment.proxies.clone(),
        home: environment.home.clone(),
        ..KubernetesConfig::default()
    }
}

struct Reader<'a> {
    variables: &'a [(OsString, OsString)],
    mistakes: &'a mut Vec<Mistake>,
}

impl Reader<'_> {
    /// The variable's value, unless it is empty.
    fn exact(&mut self, name: &str) -> Option<String> {
        let (_, value) = self.variables.iter().find(|(found, _)| found == name)?;
        let Some(text) = value.to_str() else {
            // Not shown: it may be a token or contain a password.
            self.mistakes.push(Mistake::in_variable(name, "***", "text in UTF-8", ""));
            return None;
        };
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The value of a variable that all programs read, in upper or lower case.
    fn either_case(&mut self, name: &str) -> Option<String> {
        self.exact(name).or_else(|| self.exact(&name.to_lowercase()))
    }

    /// The value under the first of both names that is set, with that name.
    fn text(&mut self, name: &str) -> Option<(String, String)> {
        let prefixed = format!("CALICO_{name}");
        if let Some(text) = self.exact(&prefixed) {
            return Some((prefixed, text));
        }
        self.exact(name).map(|text| (name.to_owned(), text))
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        let (name, path) = self.text(name)?;
        let path = PathBuf::from(path);
        if let Err(error) = std::fs::File::open(&path) {
            let (value, hint) = (path.display().to_string(), error.to_string());
            self.mistakes.push(Mistake::in_variable(&name, value, "a file that can be read", hint));
        }
        Some(path)
    }

    fn parsed<T>(&mut self, name: &str, accepted: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (name, text) = self.text(name)?;
        let parsed = parse(text.trim());
        if parsed.is_none() {
            self.mistakes.push(Mistake::in_variable(&name, text, accepted, ""));
        }
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (KubernetesConfig, Vec<String>, Vec<String>) {
        let variables: Vec<(OsString, OsString)> =
            variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        let (mut mistakes, mut notices) = (Vec::new(), Vec::new());
        let config = from_environment(&variables, &mut mistakes, &mut notices);
        let texts = mistakes.iter().map(ToString::to_string).collect();
        (config, texts, notices.into_iter().map(|notice| notice.text).collect())
    }

    #[test]
    fn nothing_set_is_the_default() {
        let defaults = KubernetesConfig { catalog: catalog(None), ..KubernetesConfig::default() };
        assert_eq!(read(&[]), (defaults.clone(), vec![], vec![]));
        assert_eq!(read(&[("KUBECONFIG", ""), ("K8S_CLIENT_QPS", "0")]).0, defaults);
    }

    #[test]
    fn every_variable_counts_more_with_the_prefix() {
        let (config, mistakes, _) = read(&[
            ("K8S_API_ENDPOINT", "https://plain"),
            ("CALICO_K8S_API_ENDPOINT", "https://prefixed"),
            ("KUBECONFIG", "/a:/b"),
            ("K8S_CLIENT_QPS", "12.5"),
            ("CALICO_K8S_CLIENT_BURST", "7"),
            ("CALICO_CALICO_API_GROUP", "projectcalico.org/v3"),
            ("CALICO_K8SAPITOKEN", "secret"),
            ("K8S_INSECURE_SKIP_TLS_VERIFY", "True"),
            ("K8S_CURRENT_CONTEXT", "there"),
            ("HOME", "/root"),
            ("https_proxy", "http://user:secret@proxy"),
            ("NO_PROXY", "here"),
            ("no_proxy", "there"),
        ]);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert_eq!(config.endpoint, Some("https://prefixed".to_owned().into()));
        assert_eq!(config.kubeconfig, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!((config.qps, config.burst, config.insecure), (12.5, 7, true));
        assert_eq!(config.catalog, catalog(Some(CalicoGroup::V3)));
        assert_eq!(config.context.as_deref(), Some("there"));
        assert_eq!(config.proxies.https.as_deref(), Some("http://user:secret@proxy"));
        assert_eq!((config.proxies.http.as_deref(), &*config.proxies.no), (None, "here"));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn all_mistakes_at_once() {
        let (_, mistakes, _) = read(&[
            ("K8S_CLIENT_QPS", "fast"),
            ("K8S_CLIENT_BURST", "-1"),
            ("CALICO_API_GROUP", "v3"),
            ("K8S_INSECURE_SKIP_TLS_VERIFY", "maybe"),
            ("K8S_CA_FILE", "/no/such/file"),
            ("K8S_CERT_FILE", "/dev/null"),
        ]);
        insta::assert_snapshot!(mistakes.join("\n"), @r#"
        K8S_CA_FILE = "/no/such/file" (environment variable K8S_CA_FILE): expected a file that can be read; No such file or directory (os error 2)
        K8S_INSECURE_SKIP_TLS_VERIFY = "maybe" (environment variable K8S_INSECURE_SKIP_TLS_VERIFY): expected true or false
        K8S_CLIENT_QPS = "fast" (environment variable K8S_CLIENT_QPS): expected requests per second, for example 20
        K8S_CLIENT_BURST = "-1" (environment variable K8S_CLIENT_BURST): expected a number of requests, for example 100
        CALICO_API_GROUP = "v3" (environment variable CALICO_API_GROUP): expected crd.projectcalico.org/v1 or projectcalico.org/v3
        K8S_CERT_FILE = "/dev/null" (environment variable K8S_CERT_FILE): expected certificate and key together; K8S_KEY_FILE is not set
        "#);
    }

    #[test]
    fn settings_of_another_datastore_are_warned_about() {
        let (_, _, notices) = read(&[("ETCD_ENDPOINTS", "http://etcd:2379"), ("DATASTORE_TYPE", "kubernetes")]);
        assert_eq!(notices.len(), 1);
        assert!(notices[0].starts_with("ETCD_ENDPOINTS is set and not used"));
    }
}
