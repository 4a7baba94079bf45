//! Mutual TLS between a server under test and its agents: with certificates of our own, or with given files.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bulrush::tls::client::server_name;
use bulrush::tls::{ClientTls, ClientTlsConfig, PeerIdentity, Policy};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

/// Common names in the certificates that we issue.
const SERVER_CN: &str = "typha-server";
const CLIENT_CN: &str = "typha-client";

/// Files of an agent's TLS.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// Common name in the server's certificate.
    pub(crate) server_cn: String,
}

/// Configuration of agents for TLS with the server.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(files: Files) -> anyhow::Result<Self> {
        let tls = ClientTls::load(ClientTlsConfig {
            key_file: files.key,
            cert_file: files.cert,
            ca_file: files.ca,
            identity: PeerIdentity::new(Some(files.server_cn), None).context("--server-cn is empty")?,
            policy: Policy::default(),
        })?;
        Ok(Self { connector: tls.connector(), name: server_name("localhost:0") })
    }
}

/// Writes an authority and a certificate for each side into `folder`. Returns the agents' TLS and the server's variables.
pub(crate) fn issue(folder: &Path) -> anyhow::Result<(Tls, Vec<(String, String)>)> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "bench authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let write = |name: &str, text: String| -> anyhow::Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    };
    let ca = write("ca.crt", authority.pem())?;
    let certify = |cn: &str| -> anyhow::Result<(PathBuf, PathBuf)> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, cn);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &authority)?;
        Ok((write(&format!("{cn}.crt"), cert.pem())?, write(&format!("{cn}.key"), key.serialize_pem())?))
    };
    let (server_cert, server_key) = certify(SERVER_CN)?;
    let (cert, key) = certify(CLIENT_CN)?;
    let variables = [
        ("TYPHA_SERVERCERTFILE", server_cert.display().to_string()),
        ("TYPHA_SERVERKEYFILE", server_key.display().to_string()),
        ("TYPHA_CAFILE", ca.display().to_string()),
        ("TYPHA_CLIENTCN", CLIENT_CN.to_owned()),
    ];
    let tls = Tls::load(Files { ca, cert, key, server_cn: SERVER_CN.to_owned() })?;
    Ok((tls, variables.map(|(name, value)| (name.to_owned(), value)).into()))
}
