//! The changes of the last reloads, for watches that follow them. Bounded: a watch that is too far behind has to list again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::super::parse::Resource;
use crate::datastore::inlet::Event;
use crate::datastore::selection::Selection;
use crate::model::Revision;

/// Reloads that a watch may be behind; a later one has to list again.
pub(super) const MAX_LOG_RELOADS: usize = 64;
/// Changes that are remembered for watches that are behind, over all reloads.
const MAX_LOG_CHANGES: usize = 200_000;

/// The changes of the last reloads.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<LogEntry>,
    /// Changes up to this version are no longer here.
    floor: u64,
}

#[derive(Debug)]
struct LogEntry {
    version: u64,
    changes: Arc<[Change]>,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(in super::super) struct Change {
    pub(super) resource: Resource,
    /// Version of `resource`.
    pub(super) revision: Revision,
    /// The file that has it, or had it last.
    pub(super) file: Arc<Path>,
    pub(super) act: Act,
}

/// The nature of a change.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Created or changed.
    Put {
        /// The version that it was in before, if that was another one.
        was: Option<Arc<str>>,
    },
    /// The same as before, in another file.
    Moved {
        /// The file that had it.
        from: Arc<Path>,
    },
    /// Gone.
    Deleted,
}

impl Change {
    /// The change as a watch of the selection reports it, but for labels; `None`: it does not concern the selection.
    pub(in super::super) fn event(&self, selection: &Selection) -> Option<Event> {
        if !self.resource.may_be_of(selection) {
            // For those who follow the kind in the version that the object had it is gone.
            let Act::Put { was: Some(was) } = &self.act else { return None };
            let was_of = self.resource.may_be_of_version(selection, was);
            return was_of.then(|| Event::Delete { id: self.resource.identity.id.clone(), last: None });
        }
        let is_in = selection.may_be_in(&self.file);
        let put = match &self.act {
            Act::Moved { from } if selection.may_be_in(from) == is_in => return None,
            Act::Put { .. } | Act::Moved { .. } => is_in,
            Act::Deleted => false,
        };
        let object = self.resource.object(&self.revision, &self.file);
        Some(if put { Event::Put(object) } else { Event::Delete { id: object.id.clone(), last: Some(object) } })
    }
}

impl Log {
    /// Begins with this version: there are no changes that lead to it.
    pub(super) fn begin(&mut self, version: u64) {
        self.floor = version;
    }

    /// The changes that led to a version.
    pub(super) fn push(&mut self, version: u64, changes: Vec<Change>) {
        self.entries.push_back(LogEntry { version, changes: Arc::from(changes) });
        self.trim();
    }

    /// The reloads after a version, oldest first; `None` if that was too long ago.
    pub(super) fn after(&self, version: u64) -> Option<Vec<(u64, Arc<[Change]>)>> {
        if version < self.floor {
            return None;
        }
        let later = self.entries.iter().filter(|entry| entry.version > version);
        Some(later.map(|entry| (entry.version, Arc::clone(&entry.changes))).collect())
    }

    fn trim(&mut self) {
        let mut total: usize = self.entries.iter().map(|entry| entry.changes.len()).sum();
        while self.entries.len() > MAX_LOG_RELOADS || total > MAX_LOG_CHANGES {
            let Some(oldest) = self.entries.pop_front() else { return };
            total -= oldest.changes.len();
            self.floor = oldest.version;
        }
    }
}
