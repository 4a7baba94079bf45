//! A folder as a datastore.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::config::{DEFAULT_QUIET, FileConfig};
use super::folder::{Folder, Stored, to_objects};
use super::shared::Shared;
use super::status::FileStatus;
use super::{driver, follower, kinds};
use crate::datastore::filter;
use crate::datastore::inlet::{Datastore, Error, ListPage, WatchBatch};
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::datastore::selection::Selection;
use crate::model::{AsOf, Revision};
use crate::tasks::TaskRegistry;

/// Objects per page of a list; only bounds how much is copied at once.
const PAGE_OBJECTS: usize = 1_000;

/// A folder as a datastore. Cheap to clone; the folder is followed until the last clone is gone.
#[derive(Clone)]
pub struct FileStore {
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
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
        let quiet = config.quiet.min(DEFAULT_QUIET);
        let mut folder = Folder::new(quiet, config.serve_incomplete, Arc::clone(&config.catalog));
        if !config.mass_delete_guard {
            folder = folder.unguarded();
        }
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
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        let (shared, wanted, selection) = (Arc::clone(&self.shared), selection.clone(), selection.clone());
        stream::once(async move {
            loaded(&shared, &wanted).await?;
            let at = shared.vouched_at();
            let (version, objects) = shared.folder().objects(&wanted);
            let revision = Revision::from(version.to_string());
            let as_of = at.map(|at| AsOf { revision: revision.clone(), at });
            Ok(list_pages(objects, revision, as_of))
        })
        .flat_map(|pages| match pages {
            Ok(pages) => pages,
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        })
        .map(move |page| Ok(filter::page(&selection, page?)))
        .boxed()
    }

    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        let batches = follower::batches(Arc::clone(&self.shared), selection.clone(), from.clone());
        let selection = selection.clone();
        batches.map(move |batch| Ok(filter::batch(&selection, batch?))).boxed()
    }

    fn kinds(&self, patterns: &[Pattern]) -> BoxStream<'static, Result<KindsNow, Error>> {
        self.shared.ask(patterns);
        kinds::kinds(Arc::clone(&self.shared), patterns.to_vec()).boxed()
    }
}

/// Waits for the first load; fails if there is nothing to load from.
async fn loaded(shared: &Shared, selection: &Selection) -> Result<(), Error> {
    let mut status = shared.status.subscribe();
    let known = status.wait_for(|status| status.version > 0 || status.held.is_some()).await;
    let reason = match known {
        Ok(status) if status.version > 0 => return Ok(()),
        Ok(status) => status.held.clone().unwrap_or_default(),
        Err(_) => "the datastore was shut down".to_owned(),
    };
    Err(Error::Retry { doing: format!("list {selection} from folder {}", shared.config.path.display()), reason })
}

fn list_pages(
    objects: Vec<Stored>,
    revision: Revision,
    as_of: Option<AsOf>,
) -> BoxStream<'static, Result<ListPage, Error>> {
    let mut rest = Some(objects.into_iter().peekable());
    stream::iter(std::iter::from_fn(move || {
        let mut objects = rest.take()?;
        let page: Vec<Stored> = objects.by_ref().take(PAGE_OBJECTS).collect();
        let more = objects.peek().is_some();
        if more {
            rest = Some(objects);
        }
        let as_of = if more { None } else { as_of.clone() };
        Some(Ok(ListPage { objects: to_objects(&page), malformed: Vec::new(), revision: revision.clone(), as_of }))
    }))
    .boxed()
}
