//! Peers' certificates that Go's library verifies and rustls' verifier does not read: X.509 v1, which `openssl x509 -req` made
//! of every request before its version 3.2 unless it was given extensions (Calico's own guide to certificates does so), and
//! those of an authority, for example a single self-signed one that serves as everything.
//!
//! [`server`](super::server) and [`client`](super::client) ask here first and leave everything else to rustls.
//!
//! Invariants, beside those of [`super`]:
//! - such a certificate is signed by one of the CA file's authorities itself, or is one of the CA file's; intermediates are not looked at;
//! - signatures are checked by libraries only, and never those over SHA-1;
//! - nothing that a certificate demands (time, purpose, critical extensions) is passed over;
//! - authorities count within their time only, for all certificates.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, UnixTime};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, CertificateError, DigitallySignedStruct, InconsistentKeys, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{self as oid, Oid};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// Algorithms by which an authority may have signed.
const SIGNATURES: &[Oid<'static>] = &[
    oid::OID_PKCS1_SHA256WITHRSA,
    oid::OID_PKCS1_SHA384WITHRSA,
    oid::OID_PKCS1_SHA512WITHRSA,
    oid::OID_SIG_ECDSA_WITH_SHA256,
    oid::OID_SIG_ECDSA_WITH_SHA384,
    oid::OID_SIG_ED25519,
];

/// Critical extensions that are understood: who may sign, for what, under which names.
const UNDERSTOOD: &[Oid<'static>] = &[
    oid::OID_X509_EXT_BASIC_CONSTRAINTS,
    oid::OID_X509_EXT_KEY_USAGE,
    oid::OID_X509_EXT_EXTENDED_KEY_USAGE,
    oid::OID_X509_EXT_SUBJECT_ALT_NAME,
];

/// What a CA file holds: authorities, and certificates that are trusted as they are.
#[derive(Clone, Debug)]
pub(super) struct Authorities {
    /// All of them, as rustls' verifier wants them.
    pub(super) roots: Arc<RootCertStore>,
    certificates: Arc<[CertificateDer<'static>]>,
}

impl Authorities {
    pub(super) fn new(roots: RootCertStore, certificates: Vec<CertificateDer<'static>>) -> Self {
        Self { roots: Arc::new(roots), certificates: certificates.into() }
    }

    /// Those that may sign and whose time has come and is not over: rustls does not ask that of what it trusts, Go does.
    /// `None`: all.
    pub(super) fn in_force(&self, now: UnixTime) -> Result<Option<RootCertStore>, rustls::Error> {
        let in_force = |ca: &&CertificateDer<'_>| {
            X509Certificate::from_der(ca).is_ok_and(|(_, ca)| may_sign(&ca) && check_time(&ca, now).is_ok())
        };
        if self.certificates.iter().all(|ca| in_force(&ca)) {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().filter(in_force).cloned());
        if roots.is_empty() {
            let reason = "no authority of the CA file is valid now: they have expired, the clock is wrong, or the file holds \
                          only certificates that may not sign others";
            return Err(rustls::Error::General(reason.to_owned()));
        }
        Ok(Some(roots))
    }

    /// What is to be said of a peer's certificate without rustls: of one that the file holds itself, and of one that rustls does
    /// not read. `None`: it is for rustls to verify.
    pub(super) fn verdict(
        &self,
        certificate: &CertificateDer<'_>,
        purpose: Purpose,
        now: UnixTime,
    ) -> Option<Result<(), CertificateError>> {
        if self.certificates.contains(certificate) {
            let parsed = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding);
            return Some(parsed.and_then(|(_, parsed)| check_demands(&parsed, purpose, now)));
        }
        Some(Leaf::of(certificate)?.verify(self, purpose, now))
    }
}

fn check_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let at = i64::try_from(now.as_secs()).ok().and_then(|secs| ASN1Time::from_timestamp(secs).ok());
    let at = at.ok_or(CertificateError::Expired)?;
    if at < certificate.validity().not_before {
        return Err(CertificateError::NotValidYet);
    }
    if at > certificate.validity().not_after {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// What a peer's certificate has to be for, if it names purposes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Client,
    Server,
}

/// A certificate that rustls does not verify.
struct Leaf<'a> {
    parsed: X509Certificate<'a>,
}

impl<'a> Leaf<'a> {
    /// `None`: rustls verifies certificates like this one.
    fn of(der: &'a CertificateDer<'_>) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        let odd = parsed.version() != X509Version::V3 || parsed.is_ca();
        (odd && rest.is_empty()).then_some(Self { parsed })
    }

    /// Checks that an authority answers for it, now and for this purpose.
    fn verify(&self, authorities: &Authorities, purpose: Purpose, now: UnixTime) -> Result<(), CertificateError> {
        check_demands(&self.parsed, purpose, now)?;
        let mut parsed = authorities.certificates.iter().filter_map(|ca| Some(X509Certificate::from_der(ca).ok()?.1));
        let signed = parsed.any(|ca| {
            let any_name = matches!(ca.name_constraints(), Ok(None));
            any_name && check_time(&ca, now).is_ok() && may_sign(&ca) && self.is_signed_by(&ca)
        });
        if signed { Ok(()) } else { Err(CertificateError::UnknownIssuer) }
    }

    fn is_signed_by(&self, ca: &X509Certificate<'_>) -> bool {
        let algorithm = &self.parsed.signature_algorithm;
        self.parsed.issuer().as_raw() == ca.subject().as_raw()
            && self.parsed.tbs_certificate.signature == *algorithm
            && SIGNATURES.contains(&algorithm.algorithm)
            && self.parsed.verify_signature(Some(ca.public_key())).is_ok()
    }

    fn public_key(&self) -> SubjectPublicKeyInfoDer<'_> {
        SubjectPublicKeyInfoDer::from(self.parsed.public_key().raw)
    }
}

/// Checks all that a certificate demands.
fn check_demands(certificate: &X509Certificate<'_>, purpose: Purpose, now: UnixTime) -> Result<(), CertificateError> {
    check_time(certificate, now)?;
    let unknown = |extension: &x509_parser::extensions::X509Extension<'_>| {
        extension.critical && !UNDERSTOOD.contains(&extension.oid)
    };
    if certificate.extensions().iter().any(unknown) {
        return Err(CertificateError::UnhandledCriticalExtension);
    }
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) => {
            let fits = match purpose {
                Purpose::Client => usage.value.client_auth,
                Purpose::Server => usage.value.server_auth,
            };
            if fits || usage.value.any { Ok(()) } else { Err(CertificateError::InvalidPurpose) }
        }
        Err(_) => Err(CertificateError::BadEncoding),
    }
}

/// Whether this is an authority, which may sign certificates.
fn may_sign(ca: &X509Certificate<'_>) -> bool {
    let is_ca = ca.version() != X509Version::V3 || ca.is_ca();
    is_ca && ca.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// Whether the peer has the key of its certificate; `message` is what it signed with it. TLS 1.3.
pub(super) fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = &provider.signature_verification_algorithms;
    match Leaf::of(certificate) {
        Some(leaf) => verify_tls13_signature_with_raw_key(message, &leaf.public_key(), signed, algorithms),
        None => verify_tls13_signature(message, certificate, signed, algorithms),
    }
}

/// The same for TLS 1.2, where a scheme does not say which curve it is for.
pub(super) fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = &provider.signature_verification_algorithms;
    let Some(leaf) = Leaf::of(certificate) else {
        return verify_tls12_signature(message, certificate, signed, algorithms);
    };
    let key = &leaf.parsed.public_key().subject_public_key.data;
    let mut possible =
        algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme).flat_map(|(_, all)| *all);
    if possible.any(|algorithm| algorithm.verify_signature(key, message, signed.signature()).is_ok()) {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

/// Our own certificate with its key, which have to fit each other.
pub(super) fn own(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, rustls::Error> {
    let pair = CertifiedKey::new(certificates, provider.key_provider.load_private_key(key)?);
    let outcome = match (Leaf::of(pair.end_entity_cert()?), pair.key.public_key()) {
        (Some(leaf), Some(key)) if key.as_ref() != leaf.public_key().as_ref() => {
            Err(InconsistentKeys::KeyMismatch.into())
        }
        (Some(_), _) => Ok(()),
        (None, _) => pair.keys_match(),
    };
    match outcome {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(pair.into())),
        Err(error) => Err(error),
    }
}
