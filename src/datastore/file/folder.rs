//! The content of the folder, and the changes that a reload brings. A state machine without I/O and without a clock.
//!
//! ```text
//!         every file is whole and good             objects are missing            still so after SETTLE
//!  empty ──────────────────────────────► loaded ─────────────────────► settling ───────────────────────► they are deleted
//!    │ ▲                                  ▲  ▲                            │ │
//!    ▼ │ mended                           │  └───── they are back ────────┘ │ too many, or the folder was replaced by
//!   held                                  │                                 ▼ an empty one
//!                                         └─ they are back, or confirmed ─ held
//!  any ── the folder is away ──► held ── it is back ──► compared again
//! ```
//!
//! Fed by scans, feeds lists and watches through [`Folder::objects`] and [`Folder::changes_after`]. [`files`] says how each file
//! counts, [`hold`] whether a mass deletion may happen, [`live`] is an object, [`log`] has the changes that watches
//! follow, [`kinds`] tells the kinds of the objects.
//!
//! Rules:
//! - A file that cannot be read or parsed, or that has no bytes, keeps its last good resources. At the first load there are none:
//!   nothing is served before every file is good and there is at least one, unless the operator wants it so.
//! - A file that is being written to waits. Additions and changes count once their file has been still for the quiet
//!   time, deletions once the file that had the object was seen still (or missing) for [`SETTLE`]. A new inode proves
//!   nothing: programs that replace a file and programs that delete it and write it anew look the same.
//! - The same resource twice: the file whose path comes first has it, the other one is an error that names both. This
//!   depends on nothing but the files, so that it is the same after a restart.
//! - The version counts the reloads that changed something. An object's revision is the version that changed it.
//! - A reload that would delete more than [`HOLD_ABOVE`] objects and more than half of all, or that finds another, empty
//!   folder at the path (an unmounted volume), is held as a whole. It is applied once it has been the same for
//!   [`hold::HOLD_TIME`] and [`super::scan::CONFIRM_FILE`] has the code of exactly these objects. A code that was there before
//!   confirms nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::files::{FileState, Files, Owned, SETTLE, elect};
use self::hold::{HOLD_ABOVE, Hold};
use self::live::{Absence, Live, Missing};
use self::log::{Act, Log};
use super::parse::Identity;
use super::scan::{RootId, Scan, Seen};
use super::status::{FileError, FileStatus};
use crate::datastore::catalog::Catalog;
use crate::datastore::pattern::Pattern;
use crate::datastore::selection::Selection;
use crate::model::Revision;

mod files;
mod hold;
mod kinds;
mod live;
mod log;

pub(super) use self::live::{Stored, to_objects};
pub(super) use self::log::Change;

/// Errors that the status names one by one.
const MAX_STATUS_ERRORS: usize = 100;

/// The result of a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// There is a new version.
    pub(super) applied: bool,
    /// Objects created or changed.
    pub(super) put: usize,
    /// Objects deleted.
    pub(super) deleted: usize,
    /// The deletions were held until now, and were confirmed.
    pub(super) confirmed: bool,
    /// Not everything that was found counts yet: something is being written, or may be. Look again then, whether or not anything
    /// is heard of until then.
    pub(super) again: Option<Instant>,
}

/// The folder's content.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// How long a file must be still before it is taken.
    quiet: Duration,
    /// Whether the first load may lack files.
    serve_incomplete: bool,
    catalog: Arc<Catalog>,
    root: Option<RootId>,
    /// The folder was away at the last look.
    away: bool,
    files: Files,
    objects: BTreeMap<Identity, Live>,
    version: u64,
    hold: Hold,
    log: Log,
    /// Deletions are never held, however many they are.
    unguarded: bool,
    /// The kinds that anybody ever asked for by pattern; few, since they are from the configuration.
    asked: BTreeSet<Pattern>,
    /// Somebody lists a part of the folder: an object that moves is a change. To all others it is none.
    paths_matter: bool,
    errors: Vec<FileError>,
}

impl Folder {
    /// Nothing is loaded yet. `quiet`: how long a file must be still before it is taken. `serve_incomplete`: the first load may
    /// lack files that cannot be read.
    pub(super) fn new(quiet: Duration, serve_incomplete: bool, catalog: Arc<Catalog>) -> Self {
        Self { quiet, serve_incomplete, catalog, ..Self::default() }
    }

    /// The same, where deletions are never held, however many they are.
    pub(super) fn unguarded(mut self) -> Self {
        self.unguarded = true;
        self
    }

    /// The files as last seen.
    pub(super) fn known(&self) -> HashMap<Arc<Path>, Seen> {
        let seen = |file: &FileState| Some(Seen { digest: file.seen?, seal: file.seal });
        self.files.iter().filter_map(|(path, file)| Some((Arc::clone(path), seen(file)?))).collect()
    }

    /// Number of the last reload that changed something; 0: nothing was loaded yet.
    #[cfg(test)]
    fn version(&self) -> u64 {
        self.version
    }

    /// A scan was made.
    pub(super) fn scanned(&mut self, scan: &Scan, now: Instant) -> Outcome {
        let root = match &scan.root {
            Ok(root) => *root,
            Err(reason) => {
                self.away = true;
                self.hold.away(format!("the folder is away ({reason}): its content is kept"));
                return Outcome::default();
            }
        };
        let given = scan.confirmation.as_deref();
        self.hold.looking(given);
        let outcome = self.compare(root, scan, now);
        self.errors.extend(self.hold.looked(given));
        outcome
    }

    fn compare(&mut self, root: RootId, scan: &Scan, now: Instant) -> Outcome {
        let given = scan.confirmation.as_deref();
        let needed = if self.version == 0 { SETTLE } else { self.quiet };
        let files = files::merge(&self.files, scan, needed, now);
        let (winners, doubles) = elect(&files);
        let mut broken: Vec<FileError> = files.iter().filter_map(|(path, file)| file.broken(path)).collect();
        broken.extend(scan.partial.iter().map(|(folder, reason)| FileError {
            file: folder.display().to_string(),
            line: None,
            reason: format!("this folder cannot be read whole, its last good files are kept: {reason}"),
        }));
        self.errors = broken.iter().cloned().chain(doubles).collect();
        let again = files.values().filter_map(|file| Some(file.writing?.again)).min();

        if self.version == 0 {
            let writing = files.values().any(|file| file.writing.is_some() && file.error.is_none());
            let no_files = files.is_empty() && broken.is_empty();
            self.files = files;
            if writing {
                return Outcome { again, ..Outcome::default() };
            }
            if let Some(reason) = incomplete(no_files, &broken).filter(|_| !self.serve_incomplete) {
                self.hold.reason = Some(reason);
                return Outcome { again, ..Outcome::default() };
            }
            self.arrived(root);
            return Outcome { again, ..self.apply(&winners, &BTreeSet::new()) };
        }

        let replaced = self.away || self.root != Some(root);
        if files.is_empty() && !self.objects.is_empty() && replaced && !self.unguarded {
            let all: BTreeSet<Identity> = self.objects.keys().cloned().collect();
            let what = format!(
                "another folder is here now and it is empty, as when a volume is not mounted: all {} objects would be deleted",
                all.len()
            );
            if let Err(again) = self.hold.confirm(&all, &what, given, now) {
                return Outcome { again, ..Outcome::default() };
            }
            self.files = files;
            self.arrived(root);
            return Outcome { confirmed: true, ..self.apply(&winners, &all) };
        }
        self.files = files;
        let missing = self.missing(&winners, now);
        let again = [again, missing.next].into_iter().flatten().min();
        let (gone, all) = (missing.all.len(), self.objects.len());
        if gone <= HOLD_ABOVE || 2 * gone <= all || self.unguarded {
            self.arrived(root);
            return Outcome { again, ..self.apply(&winners, &missing.settled) };
        }
        let what = format!("{gone} of {all} objects would be deleted");
        match self.hold.confirm(&missing.all, &what, given, now) {
            Ok(()) if missing.next.is_none() => {
                self.arrived(root);
                Outcome { again, confirmed: true, ..self.apply(&winners, &missing.all) }
            }
            Ok(()) => Outcome { again, ..Outcome::default() },
            Err(counts) => Outcome { again: [again, counts].into_iter().flatten().min(), ..Outcome::default() },
        }
    }

    /// Nothing is held any more: the folder is the one that counts.
    fn arrived(&mut self, root: RootId) {
        self.hold.over();
        self.away = false;
        self.root = Some(root);
    }

    /// Objects that the folder does not have any more, of files that can be read and are not being written.
    fn missing(&mut self, winners: &BTreeMap<Identity, Owned>, now: Instant) -> Missing {
        let mut missing = Missing::default();
        for (identity, live) in &mut self.objects {
            let file = self.files.get(&live.file);
            if winners.contains_key(identity) || file.is_some_and(|file| file.error.is_some() || file.writing.is_some())
            {
                live.absent = None;
                continue;
            }
            let stamp = file.and_then(|file| file.still).map(|still| still.stamp);
            let since = live.absent.filter(|absent| absent.stamp == stamp).map_or(now, |absent| absent.since);
            live.absent = Some(Absence { stamp, since });
            missing.all.insert(identity.clone());
            let settled = since + SETTLE;
            if now >= settled {
                missing.settled.insert(identity.clone());
            } else {
                missing.next = Some(missing.next.map_or(settled, |next| next.min(settled)));
            }
        }
        missing
    }

    /// The version that the content has, and its objects that may belong to a selection: labels are not looked at.
    pub(super) fn objects(&mut self, selection: &Selection) -> (u64, Vec<Stored>) {
        self.paths_matter |= selection.is_by_folder();
        let wanted = |live: &&Live| live.resource.may_be_of(selection) && selection.may_be_in(&live.file);
        (self.version, self.objects.values().filter(wanted).map(Live::stored).collect())
    }

    /// The reloads after a version, oldest first; `None` if that version is unknown or too long ago.
    pub(super) fn changes_after(&self, version: u64) -> Option<Vec<(u64, Arc<[Change]>)>> {
        if version > self.version || version == 0 {
            return None;
        }
        self.log.after(version)
    }

    /// All that can be said about the folder.
    pub(super) fn status(&self) -> FileStatus {
        let unknown = |live: &&Live| {
            let identity = &live.resource.identity;
            self.catalog.is_unknown(&identity.group, &identity.kind)
        };
        let remarks = self.unasked();
        FileStatus {
            files: self.files.len(),
            objects: self.objects.len(),
            unknown: self.objects.values().filter(unknown).count(),
            error_count: self.errors.len() + remarks.len(),
            errors: self.errors.iter().cloned().chain(remarks).take(MAX_STATUS_ERRORS).collect(),
            version: self.version,
            held: self.hold.reason.clone(),
        }
    }

    /// Takes over the content of the files, and deletes only the objects that may go.
    fn apply(&mut self, winners: &BTreeMap<Identity, Owned>, may_go: &BTreeSet<Identity>) -> Outcome {
        let first_load = self.version == 0;
        let next = self.version + 1;
        let revision = Revision::from(next.to_string());
        let (mut changes, mut put, mut deleted) = (Vec::new(), 0, 0);
        for (identity, (resource, file)) in winners {
            match self.objects.get_mut(identity) {
                Some(live) if live.resource.digest == resource.digest => {
                    live.resource.line = resource.line;
                    let from = std::mem::replace(&mut live.file, Arc::clone(file));
                    if self.paths_matter && from != *file {
                        let act = Act::Moved { from };
                        changes.push(live.change(act));
                    }
                }
                _ => {
                    let live = Live {
                        resource: resource.clone(),
                        revision: revision.clone(),
                        file: Arc::clone(file),
                        absent: None,
                    };
                    let change = live.change(Act::Put { was: None });
                    put += 1;
                    let before = self.objects.insert(identity.clone(), live).map(|before| before.resource.version);
                    let was = before.filter(|before| *before != resource.version);
                    changes.push(Change { act: Act::Put { was }, ..change });
                }
            }
        }
        // Deletions last: where two resources claim one key, the heir takes over before the owner goes.
        for identity in may_go {
            if let Some(live) = self.objects.remove(identity) {
                changes.push(live.change(Act::Deleted));
                deleted += 1;
            }
        }
        if changes.is_empty() && !first_load {
            return Outcome::default();
        }
        self.version = next;
        if first_load {
            self.log.begin(next);
        } else {
            self.log.push(next, changes);
        }
        Outcome { applied: true, put, deleted, ..Outcome::default() }
    }
}

/// Why a first load is not enough, if it is not.
fn incomplete(no_files: bool, broken: &[FileError]) -> Option<String> {
    if no_files {
        let reason = "the folder has no file that ends in .yaml, .yml or .json, as when a volume is not mounted: nothing is served \
                      before there is one (a comment in it is enough), or FileServeIncomplete is set";
        return Some(reason.to_owned());
    }
    let first = broken.first()?;
    let more = match broken.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more, see the log and `bulrush status`"),
    };
    Some(format!(
        "nothing is served before every file can be read, since agents would delete what is missing (mend or remove the \
         file, or set FileServeIncomplete): {first}{more}"
    ))
}

#[cfg(test)]
mod tests;
