//! The data that flow through a pipeline: keys, values, updates, statuses.
//!
//! Everything here is cheap to clone (reference counts only) and immutable. Keys and values are serialised once, by the
//! processors, and never again: later stages compare, store and copy bytes.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use self::finding::Validate;

pub mod finding;
#[cfg(feature = "discovery")]
pub mod gojson;
#[cfg(feature = "discovery")]
pub mod nearest;
#[cfg(feature = "discovery")]
pub mod object;
#[cfg(feature = "server")]
pub mod quantity;
mod resource_key;
#[cfg(feature = "discovery")]
pub mod strict;
mod syncer_name;
#[cfg(feature = "server")]
pub mod timestamp;
#[cfg(feature = "server")]
pub mod yaml;

pub use resource_key::ResourceKey;
pub use syncer_name::{BadSyncerName, MAX_SYNCER_NAME, SyncerName};

/// A key as it goes on the wire: the datum's path, for example `/calico/v1/config/LogSeverityScreen`.
///
/// Keys order by their bytes, which is the order of a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// First character of keys that are carried aside: no key on the wire begins with it.
pub const ASIDE_MARK: char = '~';

impl Key {
    /// Whether the key is carried aside: beside all others, for agents that need other data than most. Ordinary
    /// agents never receive it.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        self.0.starts_with(ASIDE_MARK)
    }

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

/// A version of a datum, as its datastore names it. Opaque: only equality has a meaning. Empty: no version.
pub type Revision = Arc<str>;

/// The empty [`Revision`]. All share one, so it takes no memory.
#[must_use]
pub fn no_revision() -> Revision {
    Revision::default()
}

/// A value: its bytes on the wire, and its typed form for the validation stage.
#[derive(Clone)]
pub struct Value {
    /// The bytes that agents receive. Empty only for settings with empty text, as in Calico.
    pub bytes: Bytes,
    /// The typed form to be checked. `None`: nothing to check (raw text), or already checked.
    pub subject: Option<Arc<dyn Validate>>,
}

impl Value {
    /// A value that needs no validation, such as the text of a configuration key.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), subject: None }
    }

    /// A value with its typed form, to be validated.
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

/// One datum that a processor makes from an object. No value: the key is absent, or has been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPair {
    /// The key of the datum.
    pub key: Key,
    /// Its value; `None`: the object has no such datum.
    pub value: Option<Value>,
    /// The object's revision.
    pub revision: Revision,
    /// `metadata.resourceVersion`, taken out of whole v3 and Kubernetes objects. Empty for all others.
    pub v3_resource_version: Revision,
    /// See [`Update::origin`].
    pub origin: Option<Arc<Origin>>,
}

/// The datastore that a datum comes from, where a syncer has several, and its place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The datastore's index in the order of precedence: 0 is the first.
    pub rank: u8,
    /// The place in the datastore, for people: file and line, key, writer. Empty if unknown.
    pub place: Box<str>,
}

/// The kind of change of a key. The numbers are those of Calico's wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UpdateType {
    /// Unknown; sent by peers at most, never by our syncers.
    Unknown = 0,
    /// The key is new.
    New = 1,
    /// The key existed with another revision.
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
/// Without a value, agents must forget the key: it was deleted, or blanked by validation. `update_type` tells which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The key that changed.
    pub key: Key,
    /// Its new value. `None`: the key is deleted, or its value is invalid.
    pub value: Option<Value>,
    /// Revision of the object behind the key; empty for deletions.
    pub revision: Revision,
    /// See [`KvPair::v3_resource_version`].
    pub v3_resource_version: Revision,
    /// Time to live; zero from all our syncers.
    pub ttl: Duration,
    /// The kind of change.
    pub update_type: UpdateType,
    /// The datastore that it comes from, where a syncer has several, or where people ask for the place. Never sent to agents.
    pub origin: Option<Arc<Origin>>,
}

impl Update {
    /// The rank of the datastore that it comes from; 0 where there is one only.
    #[must_use]
    pub fn rank(&self) -> u8 {
        self.origin.as_ref().map_or(0, |origin| origin.rank)
    }

    /// The update with this type; shared when it has it already.
    #[must_use]
    pub fn with_type(self: &Arc<Self>, update_type: UpdateType) -> Arc<Self> {
        if self.update_type == update_type {
            Arc::clone(self)
        } else {
            Arc::new(Self { update_type, ..Self::clone(self) })
        }
    }

    /// The deletion of a key.
    #[must_use]
    pub fn deletion(key: Key) -> Self {
        Self {
            key,
            value: None,
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::Deleted,
            origin: None,
        }
    }
}

/// The progress of a syncer. The numbers are those of Calico's wire protocol, the names Calico's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SyncStatus {
    /// The datastore has not answered yet, or has been unreachable for long.
    #[default]
    WaitForDatastore = 0,
    /// Lists are being read; an agent's data may be incomplete.
    ResyncInProgress = 1,
    /// All data of the datastore at this point have been sent.
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

/// The newest moment that the datastore has confirmed: all changes up to it have passed this point of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The datastore's revision at that moment, as its own text.
    pub revision: Revision,
    /// Time of the confirmation, by our clock.
    pub at: SystemTime,
}

/// The stream between the stages of a pipeline.
///
/// Statuses and updates never overtake each other.
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
