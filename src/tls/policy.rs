//! Protocol versions and cipher suites: `TLS_MIN_VERSION` and `TLS_CIPHER_SUITES`, with the names that Go uses.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use super::error::Error;

/// Suites of TLS 1.2 that we have. Go's short names without hash are accepted, too.
const SUPPORTED: &[(&str, CipherSuite)] = &[
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
];

/// Suites of TLS 1.3. As in Go they are always on; naming them is allowed and changes nothing.
const ALWAYS_ON: &[&str] = &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Names that Go knows and rustls does not implement: no forward secrecy, or broken modes.
const UNSUPPORTED: &[&str] = &[
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// The versions and suites that a peer may use.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The lowest version is 1.3 instead of 1.2.
    only_tls13: bool,
    provider: Arc<CryptoProvider>,
    ignored: Vec<String>,
}

impl Default for Policy {
    /// TLS 1.2 and 1.3 with everything that rustls considers safe.
    fn default() -> Self {
        Self { only_tls13: false, provider: Arc::new(ring::default_provider()), ignored: Vec::new() }
    }
}

impl Policy {
    /// The policy for the texts of `TLS_MIN_VERSION` and `TLS_CIPHER_SUITES`; empty texts mean the defaults.
    ///
    /// # Errors
    /// An unknown version or suite, or suites that leave nothing to negotiate.
    pub fn parse(min_version: &str, cipher_suites: &str) -> Result<Self, Error> {
        let only_tls13 = match min_version.trim() {
            "" | "1.2" => false,
            "1.3" => true,
            other => {
                return Err(Error::Settings(format!(
                    "TLS_MIN_VERSION is {other:?}: only 1.2 (the default) and 1.3 are accepted"
                )));
            }
        };
        let mut provider = ring::default_provider();
        let mut ignored = Vec::new();
        let names: Vec<&str> = cipher_suites.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if !names.is_empty() {
            let mut chosen = Vec::new();
            let mut unknown = Vec::new();
            let mut tls13_named = false;
            for name in names {
                if let Some((_, suite)) = SUPPORTED.iter().find(|(known, _)| *known == name) {
                    chosen.push(*suite);
                } else if ALWAYS_ON.contains(&name) {
                    tls13_named = true;
                } else if UNSUPPORTED.contains(&name) {
                    ignored.push(name.to_owned());
                } else {
                    unknown.push(name);
                }
            }
            if !unknown.is_empty() {
                let accepted: Vec<&str> =
                    SUPPORTED.iter().map(|(name, _)| *name).chain(ALWAYS_ON.iter().copied()).collect();
                return Err(Error::Settings(format!(
                    "TLS_CIPHER_SUITES names unknown suites {}: accepted are {}",
                    unknown.join(", "),
                    accepted.join(", ")
                )));
            }
            if chosen.is_empty() && !tls13_named {
                return Err(Error::Settings(format!(
                    "TLS_CIPHER_SUITES leaves no suite: {} are not supported (no forward secrecy, or CBC); name one with \
                     ECDHE and GCM or CHACHA20",
                    ignored.join(", ")
                )));
            }
            provider.cipher_suites.retain(|suite| is_tls13(*suite) || chosen.contains(&suite.suite()));
            // The operator's order is the server's preference.
            provider.cipher_suites.sort_by_key(|suite| {
                let position = chosen.iter().position(|chosen| *chosen == suite.suite());
                (!is_tls13(*suite), position)
            });
        }
        Ok(Self { only_tls13, provider: Arc::new(provider), ignored })
    }

    /// Suites that were named and are left out because they are not supported, for the log.
    #[must_use]
    pub fn ignored_suites(&self) -> &[String] {
        &self.ignored
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }

    /// The versions, 1.2 only if a suite for it is left.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let tls12 = !self.only_tls13 && self.provider.cipher_suites.iter().any(|suite| !is_tls13(*suite));
        if tls12 { vec![&TLS13, &TLS12] } else { vec![&TLS13] }
    }
}

fn is_tls13(suite: SupportedCipherSuite) -> bool {
    suite.version().version == ProtocolVersion::TLSv1_3
}
