//! The checks of a peer, the same on both sides. rustls has one trait for a server's checks and one for a client's; both hand on
//! to this.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};

use super::authorities::Authorities;
use super::identity::PeerIdentity;
use super::purpose::Purpose;

/// The conditions that a peer has to meet, beside holding the key of its certificate.
#[derive(Debug)]
pub(super) struct Peer {
    /// `None`: any certificate counts.
    pub(super) authorities: Option<Authorities>,
    /// `None`: any name counts.
    pub(super) identity: Option<PeerIdentity>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl Peer {
    /// Checks chain, purpose and time, then the name.
    pub(super) fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if let Some(authorities) = &self.authorities {
            authorities.verify(end_entity, intermediates, purpose, now)?;
        }
        self.identity.as_ref().map_or(Ok(()), |identity| identity.verify(end_entity, purpose))
    }

    /// The algorithms of signatures that count.
    pub(super) fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}
