//! Which folder is read, and how.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::datastore::catalog::Catalog;

/// How long the folder must be quiet before it is read: longer than editors and `kubectl cp` pause between their writes.
pub const DEFAULT_QUIET: Duration = Duration::from_millis(250);

/// Where the files are.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The folder. It may come into being later; until then lists fail with [`Error::Retry`](crate::datastore::Error::Retry).
    pub path: PathBuf,
    /// Quiet time between the last change and the reload.
    pub quiet: Duration,
    /// Whether the first load may lack files that cannot be read, or all files.
    pub serve_incomplete: bool,
    /// Whether a reload that deletes much is held until it is confirmed.
    pub mass_delete_guard: bool,
    /// Knowledge about kinds: without it nobody can tell whether an object without a namespace is in `default`.
    pub catalog: Arc<Catalog>,
}

impl FileConfig {
    /// A folder with the usual quiet time, which must be complete at first.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, catalog: Arc<Catalog>) -> Self {
        Self { path: path.into(), quiet: DEFAULT_QUIET, serve_incomplete: false, mass_delete_guard: true, catalog }
    }
}
