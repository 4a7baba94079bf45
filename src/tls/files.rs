//! Certificate files: read them, notice that they changed, replace what was made of them.
//!
//! Changes are found by content, looked at on every [`RELOAD_INTERVAL`] and on demand. That works with editors, with copies and
//! with Kubernetes' symlink swaps alike, and a file half written or a key that has not caught up with its certificate just
//! keeps the old set until the next look.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Authorities, Error, Policy};

/// How often files are looked at. Certificates are replaced hours before they expire; three small reads cost nothing.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// No certificate or key file is longer; a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What looking at the files did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The files are as they were.
    Unchanged,
    /// New content is in use from the next handshake on.
    Replaced,
}

/// A file and what it holds, for error texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) what: &'static str,
    pub(super) path: PathBuf,
}

impl Source {
    pub(super) fn new(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned() }
    }

    fn read(&self) -> Result<Vec<u8>, Error> {
        let failed = |reason| Error::Read { what: self.what, path: self.path.clone(), reason };
        let mut content = Vec::new();
        let file = File::open(&self.path).map_err(failed)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(self.refuse(format!("it is longer than {MAX_FILE_BYTES} bytes")));
        }
        Ok(content)
    }

    fn refuse(&self, reason: String) -> Error {
        Error::Parse { what: self.what, path: self.path.clone(), reason }
    }

    /// The certificates of a PEM file, at least one.
    pub(super) fn certificates(&self, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
        let certificates = CertificateDer::pem_slice_iter(content)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.refuse(error.to_string()))?;
        if certificates.is_empty() {
            return Err(self.refuse("it holds no CERTIFICATE in PEM form".to_owned()));
        }
        Ok(certificates)
    }

    /// The first private key of a PEM file.
    pub(super) fn key(&self, content: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(content)
            .map_err(|error| self.refuse(format!("it holds no PRIVATE KEY in PEM form: {error}")))
    }

    /// The certificates of a PEM file as authorities. Like Go, passes over blocks that are none as long as there are others.
    pub(super) fn authorities(&self, content: &[u8], policy: &Policy) -> Result<Authorities, Error> {
        match Authorities::new(&self.certificates(content)?, policy) {
            (authorities, Some(error)) if authorities.is_empty() => {
                Err(self.refuse(format!("none of its certificates can be read: {error}")))
            }
            (authorities, unreadable) => {
                if let Some(error) = unreadable {
                    let file = self.path.display();
                    tracing::warn!(%file, %error, "a certificate of the CA file cannot be read and is left out");
                }
                Ok(authorities)
            }
        }
    }
}

/// Makes `T` of the files' contents, which come in the order of the sources.
type Build<T> = dyn Fn(&[Vec<u8>]) -> Result<T, Error> + Send + Sync;

/// Something made of files, and made again when they change.
pub(super) struct Reloading<T> {
    sources: Vec<Source>,
    build: Box<Build<T>>,
    current: ArcSwap<T>,
    /// Of the contents that were tried last; whoever holds the lock is the one who reloads.
    tried: Mutex<[u8; 32]>,
}

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Reloading<T> {
    pub(super) fn load(sources: Vec<Source>, build: Box<Build<T>>) -> Result<Self, Error> {
        let contents = read_all(&sources)?;
        let first = build(&contents)?;
        let tried = Mutex::new(digest(&contents));
        Ok(Self { sources, build, current: ArcSwap::from_pointee(first), tried })
    }

    pub(super) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Looks at the files now. Content that failed before is not tried again and counts as unchanged.
    pub(super) fn reload(&self) -> Result<Reload, Error> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = read_all(&self.sources)?;
        let digest = digest(&contents);
        if *tried == digest {
            return Ok(Reload::Unchanged);
        }
        *tried = digest;
        self.current.store(Arc::new((self.build)(&contents)?));
        Ok(Reload::Replaced)
    }

    /// Looks at the files regularly until cancelled, and logs what comes of it. `seen` is shown what is in use after each look.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn keep_fresh(self: Arc<Self>, cancel: CancellationToken, seen: impl Fn(&T)) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_error = String::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let this = self.clone();
            let Ok(outcome) = tokio::task::spawn_blocking(move || this.reload()).await else { continue };
            seen(&self.current());
            match outcome {
                Ok(Reload::Unchanged) => {}
                Ok(Reload::Replaced) => {
                    last_error.clear();
                    tracing::info!(files = ?self.paths(), "TLS files changed, new handshakes use them");
                }
                // An unreadable file fails at every look: say so once.
                Err(error) if error.to_string() == last_error => {}
                Err(error) => {
                    last_error = error.to_string();
                    tracing::warn!(%error, "TLS files changed but cannot be used, keeping those loaded before");
                }
            }
        }
    }

    fn paths(&self) -> Vec<&Path> {
        self.sources.iter().map(|source| source.path.as_path()).collect()
    }
}

fn read_all(sources: &[Source]) -> Result<Vec<Vec<u8>>, Error> {
    sources.iter().map(Source::read).collect()
}

fn digest(contents: &[Vec<u8>]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for content in contents {
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(content);
    }
    hasher.finalize().into()
}

/// When the first of some certificates expires, in seconds since the epoch. `None`: none can be read.
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
