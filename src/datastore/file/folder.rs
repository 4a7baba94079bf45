//! What the folder holds, and what a reload changes. A state machine without I/O and without a clock.
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
//! Fed by scans, feeds lists and watches through [`Folder::objects`] and [`Folder::changes_after`].
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
//!   folder at the path (an unmounted volume), is held as a whole. It is applied once it has been the same for [`HOLD_TIME`]
//!   and [`CONFIRM_FILE`] has the code of exactly these objects. A code that was there before confirms nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::super::{Event, Kind, Object};
use super::known;
use super::parse::{Digest, Identity, ParseError, Resource};
use super::scan::{CONFIRM_FILE, FileRead, Found, RootId, Scan, Stamp};
use super::{FileError, FileStatus};
use crate::model::Revision;

/// A reload may delete this many objects without being held, however few there are.
pub(super) const HOLD_ABOVE: usize = 20;
/// How long a file must be still before objects that are missing in it count as deleted, and before it counts at the first load. A
/// program that writes several documents rarely pauses for so long between two of them.
pub(super) const SETTLE: Duration = Duration::from_secs(1);
/// How long a held deletion must be the same before its confirmation counts: a folder that is copied, mounted or synchronised at the
/// moment has changed once more by then.
pub(super) const HOLD_TIME: Duration = Duration::from_secs(10);
/// A file that is written to for so long without a pause is named as an error.
const WRITING_PATIENCE: Duration = Duration::from_secs(10);
/// How often a file that is named so is looked at.
const WRITING_RETRY: Duration = Duration::from_secs(5);
/// Bytes of a digest that the code of a deletion shows, as twice as many hexadecimal digits. It guards against mistakes, not
/// against attackers: those could write the files as well.
const CODE_BYTES: usize = 6;
/// Reloads that a watch may be behind; a later one has to list again.
const MAX_LOG_RELOADS: usize = 64;
/// Changes that are remembered for watches that are behind, over all reloads.
const MAX_LOG_CHANGES: usize = 200_000;
/// Errors that the status names one by one.
const MAX_STATUS_ERRORS: usize = 100;

/// What a reload came to.
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
    root: Option<RootId>,
    /// The folder was away at the last look.
    away: bool,
    files: BTreeMap<Arc<Path>, FileState>,
    objects: BTreeMap<Identity, Live>,
    version: u64,
    /// Why the content stays as it is.
    held: Option<String>,
    suspect: Option<Suspect>,
    /// A confirmation that was there at a look at which it was not asked for.
    stale: Option<String>,
    log: VecDeque<LogEntry>,
    /// Changes up to this version are no longer in the log.
    log_floor: u64,
    errors: Vec<FileError>,
}

#[derive(Clone, Debug)]
struct FileState {
    /// Of the bytes last seen, good or bad. `None`: look again.
    seen: Option<Digest>,
    /// `None`: it could not be read, or changed meanwhile.
    still: Option<Still>,
    /// It is being written to.
    writing: Option<Writing>,
    good: Arc<[Resource]>,
    error: Option<ParseError>,
}

/// The time from which on a file has looked as it does.
#[derive(Clone, Copy, Debug)]
struct Still {
    stamp: Stamp,
    /// When it was first seen so.
    seen: Instant,
    /// How old the last change was then.
    age: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    since: Instant,
    /// When it is worth another look.
    again: Instant,
}

#[derive(Clone, Debug)]
struct Live {
    resource: Resource,
    revision: Revision,
    /// The file that has it, or had it last.
    file: Arc<Path>,
    absent: Option<Absence>,
}

/// An object is no longer where it was.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// As its file looks since; `None` without a file.
    stamp: Option<Stamp>,
    since: Instant,
}

/// Objects that the folder no longer has.
#[derive(Debug, Default)]
struct Missing {
    all: BTreeSet<Identity>,
    /// Those of them that have been missing for long enough.
    settled: BTreeSet<Identity>,
    /// When the next one will have been.
    next: Option<Instant>,
}

/// A deletion that has to be confirmed.
#[derive(Debug)]
struct Suspect {
    code: String,
    /// The time from which on the deletion would be exactly this one.
    since: Instant,
}

/// A resource and the file that has it.
type Owned = (Resource, Arc<Path>);

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
    /// Nothing is loaded yet. `quiet`: how long a file must be still before it is taken. `serve_incomplete`: the first load may
    /// lack files that cannot be read.
    pub(super) fn new(quiet: Duration, serve_incomplete: bool) -> Self {
        Self { quiet, serve_incomplete, ..Self::default() }
    }

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
    pub(super) fn scanned(&mut self, scan: &Scan, now: Instant) -> Outcome {
        let root = match &scan.root {
            Ok(root) => *root,
            Err(reason) => {
                self.away = true;
                self.suspect = None;
                self.held = Some(format!("the folder is away ({reason}): its content is kept"));
                return Outcome::default();
            }
        };
        if self.stale != scan.confirmation {
            self.stale = None;
        }
        let outcome = self.compare(root, scan, now);
        if let Some(given) = &scan.confirmation
            && self.suspect.as_ref().is_none_or(|suspect| suspect.code != *given)
        {
            self.stale = Some(given.clone());
        }
        if self.stale.is_some() {
            let reason = "no deletion is held that this confirms, or it was here before: remove this file";
            self.errors.push(FileError { file: CONFIRM_FILE.to_owned(), line: None, reason: reason.to_owned() });
        }
        outcome
    }

    fn compare(&mut self, root: RootId, scan: &Scan, now: Instant) -> Outcome {
        let files = self.merge_files(scan, now);
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
                self.held = Some(reason);
                return Outcome { again, ..Outcome::default() };
            }
            self.arrived(root);
            return Outcome { again, ..self.apply(&winners, &BTreeSet::new()) };
        }

        if files.is_empty() && !self.objects.is_empty() && (self.away || self.root != Some(root)) {
            let all: BTreeSet<Identity> = self.objects.keys().cloned().collect();
            let what = format!(
                "another folder is here now and it is empty, as when a volume is not mounted: all {} objects would be deleted",
                all.len()
            );
            if let Err(again) = self.confirm(&all, &what, scan, now) {
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
        if gone <= HOLD_ABOVE || 2 * gone <= all {
            self.arrived(root);
            return Outcome { again, ..self.apply(&winners, &missing.settled) };
        }
        let what = format!("{gone} of {all} objects would be deleted");
        match self.confirm(&missing.all, &what, scan, now) {
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
        self.held = None;
        self.suspect = None;
        self.away = false;
        self.root = Some(root);
    }

    /// Whether the deletion of these objects may happen: `Err` if not, with the time of the next look that may change that. Once
    /// it has been asked for [`SETTLE`], it is held.
    fn confirm(
        &mut self,
        gone: &BTreeSet<Identity>,
        what: &str,
        scan: &Scan,
        now: Instant,
    ) -> Result<(), Option<Instant>> {
        let code = code_of(gone);
        let since = self.suspect.as_ref().filter(|suspect| suspect.code == code).map_or(now, |suspect| suspect.since);
        let counts = since + HOLD_TIME;
        let given = scan.confirmation.as_ref() == Some(&code);
        if given && self.stale.is_none() && now >= counts {
            return Ok(());
        }
        let seconds = HOLD_TIME.as_secs();
        let stale =
            if given && self.stale.is_some() { " anew: it was there before, so remove the file first" } else { "" };
        // Before the objects have been missing for long enough it may be a file that is just being written.
        if now >= since + SETTLE {
            self.held = Some(format!(
                "{what}, so nothing is changed until that is confirmed: if they are to go, write {code} into the file \
                 {CONFIRM_FILE} of the folder{stale}; it counts when the folder has been like this for {seconds} s"
            ));
        }
        self.suspect = Some(Suspect { code, since });
        let next = if now < since + SETTLE { Some(since + SETTLE) } else { given.then_some(counts) };
        Err(next.filter(|next| *next > now))
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
            held: self.held.clone(),
        }
    }

    /// The files as they count after the scan.
    fn merge_files(&self, scan: &Scan, now: Instant) -> BTreeMap<Arc<Path>, FileState> {
        let mut files = BTreeMap::new();
        for (path, found) in &scan.files {
            if let Some(state) = self.merge_file(self.files.get(path), found, now) {
                files.insert(Arc::clone(path), state);
            }
        }
        for (path, before) in &self.files {
            if !files.contains_key(path) && scan.partial.iter().any(|(folder, _)| path.starts_with(folder)) {
                files.insert(Arc::clone(path), before.clone());
            }
        }
        files
    }

    fn merge_file(&self, before: Option<&FileState>, found: &Found, now: Instant) -> Option<FileState> {
        let still = found.stamp.map(|(stamp, age)| {
            let unchanged = before.and_then(|before| before.still).filter(|still| still.stamp == stamp);
            unchanged.unwrap_or(Still { stamp, seen: now, age })
        });
        let good = before.map_or_else(|| Arc::from([]), |before| Arc::clone(&before.good));
        let bad = |seen, error| FileState { seen, still, writing: None, good: Arc::clone(&good), error: Some(error) };
        let needed = if self.version == 0 { SETTLE } else { self.quiet };
        let quiet_at = still.map(|still| still.seen + needed.saturating_sub(still.age));
        Some(match &found.read {
            FileRead::Unchanged => FileState { still, ..before?.clone() },
            FileRead::Unreadable(reason) => bad(None, unread(reason)),
            FileRead::Changing => Self::being_written(before, good, None, now + needed, now),
            FileRead::Read { .. } if quiet_at.is_some_and(|quiet_at| quiet_at > now) => {
                Self::being_written(before, good, still, quiet_at.unwrap_or(now), now)
            }
            FileRead::Read { digest, empty: true, .. } => {
                let reason = "it has no bytes, which is taken for half-written: its last good resources are kept; \
                              remove the file, or leave a comment in it, to drop them";
                bad(Some(*digest), unread(reason))
            }
            FileRead::Read { digest, parsed: Ok(resources), .. } => {
                FileState { seen: Some(*digest), still, writing: None, good: Arc::clone(resources), error: None }
            }
            FileRead::Read { digest, parsed: Err(error), .. } => bad(Some(*digest), error.clone()),
        })
    }

    /// A file that is not still yet: it is what it was, and is looked at again.
    fn being_written(
        before: Option<&FileState>,
        good: Arc<[Resource]>,
        still: Option<Still>,
        again: Instant,
        now: Instant,
    ) -> FileState {
        let since = before.and_then(|before| before.writing).map_or(now, |writing| writing.since);
        let mut error = before.and_then(|before| before.error.clone());
        let mut again = again;
        if now.saturating_duration_since(since) >= WRITING_PATIENCE {
            let reason = format!(
                "it has been written to for {} s without a pause: its last good resources are kept; write it elsewhere, and \
                 rename it into the folder when it is complete",
                WRITING_PATIENCE.as_secs()
            );
            error = Some(unread(&reason));
            again = now + WRITING_RETRY;
        }
        FileState { seen: None, still, writing: Some(Writing { since, again }), good, error }
    }

    /// Takes over the content of the files, and deletes only the objects that may go.
    fn apply(&mut self, winners: &BTreeMap<Identity, Owned>, may_go: &BTreeSet<Identity>) -> Outcome {
        let first_load = self.version == 0;
        let next = self.version + 1;
        let revision = Revision::from(next.to_string());
        let mut changes = Vec::new();
        for (identity, (resource, file)) in winners {
            match self.objects.get_mut(identity) {
                Some(live) if live.resource.digest == resource.digest => live.file = Arc::clone(file),
                _ => {
                    let live = Live {
                        resource: resource.clone(),
                        revision: revision.clone(),
                        file: Arc::clone(file),
                        absent: None,
                    };
                    self.objects.insert(identity.clone(), live);
                    changes.push(Change { resource: resource.clone(), revision: revision.clone(), deleted: false });
                }
            }
        }
        let put = changes.len();
        // Deletions last: where two resources claim one key, the heir takes over before the owner goes.
        for identity in may_go {
            if let Some(live) = self.objects.remove(identity) {
                changes.push(Change { resource: live.resource, revision: live.revision, deleted: true });
            }
        }
        let deleted = changes.len() - put;
        if changes.is_empty() && !first_load {
            return Outcome::default();
        }
        self.version = next;
        if first_load {
            self.log_floor = next;
        } else {
            self.log.push_back(LogEntry { version: next, changes: Arc::from(changes) });
        }
        self.trim_log();
        Outcome { applied: true, put, deleted, ..Outcome::default() }
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

/// The file of each resource, and the resources that two files have.
fn elect(files: &BTreeMap<Arc<Path>, FileState>) -> (BTreeMap<Identity, Owned>, Vec<FileError>) {
    let mut winners: BTreeMap<Identity, Owned> = BTreeMap::new();
    let mut doubles = Vec::new();
    for (path, file) in files {
        for resource in &*file.good {
            if let Some((used, owner)) = winners.get(&resource.identity) {
                let reason =
                    format!("{} is also in {} line {}, which is used", resource.identity, owner.display(), used.line);
                doubles.push(FileError { file: path.display().to_string(), line: Some(resource.line), reason });
            } else {
                winners.insert(resource.identity.clone(), (resource.clone(), Arc::clone(path)));
            }
        }
    }
    (winners, doubles)
}

/// The same for the same objects, in every replica.
fn code_of(objects: &BTreeSet<Identity>) -> String {
    let mut hash = Sha256::new();
    for Identity { group, kind, id } in objects {
        hash.update(format!("{group}\n{kind}\n{}\n{}\n", id.namespace, id.name));
    }
    hash.finalize().iter().take(CODE_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

impl FileState {
    fn broken(&self, path: &Path) -> Option<FileError> {
        let error = self.error.as_ref()?;
        Some(FileError { file: path.display().to_string(), line: error.line, reason: error.reason.clone() })
    }
}

/// Turns what [`Folder::objects`] gave into objects, outside of any lock.
pub(super) fn to_objects(resources: &[(Resource, Revision)]) -> Vec<Object> {
    resources.iter().map(|(resource, revision)| resource.object(revision)).collect()
}

#[cfg(test)]
mod tests;
