//! The accept/refuse matrix of Calico's peer rule over real handshakes, reloads, and settings that are refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

use super::client::server_name;
use super::*;
use crate::config::{MetricsClientAuth, MetricsTlsConfig, TlsConfig, TlsVersion};

mod certificates;
mod chains;

const SERVER_CN: &str = "typha-server";
const CLIENT_CN: &str = "typha-client";
const CLIENT_URI: &str = "spiffe://cluster/typha-client";

struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes `<name>.key`, `<name>.crt` and the CA's certificate `<name>.ca` into `folder`.
    fn issue(&self, folder: &Path, name: &str, cn: &str, uri: Option<&str>, usage: ExtendedKeyUsagePurpose) -> Files {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, cn);
        params.extended_key_usages = vec![usage];
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri).unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let files = Files::new(folder, name);
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::write(&files.cert, certificate.pem()).unwrap();
        fs::write(&files.ca, self.0.pem()).unwrap();
        files
    }

    fn server(&self, folder: &Path) -> Files {
        self.issue(folder, "server", SERVER_CN, None, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, folder: &Path, cn: &str, uri: Option<&str>) -> Files {
        self.issue(folder, "client", cn, uri, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

#[derive(Clone)]
struct Files {
    key: PathBuf,
    cert: PathBuf,
    ca: PathBuf,
}

impl Files {
    fn new(folder: &Path, name: &str) -> Self {
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        Self { key: path("key"), cert: path("crt"), ca: path("ca") }
    }
}

fn identity(cn: Option<&str>, uri: Option<&str>) -> PeerIdentity {
    PeerIdentity::new(cn.map(str::to_owned), uri.map(str::to_owned)).unwrap()
}

fn server_config(files: &Files, identity: PeerIdentity) -> ServerTlsConfig {
    ServerTlsConfig::mutual(files.key.clone(), files.cert.clone(), files.ca.clone(), identity)
}

fn client_config(files: &Files, ca: &Path, identity: PeerIdentity) -> ClientTlsConfig {
    ClientTlsConfig {
        key_file: files.key.clone(),
        cert_file: files.cert.clone(),
        ca_file: ca.to_owned(),
        identity,
        policy: Policy::default(),
    }
}

/// Accepts one connection and greets it, as a server that has accepted a peer.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(server: &ServerTls, stream: S) -> Result<(), String> {
    let mut stream =
        server.acceptor().accept(stream).await.map_err(|error| handshake_error(&error, Purpose::Client, &[]))?;
    stream.write_all(b"hello").await.map_err(|error| error.to_string())?;
    stream.shutdown().await.map_err(|error| error.to_string())
}

/// A handshake and the greeting. In TLS 1.3 only the greeting shows a client that it was accepted. Returns the server's
/// and the client's outcome; the client's is the server's certificate.
async fn connect(
    server: &ServerTls,
    connector: TlsConnector,
) -> (Result<(), String>, Result<CertificateDer<'static>, String>) {
    let (near, far) = duplex(16 << 10);
    let client = async move {
        let mut stream = connector
            .connect(server_name("localhost:5473"), near)
            .await
            .map_err(|error| handshake_error(&error, Purpose::Server, &[]))?;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await.map_err(|error| error.to_string())?;
        assert_eq!(&greeting, b"hello");
        let certificates = stream.get_ref().1.peer_certificates().expect("a server has a certificate");
        Ok(certificates[0].clone().into_owned())
    };
    tokio::join!(greet(server, far), client)
}

#[tokio::test]
async fn clients_are_accepted_by_chain_and_by_name_or_uri() {
    let (good, bad) = (Ca::new("good"), Ca::new("bad"));
    let rules = [
        ("either", identity(Some(CLIENT_CN), Some(CLIENT_URI))),
        ("name", identity(Some(CLIENT_CN), None)),
        ("uri", identity(None, Some(CLIENT_URI))),
    ];
    // (common name, URI, fits "either", fits "name", fits "uri")
    let clients = [
        (CLIENT_CN, None, [true, true, false]),
        ("other", Some(CLIENT_URI), [true, false, true]),
        (CLIENT_CN, Some(CLIENT_URI), [true, true, true]),
        ("other", Some("spiffe://other"), [false, false, false]),
        ("TYPHA-client", None, [false, false, false]),
        (CLIENT_CN, Some("spiffe://other"), [true, true, false]),
    ];
    let folder = TempDir::new().unwrap();
    let server_files = good.server(folder.path());
    for (column, (rule, client_identity)) in rules.into_iter().enumerate() {
        let server = ServerTls::load(server_config(&server_files, client_identity)).unwrap();
        for (cn, uri, fits) in &clients {
            for ca in [&good, &bad] {
                let files = ca.client(folder.path(), cn, *uri);
                let config = client_config(&files, &server_files.ca, identity(Some(SERVER_CN), None));
                let client = ClientTls::load(config).unwrap();
                let (on_server, on_client) = connect(&server, client.connector()).await;
                let expected = fits[column] && std::ptr::eq(ca, &raw const good);
                let row = format!("rule {rule}, client {cn} {uri:?}: {on_server:?} {on_client:?}");
                assert_eq!(on_client.is_ok(), expected, "{row}");
                assert_eq!(on_server.is_ok(), expected, "{row}");
                if !expected && std::ptr::eq(ca, &raw const good) {
                    assert!(on_server.unwrap_err().contains("the client's certificate is for CN"), "{row}");
                }
            }
        }
    }
}

#[tokio::test]
async fn clients_without_tls_or_certificate_are_refused() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let server_files = ca.server(folder.path());
    let server = ServerTls::load(server_config(&server_files, identity(Some(CLIENT_CN), None))).unwrap();

    let (mut near, far) = duplex(1024);
    near.write_all(b"\x21\x7f\x03\x01\x01\x08Envelope").await.unwrap();
    assert!(greet(&server, far).await.unwrap_err().contains("does not send TLS"));

    let mut roots = RootCertStore::empty();
    roots.add(ca.0.der().clone()).unwrap();
    let bare = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (on_server, on_client) = connect(&server, TlsConnector::from(Arc::new(bare))).await;
    assert_eq!(
        on_server.unwrap_err(),
        "the client shows no certificate: it needs one, with its key, from an authority of the CA file"
    );
    assert!(on_client.is_err());
}

#[tokio::test]
async fn servers_are_accepted_by_chain_and_name_whatever_their_host() {
    let (good, bad) = (Ca::new("good"), Ca::new("bad"));
    let folder = TempDir::new().unwrap();
    let client_files = good.client(folder.path(), CLIENT_CN, None);
    let server_uri = "spiffe://cluster/typha";
    for (ca, cn, uri, usage, wanted, expected) in [
        (&good, SERVER_CN, None, ExtendedKeyUsagePurpose::ServerAuth, identity(Some(SERVER_CN), None), true),
        (&good, "x", Some(server_uri), ExtendedKeyUsagePurpose::ServerAuth, identity(None, Some(server_uri)), true),
        (&good, "other", None, ExtendedKeyUsagePurpose::ServerAuth, identity(Some(SERVER_CN), None), false),
        (&good, SERVER_CN, None, ExtendedKeyUsagePurpose::ClientAuth, identity(Some(SERVER_CN), None), false),
        (&bad, SERVER_CN, None, ExtendedKeyUsagePurpose::ServerAuth, identity(Some(SERVER_CN), None), false),
    ] {
        let server_files = ca.issue(folder.path(), "server", cn, uri, usage);
        let mut config = server_config(&server_files, identity(Some(CLIENT_CN), None));
        config.ca_file = Some(client_files.ca.clone());
        let server = ServerTls::load(config).unwrap();
        let client = ClientTls::load(client_config(&client_files, &client_files.ca, wanted)).unwrap();
        let (_, on_client) = connect(&server, client.connector()).await;
        assert_eq!(on_client.is_ok(), expected, "{cn} {uri:?}: {on_client:?}");
    }
}

/// Of a client that speaks TLS 1.2 at most and trusts one authority.
fn old_connector(files: &Files, ca: &Ca) -> TlsConnector {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.0.der().clone()).unwrap();
    let source = files::Source::new("key", &files.key);
    let key = source.key(&fs::read(&files.key).unwrap()).unwrap();
    let certificates = source.certificates(&fs::read(&files.cert).unwrap()).unwrap();
    let pair = signatures::own(certificates, key, &provider).unwrap();
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(pair);
    TlsConnector::from(Arc::new(old))
}

#[tokio::test]
async fn the_lowest_version_is_enforced() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let server_files = ca.server(folder.path());
    let client_files = ca.client(folder.path(), CLIENT_CN, None);
    for (min_version, suites, expected) in [
        ("", "", true),
        ("1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", true),
        ("1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", false),
        ("1.2", "TLS_AES_128_GCM_SHA256", false),
        ("1.3", "", false),
    ] {
        let mut config = server_config(&server_files, identity(Some(CLIENT_CN), None));
        config.policy = Policy::parse(min_version, suites).unwrap();
        let server = ServerTls::load(config).unwrap();
        let (on_server, on_client) = connect(&server, old_connector(&client_files, &ca)).await;
        assert_eq!(on_client.is_ok(), expected, "{min_version} {suites}: {on_server:?} {on_client:?}");
        // A client of today gets in either way.
        let config = client_config(&client_files, &server_files.ca, identity(Some(SERVER_CN), None));
        let (on_server, _) = connect(&server, ClientTls::load(config).unwrap().connector()).await;
        on_server.unwrap();
    }
}

#[tokio::test]
async fn metrics_modes_ask_for_what_they_say() {
    let (good, bad) = (Ca::new("good"), Ca::new("bad"));
    let folder = TempDir::new().unwrap();
    let server_files = good.server(folder.path());
    // Accepted with: no certificate, one of another CA, a good one.
    for (client_auth, expected) in [
        (MetricsClientAuth::RequireAndVerifyClientCert, [false, false, true]),
        (MetricsClientAuth::RequireAnyClientCert, [false, true, true]),
        (MetricsClientAuth::VerifyClientCertIfGiven, [true, false, true]),
        (MetricsClientAuth::NoClientCert, [true, true, true]),
    ] {
        let config = MetricsTlsConfig {
            key_file: server_files.key.clone(),
            cert_file: server_files.cert.clone(),
            ca_file: server_files.ca.clone(),
            client_auth,
            min_version: TlsVersion::V1_2,
            cipher_suites: String::new(),
        };
        let server = ServerTls::load(ServerTlsConfig::metrics_port(&config).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(good.0.der().clone()).unwrap();
        let bare = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connectors = vec![TlsConnector::from(Arc::new(bare))];
        for ca in [&bad, &good] {
            let files = ca.client(folder.path(), "scraper", None);
            let config = client_config(&files, &server_files.ca, identity(Some(SERVER_CN), None));
            connectors.push(ClientTls::load(config).unwrap().connector());
        }
        for (connector, expected) in connectors.into_iter().zip(expected) {
            let (on_server, on_client) = connect(&server, connector).await;
            assert_eq!(on_client.is_ok(), expected, "{client_auth:?}: {on_server:?} {on_client:?}");
        }
    }
}

/// A folder as Kubernetes mounts a secret: files are links through `..data`, which is swapped as a whole.
fn swap(root: &Path, generation: &str) {
    let next = root.join("..next");
    symlink(generation, &next).unwrap();
    fs::rename(&next, root.join("..data")).unwrap();
}

#[tokio::test]
async fn replaced_certificates_are_used_and_bad_ones_are_not() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    for generation in ["one", "two", "three"] {
        fs::create_dir(folder.path().join(generation)).unwrap();
        ca.server(&folder.path().join(generation));
    }
    swap(folder.path(), "one");
    let files = Files::new(&folder.path().join("..data"), "server");
    let server = ServerTls::load(server_config(&files, identity(Some(CLIENT_CN), None))).unwrap();
    let client_files = ca.client(folder.path(), CLIENT_CN, None);
    let config = client_config(&client_files, &client_files.ca, identity(Some(SERVER_CN), None));
    let client = ClientTls::load(config).unwrap();

    let first = connect(&server, client.connector()).await.1.unwrap();
    assert_eq!(server.reload().unwrap(), Reload::Unchanged);

    swap(folder.path(), "two");
    assert_eq!(server.reload().unwrap(), Reload::Replaced);
    let second = connect(&server, client.connector()).await.1.unwrap();
    assert_ne!(first, second);

    // The key of one and the certificate of another generation: half a swap.
    fs::copy(folder.path().join("three/server.key"), folder.path().join("two/server.key")).unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("server.crt") && error.contains("server.key"), "{error}");
    assert_eq!(server.reload().unwrap(), Reload::Unchanged, "the same content is not tried again");
    assert_eq!(connect(&server, client.connector()).await.1.unwrap(), second);

    fs::remove_file(folder.path().join("two/server.crt")).unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("read certificate file") && error.contains("No such file"), "{error}");
    assert_eq!(connect(&server, client.connector()).await.1.unwrap(), second);

    swap(folder.path(), "three");
    assert_eq!(server.reload().unwrap(), Reload::Replaced);
    assert_ne!(connect(&server, client.connector()).await.1.unwrap(), second);
}

#[tokio::test(start_paused = true)]
async fn files_are_looked_at_on_an_interval() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let files = ca.server(folder.path());
    let server = ServerTls::load(server_config(&files, identity(Some(CLIENT_CN), None))).unwrap();
    let cancel = CancellationToken::new();
    let keeper = tokio::spawn(server.clone().keep_fresh(cancel.clone(), |_| ()));
    let before = server.acceptor().config().clone();
    ca.server(folder.path());
    let mut intervals = 0;
    while Arc::ptr_eq(&before, server.acceptor().config()) {
        intervals += 1;
        assert!(intervals < 10, "the files are not looked at");
        tokio::time::sleep(RELOAD_INTERVAL).await;
    }
    cancel.cancel();
    keeper.await.unwrap();
}

#[test]
fn unusable_files_and_settings_are_named() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let files = ca.server(folder.path());
    let missing = folder.path().join("missing");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let rule = || identity(Some(CLIENT_CN), None);
    let good = server_config(&files, rule());
    let table = [
        (ServerTlsConfig { key_file: missing.clone(), ..good.clone() }, "read key file", "missing"),
        (ServerTlsConfig { key_file: empty.clone(), ..good.clone() }, "no PRIVATE KEY", "empty"),
        (ServerTlsConfig { key_file: files.cert.clone(), ..good.clone() }, "no PRIVATE KEY", "server.crt"),
        (ServerTlsConfig { cert_file: files.key.clone(), ..good.clone() }, "no CERTIFICATE", "server.key"),
        (ServerTlsConfig { cert_file: empty.clone(), ..good.clone() }, "no CERTIFICATE", "empty"),
        (ServerTlsConfig { ca_file: Some(empty), ..good.clone() }, "parse CA file", "empty"),
        (ServerTlsConfig { ca_file: Some(missing), ..good.clone() }, "read CA file", "missing"),
        (ServerTlsConfig { cert_file: files.ca.clone(), ..good.clone() }, "use certificate file", "server.key"),
        (ServerTlsConfig { ca_file: None, ..good.clone() }, "no CA file is set", ""),
    ];
    for (config, expected, path) in table {
        let error = ServerTls::load(config).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(path), "{error} should contain {expected} and {path}");
    }
}

#[test]
fn version_and_cipher_options_are_checked() {
    assert!(Policy::parse("", "").is_ok());
    assert!(Policy::parse("1.3", " TLS_AES_128_GCM_SHA256 , ").is_ok());
    for (version, suites, expected) in [
        ("1.1", "", "TLS_MIN_VERSION is \"1.1\""),
        ("TLS1.3", "", "only 1.2"),
        ("", "TLS_ECDHE_RSA_WITH_AES_128_GCM", "unknown suites TLS_ECDHE_RSA_WITH_AES_128_GCM:"),
        ("", "TLS_RSA_WITH_AES_256_CBC_SHA", "leaves no suite"),
    ] {
        let error = Policy::parse(version, suites).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
    let mixed = "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
    assert_eq!(Policy::parse("", mixed).unwrap().ignored_suites(), ["TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"]);
}

#[test]
fn the_sync_port_is_configured_as_calico_says() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let files = ca.server(folder.path());
    let config = TlsConfig {
        key_file: files.key,
        cert_file: files.cert,
        ca_file: files.ca,
        client_cn: None,
        client_uri_san: Some(CLIENT_URI.to_owned()),
        min_version: TlsVersion::V1_3,
        cipher_suites: String::new(),
    };
    ServerTls::load(ServerTlsConfig::sync_port(&config).unwrap()).unwrap();
    let anybody = TlsConfig { client_uri_san: None, ..config.clone() };
    assert!(ServerTlsConfig::sync_port(&anybody).unwrap_err().to_string().contains("ClientCN or ClientURISAN"));
    let suites = TlsConfig { cipher_suites: "X".to_owned(), ..config };
    assert!(ServerTlsConfig::sync_port(&suites).unwrap_err().to_string().contains("unknown suites X"));
}

#[test]
fn an_identity_needs_a_condition() {
    assert_eq!(PeerIdentity::new(None, None), None);
    assert_eq!(PeerIdentity::new(Some(String::new()), Some(String::new())), None);
}

#[test]
fn any_address_has_a_server_name() {
    for address in ["localhost:5473", "10.0.0.1:5473", "[::1]:5473", "typha_with_underscore:1", ":5473", ""] {
        let _ = server_name(address);
    }
    assert_eq!(server_name("[fd00::1]:5473").to_str(), "fd00::1");
}
