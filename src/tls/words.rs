//! Failures of TLS as sentences for the log: the mistake of the peer, and the place to check.

use std::io;

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InconsistentKeys};

use super::certificate::at;
use super::purpose::Purpose;

/// First byte of every TLS connection: the type of a record that is part of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// A failed handshake in words. `first` are the first bytes that came from the peer, as far as they are known.
#[must_use]
pub fn handshake_error(error: &io::Error, peer: Purpose, first: &[u8]) -> String {
    if first.first().is_some_and(|byte| *byte != HANDSHAKE_RECORD) {
        return format!(
            "the {peer} does not speak TLS (its first bytes are \"{}\"): is its TLS switched on?",
            first.escape_ascii()
        );
    }
    match inner(error) {
        Some(error) => words(error, peer),
        None if error.kind() == io::ErrorKind::UnexpectedEof => match peer {
            Purpose::Client => "the client closed the connection during the handshake; its log may say why".to_owned(),
            Purpose::Server => {
                "the server closed the connection during the handshake: is TLS switched on there, and is this the \
                                right port? Its log may say why"
                    .to_owned()
            }
        },
        None => error.to_string(),
    }
}

/// A failed read or write of a stream that may be TLS, in words. Under TLS 1.3 this is where a client hears that the server refuses it.
#[must_use]
pub fn stream_error(error: &io::Error, peer: Purpose) -> String {
    inner(error).map_or_else(|| error.to_string(), |error| format!("TLS: {}", words(error, peer)))
}

/// The reason why our own certificate and key cannot be used.
pub(super) fn own_pair(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key is not the one that the certificate was made for".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
            "the certificate is not valid X.509".to_owned()
        }
        other => format!("{other}; keys may be P-256, P-384, Ed25519 or RSA of 2048 bits and more"),
    }
}

fn inner(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn words(error: &rustls::Error, peer: Purpose) -> String {
    use rustls::Error;
    match error {
        Error::InvalidCertificate(error) => certificate(error, peer),
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
            format!("the {peer} does not send TLS: is TLS switched on there, and is this the right port?")
        }
        Error::NoCertificatesPresented => {
            format!("the {peer} shows no certificate: it needs one, with its key, from an authority of the CA file")
        }
        Error::AlertReceived(alert) => format!("the {peer} refused: {}; its log says why", refusal(*alert)),
        Error::PeerIncompatible(what) => format!(
            "this side and the {peer} have no TLS version, cipher suite or kind of key in common ({what:?}): check TLS_MIN_VERSION, \
             TLS_CIPHER_SUITES and the certificates' keys"
        ),
        Error::PeerMisbehaved(what) => format!("the {peer} does not keep to the TLS protocol ({what:?})"),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            format!("the {peer} does not keep to the TLS protocol ({error})")
        }
        Error::DecryptError => {
            format!("a message of the {peer} was changed on its way, or the {peer} does not keep to the TLS protocol")
        }
        Error::General(text) => text.clone(),
        other => other.to_string(),
    }
}

fn certificate(error: &CertificateError, peer: Purpose) -> String {
    let time = |time: &rustls_pki_types::UnixTime| at(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let why = match error {
        CertificateError::Other(other) => return other.0.to_string(),
        CertificateError::ExpiredContext { time: now, not_after } => {
            format!("expired at {}, and now it is {}: renew it, or set the clock", time(not_after), time(now))
        }
        CertificateError::NotValidYetContext { time: now, not_before } => {
            format!("is valid only from {}, and now it is {}: set the clock", time(not_before), time(now))
        }
        CertificateError::InvalidPurpose => {
            format!("is not for {peer}s: its extended key usage has to name {peer} authentication, or to be left out")
        }
        CertificateError::UnhandledCriticalExtension => "has a critical extension that is not understood".to_owned(),
        CertificateError::BadEncoding => {
            "cannot be read: it, or one that was sent with it, is not valid X.509".to_owned()
        }
        _ => {
            return format!(
                "the {peer} has not proved that it has the key of its certificate ({error}): do key and certificate belong together? \
                 Keys may be P-256, P-384, Ed25519 or RSA of 2048 bits and more"
            );
        }
    };
    format!("the {peer}'s certificate {why}")
}

/// An alert in words.
fn refusal(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::UnknownCA => "it does not know the authority that signed our certificate",
        AlertDescription::CertificateExpired => "our certificate has expired, or is not valid yet, by its clock",
        AlertDescription::CertificateRequired => "it wants a certificate, and we have shown none",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => "it does not accept our certificate, its name for example",
        AlertDescription::ProtocolVersion => "it has no TLS version in common with us",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it has no cipher suite or kind of key in common with us, or wants a certificate"
        }
        AlertDescription::DecryptError => "it could not verify our signature",
        other => return format!("TLS alert {other:?}"),
    };
    format!("{words} (TLS alert {alert:?})")
}
