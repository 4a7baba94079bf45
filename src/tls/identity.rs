//! Calico's rule for who a verified peer may be: by common name or by URI SAN.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use tokio_rustls::rustls::{self, CertificateError, OtherError};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a peer's certificate must say. Of two conditions either one suffices; a single one must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    common_name: Option<String>,
    uri_san: Option<String>,
}

impl PeerIdentity {
    /// The rule for these settings; an empty text counts as not set. `None`: neither is set, so there is no rule.
    #[must_use]
    pub fn new(common_name: Option<String>, uri_san: Option<String>) -> Option<Self> {
        let common_name = common_name.filter(|name| !name.is_empty());
        let uri_san = uri_san.filter(|uri| !uri.is_empty());
        (common_name.is_some() || uri_san.is_some()).then_some(Self { common_name, uri_san })
    }

    /// Checks a certificate whose chain has been verified.
    ///
    /// # Errors
    /// Says what the certificate has and what was wanted.
    pub fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), IdentityError> {
        let refuse = |found: String| IdentityError { wanted: self.to_string(), found };
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| refuse(format!("a certificate that does not parse: {error}")))?;
        // Go takes the last common name of a subject that has several.
        let common_name = parsed.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
        let uris: Vec<&str> = match parsed.subject_alternative_name() {
            Ok(Some(san)) => san
                .value
                .general_names
                .iter()
                .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
                .collect(),
            Ok(None) => Vec::new(),
            Err(error) => return Err(refuse(format!("alternative names that do not parse: {error}"))),
        };
        let name_fits = self.common_name.is_some() && self.common_name.as_deref() == common_name;
        let uri_fits = self.uri_san.as_deref().is_some_and(|wanted| uris.contains(&wanted));
        if name_fits || uri_fits {
            return Ok(());
        }
        Err(refuse(format!("common name {:?} and URI alternative names {uris:?}", common_name.unwrap_or_default())))
    }

    /// [`Self::check`] for rustls' verifiers.
    pub(super) fn verify(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        self.check(certificate)
            .map_err(|error| rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.common_name, &self.uri_san) {
            (Some(name), Some(uri)) => write!(f, "common name {name:?} or URI alternative name {uri:?}"),
            (Some(name), None) => write!(f, "common name {name:?}"),
            (None, Some(uri)) => write!(f, "URI alternative name {uri:?}"),
            (None, None) => f.write_str("nothing"),
        }
    }
}

/// The peer is verified, but is not who it has to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("peer certificate has {found}, wanted is {wanted}")]
pub struct IdentityError {
    wanted: String,
    found: String,
}
