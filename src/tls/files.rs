//! Certificate files: read them, notice changes, replace the values that were made of them.
//!
//! Changes are found by content: a server looks at it regularly, a client before each connection. That works with editors, with
//! copies and with Kubernetes' symlink swaps alike. While a file is half written, or a key does not fit its certificate yet, the old
//! set stays until the next look.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::authorities::Authorities;
use super::error::Error;
use super::policy::Policy;

/// No certificate or key file is longer; a wrong path must not fill the memory.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The outcome of a look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The files are as they were.
    Unchanged,
    /// New content is in use from the next handshake on.
    Replaced,
}

/// A file and its content in a word, for error texts.
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
type Build<T> = dyn Fn(&[Source], &[Vec<u8>]) -> Result<T, Error> + Send + Sync;

/// Something made of files, and made again when they change.
pub(super) struct Reloading<T> {
    pub(super) sources: Vec<Source>,
    build: Box<Build<T>>,
    current: ArcSwap<T>,
    /// The digest of the contents that were tried last. The holder of the lock reloads.
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
        let first = build(&sources, &contents)?;
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
        self.current.store(Arc::new((self.build)(&self.sources, &contents)?));
        Ok(Reload::Replaced)
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
