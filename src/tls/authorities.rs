//! Whether a peer's certificate leads to one of the CA file, as Go's `crypto/x509` decides it (`Certificate.Verify`).
//!
//! rustls' own verifier reads fewer certificates (no X.509 v1, no authority's as a peer's, which a single self-signed one for
//! everything is), and asks less of those that it trusts: not for their time, usages, path length and critical extensions. Where names
//! are constrained it has the last word.
//!
//! Invariants, beside those of [`super`]:
//! - a certificate of the CA file vouches for others only as an authority does; for itself it always may;
//! - time, purpose and critical extensions count for every certificate of a chain, the trusted one included;
//! - one listed as X.509 v1, which cannot say whether it is an authority's, vouches for others only if it is self-issued;
//! - to find a way, a peer's certificates cost [`MOST_CHECKS`] checks of signatures at most; rustls' own come on top where a way
//!   is found and names are constrained on it.
//!
//! docs/operations.md lists the differences from Go, and `tests/it/certificates.rs` compares both.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, CertificateError, OtherError, RootCertStore};

use super::certificate::{Certificate, Unfit, unix_time};
use super::policy::Policy;
use super::purpose::Purpose;

/// Most signatures that are checked for one peer: it may send certificates that all look like another's issuer. Go's number.
const MOST_CHECKS: usize = 100;

/// The content of a CA file: authorities, and certificates that are trusted as they are.
#[derive(Clone, Debug)]
pub struct Authorities {
    pub(super) certificates: Arc<[Certificate]>,
    provider: Arc<CryptoProvider>,
}

/// A certificate's owner is not known: neither it nor its issuers lead to the CA file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {purpose}'s certificate for {subject:?} does not lead to the CA file's certificates: {hint}")]
struct Unknown {
    purpose: Purpose,
    subject: String,
    hint: String,
}

impl Authorities {
    /// Those of these certificates that can be read, and why the first of the others cannot.
    #[must_use]
    pub fn new(certificates: &[CertificateDer<'_>], policy: &Policy) -> (Self, Option<CertificateError>) {
        let mut unreadable = None;
        let readable = certificates.iter().filter_map(|der| match Certificate::read(der) {
            Ok(certificate) => Some(certificate),
            Err(error) => {
                unreadable.get_or_insert(error);
                None
            }
        });
        let certificates: Vec<_> = readable.collect();
        (Self { certificates: certificates.into(), provider: policy.provider() }, unreadable)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Checks a peer's certificate, to which it may have sent others that lead on from it, in any order.
    ///
    /// # Errors
    /// Says why it does not count, for [`super::handshake_error`].
    pub fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let leaf = Certificate::read(end_entity)?;
        let sent = sent.iter().map(Certificate::read).collect::<Result<Vec<_>, _>>()?;
        leaf.fit(now).map_err(|unfit| match unfit {
            Unfit::NotYet { not_before } => {
                CertificateError::NotValidYetContext { time: now, not_before: unix_time(not_before) }
            }
            Unfit::Expired { not_after } => {
                CertificateError::ExpiredContext { time: now, not_after: unix_time(not_after) }
            }
            Unfit::Condition(_) => CertificateError::UnhandledCriticalExtension,
        })?;
        if !leaf.allows(purpose) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        if self.certificates.iter().any(|listed| listed.der == leaf.der) {
            return Ok(());
        }
        let mut search = Search { authorities: self, sent: &sent, purpose, now, checks: 0, hint: None };
        if search.leads_on(&mut vec![&leaf]) {
            return Ok(());
        }
        let hint = search.hint.unwrap_or_else(|| {
            format!(
                "its issuer is {:?}, and neither the CA file nor the {purpose} has a certificate of that name: is it from \
                 another authority, or does the {purpose}'s certificate file lack the authorities in between?",
                leaf.issuer_text
            )
        });
        let unknown = Unknown { purpose, subject: leaf.subject_text.clone(), hint };
        Err(CertificateError::Other(OtherError(Arc::new(unknown))).into())
    }

    /// Whether the authorities of a chain may sign for all names in it; rustls decides that. It does not read every
    /// certificate that may come first; such a one is refused.
    fn names_are_allowed(&self, chain: &[&Certificate], purpose: Purpose, now: UnixTime) -> Result<(), rustls::Error> {
        let (Some((leaf, above)), Some(trusted)) = (chain.split_first(), chain.last()) else { return Ok(()) };
        let sent: Vec<_> = above.iter().map(|certificate| certificate.der.clone()).collect();
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der.clone())?;
        match purpose {
            Purpose::Server => {
                let parsed = ParsedCertificate::try_from(&leaf.der)?;
                let algorithms = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &sent, now, algorithms)
            }
            Purpose::Client => {
                let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
                let verifier = builder.build().map_err(|error| rustls::Error::General(error.to_string()))?;
                verifier.verify_client_cert(&leaf.der, &sent, now).map(|_| ())
            }
        }
    }
}

/// The way from a certificate to one that is trusted, by its issuer, the issuer's issuer, and so on.
struct Search<'a> {
    authorities: &'a Authorities,
    sent: &'a [Certificate],
    purpose: Purpose,
    now: UnixTime,
    /// Number of signatures that have been checked.
    checks: usize,
    /// The reason why the first possible authority does not count.
    hint: Option<String>,
}

/// The origin of an authority's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The CA file: it is trusted.
    File,
    /// The peer.
    Peer,
}

impl<'a> Search<'a> {
    /// Whether the last certificate of a chain leads to one that is trusted.
    fn leads_on(&mut self, chain: &mut Vec<&'a Certificate>) -> bool {
        let (authorities, sent) = (self.authorities, self.sent);
        let listed = authorities.certificates.iter().map(|authority| (Origin::File, authority));
        for (from, authority) in listed.chain(sent.iter().map(|authority| (Origin::Peer, authority))) {
            let Some(last) = chain.last() else { return false };
            if authority.subject != last.issuer || chain.iter().any(|certificate| certificate.is_same(authority)) {
                continue;
            }
            self.checks += 1;
            if self.checks > MOST_CHECKS {
                self.hint = Some(format!("more than {MOST_CHECKS} signatures would have to be checked"));
                return false;
            }
            if let Err(reason) = self.may_have_signed(authority, from, chain) {
                self.hint.get_or_insert_with(|| {
                    let place = if from == Origin::File { "of the CA file" } else { "that was sent with it" };
                    format!("the authority {:?} {place} {reason}", authority.subject_text)
                });
                continue;
            }
            chain.push(authority);
            let found = match from {
                Origin::File => self.is_complete(chain),
                Origin::Peer => self.leads_on(chain),
            };
            if found {
                return true;
            }
            chain.pop();
        }
        false
    }

    /// Whether an authority may have signed the last certificate of a chain, and has. The reason goes on from its name.
    fn may_have_signed(&self, authority: &Certificate, from: Origin, chain: &[&Certificate]) -> Result<(), String> {
        let old_and_own = !authority.version3 && from == Origin::File && authority.subject == authority.issuer;
        if authority.is_ca != Some(true) && !old_and_own {
            return Err("may not sign others: its basic constraints do not say that it is an authority".to_owned());
        }
        if authority.signing_excluded {
            return Err("may not sign others: its key usage does not allow it".to_owned());
        }
        let Some(last) = chain.last() else { return Ok(()) };
        if !last.signed.is_by(&authority.key, &self.authorities.provider.signature_verification_algorithms) {
            return Err("has another key than the signature was made with, or algorithm or length of its key are not supported \
                        (SHA-1, P-521, RSA below 2048 bits)"
                .to_owned());
        }
        authority.fit(self.now).map_err(|unfit| unfit.to_string())?;
        let between = chain.len() - 1;
        if authority.path_length.is_some_and(|most| between > most as usize) {
            return Err("allows fewer authorities between itself and the certificate (path length)".to_owned());
        }
        if !authority.allows(self.purpose) {
            return Err(format!("is not for certificates of {}s (extended key usage)", self.purpose));
        }
        Ok(())
    }

    /// The requirements for a whole chain.
    fn is_complete(&mut self, chain: &[&Certificate]) -> bool {
        if !chain[1..].iter().any(|certificate| certificate.name_constraints) {
            return true;
        }
        let allowed = self.authorities.names_are_allowed(chain, self.purpose, self.now);
        if let Err(error) = &allowed {
            self.hint
                .get_or_insert_with(|| format!("an authority may not sign for its names (name constraints): {error}"));
        }
        allowed.is_ok()
    }
}
