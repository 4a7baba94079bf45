//! Judges certificates without serving anything, for commands that inspect an installation.

use std::time::SystemTime;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::certificate::{Certificate, at};
use super::files::describe;
use super::{Authorities, PeerIdentity, Policy, Purpose};

/// A server's certificate, the first of a PEM file. Returns what it is.
///
/// # Errors
/// Why agents would refuse it.
pub fn server(pem: &[u8]) -> Result<String, String> {
    let certificates = read(pem)?;
    let certificate = Certificate::read(&certificates[0]).map_err(|error| error.to_string())?;
    certificate.fit(UnixTime::now()).map_err(|unfit| format!("it {unfit}"))?;
    if !certificate.allows(Purpose::Server) {
        return Err("its extended key usage does not name server authentication".to_owned());
    }
    Ok(describe(&certificates[0]))
}

/// Authorities of a PEM file. Returns what they are.
///
/// # Errors
/// Why none of them vouches for anybody.
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

/// A peer's certificate, the first of a PEM file whose others lead on from it. Returns what it is.
///
/// # Errors
/// Why it does not lead to `ca`, or why its name is not the expected one.
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
