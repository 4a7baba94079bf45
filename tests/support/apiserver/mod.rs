//! A real Kubernetes API server over a real etcd, for tests: found by [`need`], started on free ports, killed by process id,
//! started again on the same data.
//!
//! There is only the API server: no kubelet, scheduler or controller. Tests that need pods with addresses, EndpointSlices
//! or finished namespaces write them. [`rest`] is for writes, [`crds`] has the custom resources, [`seed`] writes
//! thousands of objects straight into etcd, [`counts`] counts the requests.
//!
//! Users: `admin` may do everything. Every name of [`USERS`] is a plain user without groups, with the rights of the test's RBAC objects.

#![allow(dead_code, reason = "every includer uses a part of it")]

pub(crate) mod counts;
pub(crate) mod crds;
pub(crate) mod rest;
pub(crate) mod seed;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::config::{AuthInfo, Config};
use rcgen::KeyPair;
use tempfile::TempDir;

use self::rest::Rest;
use crate::need::{Program, need};
use crate::real_etcd::{Etcd, TlsFiles, free_port, issue_certificates};
use crate::wait::eventually;

/// Longest time until a started server is ready. It takes some 3 s on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The namespace that the server creates for itself, some time after it is ready.
const OWN_NAMESPACE: &str = "/api/v1/namespaces/kube-system";
/// Most starts with other ports, if a port was taken between choosing and starting.
const PORT_ATTEMPTS: u32 = 3;
/// Bytes of the server's log that a failure shows.
const LOG_TAIL: usize = 4_000;

/// Plain users besides `admin` and [`variant`]s.
pub(crate) const USERS: &[&str] = &["bulrush"];
/// Number of further plain users, for reduced roles: [`variant`].
pub(crate) const VARIANTS: usize = 64;

/// One of [`VARIANTS`] plain users.
pub(crate) fn variant(index: usize) -> String {
    assert!(index < VARIANTS);
    format!("variant-{index}")
}

/// The bearer token of a user.
pub(crate) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

/// Credentials in a kubeconfig.
#[derive(Clone, Debug)]
pub(crate) enum Auth {
    /// A token in the file itself.
    Token(String),
    /// A file that holds the token.
    TokenFile(PathBuf),
}

/// Special settings of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Further flags of kube-apiserver.
    pub(crate) flags: Vec<String>,
}

/// A running API server and its etcd. Both end when it is dropped.
pub(crate) struct ApiServer {
    program: PathBuf,
    child: Option<Child>,
    /// The storage.
    pub(crate) etcd: Etcd,
    dir: TempDir,
    tls: TlsFiles,
    port: u16,
    options: Options,
}

impl ApiServer {
    /// Starts a server and waits until it is ready and has created its own namespace. `None`: kube-apiserver is left out, the test returns.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(Options::default()).await
    }

    /// The same, with special settings.
    pub(crate) async fn start_with(options: Options) -> Option<Self> {
        let program = need(Program::KubeApiserver)?;
        let dir = TempDir::new().unwrap();
        let tls = issue_certificates(dir.path());
        write_files(dir.path());
        let mut server = Self { program, child: None, etcd: Etcd::start().await?, dir, tls, port: 0, options };
        for _ in 0..PORT_ATTEMPTS {
            server.port = free_port();
            if server.try_run().await {
                return Some(server);
            }
        }
        panic!("kube-apiserver ended {PORT_ATTEMPTS} times right after its start:\n{}", server.log_tail());
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The authority that signed its certificate.
    pub(crate) fn ca_file(&self) -> &Path {
        &self.tls.ca
    }

    /// A folder that lives as long as the server.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// A client of Kubernetes' own kind. Belongs to the runtime that calls.
    pub(crate) fn client(&self, user: &str) -> kube::Client {
        self.client_as(Some(token(user)))
    }

    /// A client with this token, or without credentials.
    pub(crate) fn client_as(&self, token: Option<String>) -> kube::Client {
        let mut config = Config::new(self.url().parse().unwrap());
        let pem = rustls_pki_types::pem::PemObject::pem_file_iter(&self.tls.ca).unwrap();
        let certificates = pem.map(|certificate| {
            let certificate: rustls_pki_types::CertificateDer<'static> = certificate.unwrap();
            certificate.to_vec()
        });
        config.root_cert = Some(certificates.collect());
        config.auth_info = AuthInfo { token: token.map(Into::into), ..AuthInfo::default() };
        kube::Client::try_from(config).unwrap()
    }

    /// A REST client as `admin`. Belongs to the runtime that calls.
    pub(crate) fn rest(&self) -> Rest {
        Rest::new(self.client("admin"))
    }

    /// Writes a kubeconfig for a user.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.kubeconfig_at(user, &self.url(), &Auth::Token(token(user)))
    }

    /// Writes a kubeconfig that leads to `url`, as through a proxy.
    pub(crate) fn kubeconfig_at(&self, name: &str, url: &str, auth: &Auth) -> PathBuf {
        let auth = match auth {
            Auth::Token(token) => format!("token: {token}"),
            Auth::TokenFile(path) => format!("tokenFile: {}", path.display()),
        };
        let mut text = String::from("apiVersion: v1\nkind: Config\ncurrent-context: test\n");
        let _ = write!(text, "clusters:\n- name: test\n  cluster:\n    server: {url}\n");
        if url.starts_with("https:") {
            let _ = writeln!(text, "    certificate-authority: {}", self.tls.ca.display());
        }
        let _ = write!(text, "users:\n- name: test\n  user:\n    {auth}\n");
        let _ = write!(text, "contexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n");
        let path = self.dir.path().join(format!("kubeconfig-{name}-{}", free_name()));
        fs::write(&path, text).unwrap();
        path
    }

    /// Kills the server like a crash. Its etcd goes on.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Adds flags for the next start.
    pub(crate) fn add_flags(&mut self, flags: &[&str]) {
        self.options.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
    }

    /// Starts the server again on the same data and port, and waits until it is ready.
    pub(crate) async fn run(&mut self) {
        self.kill();
        for _ in 0..PORT_ATTEMPTS {
            if self.try_run().await {
                return;
            }
        }
        panic!("kube-apiserver ended {PORT_ATTEMPTS} times right after its restart:\n{}", self.log_tail());
    }

    /// Starts the server; false if it ended at once, because a port was taken in between.
    async fn try_run(&mut self) -> bool {
        let dir = self.dir.path();
        let path = |name: &str| dir.join(name).display().to_string();
        let log = File::options().create(true).append(true).open(dir.join("apiserver.log")).unwrap();
        let flags = [
            ("etcd-servers", self.etcd.url()),
            ("service-account-key-file", path("service-account.pub")),
            ("service-account-signing-key-file", path("service-account.key")),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("authorization-mode", "RBAC".to_owned()),
            ("token-auth-file", path("tokens.csv")),
            ("audit-policy-file", path("audit-policy.yaml")),
            ("audit-log-path", path("audit.log")),
            ("tls-cert-file", self.tls.server_cert.display().to_string()),
            ("tls-private-key-file", self.tls.server_key.display().to_string()),
            ("cert-dir", path("certs")),
            ("secure-port", self.port.to_string()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("advertise-address", "127.0.0.1".to_owned()),
            ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("profiling", "false".to_owned()),
        ];
        let child = Command::new(&self.program)
            .args(flags.map(|(name, value)| format!("--{name}={value}")))
            .args(&self.options.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("start kube-apiserver"));
        let rest = self.rest();
        let outcome = eventually("kube-apiserver is ready", READY_WITHIN, async || {
            if self.has_ended() {
                return Some(false);
            }
            // A request to a port that is not open yet fails at once.
            let ready = rest.get_text("/readyz").await.is_ok_and(|answer| answer == "ok");
            (ready && rest.get(OWN_NAMESPACE).await.is_ok()).then_some(true)
        });
        outcome.await.unwrap_or_else(|error| panic!("{error:#}:\n{}", self.log_tail()))
    }

    /// Whether the process has ended. Does not wait for it, so that a shared reference is enough.
    fn has_ended(&self) -> bool {
        let Some(child) = &self.child else { return true };
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        // The state comes after the command in parentheses; Z is an ended process that was not waited for.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    fn log_tail(&self) -> String {
        let text = fs::read(self.dir.path().join("apiserver.log")).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL)..]).into_owned()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes keys, tokens and the audit policy: requests of plain users and of service accounts are audited, which tests count.
fn write_files(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    fs::write(dir.join("service-account.key"), key.serialize_pem()).unwrap();
    fs::write(dir.join("service-account.pub"), key.public_key_pem()).unwrap();
    let mut tokens = format!("{},admin,1,system:masters\n", token("admin"));
    let variants = (0..VARIANTS).map(variant);
    let mut audited = Vec::new();
    for (index, user) in USERS.iter().map(|&user| user.to_owned()).chain(variants).enumerate() {
        let _ = writeln!(tokens, "{},{user},{}", token(&user), index + 2);
        audited.push(user);
    }
    fs::write(dir.join("tokens.csv"), tokens).unwrap();
    let policy = serde_json::json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": audited},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    });
    fs::write(dir.join("audit-policy.yaml"), policy.to_string()).unwrap();
}

/// A number that no other file of this process has.
fn free_name() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
