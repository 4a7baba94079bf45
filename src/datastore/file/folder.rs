//! What the folder holds, and what a reload changes. A state machine without I/O and without a clock.
//!
//! ```text
//!            ┌──────────── applied ────────────┐
//!  empty ──► loaded ──► held (too much would go) ──► the same once more: applied
//!               └─────► held (folder is away)    ──► folder is back: compared again
//! ```
//!
//! Fed by scans, feeds lists and watches through [`Folder::objects`] and [`Folder::changes_after`].
//!
//! Rules:
//! - A file that cannot be read or parsed, or that suddenly has no bytes, keeps its last good resources.
//! - The same resource twice: the file whose path comes first has it, the other one is an error that names both. This
//!   depends on nothing but the files, so that it is the same after a restart.
//! - The version counts the reloads that changed something. An object's revision is the version that changed it.
//! - A reload that would delete more than [`HOLD_ABOVE`] objects and more than half of all, or that finds another, empty
//!   folder at the path (an unmounted volume), is held until a second reload finds the same: either the operator asks
//!   for it, or something in the tree was touched in between.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::super::{Event, Kind, Object};
use super::known;
use super::parse::{Digest, Identity, ParseError, Resource};
use super::scan::{FileRead, RootId, Scan};
use super::{FileError, FileStatus};
use crate::model::Revision;

/// A reload may delete this many objects without being held, however few there are.
pub(super) const HOLD_ABOVE: usize = 20;
/// Reloads that a watch may be behind; a later one has to list again.
const MAX_LOG_RELOADS: usize = 64;
/// Changes that are remembered for watches that are behind, over all reloads.
const MAX_LOG_CHANGES: usize = 200_000;
/// Errors that the status names one by one.
const MAX_STATUS_ERRORS: usize = 100;

/// Why the folder is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Something changed, or it was time to look.
    Change,
    /// The operator asked for a reload.
    Operator,
}

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is a new version.
    Applied {
        /// Objects created or changed.
        put: usize,
        /// Objects deleted.
        deleted: usize,
    },
    /// Nothing changed.
    Unchanged,
    /// The content stays as it is, for this reason.
    Held(String),
}

/// The folder's content.
#[derive(Debug, Default)]
pub(super) struct Folder {
    root: Option<RootId>,
    /// The folder was away at the last look.
    away: bool,
    files: BTreeMap<Arc<Path>, FileState>,
    objects: BTreeMap<Identity, Live>,
    version: u64,
    held: Option<HeldReload>,
    log: VecDeque<LogEntry>,
    /// Changes up to this version are no longer in the log.
    log_floor: u64,
    errors: Vec<FileError>,
}

#[derive(Clone, Debug)]
struct FileState {
    /// Of the bytes last seen, good or bad. `None`: look again.
    seen: Option<Digest>,
    good: Arc<[Resource]>,
    error: Option<ParseError>,
}

#[derive(Clone, Debug)]
struct Live {
    resource: Resource,
    revision: Revision,
}

#[derive(Debug)]
struct HeldReload {
    digest: Digest,
    fingerprint: u64,
    reason: String,
}

#[derive(Debug)]
struct LogEntry {
    version: u64,
    changes: Arc<[Change]>,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    resource: Resource,
    /// Version of `resource`.
    revision: Revision,
    deleted: bool,
}

impl Change {
    /// Whether it concerns the kind.
    pub(super) fn is_of(&self, kind: &Kind) -> bool {
        self.resource.is_of(kind)
    }

    /// The change as watches report it.
    pub(super) fn event(&self) -> Event {
        let object = self.resource.object(&self.revision);
        if self.deleted { Event::Delete { id: object.id.clone(), last: Some(object) } } else { Event::Put(object) }
    }
}

impl Folder {
    /// Digests of the files as last seen.
    pub(super) fn known(&self) -> HashMap<Arc<Path>, Digest> {
        self.files.iter().filter_map(|(path, file)| Some((Arc::clone(path), file.seen?))).collect()
    }

    /// Number of the last reload that changed something; 0: nothing was loaded yet.
    #[cfg(test)]
    fn version(&self) -> u64 {
        self.version
    }

    /// A scan was made.
    pub(super) fn scanned(&mut self, scan: Scan, cause: Cause) -> Outcome {
        let root = match scan.root {
            Ok(root) => root,
            Err(reason) => {
                self.away = true;
                return self.hold([0; 32], 0, format!("the folder is away ({reason}): its content is kept"));
            }
        };
        let files = self.merge_files(&scan);
        let (winners, errors) = elect(&files);
        self.errors = errors;
        self.errors.extend(scan.partial.iter().map(|(folder, reason)| FileError {
            file: folder.display().to_string(),
            line: None,
            reason: format!("this folder cannot be read whole, its last good files are kept: {reason}"),
        }));

        let gone = self.objects.keys().filter(|identity| !winners.contains_key(*identity)).count();
        let suspicion = if gone > HOLD_ABOVE && 2 * gone > self.objects.len() {
            Some(format!("this reload would delete {gone} of {} objects", self.objects.len()))
        } else if gone > 0 && files.is_empty() && (self.away || self.root != Some(root)) {
            Some(format!("another folder is here now and it is empty: this reload would delete all {gone} objects"))
        } else {
            None
        };
        if let Some(suspicion) = suspicion {
            let digest = digest_of(&winners);
            let confirmed = self.held.as_ref().is_some_and(|held| {
                held.digest == digest && (cause == Cause::Operator || held.fingerprint != scan.fingerprint)
            });
            if !confirmed {
                // A spurious event must not confirm: it shows the same fingerprint again.
                let reason =
                    format!("{suspicion}; held until it is confirmed by reloading once more (SIGHUP, or touch a file)");
                return self.hold(digest, scan.fingerprint, reason);
            }
        }
        self.held = None;
        self.away = false;
        self.root = Some(root);
        self.files = files;
        self.apply(&winners)
    }

    /// The version that the content has, and its objects of a kind.
    pub(super) fn objects(&self, kind: &Kind) -> (u64, Vec<(Resource, Revision)>) {
        let of_kind = self.objects.values().filter(|live| live.resource.is_of(kind));
        (self.version, of_kind.map(|live| (live.resource.clone(), live.revision.clone())).collect())
    }

    /// The reloads after a version, oldest first; `None` if that version is unknown or too long ago.
    pub(super) fn changes_after(&self, version: u64) -> Option<Vec<(u64, Arc<[Change]>)>> {
        if version < self.log_floor || version > self.version || version == 0 {
            return None;
        }
        let later = self.log.iter().filter(|entry| entry.version > version);
        Some(later.map(|entry| (entry.version, Arc::clone(&entry.changes))).collect())
    }

    /// What there is to know about the folder.
    pub(super) fn status(&self) -> FileStatus {
        let unknown = |live: &&Live| {
            let identity = &live.resource.identity;
            known::is_unknown(&identity.group, &identity.kind)
        };
        FileStatus {
            files: self.files.len(),
            objects: self.objects.len(),
            unknown: self.objects.values().filter(unknown).count(),
            error_count: self.errors.len(),
            errors: self.errors.iter().take(MAX_STATUS_ERRORS).cloned().collect(),
            version: self.version,
            held: self.held.as_ref().map(|held| held.reason.clone()),
        }
    }

    fn hold(&mut self, digest: Digest, fingerprint: u64, reason: String) -> Outcome {
        self.held = Some(HeldReload { digest, fingerprint, reason: reason.clone() });
        Outcome::Held(reason)
    }

    /// The files as they count after the scan.
    fn merge_files(&self, scan: &Scan) -> BTreeMap<Arc<Path>, FileState> {
        let mut files = BTreeMap::new();
        for (path, read) in &scan.files {
            let before = self.files.get(path);
            let good = || before.map_or_else(|| Arc::from([]), |before| Arc::clone(&before.good));
            let state = match read {
                FileRead::Unchanged => match before {
                    Some(before) => before.clone(),
                    None => continue,
                },
                FileRead::Unreadable(reason) => FileState { seen: None, good: good(), error: Some(unread(reason)) },
                FileRead::Read { digest, empty: true, .. } if !good().is_empty() => {
                    let reason = "it has no bytes, which is taken for half-written: its last good resources are kept; \
                                  remove the file, or leave a comment in it, to drop them";
                    FileState { seen: Some(*digest), good: good(), error: Some(unread(reason)) }
                }
                FileRead::Read { digest, parsed: Ok(resources), .. } => {
                    FileState { seen: Some(*digest), good: Arc::clone(resources), error: None }
                }
                FileRead::Read { digest, parsed: Err(error), .. } => {
                    FileState { seen: Some(*digest), good: good(), error: Some(error.clone()) }
                }
            };
            files.insert(Arc::clone(path), state);
        }
        for (path, before) in &self.files {
            if !files.contains_key(path) && scan.partial.iter().any(|(folder, _)| path.starts_with(folder)) {
                files.insert(Arc::clone(path), before.clone());
            }
        }
        files
    }

    fn apply(&mut self, winners: &BTreeMap<Identity, Resource>) -> Outcome {
        let first_load = self.version == 0;
        let next = self.version + 1;
        let revision = Revision::from(next.to_string());
        let mut changes = Vec::new();
        for (identity, resource) in winners {
            if self.objects.get(identity).is_none_or(|live| live.resource.digest != resource.digest) {
                changes.push(Change { resource: resource.clone(), revision: revision.clone(), deleted: false });
            }
        }
        let put = changes.len();
        // Deletions last: where two resources claim one key, the heir takes over before the owner goes.
        self.objects.retain(|identity, live| {
            let stays = winners.contains_key(identity);
            if !stays {
                changes.push(Change {
                    resource: live.resource.clone(),
                    revision: live.revision.clone(),
                    deleted: true,
                });
            }
            stays
        });
        let deleted = changes.len() - put;
        if changes.is_empty() && !first_load {
            return Outcome::Unchanged;
        }
        for change in &changes[..put] {
            let live = Live { resource: change.resource.clone(), revision: revision.clone() };
            self.objects.insert(change.resource.identity.clone(), live);
        }
        self.version = next;
        if first_load {
            self.log_floor = next;
        } else {
            self.log.push_back(LogEntry { version: next, changes: Arc::from(changes) });
        }
        self.trim_log();
        Outcome::Applied { put, deleted }
    }

    fn trim_log(&mut self) {
        let mut total: usize = self.log.iter().map(|entry| entry.changes.len()).sum();
        while self.log.len() > MAX_LOG_RELOADS || total > MAX_LOG_CHANGES {
            let Some(oldest) = self.log.pop_front() else { return };
            total -= oldest.changes.len();
            self.log_floor = oldest.version;
        }
    }
}

fn unread(reason: &str) -> ParseError {
    ParseError { line: None, reason: reason.to_owned() }
}

/// Which file has which resource, and everything that is wrong with the files.
fn elect(files: &BTreeMap<Arc<Path>, FileState>) -> (BTreeMap<Identity, Resource>, Vec<FileError>) {
    let mut owners: HashMap<&Identity, (&Path, u64)> = HashMap::new();
    let mut winners = BTreeMap::new();
    let mut errors = Vec::new();
    for (path, file) in files {
        let name = || path.display().to_string();
        if let Some(error) = &file.error {
            errors.push(FileError { file: name(), line: error.line, reason: error.reason.clone() });
        }
        for resource in &*file.good {
            match owners.get(&resource.identity) {
                None => {
                    owners.insert(&resource.identity, (path, resource.line));
                    winners.insert(resource.identity.clone(), resource.clone());
                }
                Some((owner, line)) => {
                    let reason =
                        format!("{} is also in {} line {line}, which is used", resource.identity, owner.display());
                    errors.push(FileError { file: name(), line: Some(resource.line), reason });
                }
            }
        }
    }
    (winners, errors)
}

fn digest_of(winners: &BTreeMap<Identity, Resource>) -> Digest {
    let mut hash = Sha256::new();
    for (identity, resource) in winners {
        hash.update(format!("{identity:?}"));
        hash.update(resource.digest);
    }
    hash.finalize().into()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied { put, deleted } => write!(f, "{put} put, {deleted} deleted"),
            Self::Unchanged => f.write_str("unchanged"),
            Self::Held(reason) => f.write_str(reason),
        }
    }
}

/// Turns what [`Folder::objects`] gave into objects, outside of any lock.
pub(super) fn to_objects(resources: &[(Resource, Revision)]) -> Vec<Object> {
    resources.iter().map(|(resource, revision)| resource.object(revision)).collect()
}

#[cfg(test)]
mod tests;
