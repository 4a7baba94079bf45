//! Judges certificates without serving anything, for commands that inspect an installation, and describes them for the log.

use std::time::SystemTime;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authorities::Authorities;
use super::certificate::{Certificate, at};
use super::identity::PeerIdentity;
use super::policy::Policy;
use super::purpose::Purpose;

/// Judges a server's certificate, the first of a PEM file. Returns its description.
///
/// # Errors
/// The reason why agents would refuse it.
pub fn server(pem: &[u8]) -> Result<String, String> {
    let certificates = read(pem)?;
    let certificate = Certificate::read(&certificates[0]).map_err(|error| error.to_string())?;
    certificate.fit(UnixTime::now()).map_err(|unfit| format!("it {unfit}"))?;
    if !certificate.allows(Purpose::Server) {
        return Err("its extended key usage does not name server authentication".to_owned());
    }
    Ok(describe(&certificates[0]))
}

/// Judges the authorities of a PEM file. Returns their description.
///
/// # Errors
/// The reason why none of them counts.
pub fn authorities(pem: &[u8]) -> Result<String, String> {
    let certificates = read(pem)?;
    let (authorities, unreadable) = Authorities::new(&certificates, &Policy::default());
    if authorities.is_empty() {
        let reason = unreadable.map_or_else(String::new, |error| format!(": {error}"));
        return Err(format!("none of its certificates can be read{reason}"));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    match authorities.earliest_expiry() {
        Some(end) if u64::try_from(end).unwrap_or(0) < now => {
            Err(format!("one of its {} certificates expired at {}", certificates.len(), at(end)))
        }
        Some(end) => Ok(format!("{} certificates, the first ends at {}", certificates.len(), at(end))),
        None => Ok(format!("{} certificates", certificates.len())),
    }
}

/// Judges a peer's certificate, the first of a PEM file; the others of the file lead on from it. Returns its description.
///
/// # Errors
/// It does not lead to `ca`, or its name is another one than expected.
pub fn peer(pem: &[u8], ca: &[u8], identity: &PeerIdentity, purpose: Purpose) -> Result<String, String> {
    let certificates = read(pem)?;
    let (authorities, _) = Authorities::new(&read(ca)?, &Policy::default());
    let (own, others) = (&certificates[0], &certificates[1..]);
    authorities.verify(own, others, purpose, UnixTime::now()).map_err(|error| error.to_string())?;
    identity.check(own, purpose).map_err(|error| error.to_string())?;
    Ok(describe(own))
}

/// The certificates of a PEM file, at least one.
fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("it holds no CERTIFICATE in PEM form".to_owned()) } else { Ok(certificates) }
}

impl Authorities {
    /// The time at which the first of them expires, in seconds since the epoch.
    pub(super) fn earliest_expiry(&self) -> Option<i64> {
        self.certificates.iter().map(|certificate| certificate.not_after).min()
    }
}

/// The time at which the first of some certificates expires, in seconds since the epoch. `None`: none can be read.
pub(super) fn earliest_expiry(certificates: &[CertificateDer<'_>]) -> Option<i64> {
    let parsed = certificates.iter().filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1));
    parsed.map(|certificate| certificate.validity().not_after.timestamp()).min()
}

/// Subject and end of validity of a certificate, for the log.
pub(super) fn describe(certificate: &CertificateDer<'_>) -> String {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => format!("{}, valid until {}", parsed.subject(), parsed.validity().not_after),
        Err(_) => "unreadable certificate".to_owned(),
    }
}
