//! The server's side: an acceptor from files, client certificates as configured.

use std::path::PathBuf;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{self, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::files::{Reload, Reloading, Source, describe, earliest_expiry};
use super::{Authorities, Error, PeerIdentity, Policy, Purpose, signatures, words};
use crate::config::{MetricsClientAuth as ClientAuth, MetricsTlsConfig, TlsConfig};

fn verifies(auth: ClientAuth) -> bool {
    matches!(auth, ClientAuth::RequireAndVerifyClientCert | ClientAuth::VerifyClientCertIfGiven)
}

/// Where a server's TLS comes from.
#[derive(Clone, Debug)]
pub struct ServerTlsConfig {
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// The server's certificate and its intermediates, PEM.
    pub cert_file: PathBuf,
    /// The certificates that clients' chains must lead to, PEM. Needed when `client_auth` verifies.
    pub ca_file: Option<PathBuf>,
    /// What clients must show. The sync port always requires and verifies.
    pub client_auth: ClientAuth,
    /// Who clients may be, beyond a verified chain. `None`: anybody with one.
    pub identity: Option<PeerIdentity>,
    /// Versions and suites.
    pub policy: Policy,
}

impl ServerTlsConfig {
    /// The sync port's configuration: verified clients with Calico's name rule.
    #[must_use]
    pub fn mutual(key_file: PathBuf, cert_file: PathBuf, ca_file: PathBuf, identity: PeerIdentity) -> Self {
        Self {
            key_file,
            cert_file,
            ca_file: Some(ca_file),
            client_auth: ClientAuth::RequireAndVerifyClientCert,
            identity: Some(identity),
            policy: Policy::default(),
        }
    }

    /// The sync port's TLS as configured.
    ///
    /// # Errors
    /// Suites that are unknown or leave nothing to negotiate, or no name that clients must have.
    pub fn sync_port(config: &TlsConfig) -> Result<Self, Error> {
        let identity = PeerIdentity::new(config.client_cn.clone(), config.client_uri_san.clone()).ok_or_else(|| {
            Error::Settings("TLS needs ClientCN or ClientURISAN, which say who clients must be".to_owned())
        })?;
        let mutual = Self::mutual(config.key_file.clone(), config.cert_file.clone(), config.ca_file.clone(), identity);
        Ok(Self { policy: Policy::parse(config.min_version.as_str(), &config.cipher_suites)?, ..mutual })
    }

    /// The metrics port's TLS as configured.
    ///
    /// # Errors
    /// Suites that are unknown or leave nothing to negotiate.
    pub fn metrics_port(config: &MetricsTlsConfig) -> Result<Self, Error> {
        Ok(Self {
            key_file: config.key_file.clone(),
            cert_file: config.cert_file.clone(),
            ca_file: Some(config.ca_file.clone()),
            client_auth: config.client_auth,
            identity: None,
            policy: Policy::parse(config.min_version.as_str(), &config.cipher_suites)?,
        })
    }
}

/// A server's TLS, fresh from its files.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<Reloading<Loaded>>,
}

/// The result of reading the present files.
struct Loaded {
    server: Arc<ServerConfig>,
    expiry: Expiry,
}

/// When the first certificate of each file expires, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Our certificate, and those in its file that lead on from it.
    pub own: Option<i64>,
    /// Those that clients' certificates have to lead to. `None`: they are not verified.
    pub authorities: Option<i64>,
}

impl ServerTls {
    /// Reads the files once. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// Names the file or setting and what is wrong with it.
    pub fn load(config: ServerTlsConfig) -> Result<Self, Error> {
        for suite in config.policy.ignored_suites() {
            tracing::warn!(suite, "cipher suite is not supported and left out");
        }
        let mut sources = vec![Source::new("key", &config.key_file), Source::new("certificate", &config.cert_file)];
        if verifies(config.client_auth) {
            let ca_file = config.ca_file.as_ref().ok_or_else(|| {
                Error::Settings("client certificates are to be verified, but no CA file is set".to_owned())
            })?;
            sources.push(Source::new("CA", ca_file));
        }
        let build = {
            let sources = sources.clone();
            move |contents: &[Vec<u8>]| build(&config, &sources, contents)
        };
        Ok(Self { config: Arc::new(Reloading::load(sources, Box::new(build))?) })
    }

    /// An acceptor with the newest certificates; take one for each connection, it costs a reference count.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.current().server.clone())
    }

    /// Looks at the files now, for example on SIGHUP. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// The files changed but cannot be used; the old ones stay in use.
    pub fn reload(&self) -> Result<Reload, Error> {
        self.config.reload()
    }

    /// Looks at the files every [`super::RELOAD_INTERVAL`] until cancelled. `told` hears after each look when those in use expire.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn keep_fresh(self, cancel: CancellationToken, told: impl Fn(Expiry)) {
        self.config.keep_fresh(cancel, |loaded| told(loaded.expiry)).await;
    }
}

fn build(config: &ServerTlsConfig, sources: &[Source], contents: &[Vec<u8>]) -> Result<Loaded, Error> {
    let key = sources[0].key(&contents[0])?;
    let certificates = sources[1].certificates(&contents[1])?;
    let mut expiry = Expiry { own: earliest_expiry(&certificates), authorities: None };
    let provider = config.policy.provider();
    let verifier = match config.client_auth {
        ClientAuth::NoClientCert => None,
        ClientAuth::RequireAnyClientCert => {
            Some(Arc::new(AnyCertificate { provider: provider.clone() }) as Arc<dyn ClientCertVerifier>)
        }
        ClientAuth::RequireAndVerifyClientCert | ClientAuth::VerifyClientCertIfGiven => {
            let authorities = sources[2].authorities(&contents[2], &config.policy)?;
            expiry.authorities = authorities.earliest_expiry();
            Some(Arc::new(VerifiedClient {
                mandatory: config.client_auth == ClientAuth::RequireAndVerifyClientCert,
                names: authorities.subjects(),
                authorities,
                identity: config.identity.clone(),
                provider: provider.clone(),
            }) as Arc<_>)
        }
    };
    let key_pair = |error: rustls::Error| Error::KeyPair {
        cert: config.cert_file.clone(),
        key: config.key_file.clone(),
        reason: words::own_pair(&error),
    };
    tracing::info!(certificate = describe(&certificates[0]), "TLS certificate loaded");
    let own = signatures::own(certificates, key, &provider).map_err(key_pair)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&config.policy.versions())
        .map_err(|error| Error::Settings(format!("set TLS versions and suites: {error}")))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_cert_resolver(own);
    // No resumption, by ticket or by id: a resumed session would not run the verifier.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Loaded { server: Arc::new(server), expiry })
}

/// Verifies chain, purpose and time, then who the client is if that matters.
#[derive(Debug)]
struct VerifiedClient {
    /// A client without a certificate is refused.
    mandatory: bool,
    /// The authorities that clients are told of.
    names: Vec<DistinguishedName>,
    authorities: Authorities,
    identity: Option<PeerIdentity>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for VerifiedClient {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.authorities.verify(end_entity, intermediates, Purpose::Client, now)?;
        if let Some(identity) = &self.identity {
            identity.verify(end_entity, Purpose::Client)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signatures::verify_tls12(message, cert, dss, &self.provider)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signatures::verify_tls13(message, cert, dss, &self.provider)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes any certificate, but has the client prove that it holds the key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signatures::verify_tls12(message, cert, dss, &self.provider)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signatures::verify_tls13(message, cert, dss, &self.provider)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
