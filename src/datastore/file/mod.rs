//! The folder datastore: a tree of YAML and JSON files, followed live.
//!
//! Fed by files as `calicoctl` and `kubectl get -o yaml` print them, feeds the kind watches. [`driver`] notices changes and
//! starts reloads, [`scan`] reads the tree, [`parse`] turns files into resources, [`folder`] decides what a reload changes,
//! [`known`] knows scopes. Nothing is ever written to the folder.
//!
//! Invariants: one look at the folder is at most one version, and one batch per kind; deletions may come a look later;
//! unchanged objects keep their revision; what cannot be read, or is being written, counts as unchanged, never as deleted;
//! nothing is listed before all of it could be read.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::folder::Folder;
use super::{Datastore, Error, Event, Kind, ListPage, WatchBatch};
use crate::model::{AsOf, Revision};
use crate::tasks::TaskRegistry;

mod driver;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod folder;
mod known;
mod parse;
mod scan;

/// How long the folder must be quiet before it is read: longer than editors and `kubectl cp` pause between their writes.
pub const DEFAULT_QUIET: Duration = Duration::from_millis(250);
/// Objects per page of a list; only bounds how much is copied at once.
const PAGE_OBJECTS: usize = 1_000;

/// Where the files are.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The folder. It may come into being later; until then lists fail with [`Error::Retry`].
    pub path: PathBuf,
    /// Quiet time between the last change and the reload.
    pub quiet: Duration,
    /// Whether the first load may lack files that cannot be read, or all files.
    pub serve_incomplete: bool,
}

impl FileConfig {
    /// A folder with the usual quiet time, which must be complete at first.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), quiet: DEFAULT_QUIET, serve_incomplete: false }
    }
}

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileError {
    /// Path below the folder; empty for the folder itself.
    pub file: String,
    /// Line, from 1, where one can be named.
    pub line: Option<u64>,
    /// The faults, and the remedy for each.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "the folder" } else { &self.file };
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {}", self.reason),
            None => write!(f, "{file}: {}", self.reason),
        }
    }
}

/// The state of the folder, for logs, metrics and the status endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileStatus {
    /// Files that count.
    pub files: usize,
    /// Objects that they hold.
    pub objects: usize,
    /// Objects of Calico's group whose kind is not known: a typing error, or a newer Calico.
    pub unknown: usize,
    /// Errors in all.
    pub error_count: usize,
    /// The first hundred of them, in the order of their files.
    pub errors: Vec<FileError>,
    /// Reloads that changed something; 0: nothing has been loaded yet.
    pub version: u64,
    /// The reason why the present content of the folder is not served, and the way out.
    pub held: Option<String>,
}

/// A folder as a datastore. Cheap to clone; the folder is followed until the last clone is gone.
#[derive(Clone)]
pub struct FileStore {
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

/// Shared by driver, lists and watches.
struct Shared {
    config: FileConfig,
    folder: Mutex<Folder>,
    status: watch::Sender<FileStatus>,
    /// The last look at the folder that found nothing wrong with the content that we have.
    vouched: watch::Sender<Option<SystemTime>>,
    operator: Notify,
}

impl Shared {
    fn folder(&self) -> MutexGuard<'_, Folder> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment that the folder is vouched for. To be asked *before* the content that it is used for.
    fn vouched_at(&self) -> Option<SystemTime> {
        *self.vouched.borrow()
    }
}

impl FileStore {
    /// Starts to follow the folder. Must be called within a runtime. Nobody is told should the task that follows it panic: for
    /// tests and tools that end soon.
    #[must_use]
    pub fn open(config: FileConfig) -> Self {
        Self::open_supervised(config, &TaskRegistry::new())
    }

    /// The same, where such a panic is a failure of `tasks`, for the caller to end the process with.
    #[must_use]
    pub fn open_supervised(config: FileConfig, tasks: &TaskRegistry) -> Self {
        // A quiet time for the whole folder that is longer than usual says nothing about one file.
        let folder = Folder::new(config.quiet.min(DEFAULT_QUIET), config.serve_incomplete);
        let shared = Arc::new(Shared {
            config,
            folder: Mutex::new(folder),
            status: watch::Sender::default(),
            vouched: watch::Sender::default(),
            operator: Notify::new(),
        });
        let stop = CancellationToken::new();
        tasks.spawn_passing(&Handle::current(), "folder", driver::run(Arc::clone(&shared), stop.clone()));
        Self { shared, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Looks at the folder now. For SIGHUP and SIGUSR1.
    pub fn reload(&self) {
        self.shared.operator.notify_one();
    }

    /// The state of the folder after every reload.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<FileStatus> {
        self.shared.status.subscribe()
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("path", &self.shared.config.path).finish_non_exhaustive()
    }
}

impl Datastore for FileStore {
    fn list(&self, kind: &Kind) -> BoxStream<'static, Result<ListPage, Error>> {
        let (shared, kind) = (Arc::clone(&self.shared), kind.clone());
        stream::once(async move {
            loaded(&shared, &kind).await?;
            let at = shared.vouched_at();
            let (version, resources) = shared.folder().objects(&kind);
            let revision = Revision::from(version.to_string());
            let as_of = at.map(|at| AsOf { revision: revision.clone(), at });
            Ok(list_pages(resources, revision, as_of))
        })
        .flat_map(|pages| match pages {
            Ok(pages) => pages,
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        })
        .boxed()
    }

    fn watch(&self, kind: &Kind, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        let follower = Follower {
            vouched: self.shared.vouched.subscribe(),
            shared: Arc::clone(&self.shared),
            kind: kind.clone(),
            position: from.clone(),
            pending: Vec::new(),
            vouched_at: None,
            fresh: true,
        };
        stream::unfold(Some(follower), |follower| async move {
            let mut follower = follower?;
            match follower.next().await {
                Some(Ok(batch)) => Some((Ok(batch), Some(follower))),
                Some(Err(error)) => Some((Err(error), None)),
                None => None,
            }
        })
        .boxed()
    }
}

/// Waits for the first load; fails if there is nothing to load from.
async fn loaded(shared: &Shared, kind: &Kind) -> Result<(), Error> {
    let mut status = shared.status.subscribe();
    let known = status.wait_for(|status| status.version > 0 || status.held.is_some()).await;
    let reason = match known {
        Ok(status) if status.version > 0 => return Ok(()),
        Ok(status) => status.held.clone().unwrap_or_default(),
        Err(_) => "the datastore was shut down".to_owned(),
    };
    Err(Error::Retry { doing: format!("list {kind} from folder {}", shared.config.path.display()), reason })
}

type Resources = Vec<(parse::Resource, Revision)>;

fn list_pages(
    resources: Resources,
    revision: Revision,
    as_of: Option<AsOf>,
) -> BoxStream<'static, Result<ListPage, Error>> {
    let mut rest = Some(resources.into_iter().peekable());
    stream::iter(std::iter::from_fn(move || {
        let mut resources = rest.take()?;
        let page: Resources = resources.by_ref().take(PAGE_OBJECTS).collect();
        let more = resources.peek().is_some();
        if more {
            rest = Some(resources);
        }
        let as_of = if more { None } else { as_of.clone() };
        Some(Ok(ListPage {
            objects: folder::to_objects(&page),
            malformed: Vec::new(),
            revision: revision.clone(),
            as_of,
        }))
    }))
    .boxed()
}

/// A watch of one kind.
struct Follower {
    shared: Arc<Shared>,
    kind: Kind,
    position: Revision,
    vouched: watch::Receiver<Option<SystemTime>>,
    /// Reloads that are not handed on yet, newest first.
    pending: Vec<(u64, Arc<[folder::Change]>)>,
    /// The moment that `pending` leads up to.
    vouched_at: Option<SystemTime>,
    /// The log was not looked at since the start or the last wake-up.
    fresh: bool,
}

impl Follower {
    fn as_of(&self) -> Option<AsOf> {
        self.vouched_at.map(|at| AsOf { revision: self.position.clone(), at })
    }

    /// `None`: the datastore was shut down.
    async fn next(&mut self) -> Option<Result<WatchBatch, Error>> {
        loop {
            if let Some((version, changes)) = self.pending.pop() {
                let events: Vec<Event> =
                    changes.iter().filter(|change| change.is_of(&self.kind)).map(folder::Change::event).collect();
                self.position = Revision::from(version.to_string());
                let as_of = if self.pending.is_empty() { self.as_of() } else { None };
                return Some(Ok(WatchBatch { events, revision: self.position.clone(), as_of }));
            }
            if self.fresh {
                self.fresh = false;
                self.vouched.mark_unchanged();
                self.vouched_at = self.shared.vouched_at();
                let position = self.position.parse::<u64>().ok();
                let after = position.and_then(|position| self.shared.folder().changes_after(position));
                let Some(mut after) = after else {
                    let doing = format!("watch {} in folder {}", self.kind, self.shared.config.path.display());
                    let reason = "this version is too old, or of another run".to_owned();
                    return Some(Err(Error::Relist { doing, revision: self.position.clone(), reason }));
                };
                if after.is_empty() {
                    let as_of = self.as_of();
                    if as_of.is_some() {
                        return Some(Ok(WatchBatch { events: Vec::new(), revision: self.position.clone(), as_of }));
                    }
                } else {
                    after.reverse();
                    self.pending = after;
                    continue;
                }
            }
            if self.vouched.changed().await.is_err() {
                return None;
            }
            self.fresh = true;
        }
    }
}
