//! A real etcd for tests: found by [`need`], started on free ports, killed by process id.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

use crate::need::{Program, need};
use crate::wait::eventually;

/// Longest time until a started server answers. Over loopback and without fsync it is normally well below a second.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Most starts with other ports, if a port was taken between choosing and starting.
const PORT_ATTEMPTS: u32 = 5;

/// A running etcd. Killed when dropped, and its data are removed.
pub(crate) struct Etcd {
    program: PathBuf,
    child: Option<Child>,
    dir: TempDir,
    client_port: u16,
    peer_port: u16,
    tls: Option<TlsFiles>,
}

/// Certificates for a server that demands client certificates.
pub(crate) struct TlsFiles {
    /// The authority that signed both.
    pub(crate) ca: PathBuf,
    /// The client's chain.
    pub(crate) client_cert: PathBuf,
    /// The client's key.
    pub(crate) client_key: PathBuf,
    /// The server's chain, for loopback.
    pub(crate) server_cert: PathBuf,
    /// The server's key.
    pub(crate) server_key: PathBuf,
}

impl Etcd {
    /// Starts a server without TLS and waits until it answers. `None`: etcd is left out, the test returns.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_in(TempDir::new().unwrap(), None).await
    }

    /// Starts a server that speaks TLS only, to clients with a certificate only. `None`: etcd is left out.
    pub(crate) async fn start_with_tls() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let tls = issue_certificates(dir.path());
        Self::start_in(dir, Some(tls)).await
    }

    async fn start_in(dir: TempDir, tls: Option<TlsFiles>) -> Option<Self> {
        let program = need(Program::Etcd)?;
        let mut etcd = Self { program, child: None, dir, client_port: 0, peer_port: 0, tls };
        for _ in 0..PORT_ATTEMPTS {
            (etcd.client_port, etcd.peer_port) = (free_port(), free_port());
            if etcd.try_run().await {
                return Some(etcd);
            }
        }
        panic!("etcd ended {PORT_ATTEMPTS} times right after its start");
    }

    /// The address for clients.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client_port)
    }

    /// The certificates, for a server with TLS.
    pub(crate) fn tls(&self) -> &TlsFiles {
        self.tls.as_ref().expect("started with TLS")
    }

    /// A new client, for the test's own writes.
    pub(crate) async fn client(&self) -> Client {
        let options = self.tls.as_ref().map(|tls| {
            let read = |path: &Path| fs::read(path).unwrap();
            ConnectOptions::new().with_tls(
                TlsOptions::new()
                    .ca_certificate(Certificate::from_pem(read(&tls.ca)))
                    .identity(Identity::from_pem(read(&tls.client_cert), read(&tls.client_key))),
            )
        });
        Client::connect([self.url()], options).await.unwrap()
    }

    /// Kills the server like a crash. The data stay.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the server again on the same data and ports.
    pub(crate) async fn run(&mut self) {
        self.kill();
        for _ in 0..PORT_ATTEMPTS {
            if self.try_run().await {
                return;
            }
        }
        panic!("etcd ended {PORT_ATTEMPTS} times right after its restart");
    }

    /// Starts the server; false if it ended at once, because a port was taken in between.
    async fn try_run(&mut self) -> bool {
        let data = self.dir.path().join("data");
        let (url, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peer_port));
        let mut command = Command::new(&self.program);
        command
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.server_cert).arg("--key-file").arg(&tls.server_key);
            command.arg("--trusted-ca-file").arg(&tls.ca).arg("--client-cert-auth");
        }
        let mut child = command.spawn().expect("start etcd");
        let answers = eventually("etcd answers", READY_WITHIN, async || {
            if child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let mut client = self.client().await;
            client.status().await.is_ok_and(|status| status.leader() != 0).then_some(true)
        });
        let answers = answers.await;
        self.child = Some(child);
        answers.expect("etcd runs")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Certificates of a fresh authority, written into `dir`.
pub(crate) fn issue_certificates(dir: &Path) -> TlsFiles {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str, names: Vec<String>| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &ca).unwrap();
        let paths = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        fs::write(&paths.0, cert.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    };
    let (server_cert, server_key) = issue("server", vec!["127.0.0.1".to_owned(), "localhost".to_owned()]);
    let (client_cert, client_key) = issue("client", vec!["client".to_owned()]);
    let ca_path = dir.join("ca.pem");
    fs::write(&ca_path, ca.pem()).unwrap();
    TlsFiles { ca: ca_path, client_cert, client_key, server_cert, server_key }
}
