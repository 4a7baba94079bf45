//! What flows through a pipeline: keys, values, updates, statuses.
//!
//! Everything here is cheap to clone (reference counts only) and immutable. Keys and values are serialised once, by the
//! processors, and never again: later stages compare, store and copy bytes.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use self::valid::Validate;

pub mod aside;
pub mod duration;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod gojson;
pub mod keys;
pub mod kinds;
pub mod net;
pub mod numorstring;
pub mod object;
pub mod quantity;
pub mod release;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod strict;
mod syncer_type;
pub mod timestamp;
pub mod v1;
pub mod v3;
pub mod valid;

pub use syncer_type::SyncerType;

/// A key as it goes on the wire: the datum's path, for example `/calico/v1/config/LogSeverityScreen`.
///
/// Keys order by their bytes, which is the order of a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(path: &str) -> Self {
        Self(Arc::from(path))
    }
}

impl From<String> for Key {
    fn from(path: String) -> Self {
        Self(Arc::from(path))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A version of a datum, as its datastore names it. Opaque: only equality means something. Empty where there is none.
pub type Revision = Arc<str>;

/// The empty [`Revision`]. It takes no memory: the standard library has one for all.
#[must_use]
pub fn no_revision() -> Revision {
    Revision::default()
}

/// A value: its bytes on the wire, and what the validation stage looks at.
#[derive(Clone)]
pub struct Value {
    /// The bytes that agents receive. Empty only for settings that are set to nothing, which Calico sends so.
    pub bytes: Bytes,
    /// The typed form that the validation stage checks. `None`: nothing to check (raw text), or already checked.
    pub subject: Option<Arc<dyn Validate>>,
}

impl Value {
    /// A value that needs no validation, such as the text of a configuration key.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), subject: None }
    }

    /// A value with the typed form that validation will look at.
    #[must_use]
    pub fn checked(bytes: impl Into<Bytes>, subject: Arc<dyn Validate>) -> Self {
        Self { bytes: bytes.into(), subject: Some(subject) }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.bytes)
    }
}

/// One datum as a processor makes it of an object. No value: the key is not there, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPair {
    /// Where the datum lives.
    pub key: Key,
    /// What it is; `None` where the object has no such datum.
    pub value: Option<Value>,
    /// The object's revision.
    pub revision: Revision,
    /// `metadata.resourceVersion`, taken out of whole v3 and Kubernetes objects. Empty for everything else.
    pub v3_resource_version: Revision,
}

/// How a key changed. The numbers are those of Calico's wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UpdateType {
    /// Not known; no syncer of ours makes it, peers may.
    Unknown = 0,
    /// The key was not there before.
    New = 1,
    /// The key was there with another revision.
    Updated = 2,
    /// The key is gone.
    Deleted = 3,
}

impl UpdateType {
    /// The type with this number, if there is one.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Unknown,
            1 => Self::New,
            2 => Self::Updated,
            3 => Self::Deleted,
            _ => return None,
        })
    }
}

/// A change of one key.
///
/// No value means that agents must forget the key, be it deleted or blanked by validation; `update_type` tells which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The key that changed.
    pub key: Key,
    /// Its new value, or `None`: the key is gone, or its value is invalid.
    pub value: Option<Value>,
    /// Revision of the object behind the key; empty for deletions.
    pub revision: Revision,
    /// See [`KvPair::v3_resource_version`].
    pub v3_resource_version: Revision,
    /// Time to live; zero from all our syncers.
    pub ttl: Duration,
    /// How the key changed.
    pub update_type: UpdateType,
}

/// How far a syncer is. The numbers are those of Calico's wire protocol, the names Calico's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SyncStatus {
    /// The datastore has not answered yet, or has been away for long.
    #[default]
    WaitForDatastore = 0,
    /// Lists are being read; what an agent holds may be incomplete.
    ResyncInProgress = 1,
    /// Everything that the datastore held at this point has been sent.
    InSync = 2,
}

impl SyncStatus {
    /// The status with this number, if there is one.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::WaitForDatastore,
            1 => Self::ResyncInProgress,
            2 => Self::InSync,
            _ => return None,
        })
    }

    /// Calico's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitForDatastore => "wait-for-ready",
            Self::ResyncInProgress => "resync",
            Self::InSync => "in-sync",
        }
    }
}

impl fmt::Display for SyncStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The freshest moment that the datastore vouched for: all changes up to it have passed this point of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The datastore's revision at that moment, as its own text.
    pub revision: Revision,
    /// When the datastore said so, by our clock.
    pub at: SystemTime,
}

/// The stream between the stages of a pipeline.
///
/// A status never overtakes the updates that it belongs to, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncerEvent {
    /// Changes, in order per key.
    Updates(Vec<Update>),
    /// The status after all updates before it.
    Status(SyncStatus),
    /// All updates up to this moment came before.
    Progress(AsOf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_empty_revisions_are_one() {
        assert!(Arc::ptr_eq(&no_revision(), &no_revision()));
        assert!(no_revision().is_empty());
    }
}
