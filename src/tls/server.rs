//! The server's side: an acceptor from files, client certificates as configured.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{self, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::authorities::Authorities;
use super::error::Error;
use super::files::{Reload, Reloading, Source};
use super::identity::PeerIdentity;
use super::peer::Peer;
use super::policy::Policy;
use super::purpose::Purpose;
use super::review::{describe, earliest_expiry};
use super::signatures::{verify_tls12, verify_tls13};
use super::{signatures, words};
use crate::config::{MetricsClientAuth as ClientAuth, MetricsTlsConfig, TlsConfig};

/// Time between two looks at the files. Certificates are replaced hours before they expire; three small reads cost nothing.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

fn verifies(auth: ClientAuth) -> bool {
    matches!(auth, ClientAuth::RequireAndVerifyClientCert | ClientAuth::VerifyClientCertIfGiven)
}

/// The files and rules of a server's TLS.
#[derive(Clone, Debug)]
pub struct ServerTlsConfig {
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// The server's certificate and its intermediates, PEM.
    pub cert_file: PathBuf,
    /// The certificates that clients' chains must lead to, PEM. Needed when `client_auth` verifies.
    pub ca_file: Option<PathBuf>,
    /// The demand for clients' certificates. The sync port always requires and verifies them.
    pub client_auth: ClientAuth,
    /// The name of clients, beside a verified chain. `None`: any name.
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

/// The time at which the first certificate of each file expires, in seconds since the epoch.
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
    /// Names the file or setting, and the mistake.
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
        let build = move |sources: &[Source], contents: &[Vec<u8>]| build(&config, sources, contents);
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

    /// Looks at the files every [`RELOAD_INTERVAL`] until cancelled, and logs the outcome. `told` hears after each look when those
    /// in use expire.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn keep_fresh(self, cancel: CancellationToken, told: impl Fn(Expiry)) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_error = String::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let this = self.clone();
            let Ok(outcome) = tokio::task::spawn_blocking(move || this.reload()).await else { continue };
            told(self.config.current().expiry);
            match outcome {
                Ok(Reload::Unchanged) => {}
                Ok(Reload::Replaced) => {
                    last_error.clear();
                    let files: Vec<&Path> = self.config.sources.iter().map(|source| source.path.as_path()).collect();
                    tracing::info!(?files, "TLS files changed, new handshakes use them");
                }
                // An unreadable file fails at every look: say so once.
                Err(error) if error.to_string() == last_error => {}
                Err(error) => {
                    last_error = error.to_string();
                    tracing::warn!(%error, "TLS files changed but cannot be used, keeping those loaded before");
                }
            }
        }
    }
}

fn build(config: &ServerTlsConfig, sources: &[Source], contents: &[Vec<u8>]) -> Result<Loaded, Error> {
    let key = sources[0].key(&contents[0])?;
    let certificates = sources[1].certificates(&contents[1])?;
    let mut expiry = Expiry { own: earliest_expiry(&certificates), authorities: None };
    let provider = config.policy.provider();
    let verifier = |mandatory, names, authorities: Option<Authorities>| {
        // A name counts only under a chain that does.
        let identity = authorities.as_ref().and(config.identity.clone());
        let peer = Peer { authorities, identity, provider: provider.clone() };
        Arc::new(ClientVerifier { mandatory, names, peer })
    };
    let verifier = match config.client_auth {
        ClientAuth::NoClientCert => None,
        ClientAuth::RequireAnyClientCert => Some(verifier(true, Vec::new(), None)),
        ClientAuth::RequireAndVerifyClientCert | ClientAuth::VerifyClientCertIfGiven => {
            let authorities = sources[2].authorities(&contents[2], &config.policy)?;
            expiry.authorities = authorities.earliest_expiry();
            let mandatory = config.client_auth == ClientAuth::RequireAndVerifyClientCert;
            let names = authorities.certificates.iter().map(|authority| authority.subject.clone().into()).collect();
            Some(verifier(mandatory, names, Some(authorities)))
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

/// Checks clients: whether they have to show a certificate, and which ones count.
#[derive(Debug)]
struct ClientVerifier {
    /// A client without a certificate is refused.
    mandatory: bool,
    /// The authorities that clients are told of.
    names: Vec<DistinguishedName>,
    peer: Peer,
}

impl ClientCertVerifier for ClientVerifier {
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
        self.peer.verify(end_entity, intermediates, Purpose::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12(self.peer.algorithms(), message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13(self.peer.algorithms(), message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.peer.algorithms().supported_schemes()
    }
}
