//! The objects of the folder: as they count, while they are missing, and as they are handed out.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tokio::time::Instant;

use super::super::parse::{Identity, Resource};
use super::super::scan::Stamp;
use super::log::{Act, Change};
use crate::model::Revision;
use crate::model::object::Object;

/// An object that counts.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) resource: Resource,
    pub(super) revision: Revision,
    /// The file that has it, or had it last.
    pub(super) file: Arc<Path>,
    pub(super) absent: Option<Absence>,
}

impl Live {
    /// The object as it is.
    pub(super) fn stored(&self) -> Stored {
        Stored { resource: self.resource.clone(), revision: self.revision.clone(), file: Arc::clone(&self.file) }
    }

    /// A change of it.
    pub(super) fn change(&self, act: Act) -> Change {
        Change { resource: self.resource.clone(), revision: self.revision.clone(), file: Arc::clone(&self.file), act }
    }
}

/// An object is no longer where it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    /// As its file looks since; `None` without a file.
    pub(super) stamp: Option<Stamp>,
    pub(super) since: Instant,
}

/// Objects that the folder no longer has.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) all: BTreeSet<Identity>,
    /// Those of them that have been missing for long enough.
    pub(super) settled: BTreeSet<Identity>,
    /// When the next one will have been.
    pub(super) next: Option<Instant>,
}

/// An object of [`super::Folder::objects`], to be made outside of any lock.
#[derive(Clone, Debug)]
pub(in super::super) struct Stored {
    pub(super) resource: Resource,
    pub(super) revision: Revision,
    pub(super) file: Arc<Path>,
}

/// Makes the objects.
pub(in super::super) fn to_objects(stored: &[Stored]) -> Vec<Object> {
    stored.iter().map(|Stored { resource, revision, file }| resource.object(revision, file)).collect()
}
