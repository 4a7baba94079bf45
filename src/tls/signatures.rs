//! Signatures and the keys that made them: under a certificate, and in a handshake. Only the crypto provider's algorithms check
//! signatures, so that the same algorithms and key sizes count everywhere.
//!
//! Keys are taken out of certificates here instead of by rustls, which does not read X.509 v1: `openssl x509 -req` made that of every
//! request before its version 3.2 unless it was given extensions, and Calico's own guide to certificates does so.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, CertificateError, DigitallySignedStruct, InconsistentKeys};
use x509_parser::asn1_rs::{Any, BitString, FromDer as _};
use x509_parser::certificate::X509Certificate;

/// A public key with the name of its algorithm, both as the provider's algorithms want them.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    algorithm: Vec<u8>,
    bits: Vec<u8>,
}

impl PublicKey {
    /// Of a `SubjectPublicKeyInfo`.
    pub(super) fn of(info: &[u8]) -> Option<Self> {
        let (_, info) = Any::from_der(info).ok()?;
        let (bits, algorithm) = Any::from_der(info.data).ok()?;
        let (_, bits) = BitString::from_der(bits).ok()?;
        Some(Self { algorithm: algorithm.data.to_vec(), bits: bits.data.to_vec() })
    }
}

/// The bytes that a certificate's issuer signed, and the algorithm.
#[derive(Clone, Debug)]
pub(super) struct Signed {
    message: Vec<u8>,
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl Signed {
    /// Of a whole certificate.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (_, whole) = Any::from_der(certificate).ok()?;
        let (rest, _) = Any::from_der(whole.data).ok()?;
        let message = whole.data[..whole.data.len() - rest.len()].to_vec();
        let (rest, algorithm) = Any::from_der(rest).ok()?;
        let (_, signature) = BitString::from_der(rest).ok()?;
        Some(Self { message, algorithm: algorithm.data.to_vec(), signature: signature.data.to_vec() })
    }

    /// Whether the owner of `key` made the signature, by an algorithm that counts.
    pub(super) fn is_by(&self, key: &PublicKey, algorithms: &WebPkiSupportedAlgorithms) -> bool {
        algorithms
            .all
            .iter()
            .filter(|one| *one.signature_alg_id() == *self.algorithm && *one.public_key_alg_id() == *key.algorithm)
            .any(|one| one.verify_signature(&key.bits, &self.message, &self.signature).is_ok())
    }
}

fn key_info(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, rustls::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    Ok(parsed.public_key().raw.to_vec())
}

/// Whether a peer has the key of its certificate, with which it signed `message`. TLS 1.3.
pub(super) fn verify_tls13(
    algorithms: &WebPkiSupportedAlgorithms,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let info = key_info(certificate)?;
    verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(&info[..]), signed, algorithms)
}

/// The same for TLS 1.2, where a scheme does not say which curve it is for.
pub(super) fn verify_tls12(
    algorithms: &WebPkiSupportedAlgorithms,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let key = PublicKey::of(&key_info(certificate)?).ok_or(CertificateError::BadEncoding)?;
    let mut possible = algorithms
        .mapping
        .iter()
        .filter(|(scheme, _)| *scheme == signed.scheme)
        .flat_map(|(_, algorithms)| *algorithms)
        .filter(|one| *one.public_key_alg_id() == *key.algorithm);
    if possible.any(|one| one.verify_signature(&key.bits, message, signed.signature()).is_ok()) {
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
    let info = key_info(pair.end_entity_cert()?)?;
    match pair.key.public_key() {
        Some(key) if key.as_ref() != info => Err(InconsistentKeys::KeyMismatch.into()),
        _ => Ok(Arc::new(pair.into())),
    }
}
