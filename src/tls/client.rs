//! The client's side: a connector from files, the server known by CA and name rule instead of its host name.

use std::path::PathBuf;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, IpAddr, ServerName, UnixTime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::error::Error;
use super::files::{Reload, Reloading, Source};
use super::identity::PeerIdentity;
use super::peer::Peer;
use super::policy::Policy;
use super::purpose::Purpose;
use super::signatures::{verify_tls12, verify_tls13};
use super::{signatures, words};

/// The files and rules of a client's TLS. Servers of this protocol always ask for a certificate.
#[derive(Clone, Debug)]
pub struct ClientTlsConfig {
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// The client's certificate and its intermediates, PEM.
    pub cert_file: PathBuf,
    /// The certificates that the server's chain must lead to, PEM.
    pub ca_file: PathBuf,
    /// The server's name. Host names are not checked.
    pub identity: PeerIdentity,
    /// Versions and suites.
    pub policy: Policy,
}

/// A client's TLS, fresh from its files.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<Reloading<ClientConfig>>,
}

impl ClientTls {
    /// Reads the files once. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// Names the file or setting, and the mistake.
    pub fn load(config: ClientTlsConfig) -> Result<Self, Error> {
        let sources = vec![
            Source::new("key", &config.key_file),
            Source::new("certificate", &config.cert_file),
            Source::new("CA", &config.ca_file),
        ];
        let build = move |sources: &[Source], contents: &[Vec<u8>]| build(&config, sources, contents);
        Ok(Self { config: Arc::new(Reloading::load(sources, Box::new(build))?) })
    }

    /// A connector with the certificates that were loaded last.
    #[must_use]
    pub fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.current())
    }

    /// Looks at the files now; the client library does before each connection. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// The files changed but cannot be used; the old ones stay in use.
    pub fn reload(&self) -> Result<Reload, Error> {
        self.config.reload()
    }
}

/// The name to put into the handshake for an address `host:port`. Nothing is verified by it.
#[must_use]
pub fn server_name(address: &str) -> ServerName<'static> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned())
        .unwrap_or_else(|_| ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from([127, 0, 0, 1]))))
}

fn build(config: &ClientTlsConfig, sources: &[Source], contents: &[Vec<u8>]) -> Result<ClientConfig, Error> {
    let key = sources[0].key(&contents[0])?;
    let certificates = sources[1].certificates(&contents[1])?;
    let authorities = sources[2].authorities(&contents[2], &config.policy)?;
    let provider = config.policy.provider();
    let identity = Some(config.identity.clone());
    let verifier = Peer { authorities: Some(authorities), identity, provider: provider.clone() };
    let own = signatures::own(certificates, key, &provider).map_err(|error| Error::KeyPair {
        cert: config.cert_file.clone(),
        key: config.key_file.clone(),
        reason: words::own_pair(&error),
    })?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&config.policy.versions())
        .map_err(|error| Error::Settings(format!("set TLS versions and suites: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(own);
    client.resumption = Resumption::disabled();
    Ok(client)
}

/// Chain, purpose, time and Calico's name rule count; the host name does not.
impl ServerCertVerifier for Peer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, Purpose::Server, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12(self.algorithms(), message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13(self.algorithms(), message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
