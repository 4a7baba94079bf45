//! Calico's rule for the name of a verified peer: by common name or by URI SAN.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use tokio_rustls::rustls::{self, CertificateError, OtherError};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::purpose::Purpose;

/// The name that a peer's certificate must have. Of two conditions either one suffices; a single one must hold.
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
    /// Names the identity in the certificate, the expected one, and the setting that expects it.
    pub fn check(&self, certificate: &CertificateDer<'_>, purpose: Purpose) -> Result<(), IdentityError> {
        let refuse = |found: String| IdentityError { purpose, wanted: self.clone(), found };
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|error| refuse(format!("does not parse ({error})")))?;
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
            Err(error) => return Err(refuse(format!("has alternative names that do not parse ({error})"))),
        };
        let name_fits = self.common_name.is_some() && self.common_name.as_deref() == common_name;
        let uri_fits = self.uri_san.as_deref().is_some_and(|wanted| uris.contains(&wanted));
        if name_fits || uri_fits {
            return Ok(());
        }
        let name = common_name.map_or_else(|| "no CN".to_owned(), |name| format!("CN {name:?}"));
        let uris = if self.uri_san.is_none() {
            String::new()
        } else if uris.is_empty() {
            " and no URI".to_owned()
        } else {
            format!(" and URI {}", uris.iter().map(|uri| format!("{uri:?}")).collect::<Vec<_>>().join(", "))
        };
        Err(refuse(format!("is for {name}{uris}")))
    }

    /// [`Self::check`] for rustls' verifiers.
    pub(super) fn verify(&self, certificate: &CertificateDer<'_>, purpose: Purpose) -> Result<(), rustls::Error> {
        self.check(certificate, purpose)
            .map_err(|error| rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))
    }
}

/// The peer is verified, but has another name than it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityError {
    purpose: Purpose,
    wanted: PeerIdentity,
    found: String,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { purpose, wanted, found } = self;
        let wanted = [("CN", &wanted.common_name), ("URI", &wanted.uri_san)];
        let wanted = wanted.iter().filter_map(|(what, value)| Some((*what, value.as_deref()?)));
        let (wanted, advice): (Vec<String>, _) = match purpose {
            Purpose::Client => (
                wanted.map(|(what, value)| format!("{} asks for {value:?}", option_for(what))).collect(),
                "check that option, and which certificate the client uses",
            ),
            Purpose::Server => (
                wanted.map(|(what, value)| format!("{what} {value:?} is expected")).collect(),
                "is this the right server, and the right name to expect of it?",
            ),
        };
        write!(f, "the {purpose}'s certificate {found}, but {}: {advice}", wanted.join(", or "))
    }
}

impl std::error::Error for IdentityError {}

/// The variable that sets the name of clients.
fn option_for(what: &str) -> &'static str {
    if what == "CN" { "TYPHA_CLIENTCN" } else { "TYPHA_CLIENTURISAN" }
}
