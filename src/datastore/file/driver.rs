//! When to read the folder: after file events and a quiet time, when the operator asks, and from time to time anyway.
//!
//! Feeds the shared folder state. [`Pace`] decides when (no I/O); [`run`] owns the file watch and does the reading on the
//! blocking pool. File events say only *that* something happened; the tree itself says what.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::scan::{CONFIRM_FILE, RootId, fingerprint, scan};
use super::shared::Shared;
use super::status::FileError;

/// A folder that never gets quiet is read at least this often.
const MAX_QUIET_DELAY: Duration = Duration::from_secs(5);
/// How often the tree is looked at without any event: network file systems and nested symlinks send none.
const RESCAN_INTERVAL: Duration = Duration::from_secs(30);
/// How often it is looked at while the folder is away or events are not available.
const BLIND_INTERVAL: Duration = Duration::from_secs(1);
/// Errors of one reload that are logged one by one.
const MAX_LOGGED_ERRORS: usize = 20;

/// Decides when to look. Its only inputs are what happened and when.
#[derive(Debug)]
struct Pace {
    quiet: Duration,
    /// First and last change since the last look.
    burst: Option<(Instant, Instant)>,
    next_rescan: Instant,
    /// Something that the last look left open is due then, however long quiet has to last.
    again: Option<Instant>,
}

impl Pace {
    fn new(quiet: Duration, now: Instant) -> Self {
        Self { quiet, burst: None, next_rescan: now + RESCAN_INTERVAL, again: None }
    }

    /// Something changed.
    fn changed(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// A look begins now. Changes from here on belong to the next one.
    fn looking(&mut self, now: Instant, blind: bool) {
        self.burst = None;
        self.again = None;
        self.next_rescan = now + if blind { BLIND_INTERVAL } else { RESCAN_INTERVAL };
    }

    /// The last look left something open: look again then, if not before.
    fn again(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |before| before.min(at)));
    }

    /// When to look next.
    fn due(&self) -> Instant {
        let due = match self.burst {
            None => self.next_rescan,
            Some((first, last)) => (last + self.quiet).min(first + MAX_QUIET_DELAY.max(self.quiet)),
        };
        self.again.map_or(due, |again| again.min(due))
    }
}

/// The file watch, and for which folder it stands.
struct Sentinel {
    events: Arc<Notify>,
    armed: Option<(RootId, RecommendedWatcher)>,
}

impl Sentinel {
    /// Watches the folder that is at the path now. Returns whether that is another one than before.
    async fn arm(&mut self, path: &Path, root: RootId) -> bool {
        if self.armed.as_ref().is_some_and(|(armed, _)| *armed == root) {
            return false;
        }
        self.armed = None;
        let (path, events) = (path.to_owned(), Arc::clone(&self.events));
        match spawn_blocking(move || start_watch(&path, events)).await {
            Ok(Ok(watcher)) => {
                self.armed = Some((root, watcher));
                true
            }
            Ok(Err(error)) => {
                warn!(%error, "the folder cannot be watched: it is read every second instead; \
                       check the limits in /proc/sys/fs/inotify");
                false
            }
            Err(error) => {
                warn!(%error, "setting up the watch of the folder failed unexpectedly: it is read every second instead");
                false
            }
        }
    }
}

fn start_watch(path: &Path, events: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let root = absolute(path);
    let seen_from = root.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if concerns(&event, &seen_from) {
            events.notify_one();
        }
    })?;
    watcher.watch(&root, RecursiveMode::Recursive)?;
    // The folder itself may be a symlink that is swapped, or be renamed: that shows in its parent only.
    if let Some(parent) = root.parent()
        && let Err(error) = watcher.watch(parent, RecursiveMode::NonRecursive)
    {
        debug!(%error, "the parent of the folder cannot be watched");
    }
    Ok(watcher)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reading makes events too; those are not changes.
fn concerns(event: &notify::Result<notify::Event>, root: &Path) -> bool {
    match event {
        Err(_) => true,
        Ok(event) => {
            let reading =
                matches!(event.kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write));
            !reading && (event.paths.is_empty() || event.paths.iter().any(|path| path.starts_with(root)))
        }
    }
}

/// Follows the folder until `stop`.
///
/// # Cancel safety
/// Being dropped in the middle of a reload loses that reload only.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let events = Arc::new(Notify::new());
    let mut sentinel = Sentinel { events: Arc::clone(&events), armed: None };
    let mut pace = Pace::new(shared.config.quiet, Instant::now());
    let mut journal = Journal::default();
    let mut due = true;
    loop {
        if std::mem::take(&mut due) {
            pace.looking(Instant::now(), false);
            let root = look(&shared, &mut journal).await;
            match root {
                // Between reading and arming, changes may have been missed.
                Some(root) if sentinel.arm(&shared.config.path, root).await => pace.changed(Instant::now()),
                Some(_) => {}
                None => sentinel.armed = None,
            }
            if sentinel.armed.is_none() {
                pace.again(Instant::now() + BLIND_INTERVAL);
            }
            if let Some(again) = journal.again {
                pace.again(again);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = events.notified() => pace.changed(Instant::now()),
            () = shared.operator.notified() => {
                info!(path = %shared.config.path.display(), "reloading the folder: the operator asks for it");
                due = true;
            }
            () = sleep_until(pace.due()) => {
                let routine = pace.burst.is_none();
                if routine && journal.untouched(&shared).await {
                    pace.looking(Instant::now(), sentinel.armed.is_none());
                } else {
                    due = true;
                }
            }
        }
    }
}

/// The last look: its findings, and the words about them.
#[derive(Default)]
struct Journal {
    fingerprint: u64,
    /// Something is open, and is to be looked at again then.
    again: Option<Instant>,
    errors: HashSet<(String, Option<u64>, String)>,
    held: Option<String>,
    unknown: usize,
}

impl Journal {
    /// Whether the tree looks as it did, which then is vouched for.
    async fn untouched(&self, shared: &Shared) -> bool {
        if self.fingerprint == 0 || self.again.is_some() || self.held.is_some() {
            return false;
        }
        let (path, at) = (shared.config.path.clone(), SystemTime::now());
        let now = spawn_blocking(move || fingerprint(&path)).await.unwrap_or(0);
        let same = now == self.fingerprint;
        if same {
            shared.vouched.send_replace(Some(at));
        }
        same
    }

    fn tell(&mut self, path: &Path, errors: &[FileError], unknown: usize, held: Option<&String>) {
        let now: HashSet<_> =
            errors.iter().map(|error| (error.file.clone(), error.line, error.reason.clone())).collect();
        for error in errors
            .iter()
            .filter(|error| !self.errors.contains(&(error.file.clone(), error.line, error.reason.clone())))
            .take(MAX_LOGGED_ERRORS)
        {
            warn!(folder = %path.display(), file = error.file, line = error.line, reason = error.reason, "something is wrong with a file of the folder");
        }
        if now.is_empty() && !self.errors.is_empty() {
            info!(folder = %path.display(), "all files of the folder are good again");
        }
        self.errors = now;
        if unknown != self.unknown && unknown > 0 {
            warn!(folder = %path.display(), objects = unknown, "objects of unknown kinds are ignored: check the spelling of the kind");
        }
        self.unknown = unknown;
        if held != self.held.as_ref() {
            if let Some(reason) = held {
                error!(folder = %path.display(), reason, "the folder is held")
            } else {
                info!(folder = %path.display(), "the folder is no longer held")
            }
            self.held = held.cloned();
        }
    }
}

/// Reads the folder once and publishes what came of it. Returns which folder it was.
async fn look(shared: &Arc<Shared>, journal: &mut Journal) -> Option<RootId> {
    let at = SystemTime::now();
    let known = shared.folder().known();
    let (path, catalog) = (shared.config.path.clone(), Arc::clone(&shared.config.catalog));
    let Ok(scan) = spawn_blocking(move || scan(&path, &catalog, &known)).await else {
        error!(folder = %shared.config.path.display(), "reading the folder failed unexpectedly; its content is kept");
        return None;
    };
    let root = scan.root.as_ref().ok().copied();
    journal.fingerprint = scan.fingerprint;
    let (outcome, status) = {
        let mut folder = shared.folder();
        let outcome = folder.scanned(&scan, Instant::now());
        let status = folder.status();
        shared.publish(status.clone());
        (outcome, status)
    };
    if outcome.again.is_none() && status.held.is_none() {
        shared.vouched.send_replace(Some(at));
    } else if outcome.applied {
        // Watches look for changes when they are woken by this; the time that is vouched for stays as it was.
        shared.vouched.send_modify(|_| ());
    }
    journal.again = outcome.again;
    let path = &shared.config.path;
    if outcome.confirmed {
        warn!(folder = %path.display(), file = CONFIRM_FILE, deleted = outcome.deleted, "a held deletion was confirmed; remove the file that confirmed it");
    }
    if outcome.applied {
        let (put, deleted) = (outcome.put, outcome.deleted);
        info!(folder = %path.display(), version = status.version, put, deleted, objects = status.objects, files = status.files, "folder loaded");
    } else {
        debug!(folder = %path.display(), ?outcome, "folder read");
    }
    journal.tell(path, &status.errors, status.unknown, status.held.as_ref());
    root
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pace_waits_for_quiet_but_not_for_ever() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::new(ms(250), start);
        assert_eq!(pace.due(), start + RESCAN_INTERVAL);
        pace.changed(start + ms(10));
        assert_eq!(pace.due(), start + ms(260));
        pace.changed(start + ms(200));
        assert_eq!(pace.due(), start + ms(450));
        for step in 1..200 {
            pace.changed(start + ms(step * 100));
        }
        assert_eq!(pace.due(), start + ms(10) + MAX_QUIET_DELAY);
        pace.looking(start + ms(6_000), false);
        assert_eq!(pace.due(), start + ms(6_000) + RESCAN_INTERVAL);
        pace.again(start + ms(7_000));
        assert_eq!(pace.due(), start + ms(7_000));
        pace.again(start + ms(8_000));
        assert_eq!(pace.due(), start + ms(7_000), "the earliest counts");
        let mut seldom = Pace::new(ms(3_600_000), start);
        seldom.again(start + ms(1_000));
        seldom.changed(start + ms(10));
        assert_eq!(seldom.due(), start + ms(1_000), "what is open does not wait for quiet");
        pace.looking(start + ms(6_000), true);
        assert_eq!(pace.due(), start + ms(6_000) + BLIND_INTERVAL);
    }

    #[test]
    fn only_changes_below_the_folder_count() {
        let root = Path::new("/data/calico");
        let event = |kind, path: &str| Ok(notify::Event::new(kind).add_path(PathBuf::from(path)));
        let modify = EventKind::Modify(ModifyKind::Any);
        assert!(concerns(&event(modify, "/data/calico/a.yaml"), root));
        assert!(concerns(&event(EventKind::Create(CreateKind::Any), "/data/calico"), root));
        assert!(concerns(&event(EventKind::Access(AccessKind::Close(AccessMode::Write)), "/data/calico/a"), root));
        assert!(!concerns(&event(EventKind::Access(AccessKind::Open(AccessMode::Any)), "/data/calico/a"), root));
        assert!(!concerns(&event(modify, "/data/other"), root));
        assert!(concerns(&Ok(notify::Event::new(EventKind::Other)), root));
    }
}
