//! How a file counts after a look at it: as it is now, or, while it is broken or being written to, as it last was.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::parse::{Digest, Identity, ParseError, Resource};
use super::super::scan::{FileRead, Found, Scan, Seal, Stamp};
use super::super::status::FileError;

/// How long a file must be still before objects that are missing in it count as deleted, and before it counts at the first load. A
/// program that writes several documents rarely pauses for so long between two of them.
pub(super) const SETTLE: Duration = Duration::from_secs(1);
/// A file that is written to for so long without a pause is named as an error.
pub(super) const WRITING_PATIENCE: Duration = Duration::from_secs(10);
/// How often a file that is named so is looked at.
pub(super) const WRITING_RETRY: Duration = Duration::from_secs(5);

/// The files of the folder by their paths.
pub(super) type Files = BTreeMap<Arc<Path>, FileState>;

/// A resource and the file that has it.
pub(super) type Owned = (Resource, Arc<Path>);

/// All that is known of a file.
#[derive(Clone, Debug)]
pub(super) struct FileState {
    /// Of the bytes last seen, good or bad. `None`: look again.
    pub(super) seen: Option<Digest>,
    /// Its look when they were read, if that tells them.
    pub(super) seal: Option<Seal>,
    /// `None`: it could not be read, or changed meanwhile.
    pub(super) still: Option<Still>,
    /// It is being written to.
    pub(super) writing: Option<Writing>,
    good: Arc<[Resource]>,
    pub(super) error: Option<ParseError>,
}

/// The time from which on a file has looked as it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Still {
    pub(super) stamp: Stamp,
    /// When it was first seen so.
    seen: Instant,
    /// How old the last change was then.
    age: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    since: Instant,
    /// When it is worth another look.
    pub(super) again: Instant,
}

impl FileState {
    /// Its fault, if it has one.
    pub(super) fn broken(&self, path: &Path) -> Option<FileError> {
        let error = self.error.as_ref()?;
        Some(FileError { file: path.display().to_string(), line: error.line, reason: error.reason.clone() })
    }
}

/// The files as they count after the scan, of those before it. A file counts once it has been still for as long as is `needed`.
pub(super) fn merge(before: &Files, scan: &Scan, needed: Duration, now: Instant) -> Files {
    let mut files = BTreeMap::new();
    for (path, found) in &scan.files {
        if let Some(state) = merge_file(before.get(path), found, needed, now) {
            files.insert(Arc::clone(path), state);
        }
    }
    for (path, before) in before {
        if !files.contains_key(path) && scan.partial.iter().any(|(folder, _)| path.starts_with(folder)) {
            files.insert(Arc::clone(path), before.clone());
        }
    }
    files
}

fn merge_file(before: Option<&FileState>, found: &Found, needed: Duration, now: Instant) -> Option<FileState> {
    let still = found.stamp.map(|(stamp, age)| {
        let unchanged = before.and_then(|before| before.still).filter(|still| still.stamp == stamp);
        unchanged.unwrap_or(Still { stamp, seen: now, age })
    });
    let good = before.map_or_else(|| Arc::from([]), |before| Arc::clone(&before.good));
    let seal = found.seal;
    let bad = |seen, error| FileState { seen, seal, still, writing: None, good: Arc::clone(&good), error: Some(error) };
    let quiet_at = still.map(|still| still.seen + needed.saturating_sub(still.age));
    Some(match &found.read {
        FileRead::Unchanged => FileState { seal, still, ..before?.clone() },
        FileRead::Unreadable(reason) => bad(None, unread(reason)),
        FileRead::Changing => being_written(before, good, None, now + needed, now),
        FileRead::Read { .. } if quiet_at.is_some_and(|quiet_at| quiet_at > now) => {
            being_written(before, good, still, quiet_at.unwrap_or(now), now)
        }
        FileRead::Read { digest, empty: true, .. } => {
            let reason = "it has no bytes, which is taken for half-written: its last good resources are kept; \
                          remove the file, or leave a comment in it, to drop them";
            bad(Some(*digest), unread(reason))
        }
        FileRead::Read { digest, parsed: Ok(resources), .. } => {
            FileState { seen: Some(*digest), seal, still, writing: None, good: Arc::clone(resources), error: None }
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
    FileState { seen: None, seal: None, still, writing: Some(Writing { since, again }), good, error }
}

/// The file of each resource, and the resources that two files have.
pub(super) fn elect(files: &Files) -> (BTreeMap<Identity, Owned>, Vec<FileError>) {
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

fn unread(reason: &str) -> ParseError {
    ParseError { line: None, reason: reason.to_owned() }
}
