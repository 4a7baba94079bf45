//! A certificate as Go's `crypto/x509` reads it: all that decides whether it counts, and nothing else.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::CertificateError;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::oid_registry as oid;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

use super::purpose::Purpose;
use super::signatures::{PublicKey, Signed};

/// The statements of a certificate, taken out of it once.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) version3: bool,
    /// Names in their encoding, for comparison.
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    /// The same for people.
    pub(super) subject_text: String,
    pub(super) issuer_text: String,
    pub(super) key_info: Vec<u8>,
    pub(super) key: PublicKey,
    pub(super) signed: Signed,
    /// Seconds since the epoch, both included.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
    /// `None`: it has no basic constraints.
    pub(super) is_ca: Option<bool>,
    pub(super) path_length: Option<u32>,
    /// Its key usage names usages, and signing certificates is none of them.
    pub(super) signing_excluded: bool,
    usages: Usages,
    /// A critical extension that is not understood.
    pub(super) unknown_condition: Option<String>,
    pub(super) alternative_names: Option<Vec<u8>>,
    pub(super) name_constraints: bool,
}

/// Extended key usage.
#[derive(Clone, Copy, Debug, Default)]
struct Usages {
    /// There are some.
    named: bool,
    any: bool,
    client: bool,
    server: bool,
}

/// The reason why a certificate does not count now, whatever its signatures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("is valid only from {}", at(*not_before))]
    NotYet { not_before: i64 },
    #[error("expired at {}", at(*not_after))]
    Expired { not_after: i64 },
    #[error("has the critical extension {0}, which is not understood")]
    Condition(String),
}

/// A time in words.
pub(super) fn at(seconds: i64) -> String {
    ASN1Time::from_timestamp(seconds).map_or_else(|_| format!("{seconds} s"), |time| time.to_string())
}

impl Certificate {
    /// Reads a certificate, and refuses the same certificates as Go.
    pub(super) fn read(der: &CertificateDer<'_>) -> Result<Self, CertificateError> {
        let bad = CertificateError::BadEncoding;
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| bad.clone())?;
        let version3 = parsed.version() == X509Version::V3;
        let serial_is_negative = parsed.raw_serial().first().is_some_and(|first| first & 0x80 != 0);
        if !rest.is_empty()
            || parsed.version().0 > X509Version::V3.0
            || parsed.tbs_certificate.signature != parsed.signature_algorithm
            || serial_is_negative
            // Go passes over extensions that an older version cannot have; their demands would be lost.
            || (!version3 && !parsed.extensions().is_empty())
            || parsed.extensions_map().is_err()
        {
            return Err(bad);
        }
        let key_info = parsed.public_key().raw.to_vec();
        let mut certificate = Self {
            der: der.clone().into_owned(),
            version3,
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            subject_text: parsed.subject().to_string(),
            issuer_text: parsed.issuer().to_string(),
            key: PublicKey::of(&key_info).ok_or(bad.clone())?,
            key_info,
            signed: Signed::of(der).ok_or(bad)?,
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            is_ca: None,
            path_length: None,
            signing_excluded: false,
            usages: Usages::default(),
            unknown_condition: None,
            alternative_names: None,
            name_constraints: false,
        };
        for extension in parsed.extensions() {
            let understood = certificate.take(extension)?;
            if !understood && extension.critical {
                certificate.unknown_condition = Some(extension.oid.to_id_string());
            }
        }
        Ok(certificate)
    }

    /// Takes over the content of an extension. `false`: nothing here understands it.
    fn take(&mut self, extension: &X509Extension<'_>) -> Result<bool, CertificateError> {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) => {
                self.is_ca = Some(constraints.ca);
                self.path_length = constraints.path_len_constraint;
            }
            ParsedExtension::KeyUsage(usage) => self.signing_excluded = usage.flags != 0 && !usage.key_cert_sign(),
            ParsedExtension::ExtendedKeyUsage(usage) => {
                let (client, server) = (usage.client_auth, usage.server_auth);
                let others = usage.code_signing || usage.email_protection || usage.time_stamping || usage.ocsp_signing;
                let named = usage.any || client || server || others || !usage.other.is_empty();
                self.usages = Usages { named, any: usage.any, client, server };
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                self.alternative_names = Some(extension.value.to_vec());
                let names = &names.general_names;
                if names.iter().any(|name| matches!(name, GeneralName::Invalid(..))) {
                    return Err(CertificateError::BadEncoding);
                }
                return Ok(names.iter().any(is_known));
            }
            ParsedExtension::NameConstraints(constraints) => {
                self.name_constraints = true;
                let subtrees = [&constraints.permitted_subtrees, &constraints.excluded_subtrees];
                return Ok(subtrees.into_iter().flatten().flatten().all(|subtree| is_known(&subtree.base)));
            }
            // Never critical.
            ParsedExtension::AuthorityKeyIdentifier(_)
            | ParsedExtension::SubjectKeyIdentifier(_)
            | ParsedExtension::AuthorityInfoAccess(_) => {
                return if extension.critical { Err(CertificateError::BadEncoding) } else { Ok(true) };
            }
            // They matter only where policies are asked for: by us they are not, and an authority does so by constraints.
            ParsedExtension::CertificatePolicies(_)
            | ParsedExtension::PolicyMappings(_)
            | ParsedExtension::InhibitAnyPolicy(_)
            | ParsedExtension::CRLDistributionPoints(_) => {}
            ParsedExtension::PolicyConstraints(_) => {
                // Not passed over, even where it is not critical.
                self.unknown_condition = Some(extension.oid.to_id_string());
            }
            ParsedExtension::ParseError { .. } if READ.contains(&extension.oid) => {
                return Err(CertificateError::BadEncoding);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether its time has come and is not over, and it has no condition that is not understood.
    pub(super) fn fit(&self, now: UnixTime) -> Result<(), Unfit> {
        if let Some(condition) = &self.unknown_condition {
            return Err(Unfit::Condition(condition.clone()));
        }
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < self.not_before {
            return Err(Unfit::NotYet { not_before: self.not_before });
        }
        if now > self.not_after {
            return Err(Unfit::Expired { not_after: self.not_after });
        }
        Ok(())
    }

    /// Whether it is for this purpose, and may sign certificates for it.
    pub(super) fn allows(&self, purpose: Purpose) -> bool {
        let named = match purpose {
            Purpose::Client => self.usages.client,
            Purpose::Server => self.usages.server,
        };
        !self.usages.named || self.usages.any || named
    }

    /// Whether it is the same authority: Go's test against loops of authorities that signed each other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.key_info == other.key_info
            && self.alternative_names == other.alternative_names
    }
}

/// Whether Go knows this kind of name, as an alternative name and where names are constrained.
fn is_known(name: &GeneralName<'_>) -> bool {
    use GeneralName::{DNSName, IPAddress, RFC822Name, URI};
    matches!(name, DNSName(_) | RFC822Name(_) | IPAddress(_) | URI(_))
}

/// Extensions that have to be readable.
const READ: &[oid::Oid<'static>] = &[
    oid::OID_X509_EXT_BASIC_CONSTRAINTS,
    oid::OID_X509_EXT_KEY_USAGE,
    oid::OID_X509_EXT_EXTENDED_KEY_USAGE,
    oid::OID_X509_EXT_SUBJECT_ALT_NAME,
    oid::OID_X509_EXT_NAME_CONSTRAINTS,
    oid::OID_X509_EXT_POLICY_CONSTRAINTS,
    oid::OID_X509_EXT_CERTIFICATE_POLICIES,
    oid::OID_X509_EXT_POLICY_MAPPINGS,
    oid::OID_X509_EXT_INHIBIT_ANY_POLICY,
    oid::OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER,
    oid::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER,
    oid::OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
];

/// A time of a certificate for rustls, which knows none before the epoch.
pub(super) fn unix_time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
