//! TLS for the sync port, the client library and the metrics port: rustls with ring, certificates from files.
//!
//! Users of the library and the command line make a [`ClientTlsConfig`], the daemon's configuration makes a `ServerTlsConfig`. The
//! client takes a connection's TLS from [`ClientTls::connector`], the server from `ServerTls::acceptor`. [`files`] re-reads files that
//! changed, [`policy`] maps the version and cipher options, [`identity`] holds Calico's peer rule, `peer` puts the checks of a peer
//! together: `certificate` and `authorities` decide as Go does which chains count, `signatures` checks signatures. `words` tells the
//! reason of a failed handshake, `review` judges certificates for commands.
//!
//! Invariants:
//! - a peer is accepted only if its chain leads to the CA file's certificates (never the system's) *and* its name fits;
//! - sessions are never resumed: a resumed session would skip both checks;
//! - when files cannot be used, those that were loaded before stay in use.

mod authorities;
mod certificate;
pub mod client;
mod error;
pub mod files;
pub mod identity;
mod peer;
pub mod policy;
mod purpose;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod review;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod server;
mod signatures;
mod words;

pub use authorities::Authorities;
pub use client::{ClientTls, ClientTlsConfig};
pub use error::Error;
pub use files::Reload;
pub use identity::PeerIdentity;
pub use policy::Policy;
pub use purpose::Purpose;
#[cfg(feature = "server")]
#[doc(hidden)]
pub use server::{Expiry, RELOAD_INTERVAL, ServerTls, ServerTlsConfig};
pub use words::{handshake_error, stream_error};

#[cfg(test)]
mod tests;
