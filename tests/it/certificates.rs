//! Verdicts on certificates, compared with Go's `crypto/tls` over a generated matrix (`tests/go/certificates`), and real handshakes
//! with Go in both directions.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulrush::tls::client::server_name;
use bulrush::tls::{
    Authorities, ClientTls, ClientTlsConfig, PeerIdentity, Policy, Purpose, ServerTls, ServerTlsConfig, handshake_error,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, UnixTime};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::need::{Program, need};

/// Longest time for one handshake.
const PATIENCE: Duration = Duration::from_secs(20);

/// A case as the Go program prints it.
#[derive(Deserialize)]
struct Case {
    name: String,
    roots: Option<Vec<String>>,
    chain: Vec<String>,
    #[serde(default)]
    key: Option<String>,
    handshake: bool,
    /// Reasons for which Go refuses such a client and such a server; empty: it accepts.
    client: String,
    server: String,
    #[serde(default)]
    wanted_cn: String,
    #[serde(default)]
    wanted_uri: String,
    fits: bool,
}

impl Case {
    fn is_about_names(&self) -> bool {
        self.roots.is_none()
    }

    fn go(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Client => &self.client,
            Purpose::Server => &self.server,
        }
    }

    fn roots(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        self.roots.iter().flatten().map(|text| der(text)).collect()
    }
}

fn der(text: &str) -> anyhow::Result<CertificateDer<'static>> {
    Ok(CertificateDer::from(STANDARD.decode(text)?))
}

/// The Go program. `None`: Go is left out.
fn go() -> Option<PathBuf> {
    need(Program::Go("certificates"))
}

/// The cases, made once.
fn matrix(program: &Path) -> anyhow::Result<&'static [Case]> {
    static MADE: OnceLock<Result<Vec<Case>, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make_matrix(program).map_err(|error| format!("{error:#}")));
    made.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn make_matrix(program: &Path) -> anyhow::Result<Vec<Case>> {
    let out = Command::new(program).arg("matrix").stderr(Stdio::inherit()).output()?;
    ensure!(out.status.success(), "the Go program failed");
    let cases = out.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let cases = cases.map(serde_json::from_slice).collect::<Result<Vec<Case>, _>>()?;
    ensure!(cases.len() > 2500, "{} cases are too few", cases.len());
    Ok(cases)
}

/// Differences from Go, on purpose or because the crypto provider lacks an algorithm: Go accepts all cases whose names contain all
/// these parts, and we refuse them. docs/operations.md lists them.
const STRICTER: &[&[&str]] = &[
    // The crypto provider does not have such keys.
    &[", P-521, leaf"],
    &[", RSA-1024, leaf"],
    // The crypto provider does not have this hash for keys of this length.
    &["SHA-512 under the leaf"],
    // X.509 v1 does not say whether a certificate is an authority's; only a self-issued certificate can have been meant as one.
    &["authority listed", ", v1, leaf"],
    &["signed by a listed v1, self-issued: false"],
    // Policies are not checked. Go, too, refuses most of these cases, but not if the certificate is listed itself.
    &[", explicit policy, leaf"],
    &["leaf v3: explicit policy"],
    &["leaf no-CA: explicit policy"],
    &["leaf CA: explicit policy"],
    &["leaf sign-key: explicit policy"],
    // Names are constrained, and rustls decides: it refuses X.509 v1, and an authority's certificate as a peer's.
    &["names that fit, leaf v1"],
    &["names that fit, leaf CA"],
    &["names that do not fit, leaf v1"],
    &["names excluded, leaf v1"],
    &["addresses of mail permitted, leaf v1"],
    &["addresses of mail permitted, leaf CA"],
    &["URIs that do not fit, leaf v1"],
    &["URIs excluded, leaf v1"],
    // rustls refuses all URIs if some are constrained, and all subjects if directory names are constrained.
    &["URIs that fit, leaf"],
    &["directory names, leaf"],
];

fn stricter(name: &str) -> Option<&'static [&'static str]> {
    STRICTER.iter().find(|parts| parts.iter().all(|part| name.contains(part))).copied()
}

#[test]
fn certificates_count_as_in_go() -> anyhow::Result<()> {
    let Some(program) = go() else { return Ok(()) };
    let cases = matrix(&program)?;
    let now = UnixTime::since_unix_epoch(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?);
    let mut wrong = Vec::new();
    let mut accepted = 0;
    let mut seen = BTreeSet::new();
    for case in cases.iter().filter(|case| !case.is_about_names()) {
        let (authorities, _) = Authorities::new(&case.roots()?, &Policy::default());
        let chain = case.chain.iter().map(|text| der(text)).collect::<anyhow::Result<Vec<_>>>()?;
        for purpose in [Purpose::Client, Purpose::Server] {
            let ours = authorities.verify(&chain[0], &chain[1..], purpose, now);
            accepted += usize::from(ours.is_ok());
            let go = case.go(purpose);
            let difference = stricter(&case.name).filter(|_| go.is_empty());
            seen.extend(difference);
            let expected = go.is_empty() && difference.is_none();
            if ours.is_ok() != expected {
                wrong.push(format!("{} as a {purpose}: we say {ours:?}, Go says {go:?}", case.name));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(accepted > 1500, "only {accepted} of the matrix are accepted");
    for parts in STRICTER {
        ensure!(seen.contains(parts), "no case shows this difference any more: {parts:?}");
    }
    Ok(())
}

#[test]
fn names_count_as_in_go() -> anyhow::Result<()> {
    let Some(program) = go() else { return Ok(()) };
    let cases = matrix(&program)?;
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| case.is_about_names()) {
        let wanted =
            PeerIdentity::new(Some(case.wanted_cn.clone()), Some(case.wanted_uri.clone())).context("a rule")?;
        let ours = wanted.check(&der(&case.chain[0])?, Purpose::Client);
        if ours.is_ok() != (case.fits && stricter(&case.name).is_none()) {
            wrong.push(format!("{}: we say {ours:?}, Go says {}", case.name, case.fits));
        }
    }
    ensure!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// The Go program as the other end of handshakes.
struct GoPeer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl GoPeer {
    fn start(program: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        let mut child = command.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    fn order(&mut self, case: &Case, address: &str, tls12: bool) -> anyhow::Result<()> {
        let order = json!({"address": address, "chain": case.chain, "key": case.key, "tls12": tls12});
        writeln!(self.input, "{order}")?;
        Ok(self.input.flush()?)
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for GoPeer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Files of our own side: a certificate that the other side accepts.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "ours");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(folder.path().join("key"), own.key().serialize_pem())?;
        fs::write(folder.path().join("cert"), own.pem())?;
        Ok(Self { folder })
    }

    fn trust(&self, case: &Case) -> anyhow::Result<()> {
        let pem = |text: &String| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        Ok(fs::write(self.folder.path().join("ca"), case.roots.iter().flatten().map(pem).collect::<String>())?)
    }

    fn server(&self) -> anyhow::Result<ServerTls> {
        let file = |name: &str| self.folder.path().join(name);
        let identity = PeerIdentity::new(Some("peer".to_owned()), None).context("a rule")?;
        Ok(ServerTls::load(ServerTlsConfig::mutual(file("key"), file("cert"), file("ca"), identity))?)
    }

    fn client(&self) -> anyhow::Result<ClientTls> {
        let file = |name: &str| self.folder.path().join(name);
        let identity = PeerIdentity::new(Some("peer".to_owned()), None).context("a rule")?;
        let (key_file, cert_file, ca_file) = (file("key"), file("cert"), file("ca"));
        Ok(ClientTls::load(ClientTlsConfig { key_file, cert_file, ca_file, identity, policy: Policy::default() })?)
    }
}

async fn accept(server: &ServerTls, listener: &TcpListener) -> anyhow::Result<Result<(), String>> {
    let (stream, _) = listener.accept().await?;
    let mut stream = match server.acceptor().accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(handshake_error(&error, Purpose::Client, &[]))),
    };
    stream.write_all(b"hello").await?;
    stream.shutdown().await?;
    Ok(Ok(()))
}

async fn connect(client: &ClientTls, address: &str) -> anyhow::Result<Result<(), String>> {
    let stream = TcpStream::connect(address).await?;
    match client.connector().connect(server_name(address), stream).await {
        Ok(mut stream) => Ok(Ok(stream.read_exact(&mut [0; 5]).await.map(|_| ())?)),
        Err(error) => Ok(Err(handshake_error(&error, Purpose::Server, &[]))),
    }
}

/// Kinds of keys that the crypto provider cannot use in a handshake; the names of such cases contain one of these.
const KEYS_WITHOUT_HANDSHAKE: &[&str] = &["P-521", "RSA-1024"];

/// A chain gets the same verdict in a whole handshake, with each version of TLS.
#[tokio::test]
async fn handshakes_with_go_end_as_in_go() -> anyhow::Result<()> {
    let Some(program) = go() else { return Ok(()) };
    let (cases, mut go) = (matrix(&program)?, GoPeer::start(&program)?);
    let files = Files::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let mut wrong = Vec::new();
    let mut made = 0;
    for case in cases.iter().filter(|case| case.handshake) {
        files.trust(case)?;
        // A CA file without a readable certificate is refused when it is loaded.
        let (Ok(server), Ok(client)) = (files.server(), files.client()) else { continue };
        let usable =
            stricter(&case.name).is_none() && !KEYS_WITHOUT_HANDSHAKE.iter().any(|kind| case.name.contains(kind));
        for tls12 in [false, true] {
            go.order(case, &address, tls12)?;
            let ours = timeout(PATIENCE, accept(&server, &listener)).await??;
            let theirs = go.answer()?;
            let mut check = |purpose: Purpose, ours: Result<(), String>, theirs: &str| {
                made += 1;
                if ours.is_ok() != (case.go(purpose).is_empty() && usable) || ours.is_ok() != theirs.is_empty() {
                    let said = case.go(purpose);
                    let name = &case.name;
                    wrong.push(format!(
                        "{name}, a {purpose}, TLS 1.2 {tls12}: {ours:?}, Go would say {said:?}; it ends with {theirs:?}"
                    ));
                }
            };
            check(Purpose::Client, ours, &theirs);
            go.order(case, "", tls12)?;
            let address = go.answer()?;
            let ours = timeout(PATIENCE, connect(&client, &address)).await??;
            // As a server, Go may end before our client has checked its certificate: its end is not compared.
            let _theirs = go.answer()?;
            let theirs = if ours.is_ok() { "" } else { "refused" };
            check(Purpose::Server, ours, theirs);
        }
    }
    ensure!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(made > 400, "only {made} handshakes");
    Ok(())
}
